"""The terminal's table of a document: as wide as it may be, no wider."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from r3bench.ledger import KernelResult
from r3bench.report import guards
from r3bench.report.documents import Document, Entry, result_of
from r3bench.report.patches import gain_alone, in_the_tree, known
from r3bench.report.words import baseline_time, busy_line, configured, in_contest, one_line, result_word, speedup
from r3bench.symbols import short_name
from r3bench.worktree import checkout

HEAD = ("kernel", "result", "patch alone", "with configuration", "baseline")
_NARROW = ("kernel", "result", "patch", "with config.", "baseline")

Layout = tuple[Sequence[Sequence[str]], Sequence[str]]


def table(document: Document, width: int = 100) -> str:
    """A search's kernels, largest gain first, or a guard's, worst first; no line longer than ``width`` characters.

    Where it is too narrow, intervals are written shorter, then cells are broken into lines; an interval always stands.
    """
    if document["kind"] == "guard":
        return _fitted(guards.layouts(document), width)
    kernels = [result_of(entry) for entry in document["kernels"]]
    full, short = (columns(kernels, [row(kernel, to) for kernel in kernels]) for to in (" to ", "-"))
    wide, narrow = columns(kernels, [HEAD, _NARROW])
    return _fitted([(full, wide), (full, narrow), (short, narrow)], width)


def _fitted(layouts: Sequence[Layout], width: int) -> str:
    """The first layout that fits; the last one broken into lines where none does."""
    last_rows, last_head = layouts[-1]
    broken = [(last_rows, last_head, limit) for limit in (24, 16, 12, 11, 9, 7)]
    for rows, head, limit in (*((rows, head, None) for rows, head in layouts), *broken):
        text = str(tabulate(_safe(rows), headers=head, tablefmt="simple", maxcolwidths=limit, maxheadercolwidths=limit))
        if max(len(line) for line in text.splitlines()) <= width:
            break
    return text


def _safe(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    return [[one_line(cell) for cell in row] for row in rows]


def row(result: KernelResult, to: str = " to ") -> list[str]:
    """Kernel, result, the two speedups with ``to`` between their bounds, the baseline's time."""
    speedups = speedup(result.arm("patch"), to), configured(result, to)
    return [short_name(result.kernel), result_word(result), *speedups, baseline_time(result)]


def columns(kernels: Sequence[KernelResult], rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """The rows of a table of kernels, without the third column, that of patches, where no search changed a source."""
    if all(kernel.search == "bo" for kernel in kernels):
        return [[*cells[:2], *cells[3:]] for cells in rows]
    return [[*cells] for cells in rows]


# -- what comes next --------------------------------------------------------------------------------------------------


def noted(kernels: Sequence[KernelResult]) -> Iterator[str]:
    """What to know of searches beside their table: which of its numbers are no claims, what disturbed them, and the
    prompts that wait for answers."""
    if any(kernel.baseline_ns and not in_contest(kernel) for kernel in kernels):
        yield "ranked: a quick time within the search, no claim; speedups are those of contests"
    yield from filter(None, [busy_line(kernels)])
    for kernel in kernels:
        yield from (f"{failed.detail} (--r3-resume)" for failed in kernel.failures if failed.status == "no answer yet")


def below(document: Document, folder: Path, top: Path) -> Iterator[str]:
    """What stands below a search's table: where the report in ``folder`` is, the commands that apply its patches one
    after the other, its configurations and what uses them, and the patches left out; paths are shown from ``top``."""

    def shown(name: str) -> str:
        path = folder / name
        return shlex.quote(str(path.relative_to(top) if path.is_relative_to(top) else path))

    entries = document["kernels"]
    if (folder / "report.md").is_file():
        yield f"report: {shown('report.md')}"
    sources = {entry["patch_file"]: entry["source"] for entry in entries}
    patched = [entry for entry in entries if entry["patch_file"] and (folder / entry["patch_file"]).is_file()]
    chosen = applicable(patched)
    yield from (_applying(sources[name], folder / name, top, shown(name)) for name in chosen)
    configured = [entry for entry in entries if entry["configuration_file"]]
    for entry in configured:
        patch = f", with {entry['patch_file']}" if entry["patch_file"] else ""
        yield f"configuration: {shown(entry['configuration_file'])}{patch}"
    if configured and (folder / "ledger").is_dir():  # from which it takes them
        yield f"(r3bench run --with {shown('')} -- ./app runs a CUDA application with all that was found)"
    for entry in patched:
        if entry["patch_file"] not in chosen:
            yield f"left out: {shown(entry['patch_file'])} {left_out(entry, chosen)}"


def _applying(source: str, patch: Path, here: Path, shown: str) -> str:
    """The command that applies a patch, from ``here``: git leaves out what lies above the folder that it runs in."""
    if in_the_tree(source) is None:
        return f"patch: {shown} (git apply it in the tree that has {one_line(source)}: there is none here)"
    tree = checkout(here)
    if tree in (None, here.absolute()):
        return f"git apply {shown}"
    return f"git -C {shlex.quote(str(tree))} apply {shlex.quote(str(patch.absolute()))}"


def applicable(entries: Sequence[Entry]) -> list[str]:
    """Patches that gain alone and apply one after the other, the best first and kept where others overlap with it;
    without what is applied already and what overlaps with that."""
    gains = {entry["patch_file"]: gain_alone(result_of(entry)) for entry in entries}
    others = {entry["patch_file"]: {entry["patch_file"], *entry["overlaps"]} for entry in entries}
    applied = {name for entry in entries for name in entry.get("applied", ())}
    kept: list[str] = []
    for name in sorted(gains, key=lambda name: (-gains[name], name)):
        if gains[name] and not others[name] & {*kept, *applied}:
            kept.append(name)
    return kept


def left_out(entry: Entry, chosen: Iterable[str]) -> str:
    """Why a patch is not among those to apply."""
    applied = entry.get("applied", ())
    overlaps = [name for name in entry["overlaps"] if name in (*chosen, *applied)]
    return next(known(result_of(entry), overlaps, applied), "")
