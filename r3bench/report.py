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
import time
from collections.abc import Iterable, Mapping, Sequence
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
    """The report of one application as plain JSON data; kernels with the largest gain first."""
    ordered = sorted(kernels, key=lambda k: (-(_gain(k) or 0.0), k.kernel))
    return {
        "format": FORMAT,
        "application": application,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": kernels[0].device if kernels else "",
        "target": kernels[0].target if kernels else "",
        "conditions": dict(kernels[0].conditions) if kernels else {},
        "damaged_ledger_lines": damaged_lines,
        "kernels": [_kernel(result) for result in ordered],
    }


def _gain(result: KernelResult) -> float | None:
    return max((a.comparison.speedup for a in result.arms if a.comparison.speedup is not None), default=None)


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


def patch(result: KernelResult, application: str) -> str | None:
    """The patch with its evidence in front; ``git apply`` skips what stands in front of ``diff --git``."""
    change = diff(result)
    if change is None:
        return None
    lines = [f"{result.kernel}: {result.description}", ""]
    lines += [f"{arm.name}: {_words(arm.comparison)}" for arm in result.arms]
    lines += [
        "",
        f"Baseline: {result.baseline}, {_time(result.baseline_ns)} a launch.",
        device_line(result.device, result.target),
    ]
    lines += [_held_out(result)]
    if result.configuration is not None:
        lines.append(f"The configuration that belongs to it is in {file_name(result)}.json.")
    lines += [f"Apply with: git apply reports/{application}/{file_name(result)}.patch", ""]
    return "\n".join(_one_line(line) for line in lines) + "\n" + change


def _held_out(result: KernelResult) -> str:
    units = next((p for p in result.promotions if p.promoted), None)
    if units is None:
        return "Checked on the recorded launch of the search."
    return f"Checked on the recorded launch of the search and on {units.held_out} held-out launches."


def _one_line(text: str) -> str:
    """Text that cannot end the comment it stands in."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", text).split())


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
    timed = comparison.low is not None and comparison.high is not None and comparison.decision is not Decision.IDENTICAL
    if not timed or not interval:
        return f"{comparison.speedup:.2f}x"
    return f"{comparison.speedup:.2f}x ({comparison.low:.2f} to {comparison.high:.2f})"


# -- renderings -------------------------------------------------------------------------------------------------------

_HEAD = ("kernel", "patch alone", "with configuration", "baseline", "trials")
_NARROW = ("kernel", "patch", "with config.", "baseline", "trials")


def table(kernels: Sequence[KernelResult], width: int = 100) -> str:
    """The terminal's table, largest gain first, no line longer than ``width`` characters.

    Where it is too narrow, first the intervals go, then long names are broken into lines.
    """
    ordered = sorted(kernels, key=lambda k: (-(_gain(k) or 0.0), k.kernel))
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
    first = _speedup(alone, intervals) if result.status == "improved" else _OTHERWISE[result.status]
    second = _speedup(full, intervals)
    return [_one_line(name), first, second, _time(result.baseline_ns), str(result.evaluations)]


_OTHERWISE = {"not improved": "no gain", "failed": "failed", "interrupted": "interrupted"}


def markdown(kernels: Sequence[KernelResult], application: str) -> str:
    """The report for people: what was gained, how sure it is, what was tried and what failed."""
    ordered = sorted(kernels, key=lambda k: (-(_gain(k) or 0.0), k.kernel))
    improved = sum(k.status == "improved" for k in ordered)
    parts = [f"# {_escape(application)}: {improved} of {len(ordered)} kernels improved", ""]
    if ordered:
        parts += [device_line(ordered[0].device, ordered[0].target), ""]
    parts.append(_grid(_HEAD, [_row(result) for result in ordered]))
    parts += [
        "",
        "*Patch alone* is the changed source under the default compiler and the recorded launch; *with configuration* "
        "is the promoted candidate: source change (where there is one), compiler configuration and block shape; a dash "
        "stands where there was no such candidate. Each was compared with the baseline on the launch of the search.",
    ]
    for result in ordered:
        parts += ["", *_section(result, application)]
    return "\n".join(parts) + "\n"


def _section(result: KernelResult, application: str) -> Iterable[str]:
    yield f"## {_escape(result.kernel)}"
    yield ""
    yield f"{_escape(result.status.capitalize())}: {_escape(result.detail)}. Baseline: {_escape(result.baseline)}, " + (
        f"{_time(result.baseline_ns)} a launch; {result.evaluations} evaluations in {result.seconds:.0f} s, "
        f"seed {result.seed}."
    )
    for arm in result.arms:
        yield f"- {arm.name}: {_escape(_words(arm.comparison))}"
    if result.after is not None:
        where = f"reports/{application}/{file_name(result)}.patch"
        yield f"- source change: {_escape(result.description)} (`git apply {where}`)"
    if result.configuration is not None:
        yield f"- configuration: `{file_name(result)}.json`"
    for promotion in result.promotions:
        held_out = f"{promotion.held_out} of {promotion.units} held-out launches match"
        yield f"- candidate {_escape(promotion.rule)}: {_escape(promotion.reason)} ({held_out})"
    if result.sources:
        yield ""
        yield _grid(("source", "trials", "matched", "default", "best"), [_source_row(s) for s in result.sources])
    if result.failures:
        yield ""
        failed = [(f.source, f.status, str(f.count), f.detail) for f in result.failures]
        yield _grid(("failed source", "how", "times", "the first said"), failed)


def _source_row(source: SourceResult) -> Sequence[str]:
    if source.same_as is not None:
        return (source.rule, "-", "-", _time(source.default_ns), f"same code as {source.same_as}")
    return (source.rule, str(source.trials), str(source.matched), _time(source.default_ns), _time(source.best_ns))


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_escape(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _escape(text: str) -> str:
    """Text from elsewhere, harmless in Markdown: one line, no markup, no table cell ended, at most 300 characters."""
    short = _one_line(text)
    short = short if len(short) <= 300 else short[:297] + "..."
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
    report = json.dumps(document(application, kernels, damaged), indent=1, allow_nan=False) + "\n"
    files = {"report.json": report, "report.md": markdown(kernels, application)}
    for result in kernels:
        name = file_name(result)
        files |= {f"{name}.patch": patch(result, application) or "", f"{name}.json": _configuration(result)}
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
