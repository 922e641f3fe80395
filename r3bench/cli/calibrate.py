"""``r3bench calibrate``: how often this machine calls equal work faster or slower."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r3bench.calibration import Rate
    from r3bench.model import Capture
    from r3bench.stats import Comparison

# All of the time goes into the loop: its length sets the time a launch.
KERNEL = """\
extern "C" __global__ void settle(const double* from, double* to, int count, int steps) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    double a = from[n], x = a, y = 1.0;
    for (int s = 0; s < steps; s++) {
        x = 0.5 * x + a;
        y = 0.25 * y + a;
    }
    to[n] = x + y;
}
"""
COUNT = 1 << 10
STEPS = (16, 256, 4096, 65536)
GATES = {"cpu": 0.05}  # elsewhere 1 %


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "measure how often this machine calls two binaries of equal work different, and keep it for reports"
    parser = commands.add_parser("calibrate", help=text, description=f"{text}; status 1 if it ever does")
    parser.add_argument("--device", default="auto", help="device to calibrate (default: the best usable)")
    parser.add_argument("--contests", type=_count, default=20, metavar="N", help="contests per class (default: 20)")
    parser.set_defaults(run=calibrate)


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 10_000:
        raise ValueError(text)
    return count


def calibrate(arguments: argparse.Namespace) -> int:
    """Print and keep the rates; 1 if equal work was ever claimed to differ."""
    from tabulate import tabulate

    from r3bench import calibration
    from r3bench.devices import open_device

    device = open_device(arguments.device)
    name, kind = device.name, device.target.device
    device.close()
    rates = list(_rates(kind, arguments.contests))
    kept = calibration.keep(name, rates)
    rows = [(_range(rate), rate.contests, rate.first, rate.claimed, f"{rate.spread:.1%}") for rate in rates]
    head = ("kernels of", "contests", "differed once", "false alarms", "largest apparent effect")
    print(f"{name}, gate {rates[0].gate:.0%}\n\n{tabulate(rows, headers=head)}\n\nkept in {kept}")
    return int(any(rate.claimed for rate in rates))


def _range(rate: Rate) -> str:
    low, high = rate.low_ns / 1e3, rate.high_ns / 1e3
    return f"{low:g} us and more" if high == float("inf") else f"{low:g} to {high:g} us"


def _rates(kind: str, contests: int) -> Iterator[Rate]:
    """One rate for each class of durations that the kernels come to."""
    from r3bench.calibration import Rate, class_of

    gate = GATES.get(kind, 0.01)
    found: dict[tuple[float, float], list[Comparison]] = {}
    with tempfile.TemporaryDirectory(prefix="r3bench-calibrate-") as folder:
        capture = _recorded(Path(folder), kind)
        for unit in range(len(STEPS)):
            for number in range(contests):
                print(f"\r{unit + 1} of {len(STEPS)} kernels, contest {number + 1}  ", end="", file=sys.stderr)
                compared = _contest(capture, unit, number, kind, gate)
                found.setdefault(class_of(compared.baseline_ns or 0.0), []).append(compared)
    print(file=sys.stderr)
    for (low, high), each in sorted(found.items()):
        yield Rate(
            low_ns=low,
            high_ns=high,
            gate=gate,
            contests=len(each),
            first=sum(one.repeat is not None or _claimed(one) for one in each),
            claimed=sum(map(_claimed, each)),
            spread=max(abs((one.speedup or 1.0) - 1) for one in each),
            date=time.strftime("%Y-%m-%d"),
        )


def _claimed(found: Comparison) -> bool:
    from r3bench.stats import claims

    return claims(found)


def _recorded(folder: Path, kind: str) -> Capture:
    """A capture of the kernel, one unit for each length of its loop."""
    from r3bench.record import Session

    (folder / "settle.cu").write_text(KERNEL)
    with Session("calibrate", folder, kind) as session:
        module = session.module("settle.cu")
        session.capture("settle", range(len(STEPS)))
        for steps in STEPS:
            held = session.array("from", [n / COUNT for n in range(COUNT)]), session.array("to", [0.0] * COUNT)
            session.launch(module, "settle", -(-COUNT // 128), 128, (*held, COUNT, steps))
        return session.save(folder)[0]


def _contest(capture: Capture, unit: int, number: int, kind: str, gate: float) -> Comparison:
    """The kernel against one whose code differs in a constant that is never used, each time another, by the procedure
    of every claim, in processes of its own."""
    from r3bench.model import Configuration, Variant
    from r3bench.server import ReplayServer

    baseline, candidate = (
        Variant(
            files=(("settle.cu", KERNEL.replace("n >= count", f"n >= count || steps == -{unused}")),),
            configuration=Configuration(),
        )
        for unused in (999, 1000 + number)
    )
    with ReplayServer(kind) as server:
        return server.compare(capture, unit, baseline, candidate, gate=gate).result()
