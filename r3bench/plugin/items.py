"""How a store becomes test items.

A store ``captures/<app>/<kernel>.zarr`` is collected as a directory that holds one file, its ``zarr.json``, with the
items ``correctness[unit]``, ``timing[unit]`` and ``evolve``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from r3bench.errors import CaptureError, R3Error
from r3bench.plugin.checks import Finding, broken, check_correctness, check_timing
from r3bench.plugin.guards import run_guard
from r3bench.plugin.options import check_device, check_reports, check_server, option
from r3bench.plugin.searches import run_evolve

if TYPE_CHECKING:
    from r3bench.model import Capture

    Check = Callable[["CaptureItem"], None]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claims stores, so that pytest never looks for (or imports) test files inside one."""
    if path.suffix == ".zarr":
        return StoreDirectory.from_parent(parent, path=path)
    return None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name.endswith((".zarr.zip", ".zarr")):  # the latter a file where a folder should be: one failed item
        return StoreFile.from_parent(parent, path=file_path)
    return None


class StoreDirectory(pytest.Directory):
    """A ``.zarr`` folder."""

    def collect(self) -> Iterator[pytest.Collector]:
        yield StoreFile.from_parent(self, path=self.path / "zarr.json")


class StoreFile(pytest.File):
    """One capture: reads its metadata only, so that collecting needs neither a device nor a compiler."""

    def collect(self) -> Iterator[pytest.Item]:
        from r3bench import store

        path = self.path.parent if self.path.name == "zarr.json" else self.path
        try:
            capture = store.open_capture(path)
        except CaptureError as error:
            # An item that fails, not a collection error: the other captures still run.
            kinds = ("guard",) if option(self.config, "guard") else ("correctness", "timing")
            for kind in kinds:  # all that judge, so that no -k passes a damaged store over
                yield self._item(f"{kind}[capture]", broken(error))
            return
        if option(self.config, "guard"):
            yield self._item("guard", run_guard, capture)
        for unit in capture.units:
            yield self._item(f"correctness[{unit.index}]", check_correctness, capture, unit.index)
        for unit in capture.units:
            yield self._item(f"timing[{unit.index}]", check_timing, capture, unit.index)
        yield self._item("evolve", run_evolve, capture)

    def _item(self, name: str, check: Check, capture: Capture | None = None, unit: int = 0) -> CaptureItem:
        item: CaptureItem = CaptureItem.from_parent(self, name=name, check=check, capture=capture, unit=unit)
        return item


class CaptureItem(pytest.Item):
    """One check of one capture (None where the store is damaged): ``check(item)`` does it."""

    def __init__(
        self,
        name: str,
        parent: pytest.Collector,
        check: Check,
        capture: Any = None,
        unit: int = 0,
    ) -> None:
        # Spelled out, so that pytest reads "[unit]" as it reads it back from its cache: --lf compares the two.
        super().__init__(name, parent, nodeid=f"{parent.nodeid}::{name}")
        self.check = check
        self.capture: Capture = capture
        self.unit = unit

    def runtest(self) -> None:
        self.check(self)

    @property
    def kind(self) -> str:
        return self.name.partition("[")[0]

    def reportinfo(self) -> tuple[Path, int, str]:
        store = self.path.parent if self.path.name == "zarr.json" else self.path
        return self.path, 0, f"{store.name}::{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A finding is one sentence; only an error of ours or the user's is shown with its traceback."""
        if isinstance(excinfo.value, (R3Error, Finding)):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Leaves out what was not asked for, and keeps timings under ``--benchmark-only``."""
    if option(config, "guard"):
        keep_guards(config, items)
    ours = [item for item in items if isinstance(item, CaptureItem)]
    before = {item: list(item.own_markers) for item in ours if item.kind == "timing"}
    yield
    if config.getoption("benchmark_only", False):
        for item, markers in before.items():
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "skip" or mark in markers]
    for item in ours:
        if item.kind == "evolve" and not option(config, "evolve"):
            item.add_marker(pytest.mark.skip(reason="searches only with --r3-evolve"))
        if item.kind == "timing" and config.getoption("benchmark_skip", False):
            item.add_marker(pytest.mark.skip(reason="timings are skipped with --benchmark-skip"))


def keep_guards(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The guard alone judges captures: it checks what the other items check, and times only where code differs."""
    others = [item for item in items if isinstance(item, CaptureItem) and item.kind != "guard"]
    items[:] = [item for item in items if item not in set(others)]
    config.hook.pytest_deselected(items=others)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What would fail every item is said once, before any runs; an xdist worker leaves it to its items."""
    config = session.config
    kinds = {
        item.kind for item in session.items if isinstance(item, CaptureItem) and not item.get_closest_marker("skip")
    }
    if config.getoption("collectonly") or hasattr(config, "workerinput") or not kinds:
        return
    check_server(config)
    check_device(config)
    if kinds & {"evolve", "guard"} or option(config, "history"):
        check_reports(config)
