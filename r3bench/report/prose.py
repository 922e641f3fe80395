"""The report as Markdown, for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from r3bench.ledger import KernelResult, SourceResult
from r3bench.report.documents import by_gain
from r3bench.report.patches import also, overlap_line
from r3bench.report.terminal import HEAD, row
from r3bench.report.words import (
    as_sentence,
    busy_line,
    device_line,
    duration,
    file_name,
    one_line,
    result_word,
    source_name,
    words,
)


def markdown(kernels: Sequence[KernelResult], application: str) -> str:
    """The report for people: what was gained, how sure it is, what was tried and what failed."""
    ordered = by_gain(kernels)
    improved = sum(k.status == "improved" for k in ordered)
    parts = [f"# {escape(application)}: {improved} of {len(ordered)} kernels improved", ""]
    if ordered:
        parts += [device_line(ordered[0].device, ordered[0].target), ""]
    busy = busy_line(ordered)
    parts += [as_sentence(escape(busy)), ""] if busy else []
    rows = [[*row(result), str(result.evaluations)] for result in ordered]
    parts += [_grid((*HEAD, "evaluations"), rows), "", *_legend(ordered)]
    for result in ordered:
        parts += ["", *_section(result, application, ordered)]
    return "\n".join(parts) + "\n"


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
        yield f"- rule *{escape(rule)}*: {escape(sentence)}"


def _section(result: KernelResult, application: str, kernels: Sequence[KernelResult]) -> Iterable[str]:
    yield f"## {escape(result.kernel)}"
    yield ""
    yield (
        f"{escape(result_word(result).capitalize())}: {escape(result.detail)}. Baseline: {escape(result.baseline)}, "
        + (
            f"{duration(result.baseline_ns)} a launch; {result.evaluations} evaluations in {result.seconds:.0f} s, "
            f"seed {result.seed}."
        )
    )
    yield ""
    for arm in result.arms:
        yield f"- {arm.name}: {escape(words(arm.comparison))}"
    yield from _offered(result, application, kernels)
    for promotion in result.promotions:
        held_out = f"{promotion.held_out} of {promotion.units} held-out launches match"
        candidate = source_name(result, promotion.rule)
        yield f"- candidate {escape(candidate)}: {escape(promotion.reason)} ({held_out})"
        for verdict in promotion.levels if promotion.promoted else ():
            yield f"  - verified, {verdict.level.value}: {escape(verdict.detail, 2000)}"
    if result.sources:
        yield ""
        yield _grid(
            ("source", "trials", "matched", "default", "best"), [_source_row(result, s) for s in result.sources]
        )
    if result.failures:
        yield ""
        failed = [(source_name(result, f.source), f.status, str(f.count), f.detail) for f in result.failures]
        yield _grid(("failed source", "how", "times", "the first said"), failed)


def _offered(result: KernelResult, application: str, kernels: Sequence[KernelResult]) -> Iterator[str]:
    """The patch and the configuration of a kernel, and what to know before they are applied."""
    if result.after is not None:
        where = f"reports/{application}/{file_name(result)}.patch"
        yield f"- source change: {escape(result.description, 2000)} (`git apply {where}`)"
        for line in also(result):
            yield f"- {escape(line[:1].lower() + line[1:].rstrip('.'))}"
        overlapping = overlap_line(result, kernels)
        if overlapping:
            yield f"- it {escape(overlapping)}"
    if result.configuration is not None:
        settings = f": {escape('; '.join(result.settings), 2000)}" if result.settings else ""
        yield f"- configuration `{file_name(result)}.json`{settings}"


def _source_row(result: KernelResult, source: SourceResult) -> Sequence[str]:
    same = f"same code as {source_name(result, source.same_as)}" if source.same_as is not None else ""
    times = (duration(source.default_ns), same or duration(source.best_ns))
    return (source_name(result, source.rule), str(source.trials), str(source.matched), *times)


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([escape(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escape(text: str, most: int = 300) -> str:
    """Text from elsewhere, harmless in Markdown: one line, no markup, no table cell ended, at most ``most`` characters.

    It is cut between words where it has any.
    """
    short = one_line(text)
    if len(short) > most:
        head = short[: most - 1]
        short = (head.rsplit(" ", 1)[0] if " " in head[most // 2 :] else head) + "…"
    return re.sub(r"([\\`*_{}\[\]<>#|~!$])", r"\\\1", short)
