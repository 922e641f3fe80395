"""``r3bench run --with reports/x -- ./app args``: the unmodified application with its tuned kernels in place."""

from __future__ import annotations

import argparse
import json
import posixpath
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from r3bench.cli import values
from r3bench.errors import DeviceUnavailable, RecordError

if TYPE_CHECKING:
    from r3bench.ledger import KernelResult
    from r3bench.model import Capture, Variant
    from r3bench.record.trials import Contest


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "run an unmodified application with the tuned kernels of a report; 1 if its output changes"
    parser = commands.add_parser("run", help=text, description=text)
    parser.add_argument(
        "--with", dest="report", type=Path, required=True, metavar="REPORT", help="reports/<application>"
    )
    parser.add_argument(
        "--runs", type=values.positive, default=3, metavar="N", help="runs of each kind, in turns (default: 3)"
    )
    parser.add_argument(
        "--region",
        default="",
        metavar="NAME",
        help="the part that counts: NVTX ranges of this name (default: from the "
        "first launch to the last wait for the device)",
    )
    parser.add_argument("--output", type=Path, action="append", default=[], help="a file it writes, to be compared too")
    parser.add_argument("command", nargs="+", help="the application and its arguments, after --")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from r3bench import report
    from r3bench.record.trials import contest

    with tempfile.TemporaryDirectory(prefix="r3bench-run-") as place:
        substitutes = _substitutes(arguments.report, Path(place))
        found = contest(arguments.command, Path(place), substitutes, arguments.runs, arguments.output, arguments.region)
    print(found.before[0].output.decode("utf-8", "replace"), end="")
    print(summary(found, arguments.region))
    report.add_run(arguments.report, arguments.command, *told(found, arguments.region))
    return int(not found.same_output())


def _substitutes(report: Path, folder: Path) -> list[Path]:
    from r3bench.devices import open_device, survey
    from r3bench.record.substitution import prepare
    from r3bench.toolchain import Compiler

    cuda = next(status for status in survey() if status.name == "cuda")
    if not cuda.usable:
        raise DeviceUnavailable(f"tuned kernels run on an NVIDIA GPU only: {cuda.detail}")
    device = open_device("cuda")
    target = device.target
    device.close()
    with Compiler() as compiler:
        return [p for c, variant in _promoted(report) for p in prepare(c, variant, target, compiler, folder)]


def _promoted(report: Path) -> Iterator[tuple[Capture, Variant]]:
    """Each improved kernel's capture and what was promoted for it."""
    from r3bench import store
    from r3bench.report.runs import gather

    ledgers = sorted(report.glob("ledger/*.jsonl"))
    if not ledgers:
        raise RecordError(f"{report} holds no ledger: name the folder of a search's report, with its ledger/ inside")
    results = [r for kernels in gather(ledgers)[0].values() for r in kernels]
    improved = [result for result in results if result.status == "improved"]
    if not improved:
        raise RecordError(f"{report} holds no improved kernel: name the folder of a report of pytest --r3-evolve")
    for result in improved:
        capture = store.open_capture(result.capture)
        yield capture, variant_of(capture, result)


def variant_of(capture: Capture, result: KernelResult) -> Variant:
    """The promoted source and configuration as a variant of the capture."""
    from r3bench.model import Configuration, LaunchRule, Variant
    from r3bench.nouns import decode

    given = json.loads(result.configuration) if result.configuration else {}
    launch = given.get("launch")
    root = capture.source.root if capture.source is not None else ""
    return Variant(
        files=tuple((posixpath.relpath(change.path, root or "."), change.after) for change in result.changes) or None,
        configuration=decode(Configuration, given["configuration"]) if "configuration" in given else Configuration(),
        launch=decode(LaunchRule, launch) if launch else None,
    )


def summary(found: Contest, region: str = "") -> str:
    """Times before and after, whole and in the region, by kernel; and what became of the output."""
    from tabulate import tabulate

    from r3bench.report.applied import HEAD

    rows, notes = told(found, region)
    return "\n".join([str(tabulate(rows, headers=HEAD, disable_numparse=True)), *notes])


def told(found: Contest, region: str = "") -> tuple[list[tuple[str, ...]], list[str]]:
    """The rows of :func:`summary`, and the sentences below them."""
    from r3bench.symbols import demangled

    part = f"in {region}" if region else "first launch to last wait"
    rows = [
        _row(name, *found.medians(what), found.ratios(what))
        for name, what in (("whole", "seconds"), (part, "region_s"))
    ]
    own, tuned = ({k["kernel"]: k for k in t.kernels} for t in found.profiles)
    for name, kernel in sorted(own.items(), key=lambda item: -item[1]["gpu_seconds"]):
        if name in tuned and tuned[name]["substituted"]:
            rows.append(_row(demangled(name), kernel["gpu_seconds"], tuned[name]["gpu_seconds"], []))
    notes = []
    if region and not any(trial.region_s for trial in found.before):
        notes.append(f"the application marks no part as {region} with NVTX")
    notes.append(f"{found.substituted()} launches of a run used a tuned kernel")
    for kernel in found.after[-1].kernels:
        notes += [f"{demangled(kernel['kernel'])}: {n} launches not: {why}" for why, n in kernel["reasons"].items()]
    return rows, [*notes, _outputs(found)]


def _row(name: str, before: float, after: float, turns: Sequence[float]) -> tuple[str, ...]:
    """Medians and their ratio; the lowest and highest of single turns, which is no confidence interval."""
    spread = f"{min(turns):.3f} to {max(turns):.3f}" if turns else "-"
    return name, f"{1e3 * before:.3f}", f"{1e3 * after:.3f}", f"{before / after:.3f}x" if after else "-", spread


def _outputs(found: Contest) -> str:
    if found.same_output():
        return "the application's output is the same in every run"
    if not found.repeatable():
        return (
            "the application's own output differs from run to run, so it cannot be compared: let it print what "
            "differs, such as times, to its standard error"
        )
    return "the application's output CHANGES with the tuned kernels"
