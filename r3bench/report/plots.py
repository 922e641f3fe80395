"""The scatter and the intervals as vector graphics for publication. Needs Matplotlib: the extra ``plots``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r3bench.errors import LedgerError
from r3bench.files import writing
from r3bench.report.documents import result_of
from r3bench.report.guards import comparison_of
from r3bench.stats import Comparison, Decision
from r3bench.symbols import short_name

_COLOURS = {Decision.FASTER: "#0b7350", Decision.SLOWER: "#b3430c"}

Named = tuple[str, Comparison]


def write_plots(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``times.pdf`` and ``speedups.pdf`` into a folder. LedgerError without Matplotlib, or with nothing timed."""
    try:
        import matplotlib

        matplotlib.use("pdf")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise LedgerError(f"plots need Matplotlib ({error}); pip install 'r3bench[plots]'") from error
    contests = _contests(document)
    if not contests:
        raise LedgerError(f"{document['application']}: nothing was timed, so there is nothing to plot")
    written = []
    for name, draw, size in (("times", _times, (3.4, 3.2)), ("speedups", _speedups, (3.4, 0.8 + 0.22 * len(contests)))):
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        draw(axes, contests)
        path = folder / f"{name}.pdf"
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, metadata={"CreationDate": None})
        plt.close(figure)
        written.append(path)
    return written


def _contests(document: Mapping[str, Any]) -> list[Named]:
    """The timed contests of a document, named by kernel and arm."""
    if document["kind"] == "guard":
        found = [(short_name(finding["kernel"]), comparison_of(finding)) for finding in document["guard"]["kernels"]]
    else:
        results = [result_of(entry) for entry in document["kernels"]]
        found = [
            (f"{short_name(result.kernel)}, {arm.name}", arm.comparison) for result in results for arm in result.arms
        ]
    timed = [(name, contest) for name, contest in found if contest is not None]
    return [(name.replace("$", r"\$"), contest) for name, contest in timed if contest.candidate_ns and contest.speedup]


def _times(axes: Any, contests: Sequence[Named]) -> None:
    """Baseline's and candidate's time of a launch, logarithmic, with the diagonal."""
    pairs = [(c.baseline_ns or 0.0, c.candidate_ns or 0.0, _COLOURS.get(c.decision, "#57606a")) for _, c in contests]
    for x, y, colour in pairs:
        axes.loglog(x / 1e3, y / 1e3, "o", color=colour, markersize=4)
    ends = [min(min(x, y) for x, y, _ in pairs) / 1.3e3, max(max(x, y) for x, y, _ in pairs) * 1.3e-3]
    axes.plot(ends, ends, color="#57606a", linewidth=0.8, linestyle="--")
    axes.set(xlabel="baseline [µs]", ylabel="candidate [µs]", xlim=ends, ylim=ends, aspect="equal")


def _speedups(axes: Any, contests: Sequence[Named]) -> None:
    """Speedups with their intervals, the first on top."""
    for row, (_, contest) in enumerate(reversed(contests)):
        value, low, high = (bound or 1.0 for bound in (contest.speedup, contest.low, contest.high))
        colour = _COLOURS.get(contest.decision, "#57606a")
        axes.errorbar(value, row, xerr=[[value - low], [high - value]], fmt="o", color=colour, markersize=4, capsize=2)
    axes.set_yticks(range(len(contests)), [name for name, _ in reversed(contests)], fontsize=7)
    axes.axvline(1, color="#57606a", linewidth=0.8, linestyle="--")
    axes.set(xlabel="speedup, with interval", xscale="log")
