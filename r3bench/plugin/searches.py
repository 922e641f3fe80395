"""``--r3-evolve``: one search of all kernels, a ledger for each, and the application's report after each."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from r3bench.plugin.checks import Finding, count, pytest_keyboard_interrupt, server_of, told_to_end
from r3bench.plugin.options import DEFAULT_GATES, OPTIONS, axes, check_proposer, gate, number, option
from r3bench.symbols import full_name

if TYPE_CHECKING:
    from r3bench.errors import LedgerError
    from r3bench.evolve import Kernel, Settings
    from r3bench.ledger import KernelResult, Ledger
    from r3bench.plugin.items import CaptureItem

INTERRUPTED = pytest.ExitCode.INTERRUPTED.value
RUNNING: pytest.StashKey[Running] = pytest.StashKey()


def run_evolve(item: CaptureItem) -> None:
    """Search for a faster version of the item's kernel; what was found is in the ledger and the report."""
    faulthandler.cancel_dump_traceback_later()  # pytest's; a search takes as long as its budget and its patience allow
    with told_to_end():
        _search(item)


def _search(item: CaptureItem) -> None:
    running = item.config.stash.get(RUNNING, None)
    if running is None or item not in running.items:
        running = Running(together(item))
        running.explore()
        item.config.stash[RUNNING] = running
    result = running.conclude(item)
    if result.status == "interrupted":
        pytest_keyboard_interrupt()
        running.end()
        pytest.exit("the search was interrupted: the report says what it had found, --r3-resume goes on", INTERRUPTED)
    if result.status == "failed":
        raise Finding(f"{item.capture.name}: nothing to search: {result.detail}")


def together(item: CaptureItem) -> list[CaptureItem]:
    """The items whose kernels are searched at once: all of the session, or one where pytest-xdist hands them out."""
    if hasattr(item.config, "workerinput"):
        return [item]
    items = list(searched(item.session.items))
    return items[items.index(item) :]


def searched(items: Iterable[pytest.Item]) -> Iterator[CaptureItem]:
    for item in items:
        if getattr(item, "kind", "") == "evolve" and not any(item.iter_markers("skip")):
            yield cast("CaptureItem", item)


class Running:
    """A search of some items' kernels: explored together, concluded as each item's turn comes.

    Whoever proposes and the device are opened first: where one cannot be used, earlier results stay in their place.
    """

    def __init__(self, items: Sequence[CaptureItem]) -> None:
        from r3bench.errors import LedgerError
        from r3bench.evolve.propose import open_proposers
        from r3bench.ledger import Ledger

        self.items, config = items, items[0].config
        self._settings = settings(items[0], len(items))
        self._proposer = open_proposers(
            who_proposes(config),
            seed=self._settings.seed,
            patience_s=number(config, "patience"),
            waiting=waiting_line(config),
        )
        self._ledgers: dict[CaptureItem, Ledger] = {}
        self._locked: dict[CaptureItem, LedgerError] = {}
        for item in items:
            try:
                self._ledgers[item] = Ledger.open(ledger_path(item), resume=bool(option(item.config, "resume")))
                keep_earlier(self._ledgers[item], item.capture.name)
            except LedgerError as error:
                self._locked[item] = error

    def explore(self) -> None:
        """Search all kernels whose ledgers are free; all are given up where that cannot even begin."""
        from r3bench.evolve import Search

        config = self.items[0].config
        try:
            kernels = [kernel(item, ledger) for item, ledger in self._ledgers.items()]
            with closing(self._proposer) as proposer:
                self._search = Search(
                    kernels, server_of(config), proposer, self._settings, progress_line(config), given(config)
                )
                self._search.explore()
                if self._search.interrupted:
                    pytest_keyboard_interrupt()
        except BaseException:
            self._close()
            raise

    def conclude(self, item: CaptureItem) -> KernelResult:
        """The item's result, and the report with it. LedgerError where another run writes its ledger."""
        if item in self._locked:
            raise self._locked[item]
        try:
            with self._ledgers.pop(item):
                return self._search.conclude(item.capture)
        finally:
            write_report(ledger_path(item).parent)

    def end(self) -> None:
        """Conclude what is left, so that an interrupted session reports all that was found."""
        for item in list(self._ledgers):
            self.conclude(item)

    def _close(self) -> None:
        while self._ledgers:
            self._ledgers.popitem()[1].close()


