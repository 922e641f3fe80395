"""Base against head: is a kernel still right, and as fast as it was?

Both sides' sources are built by the same compiler and replayed from the same capture: every unit is checked, and where
the machine code differs both are timed in one job, in blocks of random order, on the first unit. No stored time is
needed, so another machine, driver or clock than yesterday's changes nothing. Where head has another capture than the
base, its source is replayed from the base's as well: results that were recorded again do not pass unseen.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from r3bench import commits, store, syntax, worktree
from r3bench.errors import BuildError, CaptureError
from r3bench.guard import code, recaptured
from r3bench.guard.rulings import Gate, Ruling, rule
from r3bench.model import Capture, Outcome, Status, Variant
from r3bench.server import Server
from r3bench.stats import Comparison
from r3bench.worktree import Folder, Tree

LOOKS = 4  # one more than elsewhere, for a kernel whose interval still crosses a gate: here no verdict costs a rerun
_NO_ANSWER = (Status.UNSUPPORTED, Status.VACUOUS)

__all__ = ["Gate", "Guarded", "Ruling", "Terms", "deleted_stores", "judge", "relative_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The guard's answer for one kernel; ``detail`` is one sentence, ``notes`` are what else to know.

    ``comparison`` is the contest of head (candidate) against base (baseline), None where nothing was timed. ``static``
    counts both sides' code by GPU, empty where it was not compared; ``missing`` says for which there is none, and why.
    ``place`` is file and line of head's kernel.
    """

    kernel: str
    ruling: Ruling
    detail: str
    gate: Gate
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    static: tuple[tuple[str, code.Sides], ...] = ()
    place: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What all kernels of a session share: the two trees, the server, and how many kernels share the error budget."""

    base: Tree
    head: Folder
    server: Server
    kernels: int = 1


@dataclass(frozen=True, slots=True)
class Side:
    """One tree's version of a kernel: None where the tree has none.

    ``place`` is its file and line, ``parameters`` are their types; None where the text could not be read so far.
    ``lent`` are the files that it includes and has not, which are the capture's then.
    """

    name: str
    variant: Variant | None
    place: tuple[str, int] | None = None
    parameters: tuple[str, ...] | None = None
    lent: tuple[str, ...] = ()


def judge(capture: Capture, gate: Gate, terms: Terms) -> Guarded:
    """The ruling on one kernel. CaptureError, TreeError and DeviceUnavailable are raised."""
    base, head = (side_of(capture, tree) for tree in (terms.base, terms.head))
    lost = _lost(capture, head, terms.base)
    ruling, detail, comparison = _ruled(capture, base, head, lost, gate, terms)
    static: code.Compared = {}
    if (comparison is not None or ruling is Ruling.INVALID) and base.variant is not None and head.variant is not None:
        static = code.compared(capture, base.variant, head.variant, terms.server)
    return Guarded(
        kernel=capture.name,
        ruling=ruling,
        detail=detail,
        gate=gate,
        comparison=comparison,
        notes=tuple(_notes(capture, head, lost, terms, static)),
        missing=tuple(code.missing(static)),
        static=tuple(static.items()),
        place=head.place,
    )


Ruled = tuple[Ruling, str, Comparison | None]


def _ruled(capture: Capture, base: Side, head: Side, lost: str, gate: Gate, terms: Terms) -> Ruled:
    if lost:
        return Ruling.WRONG, f"{head.name} has no {lost} any more, which its sources include", None
    if head.variant is None:
        file = _main(capture)
        if base.variant is not None:
            gone = f"{base.name} defines it, {head.name} no longer does; looked for in {file}"
            if new := commits.moved(terms.head.top, file):
                gone += f", which git says is {new} now: record it again from there"
            return Ruling.DELETED, gone, None
        return Ruling.INVALID, f"neither {head.name} nor {base.name} defines it; looked for in {file}", None
    outcomes = _replayed(capture, head.variant, terms.server)
    failed = _first_failed(outcomes)
    if _other_call(base, head):
        other = _other_memory(capture, terms) if failed is None else ""
        ruling = Ruling.RERECORDED if other else Ruling.CHANGED
        return ruling, other or _changed_parameters(base, head, failed), None
    if failed is not None:
        respelled = base.parameters and head.parameters and base.parameters != head.parameters
        if respelled and _is_mangled(capture) and failed.verdict.status is Status.BUILD_FAILED:
            return Ruling.CHANGED, f"{_parameters(base, head)}: record it again", None  # its symbol names them
        also = f"; {_parameters(base, head)}" if respelled else ""
        return _failing(capture, base, failed, terms), in_words(failed) + also, None
    other = _other_results(capture, head.variant, terms)
    if other:
        return Ruling.RERECORDED, other, None
    if base.variant is None:
        return Ruling.NEW, f"{base.name} does not define it; all {len(outcomes)} units match", None
    if base.variant == head.variant:
        return Ruling.IDENTICAL, "the same source", None
    return _contested(capture, base, head, gate, terms)


def _main(capture: Capture) -> str:
    """The file that a kernel was recorded from, in its tree."""
    return worktree.source_path(capture) or "no source"


def _is_mangled(capture: Capture) -> bool:
    return capture.symbol != syntax.plain_name(capture.demangled)


def _lost(capture: Capture, head: Side, base: Tree) -> str:
    """A file that head's sources include and only the base still has; the capture's own would hide that."""
    root = capture.source.root if capture.source is not None else "."
    paths = (posixpath.normpath(posixpath.join(root, path)) for path in head.lent)
    return next((path for path in paths if base.read(path) is not None), "")


def _failing(capture: Capture, base: Side, failed: Outcome, terms: Terms) -> Ruling:
    """Head does not match: its own fault, unless this device cannot run the base either."""
    if failed.verdict.status not in _NO_ANSWER:
        return Ruling.WRONG
    ran_before = base.variant is not None and _first_failed(_replayed(capture, base.variant, terms.server)) is None
    return Ruling.WRONG if ran_before else Ruling.INVALID


def _contested(capture: Capture, base: Side, head: Side, gate: Gate, terms: Terms) -> Ruled:
    """Two sides that differ in their text, of which head is right."""
    assert base.variant is not None
    assert head.variant is not None
    failed = _first_failed(_replayed(capture, base.variant, terms.server))
    if failed is not None:
        return Ruling.CHANGED, f"{base.name} does not give the recorded result, head does: {in_words(failed)}", None
    compared = terms.server.compare(capture, 0, base.variant, head.variant, gate.relative, terms.kernels, LOOKS)
    found = compared.result()
    return *rule(found, gate), found


# -- a capture that was recorded again ------------------------------------------------------------------------------

_ACCEPT = "if that is meant, accept it by leaving 'rerecorded' out of --r3-fail-on"


def _other_results(capture: Capture, head: Variant, terms: Terms) -> str:
    """How head's results differ from those that the base recorded, where it recorded others; empty otherwise."""
    if not _capture_changed(capture, terms):
        return ""
    try:
        with commits.capture_of(terms.base, relative_store(capture, terms.head)) as place:
            before = replace(store.open_capture(place), source=capture.source)
            outcomes = _replayed(before, head, terms.server)
    except CaptureError as error:
        return f"its capture was recorded again, and that of {terms.base.name} cannot be read ({error}); {_ACCEPT}"
    failed = _first_failed([outcome for outcome in outcomes if outcome.verdict.status not in _NO_ANSWER])
    if failed is None:
        return ""
    return f"its results changed together with its capture, by that of {terms.base.name} {in_words(failed)}; {_ACCEPT}"


