"""200 random kernels do on the CPU device what an interpreter of our own says: both orders, 1 and 2 threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.generator import Generator
from tests.fuzz.launches import Bench
from tests.fuzz.statements import Barrier

PROGRAMS, BATCH = 200, 10


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_random_programs(bench: Bench, first: int) -> None:
    """A failing seed is looked at with ``python tests/benchmarks/fuzz.py --first N --count 1 --shrink``."""
    programs = {seed: Generator(seed).program() for seed in range(first, first + BATCH)}
    failures = list(bench.failures(list(programs.values())))
    wrong = {seed: each.what for seed, program in programs.items() for each in failures if each.program is program}
    assert not wrong


def test_checked_builds_let_right_programs_run(bench: Bench) -> None:
    assert not list(bench.failures([Generator(seed).program() for seed in range(BATCH)], checked=True))


def test_a_barrier_that_is_not_compiled_is_noticed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer itself: what it compiles must be what it interprets."""
    monkeypatch.setattr(Barrier, "write", lambda self, text, mask: None)
    failures = list(bench.failures([Generator(seed).program() for seed in range(BATCH)]))
    assert len(failures) >= 2
    assert all("differ" in failure.what for failure in failures)
