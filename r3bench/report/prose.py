"""The report as Markdown, for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from r3bench.ledger import KernelResult, SourceResult
from r3bench.report import applied, guards, kinds
from r3bench.report.documents import Document, Entry, result_of
from r3bench.report.marks import ROWS, bounded, code, command, escape, folded, grid, short_grid
from r3bench.report.patches import also, known
from r3bench.report.terminal import HEAD, columns, row
from r3bench.report.words import (
    as_sentence,
    baseline_time,
    best_time,
    busy_line,
    counted,
    course,
    duration,
    marker,
    matched,
    own_line,
    places,
    result_word,
    source_name,
    warnings,
    where_line,
    words,
    work_line,
)
from r3bench.symbols import full_name


def markdown(document: Document) -> str:
    """The report for people: what was gained, how sure it is, what was tried and what failed; at most 60 kB."""
    if document["kind"] == "guard":
        return guards.markdown(document)
    entries = document["kernels"]
    kernels = [result_of(entry) for entry in entries]
    parts = [marker(document), f"# {verdict_line(document)}", ""]
    if kernels:
        parts += [escape(where_line(document), 1000), ""]
    timed = places(kernels)
    parts += ["Contests, by device:", "", *(f"- {escape(line, 1000)}" for line in timed), ""] if timed else []
    busy = busy_line(kernels)
    parts += [as_sentence(escape(busy)), ""] if busy else []
    parts += [part for line in warnings(document) for part in (as_sentence(escape(line, 1000)), "")]
    head, *rows = columns(kernels, [HEAD, *map(row, kernels)])
    told = [[*cells, str(kernel.evaluations)] for cells, kernel in zip(rows, kernels, strict=True)]
    parts += short_grid([*head, "evaluations"], told)
    parts += _in_application(document["in_application"]) if "in_application" in document else []
    compared = list(kinds.rows(entries))
    parts += ["", "Kinds of search that were run:", "", *short_grid(kinds.HEAD, compared)] if compared else []
    parts += ["", "To reproduce:", "", command(document["reproduce"])] if kernels else []
    parts += ["", *folded("How to read this", _legend(entries, kernels))]
    work = work_line(kernels)
    parts += ["", *folded("How busy the device was", [as_sentence(work)])] if work else []
    wheres = (own_line(kernel, document) for kernel in kernels)
    sections = ("\n".join(_folded_section(*each)) for each in zip(entries, wheres, strict=True))
    return bounded("\n".join(parts), sections, "The other kernels are in report.html.")


def _in_application(found: Entry) -> Iterator[str]:
    yield from ("", f"{applied.TITLE} ({code(shlex.join(found['command']))}):", "")
    yield from short_grid(applied.HEAD, found["rows"])
    yield from ("", *(f"- {escape(note)}" for note in found["notes"]))


def verdict_line(document: Document) -> str:
    """The outcome in one line of Markdown."""
    improved = sum(entry["status"] == "improved" for entry in document["kernels"])
    return f"{escape(document['application'])}: {improved} of {len(document['kernels'])} kernels improved"


LEGEND = """\
- Two kinds of numbers. Claims are made of *contests*: every speedup with an interval, and the baseline's time beside \
it; the two sides take turns in many blocks. What is called *ranked* only chooses within a search and claims nothing: \
the shortest of a few windows, taken while other sources are built (on a CPU by the same cores) or, on a GPU, with \
flushed caches. Compare ranked numbers with each other, never with those of a contest.
- *result*: *improved*: the whole interval lies above the baseline by more than the gate; *no gain*: no candidate was \
surely faster by more than the gate; *unstable*: the best candidate's gain was not confirmed by a second contest in a \
fresh process; *failed*: the baseline itself does not replay; *interrupted*: stopped before it was done.
- *patch alone*: the changed source under the default compiler and the recorded launch; *with configuration*: with the \
compiler configuration and block shape found, and the source change where there is one. A dash: there is no such \
candidate, or it adds nothing that is sure. In a row without a gain: the contest of the best \
candidate, which claims nothing; of an interrupted search without contests, its best *ranked* time. Each was compared \
with the baseline on the launch of the search, one patch at a time.
- *toolchain*: the recorded source under r3bench's default compiler, against the recorded machine code; \
*own compiler*: the patched source as the application's own compiler builds it, which is what its users will have.
- parts of a gain: by which factor each shortened the time when added to those before it: *toolchain*, *source* (the \
patch), *passes* of the compiler, *specialization* (facts compiled in), *launch* (block shape).
- *baseline*: its time in the contest, or *ranked* where none was held: that may be many times as long.
- *evaluations*: all replays of a search: the trials of all sources, the best ones timed again, checks on further \
launches and on other kernels.
- *evaluations spent*: seconds of all evaluations together. Building: *frontend* (source to LLVM IR), *specialize* \
(facts compiled in), *lower* (a block of threads becomes loops, on a CPU), *optimize* (passes), *emit* (machine code, \
PTX), *assemble* (ptxas), *cache* (known already). Device: *load*, *verify* (launches and comparisons), *time* (the \
ranking). Waiting: for a build, for the device.
- tables of sources: *trials*: configurations tried on this source; *matched*: those with the right result and a time; \
*default, ranked*: its time under the default compiler and the recorded launch; *best, ranked*: that of its best \
configuration; *refused*: its candidate failed verification, as its line says."""


_CONFIGURATION = """\
- `<kernel>.json` is a compile configuration of r3bench's own pipeline: passes, facts compiled in, and launch. \
`r3bench run --with reports/<application> -- ./app` runs an unmodified CUDA application with it on a GPU. By hand: \
change the block's shape where the kernel is launched (and the grid with it); make arguments that were compiled in \
constants (`constexpr`, a template parameter); write unrolling as `#pragma unroll`, pointers that do not overlap as \
`__restrict__`, launch bounds as `__launch_bounds__`. Passes and LLVM options have no such counterpart."""


SOURCES_HEAD = ("source", "trials", "matched", "default, ranked", "best, ranked")


def legend(entries: Sequence[Entry]) -> list[str]:
    """What the words of a report mean, one per line."""
    return [*LEGEND.splitlines(), *([f"- {kinds.LEGEND}"] if any(kinds.rows(entries)) else [])]


def _legend(entries: Sequence[Entry], kernels: Sequence[KernelResult]) -> Iterator[str]:
    yield from legend(entries)
    if any(kernel.configuration is not None for kernel in kernels):
        yield _CONFIGURATION
    for rule, sentence in dict(pair for kernel in kernels for pair in kernel.rules).items():
        yield f"- rule *{escape(rule)}*: {escape(sentence)}"


def _folded_section(entry: Entry, where: str) -> Iterator[str]:
    return folded(f"{full_name(entry['kernel'])}: {result_word(result_of(entry))}", _section(entry, where))


def _section(entry: Entry, where: str) -> Iterator[str]:
    result = result_of(entry)
    yield (
        f"{escape(result_word(result).capitalize())}: {escape(result.detail)}. Baseline: {escape(result.baseline)}, "
        + (f"{baseline_time(result)} a launch; {counted(result.evaluations, 'evaluation')}, seed {result.seed}.")
    )
    yield from [escape(where)] if where else []
    yield ""
    for arm in result.arms:
        yield f"- contest, {escape(arm.name)}: {escape(words(arm.comparison))}"
    yield from _offered(entry, result)
    yield from (f"- {escape(sentence, 1000)}" for sentence in course(result))
    for promotion in result.promotions:
        candidate = source_name(result, promotion.rule)
        yield f"- candidate {escape(candidate)}: {escape(promotion.reason)} ({matched(promotion)})"
        for verdict in promotion.levels if promotion.promoted else ():
            yield f"  - verified, {verdict.level.value}: {escape(verdict.detail, 2000)}"
    if result.sources:
        ranked = sorted(result.sources, key=lambda source: source.best_ns or float("inf"))
        yield ""
        yield grid(SOURCES_HEAD, [_source_row(result, source) for source in ranked[:ROWS]])
        yield from _more(len(ranked), "sources")
    if result.failures:
        failed = [(source_name(result, f.source), f.status, str(f.count), f.detail) for f in result.failures[:ROWS]]
        yield ""
        yield grid(("failed source", "how", "times", "the first said"), failed)
        yield from _more(len(result.failures), "failures")


def _more(number: int, what: str) -> Iterator[str]:
    if number > ROWS:
        yield ""
        yield f"{what.capitalize()} left out here: {number - ROWS}; report.json has all of them."


def _offered(entry: Entry, result: KernelResult) -> Iterator[str]:
    """The patch and the configuration of a kernel, and what to know before they are applied."""
    if entry["patch_file"] is not None:
        gone = entry.get("applied", ())
        how = f" ({code('r3bench apply ' + entry['patch_file'])} in this folder)"
        yield f"- source change: {escape(result.description, 2000)}{how * (entry['patch_file'] not in gone)}"
        for line in also(result):
            yield f"- {escape(line[:1].lower() + line[1:].rstrip('.'))}"
        yield from (f"- it {escape(said)}" for said in known(result, entry["overlaps"], gone))
    if entry["configuration_file"] is not None:
        settings = f": {escape('; '.join(result.settings), 2000)}" if result.settings else ""
        yield f"- configuration {code(entry['configuration_file'])}{settings}"


def _source_row(result: KernelResult, source: SourceResult) -> Sequence[str]:
    times = (duration(source.default_ns), best_time(result, source))
    return (source_name(result, source.rule), str(source.trials), str(source.matched), *times)
