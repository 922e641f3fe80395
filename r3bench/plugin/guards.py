"""``--r3-guard BASE``: one item per kernel, base against head; the run's document, and its exit status."""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from r3bench.errors import TreeError
from r3bench.plugin.checks import GUARDED, Finding, count, keep_time, server_of
from r3bench.plugin.options import DEFAULT_GATES, gate, number, option
from r3bench.symbols import full_name

if TYPE_CHECKING:
    from r3bench.guard import Gate
    from r3bench.guard.documents import About
    from r3bench.plugin.items import CaptureItem
    from r3bench.worktree import Tree

BASE: pytest.StashKey[Tree] = pytest.StashKey()

_NOT_ASKED = "not failed: these are times of a CPU that was not asked for; --r3-device cpu makes them count"
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_GATE = re.compile(rf"(\S+)\s*=\s*{_NUMBER}\s*%(?:\s+{_NUMBER}\s*ns)?")
_REPORT = "the report"  # among errors


def check_guard(config: pytest.Config) -> None:
    """Open the base; UsageError where it cannot be read, or where a gate or an answer does not exist."""
    if config.getoption("r3_guard") == "":
        raise pytest.UsageError("--r3-guard takes a commit or a folder, not ''")
    if not option(config, "guard"):
        return
    if config.getoption("r3_guard") and config.getoption("r3_evolve"):
        raise pytest.UsageError("--r3-guard and --r3-evolve are two runs: a guard searches nothing")
    from r3bench.commits import open_tree
    from r3bench.guard import Ruling

    for line in config.getini("r3_gates"):
        if not _GATE.fullmatch(line.strip()):
            raise pytest.UsageError(f"r3_gates: {line!r} is no line such as 'app/halo_* = 10% 500ns'")
    known = [ruling.value for ruling in Ruling]
    for name in fail_on(config):
        if name not in known:
            raise pytest.UsageError(f"--r3-fail-on takes {', '.join(known)}, not {name!r}")
    try:
        config.stash[BASE] = open_tree(str(option(config, "guard")), config.rootpath)
    except TreeError as error:
        raise pytest.UsageError(f"--r3-guard: {error}") from None


def fail_on(config: pytest.Config) -> tuple[str, ...]:
    return tuple(name.strip() for name in str(option(config, "fail_on")).split(",") if name.strip())


def run_guard(item: CaptureItem) -> None:
    """The item's kernel in the working tree against the base; fails for an answer that was asked to fail."""
    from r3bench.commits import open_tree
    from r3bench.guard import Terms, judge, relative_store
    from r3bench.guard.documents import fails, row
    from r3bench.worktree import Folder, home

    config, server = item.config, server_of(item.config)
    top = home(item.capture, config.rootpath)
    head = Folder(top, str(option(config, "head")))
    base = config.stash[BASE] if top == config.rootpath else open_tree(str(option(config, "guard")), top)
    terms = Terms(base, head, server, max(1, count(item.session, "guard")))
    found = judge(item.capture, gate_of(item), terms)
    kind = server.target.device
    failing = fails(found.ruling, fail_on(config), kind, asked(config, kind))
    if not failing and found.ruling.value in fail_on(config):
        found = replace(found, notes=(*found.notes, _NOT_ASKED))
    conditions = dict(found.comparison.conditions) if found.comparison else server.conditions()
    item.stash[GUARDED] = {
        "row": row(found, relative_store(item.capture, head), failing),
        "device": {"device": server.name, "target": server.target.arch, "conditions": conditions},
        "asked": asked(config, kind),
    }
    if found.comparison is not None and found.comparison.candidate_ns is not None:
        keep_time(item, found.comparison.candidate_ns)
    item.user_properties.append(("r3_verdict", found.ruling.value))
    if failing:
        raise Finding(f"{full_name(found.kernel)}: {found.ruling.value}: {found.detail}")


def asked(config: pytest.Config, kind: str) -> bool:
    """Whether a device was asked for by name."""
    return str(option(config, "device")) == kind


def gate_of(item: CaptureItem) -> Gate:
    """What is slower for a kernel: by a marker of its item, a line of the ini key r3_gates, or for all kernels."""
    from r3bench.guard import Gate

    marker = item.get_closest_marker("r3_gate")
    if marker is not None:
        return in_percent(*marker.args, **marker.kwargs)
    for line in item.config.getini("r3_gates"):
        found = _GATE.fullmatch(line.strip())
        if found and fnmatchcase(item.capture.name, found[1]):
            return in_percent(float(found[2]), float(found[3] or 0))
    default = DEFAULT_GATES[server_of(item.config).target.device]
    return Gate(relative=gate(item.config) or default, absolute_ns=number(item.config, "gate_ns"))


def in_percent(percent: float, ns: float = 0.0) -> Gate:
    from r3bench.guard import Gate

    return Gate(relative=percent / 100, absolute_ns=ns)


