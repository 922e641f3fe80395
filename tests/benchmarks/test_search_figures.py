"""Figures of the search: a planted slow kernel is sped up, the best one yields no patch, a trial's own cost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from r3bench import report, worktree
from r3bench.evolve import Settings, evolve
from r3bench.evolve.tuning import Tuner
from r3bench.ledger import KernelResult, Ledger
from r3bench.model import Capture, Target
from r3bench.server import ReplayServer
from r3bench.space import Space
from tests.search import planted
from tests.search.fake_server import capture

SETTINGS = Settings(trials=10, more=0, seconds=40.0)


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    with ReplayServer("cpu") as server:
        yield server


def search(capture: Capture, server: ReplayServer, folder: Path) -> KernelResult:
    """Search one kernel of a folder and write its report there."""
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        (result,) = evolve([capture], server, SETTINGS, ledger, working=partial(worktree.variant, top=folder))
    report.write(folder / "ledger.jsonl", folder / "reports")
    return result


def test_the_planted_slow_kernel_is_sped_up_by_a_patch_that_applies(server: ReplayServer, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    result = search(planted.record_slow(tmp_path), server, tmp_path)
    assert result.status == "improved", result.detail
    speedups = [arm.comparison.speedup or 0.0 for arm in result.arms]
    assert max(speedups) >= planted.SLOW_SPEEDUP, result.arms
    patch = tmp_path / "reports" / "planted" / f"{planted.SLOW}.patch"
    subprocess.run(["git", "-C", tmp_path, "apply", "--check", patch], check=True)


def test_the_best_kernel_yields_no_patch(server: ReplayServer, tmp_path: Path) -> None:
    result = search(planted.record_best(tmp_path), server, tmp_path)
    assert result.status in ("improved", "not improved"), result.detail
    assert result.after is None, "a configuration may help it, a source change cannot"
    assert not list((tmp_path / "reports").rglob("*.patch"))


def test_ask_and_tell_cost_at_most_4_ms() -> None:
    subject = capture()
    space = Space.for_unit(subject, subject.units[0], Target(device="cpu", arch="fake"), ((64, 1, 1), (256, 1, 1)))
    assert min(median_of_a_study(Tuner(space, seed)) for seed in range(5)) <= 0.004


def median_of_a_study(tuner: Tuner) -> float:
    """Seconds of this thread per ask and tell, in 30 trials."""
    times = []
    for trial in range(30):
        begin = time.thread_time()
        ask = tuner.ask()
        assert ask is not None
        tuner.tell(ask, 1000.0 + trial % 7)
        times.append(time.thread_time() - begin)
    return median(times)
