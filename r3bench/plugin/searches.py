"""``--r3-evolve``: one search per kernel, its ledger, and the application's report after each."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from r3bench.plugin.checks import Finding, count, server_of
from r3bench.plugin.options import DEFAULT_GATES, gate, number, option

if TYPE_CHECKING:
    from r3bench.evolve import Settings
    from r3bench.ledger import KernelResult
    from r3bench.plugin.items import CaptureItem


def run_evolve(item: CaptureItem) -> None:
    """Search for a faster version of the item's kernel; what was found is in the ledger and the report."""
    from r3bench import store, worktree
    from r3bench.evolve import evolve
    from r3bench.ledger import Ledger

    tree = worktree.Folder(item.config.rootpath)
    siblings = [store.open_capture(path) for path in store.find([Path(item.capture.path).parent])]
    path = ledger_path(item)
    try:
        with Ledger.open(path, resume=False) as ledger:
            (result,) = evolve(
                [item.capture],
                server_of(item.config),
                settings(item),
                ledger,
                progress_line(item.config),
                working=lambda capture: worktree.variant(capture, tree),
                neighbours=siblings,
            )
    finally:
        write_report(path.parent)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status == "failed":
        raise Finding(f"{item.capture.name}: nothing to search: {result.detail}")


def settings(item: CaptureItem) -> Settings:
    from r3bench.evolve import Settings

    kind = server_of(item.config).target.device
    return Settings(
        trials=int(number(item.config, "trials")),
        seconds=number(item.config, "seconds"),
        seed=int(number(item.config, "seed")),
        kernels=count(item.session, "evolve"),
        gate=gate(item.config) or (Settings().gate if kind == "cpu" else DEFAULT_GATES[kind]),
    )


def ledger_path(item: CaptureItem) -> Path:
    """``<reports>/<application>/ledger/<kernel>.jsonl``; the store's name tells kernels apart."""
    reports = item.config.rootpath / str(option(item.config, "reports"))
    kernel = Path(item.capture.path).name.partition(".zarr")[0]
    return reports / re.sub(r"[^\w.-]", "_", item.capture.application) / "ledger" / f"{kernel}.jsonl"


def write_report(folder: Path) -> None:
    """The report from all the ledgers in a folder, so that a crash later on loses nothing of it."""
    from r3bench import report

    report.write(folder.glob("*.jsonl"), folder.parent.parent)


def progress_line(config: pytest.Config) -> Callable[[str], None]:
    """Writes over one line of the terminal; silent where the output is no terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not reporter.isatty or hasattr(config, "workerinput"):
        return lambda line: None
    capture: Any = config.pluginmanager.get_plugin("capturemanager")

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.rewrite(line[: reporter._tw.fullwidth - 1], erase=True)

    return show


class Searches:
    """The searches of this session, for the table at its end."""

    def __init__(self) -> None:
        self.ledgers: dict[Path, str] = {}
        self.began = time()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if getattr(item, "kind", "") == "evolve" and not any(item.iter_markers("skip")):
                searched = cast("CaptureItem", item)
                self.ledgers[ledger_path(searched)] = searched.capture.application

    @pytest.hookimpl(trylast=True)  # below pytest-benchmark's wide table, where it is seen
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table of what was searched in this session, and where the report and the patches are."""
        ledgers = [path for path in self.ledgers if path.exists() and path.stat().st_mtime >= self.began]
        if not ledgers:
            return
        from r3bench import report

        terminalreporter.section("r3bench: search")
        for folder in sorted({path.parent for path in ledgers}):
            write_report(folder)
            found, run = report.gather(path for path in ledgers if path.parent == folder)
            for application, kernels in found.items():
                document = report.document(application, kernels, run)
                terminalreporter.line(report.table(document, terminalreporter._tw.fullwidth))
                terminalreporter.line(report.device_line(kernels[0].device, kernels[0].target))
                for line in written(folder.parent, kernels, terminalreporter.config.rootpath):
                    terminalreporter.line(line)


def written(folder: Path, kernels: list[KernelResult], top: Path) -> Generator[str, None, None]:
    """Where the report is, the commands that apply the patches one after the other, and the patches left out."""
    from r3bench.report import applicable, busy_line, file_name, overlap_line

    def shown(path: Path) -> Path:
        return path.relative_to(top) if path.is_relative_to(top) else path

    busy = busy_line(kernels)
    if busy:
        yield busy
    yield f"report: {shown(folder / 'report.md')}"
    patches = {kernel.kernel: folder / f"{file_name(kernel)}.patch" for kernel in kernels}
    patched = [kernel for kernel in kernels if kernel.after is not None and patches[kernel.kernel].exists()]
    chosen = applicable(patched)
    for kernel in chosen:
        yield f"git apply {shown(patches[kernel.kernel])}"
    for kernel in patched:
        if kernel not in chosen:
            yield f"left out: {shown(patches[kernel.kernel])} {overlap_line(kernel, chosen)}"
