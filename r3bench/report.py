"""Ledger -> one JSON document per application; terminal table, Markdown and patches are renderings of it.

Nothing here can start a kernel. Everything that comes from kernels, compilers or file names is escaped where it is
shown. Files are written under a temporary name and renamed, so a reader sees the old report or the new one.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tabulate import tabulate

from r3bench.ledger import Arm, KernelResult, SourceResult, encode, read, results
from r3bench.stats import Comparison, Decision

FORMAT = 1
Document = Mapping[str, Any]

# -- the document ---------------------------------------------------------------------------------------------------


def applications(ledger: Path) -> tuple[dict[str, list[KernelResult]], int]:
    """The results in a ledger by application, and how many of its lines are damaged. LedgerError as for reading."""
    records, damaged = read(ledger)
    found: dict[str, list[KernelResult]] = {}
    for result in results(records):
        found.setdefault(result.kernel.split("/")[0], []).append(result)
    return found, damaged


def document(application: str, kernels: Sequence[KernelResult], damaged_lines: int = 0) -> Document:
    """The report of one application as plain JSON data without absolute paths; kernels with the largest gain first."""
    ordered = _ordered([_portable(kernel) for kernel in kernels])
    return {
        "format": FORMAT,
        "application": application,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": kernels[0].device if kernels else "",
        "target": kernels[0].target if kernels else "",
        "conditions": dict(kernels[0].conditions) if kernels else {},
        "damaged_ledger_lines": damaged_lines,
        "kernels": [{**_kernel(result), "overlaps": _overlapping(result, ordered)} for result in ordered],
    }


def _ordered(kernels: Iterable[KernelResult]) -> list[KernelResult]:
    """Largest gain first."""
    return sorted(kernels, key=lambda k: (-_gain(k), k.kernel))


def _gain(result: KernelResult) -> float:
    """The largest speedup that was claimed; 0 where none was."""
    faster = [arm.comparison for arm in result.arms if arm.comparison.decision is Decision.FASTER]
    return max((comparison.speedup or 0.0 for comparison in faster), default=0.0)


def _portable(result: KernelResult) -> KernelResult:
    """A result whose capture is named relative to the working directory or its repository, else by its name alone."""
    path = Path(result.capture)
    if not path.is_absolute():
        return result
    repository = next((folder for folder in path.parents if (folder / ".git").exists()), None)
    roots = (Path.cwd(), *([repository] if repository is not None else []))
    name = next((path.relative_to(root).as_posix() for root in roots if path.is_relative_to(root)), path.name)
    return replace(result, capture=name, detail=result.detail.replace(result.capture, name))


def _kernel(result: KernelResult) -> dict[str, Any]:
    kept = {key: value for key, value in encode(result).items() if key not in ("before", "after", "arms")}
    return {
        **kept,
        "configuration": json.loads(result.configuration) if result.configuration else None,
        "arms": {arm.name: _arm(arm) for arm in result.arms},
        "diff": diff(result),
        "patch_file": f"{file_name(result)}.patch" if result.after is not None else None,
        "configuration_file": f"{file_name(result)}.json" if result.configuration else None,
    }


def _arm(arm: Arm) -> dict[str, Any]:
    """A comparison with its numbers; the claim's repetition beside it."""
    data = encode(arm.comparison)
    return {key: value for key, value in data.items() if key not in ("verdict", "refused") or arm.comparison.refused}


def file_name(result: KernelResult) -> str:
    """A name for a kernel's files: its symbol, made safe and short."""
    symbol = result.kernel.split("/", 1)[-1]
    safe = re.sub(r"[^\w.-]", "_", symbol)[:80]
    return safe if safe == symbol and safe != "report" else f"{safe}-{hashlib.sha256(symbol.encode()).hexdigest()[:8]}"


# -- the patch --------------------------------------------------------------------------------------------------------


