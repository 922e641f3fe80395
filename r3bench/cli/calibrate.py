"""``r3bench calibrate``: how often this machine calls equal work faster or slower."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import suppress
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
CONTEST_S = 25  # of a contest on two cores, before any was held
STEPS = (16, 256, 4096, 65536)
GATES = {"cpu": 0.05}  # elsewhere 1 %


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "measure how often this machine calls two binaries of equal work different, and keep it for reports"
    lasts = f"{len(STEPS)} kernels; 20 contests of each take half an hour or more"
    kept = "a run that is stopped (ctrl-C) keeps what it has measured, and the next one adds to it"
    about = f"{text}; status 1 if it ever does. {lasts}; {kept}."
    parser = commands.add_parser("calibrate", help=text, description=about)
    parser.add_argument("--device", default="auto", help="device to calibrate (default: the best usable)")
    each = "contests of each kernel (default: 20)"
    parser.add_argument("--contests", type=_count, default=20, metavar="N", help=each)
    parser.set_defaults(run=calibrate)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 10000")
    return int(text)


def calibrate(arguments: argparse.Namespace) -> int:
    """Measure, keep every contest as it ends, print what is known; 1 if equal work was ever claimed to differ."""
    from tabulate import tabulate

    from r3bench import calibration
    from r3bench.devices import open_device

    device = open_device(arguments.device)
    name, kind = device.name, device.target.device
    device.close()
    stopped = True
    with suppress(KeyboardInterrupt):
        _measure(name, kind, arguments.contests)
        stopped = False
    rates = calibration.rates(name)
    rows = [(_range(rate), rate.contests, rate.first, _alarms(rate), f"{rate.spread:.1%}") for rate in rates]
    head = ("kernels of", "contests", "claimed once", "false alarms (at most)", "largest apparent effect")
    shown = tabulate(rows, headers=head)
    print(f"\n{name}, gate {GATES.get(kind, 0.01):.0%}, all runs together\n\n{shown}\n\n{_LEGEND}")
    print(f"kept in {calibration.path()}; another run adds to it, and without the file it begins anew")
    return STOPPED if stopped else int(any(rate.claimed for rate in rates))


STOPPED = 128 + signal.SIGINT
_LEGEND = """\
claimed once: one contest called equal work faster or slower; false alarm: its repetition in a fresh process did, too,
beyond the noise floor, which is what a report claims. At most: the rate may be so large, at 95 % confidence."""


def _alarms(rate: Rate) -> str:
    from r3bench.calibration import upper_bound

    return f"{rate.claimed} ({upper_bound(rate.claimed, rate.contests):.0%})"


def _range(rate: Rate) -> str:
    low, high = rate.low_ns / 1e3, rate.high_ns / 1e3
    return f"{low:g} us and more" if high == float("inf") else f"{low:g} to {high:g} us"


def _measure(name: str, kind: str, contests: int) -> None:
    """Hold contests of all kernels in turn, so that a run that is stopped knows something of each, and keep each."""
    from r3bench import calibration

    known = max((rate.contests for rate in calibration.rates(name)), default=0)
    turns = [(number, unit) for number in range(contests) for unit in range(len(STEPS))]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="r3bench-calibrate-") as folder:
        capture = _recorded(Path(folder), kind)
        for done, (number, unit) in enumerate(turns):
            each = (time.monotonic() - began) / done if done else CONTEST_S
            left = f"about {max(1, round((len(turns) - done) * each / 60))} minutes left"
            print(f"\rcontest {done + 1} of {len(turns)}, {left}; ctrl-C keeps the rest ", end="", file=sys.stderr)
            gate = GATES.get(kind, 0.01)
            calibration.keep(name, _rate(_contest(capture, unit, known + number, kind, gate), gate))
    print(file=sys.stderr)


def _rate(found: Comparison, gate: float) -> Rate:
    """One contest as a rate."""
    from r3bench.calibration import Rate, class_of
    from r3bench.stats import claims

    low, high = class_of(found.baseline_ns or 0.0)
    return Rate(
        low_ns=low,
        high_ns=high,
        gate=gate,
        contests=1,
        first=int(found.repeat is not None or claims(found)),
        claimed=int(claims(found)),
        spread=abs((found.speedup or 1.0) - 1),
        date=time.strftime("%Y-%m-%d"),
    )


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
