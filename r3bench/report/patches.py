"""Source changes as patches that ``git apply`` accepts, and which of them exclude each other."""

from __future__ import annotations

import difflib
import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from r3bench.ledger import FileChange, KernelResult
from r3bench.report.words import device_line, duration, file_name, held_out, no_control, one_line, words
from r3bench.stats import Decision
from r3bench.symbols import full_name, short_name
from r3bench.syntax import find_kernel, kernels, scoped_name
from r3bench.worktree import checkout


def diff(result: KernelResult) -> str | None:
    """The source change in git's format, relative to the repository's root; None where there is none."""
    return "".join(map(_diff, _patched(result))) or None


def changed(result: KernelResult) -> list[str]:
    """The files that a patch changes, relative to the repository's root, in its order."""
    return [change.path for change in _patched(result)]


def _diff(change: FileChange) -> str:
    old, new = _quoted("a/" + change.path), _quoted("b/" + change.path)
    tab = "\t" if " " in change.path else ""
    body = list(difflib.unified_diff(_lines(change.before), _lines(change.after), n=3))[2:]
    head = f"diff --git {old} {new}\n--- {old}{tab}\n+++ {new}{tab}\n"
    return head + "".join(_ended(line) for line in body)


def _patched(result: KernelResult) -> tuple[FileChange, ...]:
    """What a patch changes: as the result says, with a comment above the kernel where it relies on what may not hold in
    other launches.

    A comment changes no code: the text that was verified is the same without it.
    """
    return replace(result, after=_commented(result)).changes if result.changes else ()


def _commented(result: KernelResult) -> str:
    text, symbol = result.after or "", result.kernel.partition("/")[2]
    names = [name for name in kernels(text) if symbol == name or f"{len(name)}{name}" in symbol]
    if not result.relies_on or not names:
        return text
    lines = _lines(text)
    named = scoped_name(short_name(result.kernel))
    own = named if named.rpartition("::")[2] in names else max(names, key=len)
    at = find_kernel(text, own).span[0] - 1
    if at and lines[at - 1].rstrip().endswith("\\"):  # inside a macro
        return text
    said = no_control("; ".join(result.relies_on)).rstrip("\\")
    end = "\r\n" if lines[at].endswith("\r\n") else "\n"
    return "".join((*lines[:at], f"// r3bench: {said}.{end}", *lines[at:]))


