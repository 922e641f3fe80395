"""``--r3-history``: the times of this run go to a file of their own in ``reports/history``."""

from __future__ import annotations

from pathlib import Path

import pytest

from r3bench.plugin.options import option


class Histories:
    """Collects times on the process that the user sees, and keeps them when the session ends."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.times_ns: dict[str, dict[str, float]] = {}
        self.written: list[Path] = []
        self.unwritten = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = getattr(report, "r3_history", None)
        if found is not None:
            self.times_ns.setdefault(found["machine"], {})[found["kernel"]] = found["ns"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """One file for each machine: with several GPUs a run is one of each. Times that cannot be kept are an error."""
        from r3bench import history
        from r3bench.commits import sha_of
        from r3bench.errors import FileError

        top = self.config.rootpath
        folder = top / str(option(self.config, "reports")) / "history"
        commit = sha_of(top) if self.times_ns else None
        try:
            self.written = [history.write(folder, machine, commit, times) for machine, times in self.times_ns.items()]
        except FileError as error:
            self.unwritten = str(error)
            session.exitstatus = session.exitstatus or pytest.ExitCode.INTERNAL_ERROR

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for path in self.written:
            terminalreporter.line(f"history: {path} (r3bench history shows it)")
        if self.unwritten:
            terminalreporter.line(f"history: {self.unwritten}")
