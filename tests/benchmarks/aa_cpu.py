"""Whether the CPU device's contests are honest: equal work must not be called faster or slower, known extra work must.

Kernels of about 2 us to 2 ms are recorded here and put into ReplayServer.compare, the procedure behind every claim:

- *same code*: the candidate's object differs from the baseline's in bytes that are never run, so that the shortcut for
  identical code does not apply. Any claim is false.
- *neutral*: edits that leave the work as it is but change the machine code (operands and statements in another order, a
  test that never holds). Where code lies in memory has real effects of some per cent, different in each process. They
  are within the gate, and a claim needs a second process to agree: any claim counts as false here too.
- *extra*: so many per cent more iterations of a loop that is nearly all of the kernel's time. FASTER is false always,
  and so is SAME where the extra is beyond the gate by half. There, UNCLEAR and UNSTABLE are *missed*: nothing wrong
  was said, but the machine was too busy to see it.

Printed per gate and case: how often each decision came, the spread of the apparent speedups, the blocks and seconds of
a contest. Figures asked for: nothing false; on a quiet machine, nothing missed.

    python -m tests.benchmarks.aa_cpu [contests of each case and gate]
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
from tabulate import tabulate

from r3bench.model import Capture, Configuration, Variant
from r3bench.record import Session
from r3bench.remix import BuildRequest
from r3bench.server import ReplayServer
from r3bench.stats import Comparison, Decision
from r3bench.toolchain import Built, Compiler
from tests.benchmarks.machine import describe

SOURCE = "kernels.cu"
TEXT = """
extern "C" __global__ void settle(const double* __restrict__ from, double* __restrict__ to, int count, int steps) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    double a = from[n], x = a, y = 1.0;
    for (int s = 0; s < steps; s++) {
        x = 0.5 * x + a;
        y = 0.25 * y + a;
    }
    to[n] = x + y;
}

extern "C" __global__ void smooth(const double* __restrict__ from, double* __restrict__ to, int count, int width) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < width || n >= count - width) return;
    double along = from[n - 1] + from[n + 1];
    double across = from[n - width] + from[n + width];
    to[n] = 0.5 * from[n] + 0.125 * along + 0.125 * across;
}
"""
STEPS = 200  # far more than settle takes to settle: further ones change nothing but the time
SIZES = {"settle": (1 << 10, 1 << 13), "smooth": (1 << 10, 1 << 17, 1 << 19)}

Edit = Callable[[str], str]
NEUTRAL: dict[str, dict[str, Edit]] = {
    "settle": {
        "reordered": lambda text: text.replace(
            "x = 0.5 * x + a;\n        y = 0.25 * y + a;", "y = a + y * 0.25;\n        x = a + x * 0.5;"
        ).replace("x + y;", "y + x;"),
        "guarded": lambda text: text.replace(
            "    to[n] = x + y;", "    if (count == -steps) x = y;\n    to[n] = x + y;"
        ),
    },
    "smooth": {
        "reordered": lambda text: text.replace("from[n - 1] + from[n + 1]", "from[n + 1] + from[n - 1]").replace(
            "from[n - width] + from[n + width]", "from[n + width] + from[n - width]"
        ),
        "guarded": lambda text: text.replace("    double along", "    if (count == -width) return;\n    double along"),
    },
}


@dataclass(frozen=True)
class Case:
    """One comparison to be made, and what would be wrong to say of it."""

    name: str
    capture: Capture
    unit: int
    baseline: Variant
    candidate: Variant
    extra: float = 0.0

    def is_false(self, decision: Decision, gate: float) -> bool:
        if self.extra:
            return decision is Decision.FASTER or (decision is Decision.SAME and self.beyond(gate))
        return decision in (Decision.FASTER, Decision.SLOWER)

    def is_missed(self, decision: Decision, gate: float) -> bool:
        return self.beyond(gate) and decision in (Decision.UNCLEAR, Decision.UNSTABLE)

    def beyond(self, gate: float) -> bool:
        """Whether the extra work must be seen at this gate."""
        return self.extra > 1.5 * gate


class Padding:
    """A compiler whose objects for the configuration ``marked`` are the default's with bytes at the end unread."""

    marked = Configuration(before=("dce",))

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    def submit(self, request: BuildRequest) -> Future[Built]:
        padded = request.configuration == self.marked
        found = self._compiler.submit(replace(request, configuration=Configuration()) if padded else request)
        if not padded:
            return found
        built = found.result()
        done: Future[Built] = Future()
        done.set_result(replace(built, binary=replace(built.binary, image=built.binary.image + b"\0" * 64)))
        return done

    def close(self) -> None:
        self._compiler.close()