def _lines(text: str) -> list[str]:
    """Lines as git counts them: ended by a line feed, whatever else is in them."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _ended(line: str) -> str:
    return line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"


def _quoted(path: str) -> str:
    """A path as git writes it: in quotes where it holds quotes, backslashes or other than printable ASCII."""
    if re.fullmatch(r"[ !#-\[\]-~]*", path):
        return path
    special = {34: '\\"', 92: "\\\\", 9: "\\t", 10: "\\n"}
    written = path.encode(errors="surrogatepass")
    return '"' + "".join(special.get(b, chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in written) + '"'


_CONTEXT = 3  # unchanged lines around a change in a patch: git applies it only where they are as they were


def _ranges(change: FileChange) -> list[tuple[int, int]]:
    """The ranges of lines of the original text that a patch replaces; an empty range is an insertion."""
    matcher = difflib.SequenceMatcher(None, _lines(change.before), _lines(change.after))
    return [(start, end) for tag, start, end, _, _ in matcher.get_opcodes() if tag != "equal"]


def _holds(text: str, change: FileChange, side: str) -> bool:
    """Whether a text has all that a patch makes (``side`` is ``+``) or replaces (``-``), with the lines around."""
    hunks = re.split(r"^@@ .*\n", _diff(change), flags=re.MULTILINE)[1:]
    held = ("".join(line[1:] for line in _lines(hunk) if line[0] in (" ", side)) for hunk in hunks)
    return bool(hunks) and all(f"\n{lines}" in f"\n{text}\n" for lines in held)


def _follows(second: KernelResult, first: KernelResult) -> bool:
    """Whether a kernel was searched in a text that has the patch of another."""
    texts = _searched(second)
    own = ((texts[change.path], change) for change in _patched(first) if change.path in texts)
    return any(text != change.before and _holds(text, change, "+") for text, change in own)


def _searched(result: KernelResult) -> dict[str, str]:
    """The texts by path, as far as a result tells them, in which a kernel was searched."""
    texts = {result.source: result.before, **{change.path: change.before for change in result.others}}
    return {path: text for path, text in texts.items() if path and text}


def overlap(first: KernelResult, second: KernelResult) -> bool:
    """Whether one patch no longer applies after the other: both change a region of one file."""
    pairs = product(_patched(first), _patched(second))
    return any(one.path == other.path and _meet(one, other) for one, other in pairs)


def _meet(first: FileChange, second: FileChange) -> bool:
    if first.before != second.before:
        either = ((first, second), (second, first))
        return not any(_holds(b.before, a, "+") or _holds(a.after, b, "-") for a, b in either)
    pairs = product(_ranges(first), _ranges(second))
    return any(a[0] <= b[1] + _CONTEXT and b[0] <= a[1] + _CONTEXT for a, b in pairs)


def gain_alone(result: KernelResult) -> float:
    """The speedup claimed for a patch under the default compiler, all that ``git apply`` brings; 0 for none."""
    alone = result.arm("patch")
    return alone.speedup or 0.0 if alone is not None and alone.decision is Decision.FASTER else 0.0


def needs_words(result: KernelResult) -> str:
    """What a patch gains nothing without; empty where it gains alone."""
    return "" if gain_alone(result) else f"gains only with its configuration, {file_name(result.kernel)}.json"


def overlap_line(result: KernelResult, others: Iterable[KernelResult]) -> str:
    """What a patch overlaps with, and what to do about it; empty where it overlaps with none."""
    return overlap_words(overlapping(result, others))


def known(result: KernelResult, overlaps: Sequence[str], applied: Sequence[str]) -> Iterator[str]:
    """What to know of a patch before it is applied, where it overlaps with those named and some are applied already."""
    if f"{file_name(result.kernel)}.patch" in applied:
        yield "is applied already"
    else:
        yield from filter(None, (needs_words(result), overlap_words(overlaps, applied)))


def overlap_words(names: Sequence[str], applied: Sequence[str] = ()) -> str:
    """What it means that a patch overlaps with the patches of these names; empty where there are none."""
    if gone := [name for name in names if name in applied]:
        return f"overlaps with {', '.join(gone)}, applied already: search again"
    return f"overlaps with {', '.join(names)}: apply one, then search again" if names else ""


def overlapping(result: KernelResult, others: Iterable[KernelResult]) -> list[str]:
    found = [other for other in others if other.kernel != result.kernel and overlap(result, other)]
    return sorted(f"{file_name(other.kernel)}.patch" for other in found)


def mixed(results: Iterable[KernelResult]) -> list[str]:
    """Which kernels of one file were searched from different texts of it, as when a patch was applied in between; whose
    patch that is goes without saying."""
    every, files = list(results), dict[str, dict[str, list[str]]]()
    for result in every:
        for path, text in _searched(result).items() if not any(_follows(other, result) for other in every) else ():
            files.setdefault(path, {}).setdefault(text, []).append(short_name(result.kernel))
    return [
        f"between searches {source} changed ({' | '.join(', '.join(names) for names in texts.values())}): their times "
        "have different baselines, and their patches may not combine; search again what is not of the working tree"
        for source, texts in files.items()
        if len(texts) > 1
    ]


def moved_on(results: Iterable[KernelResult]) -> list[str]:
    """Which kernels were searched from a text that is no longer that of their file in the working tree, but for those
    whose patch it has."""
    every, files = list(results), dict[str, list[str]]()
    applied = in_place(every)
    for result in every:
        for path, text in _searched(result).items() if result not in applied else ():
            place = in_the_tree(path)
            if place is not None and place.read_bytes() != text.encode(errors="surrogatepass"):
                files.setdefault(path, []).append(short_name(result.kernel))
    return [
        f"after it was searched for {', '.join(names)}, {source} was changed: what is said of them is of its earlier "
        "text, and their patches may not apply; search again"
        for source, names in files.items()
    ]


def in_place(results: Iterable[KernelResult]) -> list[KernelResult]:
    """Those whose patches the working tree has already, be it that later ones have changed their lines again."""
    every = [result for result in results if result.changes]
    found = [result for result in every if _in_the_text(result)]
    while below := [r for r in every if r not in found and any(_follows(later, r) for later in found)]:
        found += below
    return found


def _in_the_text(result: KernelResult) -> bool:
    return all(map(_is_in_place, _patched(result)))


def _is_in_place(change: FileChange) -> bool:
    place = in_the_tree(change.path)
    return place is not None and _holds(place.read_bytes().decode(errors="surrogateescape"), change, "+")


def in_the_tree(source: str) -> Path | None:
    """A file of the tree that the working directory is in; None where it is not there."""
    here = Path.cwd()
    return next((top / source for top in (here, *here.parents) if (top / source).is_file()), None)


def patch(result: KernelResult, others: Iterable[KernelResult] = (), folder: Path | None = None) -> str | None:
    """The patch with its evidence in front; ``git apply`` skips what stands in front of ``diff --git``.

    ``others`` are the results whose patches lie beside it, in ``folder``.
    """
    change = diff(result)
    if change is None:
        return None
    where = " on a CPU" if result.device == "cpu" else ""
    gain = f", {gain_alone(result):.2f}x faster{where}" if gain_alone(result) else ""
    title = one_line(f"{full_name(result.kernel)}{gain}: {result.description}")
    lines = [*textwrap.wrap(title, 100, subsequent_indent="  ", break_on_hyphens=False), ""]
    lines += [*_numbers(result), "", _launch_change(result)]
    lines += [f"Valid where: {'; '.join(result.relies_on)}."] if result.relies_on else []
    lines += [
        f"Baseline: {result.baseline}, {duration(result.baseline_ns)} a launch.",
        device_line(result.device, result.target),
    ]
    lines += [_held_out(result), *also(result)]
    lines += [f"It {known}." for known in (needs_words(result), overlap_line(result, others)) if known]
    if result.configuration is not None:
        lines.append(f"The configuration that belongs to it is in {file_name(result.kernel)}.json.")
    lines += [f"{APPLY}git apply {_from_the_top(folder or Path(), file_name(result.kernel))}", ""]
    lines += [f"R3bench-Kernel: {result.kernel}", f"R3bench-Capture: {result.capture}"]
    lines += [f"R3bench-Device: {result.device}", ""]
    return "\n".join(no_control(line) for line in lines) + "\n" + change


APPLY = "Apply in the top folder of the repository with: "


def _from_the_top(folder: Path, name: str) -> str:
    """A patch's path from the top of the repository that its folder lies in, ready for a shell; its name where none."""
    path = folder.resolve() / f"{name}.patch"
    top = checkout(path) or path.parent
    return shlex.quote(path.relative_to(top).as_posix())


