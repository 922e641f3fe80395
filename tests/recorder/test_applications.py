"""Unmodified programs under the recorder, against a driver of ours that has no GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r3bench import store
from r3bench.cli import main
from r3bench.record import application, conversion, dump
from tests.recorder.conftest import Build, Recorded

WAYS = {
    "dlsym": (),
    "cuGetProcAddress": ("-DBY_PROC_ADDRESS", "-DPER_THREAD=0"),
    "per-thread streams": ("-DBY_PROC_ADDRESS", "-DPER_THREAD=1"),
}


@pytest.mark.parametrize("way", WAYS)
def test_launches_become_captures(way: str, program: Build, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    app = program("plain", *WAYS[way])
    assert main(["record", "--out", str(tmp_path / "captures"), "--launch", "0,2", "--", str(app)]) == 0
    said = capfd.readouterr().out
    assert said.startswith("4.5\n")
    assert "2 launches of scale; recorded with PTX text only: it can be tested and its launch tuned, not rewrit" in said
    capture = store.open_capture(tmp_path / "captures/scale.zarr")
    assert (capture.symbol, capture.demangled) == ("_Z5scalePdPKddi", "scale")
    assert (capture.source.main, capture.source.language) == ("scale.ptx", "ptx")
    assert [unit.occurrence for unit in capture.units] == [0, 2]
    assert [(p.offset, p.size, p.kind) for p in capture.parameters] == [
        (0, 8, "pointer"), (8, 8, "pointer"), (16, 8, "scalar"), (24, 4, "scalar"),
    ]  # fmt: skip
    last = store.contents(capture, 1)
    before = last.before["arg0"].view(np.float64)
    assert np.array_equal(before, 2.0 * np.arange(1, 1001))
    assert np.array_equal(last.after["arg0"].view(np.float64), before + 2.5 * np.arange(1, 1001))
    assert set(last.after) == {"arg0"}


@pytest.mark.parametrize("way", WAYS)
def test_a_cuda_program_looks_for_no_library_of_hips(
    way: str, program: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It would, in vain, for each of the hundreds of functions that the CUDA runtime asks for."""
    app = str(program("plain", *WAYS[way]))
    monkeypatch.setenv("LD_DEBUG", "libs")
    assert application.run([app], application.Plan(folder=tmp_path), keep_output=True) == (0, b"4.5\n")
    looked_for = capfd.readouterr().err
    assert "find library=libcuda.so.1" in looked_for
    assert "libamdhip64" not in looked_for


def test_a_busy_device_is_waited_for_no_longer_than_the_time_out(recorded: Callable[..., Recorded]) -> None:
    found = recorded("hang", timeout_s=0.2)
    assert (found.status, found.output, found.launches) == (0, "1\n", [])
    assert found.reasons == {"the device was busy for longer than the time-out": 1}


def test_a_killed_program_leaves_complete_launches_only(recorded: Callable[..., Recorded]) -> None:
    found = recorded("killed")
    assert found.status == -9
    assert [launched.facts["occurrence"] for launched in found.launches] == [0]
    assert conversion.unit(found.launches[0], 0, ()).unit.written == ("memory0",)


def test_a_child_after_fork_records_into_a_folder_of_its_own(recorded: Callable[..., Recorded]) -> None:
    found = recorded("forked")
    assert found.output == "3\n"
    assert len({launched.path.parent for launched in found.launches}) == 2
    factors = sorted(np.frombuffer(bytes.fromhex(u.facts["arguments"])[16:24]).item() for u in found.launches)
    assert factors == [1, 2, 3]


def factors(found: Recorded) -> list[float]:
    return [np.frombuffer(bytes.fromhex(u.facts["arguments"])[16:24]).item() for u in found.launches]


def outputs(found: Recorded) -> list[tuple[float, float]]:
    """The first element before and after each launch."""
    units = [conversion.unit(launched, 0, ()).contents for launched in found.launches]
    return [(float(u.before["memory0"][:8].view("f8")[0]), float(u.after["memory0"][:8].view("f8")[0])) for u in units]