class Guards:
    """The answers of this session on the process that the user sees: its document, exit status and summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.began = monotonic()
        self.found: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, str] = {}
        self.document: dict[str, Any] = {}
        self.deleted: tuple[str, ...] = ()
        self.earlier = (self.folder / "report.json").exists()

    def pytest_collection_finish(self) -> None:
        from r3bench.guard import deleted_stores
        from r3bench.worktree import Folder

        top = self.config.rootpath
        folders = guarded_folders(self.config.args, top)
        self.deleted = tuple(deleted_stores(self.config.stash[BASE], Folder(top), folders))

    @property
    def folder(self) -> Path:
        return self.config.rootpath / str(option(self.config, "reports")) / "guard"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What was answered last counts, as after a rerun; the document is written anew each time."""
        if not re.search(r"::guard(\[capture\])?$", report.nodeid):
            return
        answer = getattr(report, "r3_guard", None)
        if answer is not None:
            self.found[report.nodeid] = answer
            self.errors.pop(report.nodeid, None)
        elif report.failed:
            self.errors[report.nodeid] = report.longreprtext
        self.write()

    def write(self) -> None:
        """The document anew, and its files; where those cannot be written, that is an error of the run."""
        from r3bench.errors import FileError
        from r3bench.report import write_document

        self.errors.pop(_REPORT, None)
        self.document = self.drawn()
        if self.kept:
            return
        try:
            write_document(self.document, self.folder)
        except FileError as error:
            self.errors[_REPORT] = str(error)
            self.document = self.drawn()

    def drawn(self) -> dict[str, Any]:
        from r3bench.guard.documents import document

        answers = list(self.found.values())
        device = answers[-1]["device"] if answers else {"device": "", "target": "", "conditions": {}}
        about = self.about(any(answer["asked"] for answer in answers))
        return document([answer["row"] for answer in answers], device, about)

    @property
    def kept(self) -> bool:
        """Whether an earlier report stays, for this run guarded nothing."""
        return self.earlier and not self.found and not self.errors

    @cached_property
    def head(self) -> tuple[str, str | None]:
        """Head's name and commit; a working tree that was changed is no commit."""
        from r3bench.commits import is_changed, sha_of
        from r3bench.worktree import WORKING_TREE

        top, name = self.config.rootpath, str(option(self.config, "head"))
        sha = sha_of(top, "HEAD" if name == WORKING_TREE else name)
        if name == WORKING_TREE and sha is not None and is_changed(top):
            return f"{name}, changed since {sha[:12]}", None
        return name, sha

    def about(self, asked: bool) -> About:
        from r3bench.commits import Commit
        from r3bench.guard.documents import About

        base = self.config.stash[BASE]
        return About(
            base=(base.name, base.sha if isinstance(base, Commit) else None),
            head=self.head,
            fail_on=fail_on(self.config),
            asked=asked,
            reproduce=self.command(base.name),
            seconds=monotonic() - self.began,
            errors=tuple(self.errors.values()),
            deleted=self.deleted,
        )

    def command(self, base: str) -> str:
        """What compares the same two sides again; a head that is no working tree takes ``r3bench``."""
        from r3bench.worktree import WORKING_TREE

        given, head = self.config.invocation_params.args, str(option(self.config, "head"))
        if head == WORKING_TREE:
            return shlex.join(("pytest", *given))
        own = ("--r3-guard", "--r3-head", "--r3-reports")
        options = [
            arg.replace("--r3-", "--", 1) for arg in given if arg.startswith("--r3-") and not arg.startswith(own)
        ]
        return shlex.join(
            ("r3bench", "guard", base, head, *options, "--captures", *(arg for arg in given if not arg.startswith("-")))
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        """Statuses of its own for a regression, a wrong result, and for not having been able to tell."""
        from r3bench.guard.documents import exit_status

        yield
        ended = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if exitstatus in ended and not self.config.getoption("collectonly"):
            self.write()
            session.exitstatus = exit_status(self.document) or exitstatus

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.document:
            return
        from r3bench.report import device_line, guards, table

        guard = self.document["guard"]
        terminalreporter.section("r3bench: guard")
        if guard["kernels"]:
            terminalreporter.line(table(self.document, terminalreporter._tw.fullwidth))
        found = [{**row, "missing": []} for row in guard["kernels"]]  # of code for other GPUs the report says more
        for said in guards.told(found):
            terminalreporter.line(said)
        if guards.timed(found):
            terminalreporter.line(guards.LAUNCH)
            terminalreporter.line(device_line(self.document["device"], self.document["target"]))
        terminalreporter.line(guard["sentence"])
        what = "an earlier run's report, left as it is" if self.kept else "report"
        place, top = self.folder / "report.md", self.config.rootpath
        shown = place.relative_to(top) if place.is_relative_to(top) else place
        terminalreporter.line(self.errors.get(_REPORT) or f"{what}: {shown}")


def guarded_folders(given: Iterable[str], top: Path) -> Sequence[str]:
    """The folders among pytest's arguments, relative to ``top``."""
    places = [Path(arg.partition("::")[0]).resolve() for arg in given]
    folders = [place for place in places if place.is_dir() and place.suffix != ".zarr" and place.is_relative_to(top)]
    return [folder.relative_to(top).as_posix() for folder in folders]