_ARMS = (
    ("patch", "our compiler, default configuration"),
    ("patch and configuration", "our compiler, with the configuration found"),
    ("own compiler", "your own compiler, on the patched source"),
)


def _numbers(result: KernelResult) -> Iterator[str]:
    """What the change gains under each compiler, or why that is not known."""
    for arm, name in _ARMS:
        found = result.arm(arm)
        yield f"{name}: {words(found) if found is not None else _not_measured(result, arm)}"
    toolchain = result.arm("toolchain")
    if toolchain is not None:
        yield f"toolchain (our compiler on the unchanged source): {words(toolchain)}"


def _not_measured(result: KernelResult, arm: str) -> str:
    if arm == "patch and configuration":
        return "no configuration surely adds to the patch"
    if arm == "patch":
        return "not measured"
    if result.device == "cpu":
        return "not measured: the times here are those of a CPU"
    if result.baseline != "recorded image":
        return "not measured: the capture holds no image that your compiler made"
    return "not measured: neither nvcc nor NVRTC was here to build it"


def _launch_change(result: KernelResult) -> str:
    """The block that belongs to the configuration; the patch itself changes no launch."""
    launch = json.loads(result.configuration).get("launch") if result.configuration else None
    if not launch:
        return "Launch change: none."
    block, work = ("x".join(map(str, shape)) for shape in (launch["block"], launch.get("per_thread", (1, 1, 1))))
    threads = "as many threads run" if work == "1x1x1" else f"a thread runs for {work} recorded ones"
    return f"Launch change, not in this patch: block {block}, the grid so that {threads}."


def also(result: KernelResult) -> Iterator[str]:
    """The other kernels that a patch changes, and whether that was checked."""
    unknown = [name for name in result.also_changes if name not in result.also_checked]
    if result.also_checked:
        yield f"It also changes {', '.join(result.also_checked)}: their recorded launches match, but were not timed."
    if unknown:
        yield f"It also changes {', '.join(unknown)}: not checked, for want of a recorded launch that replays."


def _held_out(result: KernelResult) -> str:
    found = next((p.held_out for p in result.promotions if p.promoted), 0)
    also = f"; checked, not timed, on {held_out(found)}" if found else ", the only one that it was checked on"
    return f"Timed on the recorded launch of the search{also}."
