"""Timings as pytest-benchmark shows them: its table, JSON, comparison and histogram.

Timing items do not use its fixture; samples travel with the report and are put into its session before it finishes.
That surface is private to pytest-benchmark: tests/plugin/test_timings.py fails when it moves.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r3bench.plugin.checks import GUARDED, HISTORY, TIMING
from r3bench.plugin.options import option


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    for name, key in (("r3_timing", TIMING), ("r3_guard", GUARDED), ("r3_history", HISTORY)):
        if call.when == "call" and key in item.stash:
            setattr(report, name, item.stash[key])  # plain values: they travel from xdist's workers
    return report


class Timings:
    """Collects the timing items' reports on the process that the user sees, for its tables."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        timing = getattr(report, "r3_timing", None)
        if timing is not None:
            self.found[report.nodeid.replace("/zarr.json::", "::")] = timing

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """pytest-benchmark draws its table and writes its files from what stands in its session when it finishes."""
        benchmarks = getattr(session.config, "_benchmarksession", None)
        if benchmarks is not None:
            benchmarks.benchmarks += [benchmark_entry(name, found) for name, found in self.found.items()]
        yield

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_benchmark_group_stats(self, config: Any) -> Generator[None, Any, Any]:
        """Below a search the table has no kernel whose code is that of its capture: it would only stand above what was
        found. pytest-benchmark's files keep it, and where a comparison failed the whole table stands."""
        groups = yield
        if not option(config, "evolve") or config._benchmarksession.performance_regressions:
            return groups
        kept = (
            (name, [row for row in rows if row["extra_info"].get("decision") != "identical"]) for name, rows in groups
        )
        return [(name, rows) for name, rows in kept if rows]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        changed = {name: found for name, found in self.found.items() if found["decision"] != "identical"}
        if self.found:
            terminalreporter.section("r3bench: working tree against stored source")
            own = sum(not found["tree"] for found in self.found.values())
            if own:
                terminalreporter.line(f"{own} of {len(self.found)} timings: the captures' own sources, not your tree's")
            same = sum(found["tree"] for name, found in self.found.items() if name not in changed)
            if same:
                taken = "" if option(terminalreporter.config, "evolve") else ", of which the shortest (Min) is its time"
                terminalreporter.line(
                    f"{same} of {len(self.found)} timings: identical machine code, nothing to compare; "
                    f"a few windows of each{taken}"
                )
        for name, found in sorted(changed.items()):
            terminalreporter.line(f"{name}: {found['words']} ({found['device']})")


def benchmark_entry(name: str, found: dict[str, Any]) -> Any:
    """One row of pytest-benchmark, from samples in nanoseconds (it counts in seconds)."""

    from pytest_benchmark.stats import Metadata

    store, _, item = name.rpartition("::")
    about = SimpleNamespace(
        name=f"{Path(store).name.partition('.zarr')[0]}::{item}",
        fullname=name,
        group=None,
        param=None,
        params=None,
        extra_info={"device": found["device"], "decision": found["decision"]},
        cprofile_stats=None,
        has_error=False,
    )
    entry: Any = Metadata(about, iterations=1, options={})  # type: ignore[no-untyped-call]
    for sample in found["samples_ns"]:
        entry.update(sample * 1e-9)
    return entry