def kernel(item: CaptureItem, ledger: Ledger) -> Kernel:
    """What is searched for an item."""
    from r3bench import store, worktree
    from r3bench.evolve import Kernel, neighbours_of

    tree = worktree.Folder(worktree.home(item.capture, item.config.rootpath))
    siblings = [store.open_capture(path) for path in store.find([Path(item.capture.path).parent])]
    return Kernel(
        capture=item.capture,
        ledger=ledger,
        working=lambda capture: worktree.variant(capture, tree),
        neighbours=neighbours_of(item.capture, siblings),
    )


def who_proposes(config: pytest.Config) -> str:
    return "rules" if option(config, "search") == "rules" else str(option(config, "proposer"))


def settings(item: CaptureItem, kernels: int) -> Settings:
    """What the options say, for a search of so many kernels at once."""
    from r3bench.evolve import MODES, Limits, Settings
    from r3bench.evolve.propose import check_proposers

    config, kind = item.config, server_of(item.config).target.device

    def limit(name: str) -> float:
        return number(config, name) if option(config, name) != "" else inf

    mode = str(option(config, "search"))
    population = int(number(config, "population"))
    return Settings(
        search=mode,  # type: ignore[arg-type]  # one of the choices
        iterations=int(number(config, "iterations")),
        trials=int(number(config, "trials")) if option(config, "trials") else MODES[mode].trials,  # type: ignore[index]
        race=option(config, "race") == "on",
        islands=int(number(config, "islands")),
        population=population,
        migrate=int(number(config, "migrate")),
        axes=axes(config),
        stale=int(number(config, "stale")) if option(config, "stale") else max(1, population // 4),
        evaluating=max(Settings().evaluating, server_of(config).at_once),
        proposing=int(number(config, "proposing")),
        fast_math=bool(option(config, "fast_math")),
        slots=int(number(config, "slots")),
        profile=any(kind not in ("rules", "recorded") for _, kind, _ in check_proposers(who_proposes(config))),
        limits=Limits(
            seconds=number(config, "seconds") * kernels,
            evaluations=limit("evaluations"),
            tokens=limit("tokens"),
            dollars=limit("dollars"),
            gpu_minutes=limit("gpu_minutes"),
        ),
        seed=int(number(config, "seed")),
        kernels=count(item.session, "evolve"),
        gate=gate(config) or (Settings().gate if kind == "cpu" else DEFAULT_GATES[kind]),
    )


def given(config: pytest.Config) -> dict[str, str]:
    """The proposer and the options that differ from their defaults, without keys: what searches again."""
    from r3bench.evolve.propose.keys import hidden

    values = {name: str(option(config, name)) for name, *_ in OPTIONS}
    differ = {name: hidden(values[name]) for name, default, *_ in OPTIONS if values[name] != default}
    differ.pop("server", None)  # of this machine alone, as is the next
    if os.path.isabs(values["reports"]):
        differ.pop("reports")
    fast_math = {"fast_math": ""} if option(config, "fast_math") else {}
    return {"proposer": hidden(values["proposer"])} | differ | fast_math


def ledger_path(item: CaptureItem) -> Path:
    """``<reports>/<application>/ledger/<kernel>.jsonl``, with the mode where it is not the whole search; the store's
    name tells kernels apart."""
    reports, mode = item.config.rootpath / str(option(item.config, "reports")), str(option(item.config, "search"))
    kernel = Path(item.capture.path).name.partition(".zarr")[0]
    name = f"{kernel}.jsonl" if mode == "full" else f"{kernel}.{mode}.jsonl"
    return reports / re.sub(r"[^\w.-]", "_", item.capture.application) / "ledger" / name


def keep_earlier(ledger: Ledger, kernel: str) -> None:
    """Copy the patch and the configuration of a ledger that was set aside: the next report replaces them."""
    from r3bench.files import writing
    from r3bench.report import file_name

    if ledger.earlier is not None:
        for suffix in ("patch", "json"):
            with writing(ledger.earlier.parent), suppress(FileNotFoundError):
                shutil.copy2(ledger.path.parent.parent / f"{file_name(kernel)}.{suffix}", ledger.earlier.parent)


def write_report(folder: Path) -> None:
    """The report from all the ledgers in a folder, so that a crash later on loses nothing of it. One process at a time:
    what was read first is written first."""
    from r3bench import report
    from r3bench.files import alone

    with alone(folder):
        report.write(folder.glob("*.jsonl"), folder.parent.parent)


def waiting_line(config: pytest.Config) -> Callable[[Path], None]:
    """Says that prompts wait for answers, on a line of its own that stays; silent in a worker of pytest-xdist."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return lambda folder: None
    capture: Any = config.pluginmanager.get_plugin("capturemanager")

    def show(folder: Path) -> None:
        patience = f"--r3-patience ({number(config, 'patience'):g} s)"
        line = f"waiting for answers to the prompts in {folder}/ (<name>.answer.md beside <name>.prompt.md)"
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.line(f"{line}; ctrl-C or {patience} ends this, --r3-resume goes on")

    return show


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
        for item in searched(session.items):
            self.ledgers[ledger_path(item)] = item.capture.application
        if self.ledgers:
            check_proposer(session.config)

    @pytest.hookimpl(trylast=True)  # below pytest-benchmark's wide table, where it is seen
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table of what this session's searches found, and where the report is and what it offers."""
        ledgers = [path for path in self.ledgers if path.exists() and path.stat().st_mtime >= self.began]
        if not ledgers:
            return
        from r3bench import report

        terminalreporter.section("r3bench: search")
        here = terminalreporter.config.invocation_params.dir
        for folder in sorted({path.parent for path in ledgers}):
            write_report(folder)
            found, _ = report.gather(folder.glob("*.jsonl"))
            mine, _ = report.gather(path for path in ledgers if path.parent == folder)
            for application, searches in mine.items():
                every = found[application]
                names = {search.kernel for search in searches}
                kernels = [kernel for kernel in every if kernel.kernel in names]
                for line in (
                    report.table(report.document(application, searches), terminalreporter._tw.fullwidth),
                    report.device_line(searches[0].device, searches[0].target),
                    *(f"timed on {place}" for place in report.places(searches)),
                    *report.mixed(every),
                    *report.moved_on(every),
                    *report.noted(searches),
                    *outdone(searches, kernels),
                    *report.below(report.document(application, kernels), folder.parent, here),
                ):
                    terminalreporter.line(line)
            for place in sorted(folder.glob("earlier/*")):
                if place.stat().st_mtime >= self.began:
                    kept = os.path.relpath(place, here)
                    terminalreporter.line(f"the earlier results that these replace are kept in {kept}")


def outdone(searches: Iterable[KernelResult], kernels: Iterable[KernelResult]) -> Iterator[str]:
    """Which searches of this session did not become their kernels' results: another kind of search claims more."""
    from r3bench.report.words import claimed, result_word

    standing = {kernel.kernel: kernel for kernel in kernels}
    for search in searches:
        kept = standing[search.kernel]
        if kept.search != search.search:
            gain = f", {claimed(kept):.2f}x" if claimed(kept) else ""
            found = f"the report keeps what the search {kept.search} found"
            yield f"{full_name(kept.kernel)}: {found}: {result_word(kept)}{gain}"