def _other_memory(capture: Capture, terms: Terms) -> str:
    """How what head's capture holds after a launch differs from what the base's holds: for a kernel with other
    parameters, which cannot be replayed from the base's capture. Empty where nothing differs or can be told."""
    if not _capture_changed(capture, terms):
        return ""
    try:
        with commits.capture_of(terms.base, relative_store(capture, terms.head)) as place:
            found = recaptured.differing(store.open_capture(place), capture)
    except CaptureError as error:
        return f"its capture was recorded again, and that of {terms.base.name} cannot be read ({error}); {_ACCEPT}"
    if not found:
        return ""
    return f"with other parameters it leaves other results than {terms.base.name} recorded: {found}; {_ACCEPT}"


# -- what the two sides are -----------------------------------------------------------------------------------------


def side_of(capture: Capture, tree: Tree) -> Side:
    """A tree's version of a kernel; absent where no file of it so much as names the kernel."""
    found = worktree.variant(capture, tree)
    name = syntax.plain_name(capture.demangled)
    texts = dict(found.files or ()) if found is not None else {}
    if found is None or not any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts.values()):
        return Side(tree.name, None)
    lent, source = worktree.lent(capture, found), capture.source
    assert source is not None
    try:
        path, kernel = syntax.defined_in(texts, source.main, syntax.scoped_name(capture.demangled))
    except BuildError:
        return Side(tree.name, found, lent=lent)
    place = worktree.place_of(source, path), kernel.span[0]
    return Side(tree.name, found, place, tuple(map(_type, kernel.parameters)), lent)