def diff(result: KernelResult) -> str | None:
    """The source change in git's format, relative to the repository's root; None where there is none."""
    if result.after is None:
        return None
    old, new = _quoted("a/" + result.source), _quoted("b/" + result.source)
    tab = "\t" if " " in result.source else ""
    body = list(difflib.unified_diff(_lines(result.before), _lines(result.after), n=3))[2:]
    head = f"diff --git {old} {new}\n--- {old}{tab}\n+++ {new}{tab}\n"
    return head + "".join(_ended(line) for line in body)


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
    return '"' + "".join(special.get(b, chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in path.encode()) + '"'


_CONTEXT = 3  # unchanged lines around a change in a patch: git applies it only where they are as they were


def _changes(result: KernelResult) -> list[tuple[int, int]]:
    """The ranges of lines of the original text that a patch replaces; an empty range is an insertion."""
    matcher = difflib.SequenceMatcher(None, _lines(result.before), _lines(result.after or ""))
    return [(start, end) for tag, start, end, _, _ in matcher.get_opcodes() if tag != "equal"]


def overlap(first: KernelResult, second: KernelResult) -> bool:
    """Whether one patch no longer applies after the other: both change a region of one file, or not the same text."""
    if first.after is None or second.after is None or first.source != second.source:
        return False
    if first.before != second.before:
        return True
    pairs = ((a, b) for a in _changes(first) for b in _changes(second))
    return any(a[0] <= b[1] + _CONTEXT and b[0] <= a[1] + _CONTEXT for a, b in pairs)


def applicable(kernels: Sequence[KernelResult]) -> list[KernelResult]:
    """Results whose patches apply one after the other; where some overlap, the one with the largest gain is kept."""
    kept: list[KernelResult] = []
    for result in sorted(kernels, key=lambda k: (-_patch_gain(k), k.kernel)):
        if result.after is not None and not any(overlap(result, other) for other in kept):
            kept.append(result)
    return kept


def _patch_gain(result: KernelResult) -> float:
    alone = result.arm("patch")
    return alone.speedup or 0.0 if alone is not None and alone.decision is Decision.FASTER else 0.0


def overlap_line(result: KernelResult, others: Iterable[KernelResult]) -> str:
    """What a patch overlaps with, and what to do about it; empty where it overlaps with none."""
    names = _overlapping(result, others)
    return f"overlaps with {', '.join(names)}: apply one, then search again" if names else ""


def _overlapping(result: KernelResult, others: Iterable[KernelResult]) -> list[str]:
    found = [other for other in others if other.kernel != result.kernel and overlap(result, other)]
    return sorted(f"{file_name(other)}.patch" for other in found)


def patch(result: KernelResult, application: str, others: Iterable[KernelResult] = ()) -> str | None:
    """The patch with its evidence in front; ``git apply`` skips what stands in front of ``diff --git``.

    ``others`` are the results whose patches lie beside it.
    """
    change = diff(result)
    if change is None:
        return None
    title = _one_line(f"{result.kernel}: {result.description}")
    lines = [*textwrap.wrap(title, 100, subsequent_indent="  ", break_on_hyphens=False), ""]
    lines += [f"{arm.name}: {_words(arm.comparison)}" for arm in result.arms]
    lines += [
        "",
        f"Baseline: {result.baseline}, {_time(result.baseline_ns)} a launch.",
        device_line(result.device, result.target),
    ]
    lines += [_held_out(result), *_also(result)]
    overlapping = overlap_line(result, others)
    lines += [f"It {overlapping}."] if overlapping else []
    if result.configuration is not None:
        lines.append(f"The configuration that belongs to it is in {file_name(result)}.json.")
    lines += [f"Apply with: git apply reports/{application}/{file_name(result)}.patch", ""]
    return "\n".join(_no_control(line) for line in lines) + "\n" + change


def _also(result: KernelResult) -> Iterator[str]:
    """The other kernels of the file that a patch changes, and whether that was checked."""
    unknown = [name for name in result.also_changes if name not in result.also_checked]
    if result.also_checked:
        yield f"It also changes {', '.join(result.also_checked)}: their recorded launches match."
    if unknown:
        yield f"It also changes {', '.join(unknown)}: not checked, for want of a recorded launch that replays."


def _held_out(result: KernelResult) -> str:
    units = next((p for p in result.promotions if p.promoted), None)
    if units is None:
        return "Checked on the recorded launch of the search."
    return f"Checked on the recorded launch of the search and on {units.held_out} held-out launches."


def _one_line(text: str) -> str:
    """Text that cannot end the comment it stands in."""
    return " ".join(_no_control(text).split())


def _no_control(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", " ", text)


# -- words ------------------------------------------------------------------------------------------------------------


def device_line(device: str, target: str) -> str:
    """Where times were taken, and what they say nothing about."""
    if device == "cpu":
        return f"Times are CPU times ({target}); they say nothing about a GPU."
    return f"Times were taken on {device} ({target})."


def _time(ns: float | None) -> str:
    if ns is None:
        return "-"
    for limit, unit in ((1e3, "ns"), (1e6, "us"), (1e9, "ms")):
        if ns < limit:
            return f"{ns * 1e3 / limit:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def _words(comparison: Comparison) -> str:
    """A comparison in one line: decision, speedup, interval, confidence, smallest effect."""
    if comparison.speedup is None or comparison.decision is Decision.REFUSED:
        return f"{comparison.decision.value}: the {comparison.refused} gave {comparison.verdict.status.value}"
    if comparison.decision is Decision.IDENTICAL:
        return "identical machine code and launch, nothing was timed"
    return (
        f"{comparison.decision.value}, {_speedup(comparison)} at {comparison.confidence:.2%} confidence from "
        f"{comparison.blocks} blocks; smallest effect that could have been seen {comparison.smallest_effect:.1%}"
    )


def _speedup(comparison: Comparison | None, interval: bool = True) -> str:
    if comparison is None:
        return "-"
    if comparison.speedup is None:
        return "refused"
    if comparison.decision is Decision.UNSTABLE:
        return "unstable"
    timed = comparison.low is not None and comparison.high is not None and comparison.decision is not Decision.IDENTICAL
    if not timed or not interval:
        return f"{comparison.speedup:.2f}x"
    return f"{comparison.speedup:.2f}x ({comparison.low:.2f} to {comparison.high:.2f})"


# -- renderings -------------------------------------------------------------------------------------------------------

_HEAD = ("kernel", "result", "patch alone", "with configuration", "baseline")
_NARROW = ("kernel", "result", "patch", "with config.", "baseline")


def table(kernels: Sequence[KernelResult], width: int = 100) -> str:
    """The terminal's table, largest gain first, no line longer than ``width`` characters.

    Where it is too narrow, first the intervals go, then long names are broken into lines.
    """
    ordered = _ordered(kernels)
    shared = len({k.kernel.split("/")[0] for k in kernels}) == 1
    full, short = ([_row(k, shared=shared, intervals=wanted) for k in ordered] for wanted in (True, False))
    plain = [(full, _HEAD, None), (full, _NARROW, None), (short, _NARROW, None)]
    broken = [(short, _NARROW, limit) for limit in (24, 16, 12, 9, 7)]
    for rows, head, limit in (*plain, *broken):
        text = str(tabulate(rows, headers=head, tablefmt="simple", maxcolwidths=limit, maxheadercolwidths=limit))
        if max(len(line) for line in text.splitlines()) <= width:
            break
    return text


def _row(result: KernelResult, *, shared: bool = False, intervals: bool = True) -> list[str]:
    full = result.arm("patch and configuration") or result.arm("configuration")
    alone = result.arm("patch")
    name = result.kernel.split("/", 1)[-1] if shared else result.kernel
    speedups = [_speedup(comparison, intervals) for comparison in (alone, full)]
    return [_one_line(name), _result(result), *speedups, _time(result.baseline_ns)]


def _result(result: KernelResult) -> str:
    """The outcome in a word or two; unstable where the best finalist's claim was not confirmed."""
    best = next((p.decision for p in result.promotions if p.decision is not None), None)
    if result.status != "not improved":
        return result.status
    return "unstable" if best is Decision.UNSTABLE else "no gain"


def markdown(kernels: Sequence[KernelResult], application: str) -> str:
    """The report for people: what was gained, how sure it is, what was tried and what failed."""
    ordered = _ordered(kernels)
    improved = sum(k.status == "improved" for k in ordered)
    parts = [f"# {_escape(application)}: {improved} of {len(ordered)} kernels improved", ""]
    if ordered:
        parts += [device_line(ordered[0].device, ordered[0].target), ""]
    busy = busy_line(ordered)
    parts += [_sentence(_escape(busy)), ""] if busy else []
    rows = [[*_row(result), str(result.evaluations)] for result in ordered]
    parts += [_grid((*_HEAD, "evaluations"), rows), "", *_legend(ordered)]
    for result in ordered:
        parts += ["", *_section(result, application, ordered)]
    return "\n".join(parts) + "\n"


def busy_line(kernels: Iterable[KernelResult]) -> str:
    """That other work disturbed the measurements; empty where it did not.

    The smallest load counts that any search began with: a search is a load itself for the one that comes after it.
    """
    found = [dict(kernel.conditions) for kernel in kernels]
    cores = [(float(c["load"]), int(c.get("cores", c.get("threads", "0")))) for c in found if "load" in c]
    load, number = min(cores, default=(0.0, 0))
    if not 0 < number < load:
        return ""
    return (
        f"the machine was busy (load {load:.1f} on {number} core{'s' * (number > 1)}): intervals are wide, "
        "run again on a quiet machine"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


_LEGEND = """\
How to read this:

- *result*: *improved*: the whole interval lies above the baseline by more than the gate; *no gain*: no candidate was \
surely faster by more than the gate; *unstable*: the best candidate's gain was not confirmed by a second contest in a \
fresh process; *failed*: the baseline itself does not replay; *interrupted*: stopped before it was done.
- *patch alone*: the changed source under the default compiler and the recorded launch; *with configuration*: with the \
compiler configuration and block shape found, and the source change where there is one. A dash: there is no such \
candidate, or it adds nothing that is sure. Each was compared with the baseline on the launch of the search, one patch \
at a time.
- *evaluations*: all replays of a search: the trials of all sources, the best ones timed again, checks on further \
launches and on other kernels.
- tables of sources: *trials*: configurations tried on this source; *matched*: those with the right result and a time; \
*default*: its time under the default compiler and the recorded launch; *best*: that of its best configuration. These \
are quick measurements that rank, not claims."""

_CONFIGURATION = """\
- `<kernel>.json` is a compile configuration of r3bench's own pipeline: passes, facts compiled in, and launch. Putting \
it back into an application automatically is not part of this version. By hand: change the block's shape where the \
kernel is launched (and the grid with it); make arguments that were compiled in constants (`constexpr`, a template \
parameter); write unrolling as `#pragma unroll`, pointers that do not overlap as `__restrict__`, launch bounds as \
`__launch_bounds__`. Passes and LLVM options have no such counterpart."""


def _legend(kernels: Sequence[KernelResult]) -> Iterator[str]:
    yield _LEGEND
    if any(kernel.configuration is not None for kernel in kernels):
        yield _CONFIGURATION
    for rule, sentence in dict(pair for kernel in kernels for pair in kernel.rules).items():
        yield f"- rule *{_escape(rule)}*: {_escape(sentence)}"


def _section(result: KernelResult, application: str, kernels: Sequence[KernelResult]) -> Iterable[str]:
    yield f"## {_escape(result.kernel)}"
    yield ""
    yield (
        f"{_escape(_result(result).capitalize())}: {_escape(result.detail)}. Baseline: {_escape(result.baseline)}, "
        + (
            f"{_time(result.baseline_ns)} a launch; {result.evaluations} evaluations in {result.seconds:.0f} s, "
            f"seed {result.seed}."
        )
    )
    yield ""
    for arm in result.arms:
        yield f"- {arm.name}: {_escape(_words(arm.comparison))}"
    yield from _offered(result, application, kernels)
    for promotion in result.promotions:
        held_out = f"{promotion.held_out} of {promotion.units} held-out launches match"
        candidate = _source_name(result, promotion.rule)
        yield f"- candidate {_escape(candidate)}: {_escape(promotion.reason)} ({held_out})"
    if result.sources:
        yield ""
        yield _grid(
            ("source", "trials", "matched", "default", "best"), [_source_row(result, s) for s in result.sources]
        )
    if result.failures:
        yield ""
        failed = [(_source_name(result, f.source), f.status, str(f.count), f.detail) for f in result.failures]
        yield _grid(("failed source", "how", "times", "the first said"), failed)


def _offered(result: KernelResult, application: str, kernels: Sequence[KernelResult]) -> Iterator[str]:
    """The patch and the configuration of a kernel, and what to know before they are applied."""
    if result.after is not None:
        where = f"reports/{application}/{file_name(result)}.patch"
        yield f"- source change: {_escape(result.description, 2000)} (`git apply {where}`)"
        for line in _also(result):
            yield f"- {_escape(line[:1].lower() + line[1:].rstrip('.'))}"
        overlapping = overlap_line(result, kernels)
        if overlapping:
            yield f"- it {_escape(overlapping)}"
    if result.configuration is not None:
        settings = f": {_escape('; '.join(result.settings), 2000)}" if result.settings else ""
        yield f"- configuration `{file_name(result)}.json`{settings}"


def _source_name(result: KernelResult, rule: str) -> str:
    """A source as people call it: by its rule, or where the untouched text came from."""
    if rule != "recorded":
        return rule
    return "working tree" if result.baseline.startswith("working tree") else "recorded source"


def _source_row(result: KernelResult, source: SourceResult) -> Sequence[str]:
    same = f"same code as {_source_name(result, source.same_as)}" if source.same_as is not None else ""
    times = (_time(source.default_ns), same or _time(source.best_ns))
    return (_source_name(result, source.rule), str(source.trials), str(source.matched), *times)


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_escape(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _escape(text: str, most: int = 300) -> str:
    """Text from elsewhere, harmless in Markdown: one line, no markup, no table cell ended, at most ``most`` characters.

    It is cut between words where it has any.
    """
    short = _one_line(text)
    if len(short) > most:
        head = short[: most - 1]
        short = (head.rsplit(" ", 1)[0] if " " in head[most // 2 :] else head) + "…"
    return re.sub(r"([\\`*_{}\[\]<>#|~!$])", r"\\\1", short)


# -- files ------------------------------------------------------------------------------------------------------------


def write(ledger: Path, folder: Path) -> list[Path]:
    """Write ``<folder>/<application>/`` for every application in a ledger: ``report.json``, ``report.md`` and per
    improved kernel its patch and configuration. Returns the files; those of an older report of the same kernels go.
    """
    found, damaged = applications(ledger)
    written = []
    for application, kernels in found.items():
        written += write_application(application, kernels, folder, damaged)
    return written


def write_application(application: str, kernels: Sequence[KernelResult], folder: Path, damaged: int = 0) -> list[Path]:
    """The files of one application, as :func:`write` says."""
    place = folder / re.sub(r"[^\w.-]", "_", application)
    place.mkdir(parents=True, exist_ok=True)
    kernels = [_portable(kernel) for kernel in kernels]
    report = json.dumps(document(application, kernels, damaged), indent=1, allow_nan=False) + "\n"
    files = {"report.json": report, "report.md": markdown(kernels, application)}
    for result in kernels:
        name = file_name(result)
        files |= {f"{name}.patch": patch(result, application, kernels) or "", f"{name}.json": _configuration(result)}
    written = []
    for name, text in files.items():
        path = place / name
        if text:
            _replace(path, text)
            written.append(path)
        else:
            path.unlink(missing_ok=True)
    return written


def _configuration(result: KernelResult) -> str:
    """The configuration of a promoted candidate, with what it was tested for; empty where it is the default."""
    if result.configuration is None:
        return ""
    about = {
        "format": FORMAT,
        "kernel": result.kernel,
        "device": result.device,
        "target": result.target,
        "needs_patch": result.after is not None,
        "use": "for r3bench's own compile pipeline; report.md says what of it can be done by hand",
        "settings": list(result.settings),
        "evidence": {arm.name: _words(arm.comparison) for arm in result.arms},
    }
    return json.dumps({**about, **json.loads(result.configuration)}, indent=1) + "\n"


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(text.encode())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
