"""What is made of ncu's answers, with a program in its place that gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from r3bench.devices.cuda import profiler, watched
from r3bench.devices.cuda.memory import CudaMemory, Recorded
from r3bench.model import Allocation, Binary, LaunchConfig, ReplayUnit, Target

LAUNCH = LaunchConfig(grid=(1, 1, 1), block=(32, 1, 1))
HEAD = (
    "==PROF== Connected to process 7 (/usr/bin/python3)\n"
    '==PROF== Profiling "relax(double *, int)": 0%....100% - 9 passes\n'
    '"ID","Process ID","Kernel Name","Block Size","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)


def table(*rows: tuple[str, str], kernel: int = 0) -> str:
    return "".join(
        f'"{kernel}","7","relax(double *, int)","(32, 1, 1)","Command line profiler metrics","{name}","u","{value}"\n'
        for name, value in rows
    )


RATE = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: int = 0) -> None:
    (folder / "said").write_text(said)
    path = folder / "ncu"
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/asked\ncat {folder}/said\nexit {status}\n')
    path.chmod(0o755)
    monkeypatch.setattr(watched, "find", lambda name: path)


def counted(timeout_s: float = 60.0) -> dict[str, str]:
    unit = ReplayUnit(
        index=0,
        launch=LAUNCH,
        arguments=bytes(8),
        pointers=(),
        allocations=(Allocation(name="x", address=1 << 40, nbytes=24, dtype="float64"),),
    )
    memory = CudaMemory(Recorded(unit, {"x": np.arange(3.0).view(np.uint8)}))
    binary = Binary(target=Target(device="cuda", arch="sm_90"), symbol="relax", image=b"code", format="cubin")
    return profiler.counters(0, binary, memory, LAUNCH, timeout_s)


def test_counters_are_told_in_words_with_three_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table((RATE, "81.4567"), ("dram__bytes_read.sum", "1,234,567"), ("launch__registers_per_thread", "40"))
    program(tmp_path, monkeypatch, HEAD + rows)
    assert counted() == {
        "device memory, % of its peak": "81.5",
        "bytes read from device memory": "1.23e+06",
        "registers per thread": "40",
    }
    asked = (tmp_path / "asked").read_text().split("\n")
    assert "--csv" in asked
    assert RATE in asked[asked.index("--metrics") + 1].split(",")
    assert "r3bench.devices.cuda.alone" in asked


def test_of_what_warps_wait_for_only_the_most_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {"long_scoreboard": 9.5, "barrier": 0.5, "wait": 2.0, "no_instruction": 0.0, "imc_miss": 3.0}
    name = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    program(tmp_path, monkeypatch, HEAD + table(*((name.format(why), str(n)) for why, n in waits.items())))
    (told,) = counted().values()
    assert told == (
        "a load from global or local memory (9.5), a constant that is not cached (3), a dependence of fixed latency (2)"
    )


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("", 0),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters", 1),
        (HEAD, 0),
        (HEAD + table((RATE, "n/a"), ("dram__bytes_read.sum", "nan"), ("lts__t_sector_hit_rate.pct", "")), 0),
        (HEAD + '"0","7","cut off\n', 0),
        (table((RATE, "50")), 0),
        ('"Metric Name"\n"' + RATE + '"\n', 0),
    ],
    ids=["silent", "not allowed", "no rows", "no numbers", "cut off", "no head", "no values"],
)
def test_where_nothing_was_counted_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: int
) -> None:
    program(tmp_path, monkeypatch, said, status)
    assert counted() == {}


def test_another_kernel_and_a_metric_told_twice_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table((RATE, "50"), (RATE, "60")) + table((RATE, "70"), ("dram__bytes_read.sum", "8"), kernel=1)
    program(tmp_path, monkeypatch, HEAD + rows)
    assert counted() == {"device memory, % of its peak": "50"}


def test_without_ncu_or_where_it_does_not_end_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "find", lambda name: None)
    assert counted() == {}
    program(tmp_path, monkeypatch, "")
    (tmp_path / "ncu").write_text("#!/bin/sh\nsleep 30\n")
    assert counted(timeout_s=0.3) == {}