def _type(parameter: syntax.ParameterText) -> str:
    """A parameter's type without what does not change how the kernel is called."""
    return f"{parameter.type}{'*' * parameter.pointer}{'&' * parameter.reference}"


def _other_call(base: Side, head: Side) -> bool:
    """Whether the recorded arguments cannot be meant for both: another number of them, or other ones are pointers.

    How a type is spelled says little (``double*`` may have become ``real_t*``): what runs is judged by its results.
    """
    if base.parameters is None or head.parameters is None:
        return False
    before, after = ([re.sub(r"[^*&]", "", kind) for kind in side] for side in (base.parameters, head.parameters))
    return before != after


def _parameters(base: Side, head: Side) -> str:
    before, after = (", ".join(side.parameters or ()) for side in (base, head))
    return f"its parameters were ({before}) and are ({after})"


def _changed_parameters(base: Side, head: Side, failed: Outcome | None) -> str:
    if failed is None:
        return f"{_parameters(base, head)}; head gives the recorded result, the base cannot run on this capture"
    return f"{_parameters(base, head)}: record it again"


def _replayed(capture: Capture, variant: Variant, server: Server) -> list[Outcome]:
    """Outcomes on every unit; nothing is timed."""
    pending: list[Future[Outcome]] = [
        server.submit(capture, variant, unit.index, timing="none") for unit in capture.units
    ]
    return [future.result() for future in pending]


def _first_failed(outcomes: Sequence[Outcome]) -> Outcome | None:
    return next((outcome for outcome in outcomes if outcome.verdict.status is not Status.MATCH), None)


def in_words(outcome: Outcome) -> str:
    """An outcome that is no match in one line."""
    return f"unit {outcome.unit}: {outcome.verdict.status.value}: {outcome.verdict.detail}"


# -- what else to know ----------------------------------------------------------------------------------------------


def _notes(capture: Capture, head: Side, lost: str, terms: Terms, static: code.Compared) -> Iterator[str]:
    if head.lent and not lost:
        yield f"{head.name} has no {', '.join(head.lent)}, which its sources include: the capture's was built"
    if _capture_changed(capture, terms):
        yield f"its capture is not that of {terms.base.name}: both sides were judged by the new one"
    yield from code.notes(static)


def _capture_changed(capture: Capture, terms: Terms) -> bool:
    """Whether the base has the same store with other contents: equal contents are equal bytes of its root document."""
    name = relative_store(capture, terms.head)
    root = name if name.endswith(".zip") else f"{name}/zarr.json"
    before = terms.base.read(root)
    return before is not None and before != terms.head.read(root)


def relative_store(capture: Capture, head: Folder) -> str:
    """A capture's path in its tree, or as it is where it lies elsewhere."""
    path, top = Path(capture.path).resolve(), head.top.resolve()
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else str(path)


def deleted_stores(base: Tree, head: Tree, below: Sequence[str]) -> list[str]:
    """Captures of the base below some folders that head no longer has."""
    there = {name for folder in below for name in base.stores(folder)}
    return sorted(there - {name for folder in below for name in head.stores(folder)})