def record(folder: Path) -> list[Capture]:
    """Captures of both kernels, a unit for each size."""
    (folder / SOURCE).write_text(TEXT)
    random = np.random.default_rng(0)
    with Session("control", folder, "cpu") as session:
        module = session.module(SOURCE)
        for kernel, sizes in SIZES.items():
            session.capture(kernel, occurrences=range(len(sizes)))
            for count in sizes:
                held = session.array("from", random.normal(size=count)), session.array("to", np.zeros(count))
                last = STEPS if kernel == "settle" else 256
                session.launch(module, kernel, (-(-count // 128), 1, 1), (128, 1, 1), (*held, count, last))
        return list(session.save(folder))


def edited(edit: Edit) -> Variant:
    text = edit(TEXT)
    assert text != TEXT, "an edit that changes nothing"
    return Variant(files=((SOURCE, text),), configuration=Configuration())


def cases(captures: list[Capture]) -> Iterator[Case]:
    plain = Variant(configuration=Configuration())
    for capture in captures:
        for unit, count in enumerate(SIZES[capture.symbol]):
            where = f"{capture.symbol} {count}"
            yield Case(f"{where}, same code", capture, unit, plain, Variant(configuration=Padding.marked))
            for name, edit in NEUTRAL[capture.symbol].items():
                yield Case(f"{where}, {name}", capture, unit, plain, edited(edit))
            for extra in (0.1, 0.2) if capture.symbol == "settle" else ():
                more = edited(lambda text, extra=extra: text.replace("s < steps", f"s < steps + {STEPS * extra:.0f}"))  # type: ignore[misc]
                yield Case(f"{where}, {extra:.0%} extra", capture, unit, plain, more, extra)


def row(case: Case, gate: float, found: list[Comparison], seconds: float) -> list[object]:
    decisions = Counter(each.decision for each in found)
    false = sum(count for decision, count in decisions.items() if case.is_false(decision, gate))
    missed = sum(count for decision, count in decisions.items() if case.is_missed(decision, gate))
    timed = [each for each in found if each.blocks]
    speeds = [each.speedup for each in timed if each.speedup is not None]
    spread = f"{min(speeds):.3f} .. {max(speeds):.3f}" if timed else "-"
    us = f"{timed[0].baseline_ns / 1e3:.0f}" if timed and timed[0].baseline_ns else "-"
    said = ", ".join(f"{count} {decision.value}" for decision, count in decisions.most_common())
    blocks = ", ".join(str(each.blocks) for each in timed)
    return [f"{gate:.0%}", case.name, us, said, spread, blocks, f"{seconds / len(found):.1f}", false, missed]


def main(contests: int = 3) -> bool:
    print(describe())
    rows = []
    with tempfile.TemporaryDirectory() as folder, ReplayServer("cpu", compiler=Padding(Compiler())) as server:
        for case in cases(record(Path(folder))):
            for gate in (0.05, 0.1):
                begin = perf_counter()
                found = [
                    server.compare(case.capture, case.unit, case.baseline, case.candidate, gate=gate).result()
                    for _ in range(contests)
                ]
                rows.append(row(case, gate, found, perf_counter() - begin))
    print(tabulate(rows, headers=["gate", "case", "us", "decisions", "speedup", "blocks", "s each", "false", "missed"]))
    print(describe())
    false, missed = (sum(int(str(each[at])) for each in rows) for at in (-2, -1))
    done = contests * len(rows)
    print(
        f"{'holds' if not false else 'FAILS'}: {false} false decisions, {missed} missed, of {done} (asked: none false)"
    )
    return not false


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