def test_nothing_is_recorded_while_a_stream_is_captured(recorded: Callable[..., Recorded]) -> None:
    """No call is made that would break the capture, which the program checks."""
    found = recorded("captured", max_per_kernel=5)
    assert (found.status, found.output) == (0, "12\n")
    assert factors(found) == [1, 1]
    assert found.reasons == {"a stream was being captured into a graph": 1}


def test_several_devices(recorded: Callable[..., Recorded]) -> None:
    found = recorded("devices", max_per_kernel=4)
    assert [(u.facts["device"], factor) for u, factor in zip(found.launches, factors(found), strict=True)] == [
        (0, 1.0), (1, 2.0), (0, 3.0), (1, 4.0),
    ]  # fmt: skip


def test_a_device_that_is_reset(recorded: Callable[..., Recorded]) -> None:
    found = recorded("reset")
    assert (found.status, found.output, factors(found)) == (0, "2\n", [1, 1])


def test_memory_that_the_application_asks_for(
    recorded: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given back before the application hears how much is free, or that there is none."""
    monkeypatch.setenv("FAKE_FREE_BYTES", str(96 << 20))
    monkeypatch.setenv("FAKE_SLOW_COPIES", "1")
    found = recorded("greedy")
    assert (found.status, found.output, factors(found)) == (0, "2\n", [1, 1])


def test_settings_of_the_device_and_the_kernel(recorded: Callable[..., Recorded]) -> None:
    (launched,) = recorded("packed").launches
    names = ("stack_bytes", "printf_bytes", "heap_bytes", "registers", "max_dynamic_shared_bytes", "shared_carveout")
    assert [launched.facts[name] for name in names] == [1024, 2048, 4096, 104, 108, 109]


def test_kinds_of_memory(recorded: Callable[..., Recorded]) -> None:
    (launched,) = recorded("kinds").launches
    assert sorted(held.memory for held in launched.held) == ["device", "device", "device", "host", "managed", "pool"]


def test_a_program_that_becomes_another(recorded: Callable[..., Recorded]) -> None:
    found = recorded("exec")
    assert len({launched.path.parent for launched in found.launches}) == 2
    assert factors(found) == [1, 1]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("FAKE_NO_PINNED_MEMORY", "the driver refused pinned memory"),
        ("FAKE_BROKEN_QUERY", "the driver reported an error"),
    ],
)
def test_what_fails_is_told_once_and_the_program_goes_on(
    broken: str,
    why: str,
    recorded: Callable[..., Recorded],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(broken, "1")
    found = recorded("threads", max_per_kernel=2)
    assert (found.status, found.output, found.launches) == (0, "0\n", [])
    assert found.reasons[why] >= 2
    assert capfd.readouterr().err == f"r3bench recorder: launches are not recorded: {why}\n"


def test_a_disk_that_refuses(program: Build, tmp_path: Path) -> None:
    plan = application.Plan(folder=tmp_path / "dump")
    moved = f"mv {plan.folder}/plan-* {tmp_path}/plan && rmdir {plan.folder}"
    script = f"{moved} && R3BENCH_PLAN={tmp_path}/plan exec {program('plain')}"
    assert application.run(["sh", "-c", script], plan, keep_output=True) == (0, b"4.5\n")
    assert not plan.folder.exists()


def test_the_same_launch_of_several_ranks_counts_once(recorded: Callable[..., Recorded], tmp_path: Path) -> None:
    (launched,) = recorded("packed").launches
    process = launched.path.parent
    shutil.copytree(process, process.with_name("process-2"))
    other = shutil.copytree(process, process.with_name("process-3"))
    (other / "unit-0.bin.0").write_bytes(b"another page")
    (group,) = conversion.grouped(list(dump.launches(process.parent)))
    assert sorted(u.path.parent.name for u in group) in (
        sorted([process.name, "process-3"]), ["process-2", "process-3"],
    )  # fmt: skip


def test_launches_inside_a_graph(recorded: Callable[..., Recorded]) -> None:
    found = recorded("graph", launches=(1, 3, 5), max_per_kernel=3)
    assert found.output == "1200\n"
    assert factors(found) == [200, 100, 300]
    assert outputs(found) == [(100, 300), (600, 700), (900, 1200)]
    assert found.coverage[0]["kernels"][0]["launches"] == 6


def test_a_graph_whose_nodes_change(recorded: Callable[..., Recorded]) -> None:
    found = recorded("built", max_per_kernel=4)
    assert found.output == "112\n"
    assert factors(found) == [1, 10, 1, 100]
    assert outputs(found) == [(0, 1), (1, 11), (11, 12), (12, 112)]


def test_a_graph_that_cannot_be_cut_is_launched_whole(
    recorded: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NO_CLONES", "1")
    found = recorded("graph")
    assert (found.output, found.launches) == ("1200\n", [])
    assert found.reasons == {"the driver does not cut its graph": 6}


def test_arguments_in_one_block(recorded: Callable[..., Recorded]) -> None:
    (launched,) = recorded("packed").launches
    assert np.frombuffer(bytes.fromhex(launched.facts["arguments"])[16:24]).item() == 1


@pytest.mark.parametrize("free", [1 << 20, 1 << 40], ids=["a full device", "room on the device"])
def test_pointers_in_buffers_and_variables(
    free: int, recorded: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FREE_BYTES", str(free))
    first, second = recorded("nested").launches
    unit, contents = conversion.unit(first, 0, ())
    assert [variable.symbol for variable in unit.globals] == ["bias"]
    assert contents.before["bias"][:].view(np.float64) == 0.5
    assert contents.after["bias"][:].view(np.float64) == 1.5
    inside = [(p.holder, p.offset, p.displacement) for p in unit.pointers if p.holder]
    assert sorted(offset for _, offset, _ in inside) == [0, 8]
    assert sorted(displacement for _, _, displacement in inside) == [0, 80]
    assert len(unit.allocations) == 3
    assert conversion.unit(second, 1, ()).contents.before["bias"][:].view(np.float64) == 1.5


def test_threads_record_one_at_a_time(recorded: Callable[..., Recorded]) -> None:
    found = recorded("threads", max_per_kernel=7)
    assert len(found.launches) == 7
    assert found.coverage[0]["kernels"][0]["launches"] == 200
    for launched in found.launches:
        assert len(conversion.unit(launched, 0, ()).unit.allocations) == 2


def test_memory_is_freed_when_the_launch_is_recorded(recorded: Callable[..., Recorded]) -> None:
    found = recorded("freeing")
    assert (found.output, len(found.launches), found.reasons) == ("1\n", 1, {})


def test_a_pool_costs_what_is_used_of_it(recorded: Callable[..., Recorded]) -> None:
    (launched,) = recorded("pool").launches
    assert launched.nbytes < 1 << 20
    unit, contents = conversion.unit(launched, 0, ())
    assert {a.whole_bytes for a in unit.allocations} == {256 << 20}
    assert sum(a.nbytes for a in unit.allocations) < 8 << 20
    (written,) = contents.after.values()
    start = unit.pointers[0].displacement
    assert written[:][start : start + 8].view(np.float64) == 3


@pytest.mark.parametrize("own", ["", "idle", "1"], ids=["by the host", "by the host after all", "by the device"])
@pytest.mark.parametrize("free", [8 << 20, 1 << 40], ids=["a full device", "room on the device"])
def test_large_buffers(own: str, free: int, recorded: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers with repeated, empty, changed and emptied pages, and a pointer in them to a further one."""
    monkeypatch.setenv("FAKE_FREE_BYTES", str(free))
    if own:
        monkeypatch.setenv("FAKE_OWN_KERNELS", own)
    first, second = recorded("large").launches
    unit, contents = conversion.unit(first, 0, ())
    assert sorted(a.nbytes for a in unit.allocations) == [8192, 1 << 20]
    before, after = (side["memory0"][:].view(np.uint64).reshape(-1, 512) for side in (contents.before, contents.after))
    assert set(contents.after) == {"memory0"}
    expected = np.zeros_like(before)
    expected[3:20] = 7
    expected[100:200] = np.arange(100, 200)[:, None]
    expected[150, 5] = before[150, 5]
    assert np.array_equal(before, expected)
    assert [(p.offset, p.allocation) for p in unit.pointers if p.holder] == [(150 * 4096 + 40, "memory1")]
    expected[160:170] = 0
    expected[30] = expected[110]
    expected[40] = 12345
    assert np.array_equal(after, expected)
    assert first.nbytes == (1 + 100 + 1) * 4096
    assert second.facts["occurrence"] == 1


def test_a_launch_with_a_texture_is_declared_not_recordable(recorded: Callable[..., Recorded]) -> None:
    found = recorded("textured")
    assert [launched.facts["occurrence"] for launched in found.launches] == [1]
    assert found.reasons == {"it takes a texture or surface object": 1}


def test_the_list_says_what_can_be_recorded(program: Build, capfd: pytest.CaptureFixture[str]) -> None:
    for situation, answer in (("textured", "no: it takes a texture or surface object"), ("packed", "yes")):
        assert main(["record", "--list", "--", str(program("situations")), situation]) == 0
        head, _, *rows = capfd.readouterr().out[:-1].splitlines()[-3:]
        assert head.split("  ")[-1].strip() == "recordable"
        assert rows[0].endswith(f"  {answer}")


def test_launches_alike_are_told_from_others(recorded: Callable[..., Recorded]) -> None:
    assert len(recorded("threads", distinct=True, max_per_kernel=9).launches) == 1


def test_choices(program: Build, tmp_path: Path) -> None:
    app = [str(program("plain"))]

    def occurrences(**chosen: Any) -> list[int]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        assert application.run(app, application.Plan(folder=folder, **chosen), keep_output=True)[0] == 0
        return [launched.facts["occurrence"] for launched in dump.launches(folder)]

    assert occurrences() == [0, 1]
    assert occurrences(skip=1, max_per_kernel=5) == [1, 2]
    assert occurrences(every=2) == [0, 2]
    assert occurrences(distinct=True, max_per_kernel=9) == [0, 1, 2]
    assert occurrences(kernels=("scale",), excluded=("Pd",)) == []
    assert occurrences(kernels=("^_Z5scale",), max_per_kernel=1) == [0]
    assert occurrences(max_bytes=1) == []


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--ranks", "foo", "'foo' is no list of numbers"),
        ("--launch", "1,x", "'1,x' is no list of numbers"),
        ("--max-bytes", "inf", "'inf' is no size"),
        ("--max-bytes", "G", "'G' is no size"),
        ("--every", "0", "'0' is no number from 1 on"),
        ("--kernel", "(", "'(' is no extended regular expression (Unmatched"),
        ("--flags", '"', "invalid split value"),
        ("--out", "/proc/x/y", "nothing can be written beside /proc/x/y"),
        ("--out", "/dev/null", "/dev/null is no folder"),
    ],
)
def test_wrong_options_stop_before_anything_runs(
    option: str,
    value: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["record", option, value, "--", "touch", "started"])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 0", "no CUDA kernel of sh was seen: it loads no CUDA driver"),
        ("exit 4", "sh ended with status 4 before any kernel was seen"),
        ("kill -SEGV $$", "sh ended with signal 11 (Segmentation fault) before any kernel was seen"),
    ],
)
@pytest.mark.parametrize("listing", [[], ["--list"]])
def test_why_nothing_was_recorded(
    script: str, why: str, listing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", *listing, "--out", str(tmp_path / "captures"), "--", "sh", "-c", script]) == 1
    out, error = capsys.readouterr()
    assert (out, error.startswith(f"r3bench: nothing was recorded: {why}")) == ("", True)


@pytest.mark.parametrize(
    "variable", ["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "FLUX_TASK_RANK"]
)
def test_other_ranks_pass_through(
    variable: str, program: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "3")
    for ranks, count in (((0,), 0), ((0, 3), 2), ((), 2)):
        folder = tmp_path / str(count) / str(len(ranks))
        plan = application.Plan(folder=folder, ranks=ranks)
        assert application.run([str(program("plain"))], plan, keep_output=True) == (0, b"4.5\n")
        assert len(list(dump.launches(folder))) == count
