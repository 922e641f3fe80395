"""Source to callable on the CPU device: front end, lowering, O3, object, load, for each of thirteen kernels.

Each repetition compiles every kernel of tests/device/thirteen.cu anew, from a source that holds no other kernel, with
an empty cache, in a worker that runs already, and waits for the loaded kernel. Printed: the least of each stage per
kernel in milliseconds, since whatever else runs only makes it longer; the median over the kernels; and what a second
configuration of the same source takes (its IR is known). The time that no stage accounts for is the way to the worker
and back. The figures asked for: a median over the kernels of at most 60 ms, and none above 130 ms; the median of every
repetition beside them shows how busy the machine was.

    python -m tests.benchmarks.source_to_callable [repetitions]
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from tabulate import tabulate

from r3bench import frontend, syntax
from r3bench.devices import Device, open_device
from r3bench.model import Configuration, LaunchConfig
from r3bench.remix import BuildRequest
from r3bench.space import UnitFacts
from r3bench.toolchain import Compiler
from tests.benchmarks.machine import describe, judge

TEXT = (Path(__file__).parents[1] / "device" / "thirteen.cu").read_text()
MEDIAN_MS, MOST_MS = 60.0, 130.0
STAGES = ("frontend", "specialize", "lower", "optimize", "emit", "load", "between", "whole", "again")


def requests(device: Device) -> dict[str, BuildRequest]:
    """A request for each kernel of the file, by name."""
    typed = frontend.compile_ir({"k.cu": TEXT}, "k.cu", debug=True)
    launch = LaunchConfig(grid=(4, 1, 1), block=(128, 1, 1))
    found = {}
    for symbol in frontend.kernels(typed):
        facts = UnitFacts(launch=launch, parameters=frontend.parameters(typed, symbol))
        found[frontend.readable_name(typed, symbol)] = BuildRequest(
            files=(("k.cu", TEXT),), main="k.cu", flags=(), symbol=symbol, target=device.target,
            configuration=Configuration(), facts=facts,
        )  # fmt: skip
    return found


def alone(kernel: str) -> str:
    """The file without its other kernels."""
    others = [found.node for found in syntax.functions(TEXT) if found.kernel and found.name != kernel]
    return syntax.apply(TEXT, [syntax.Edit(node.start_byte, node.end_byte, "") for node in others])


def timed(compiler: Compiler, device: Device, request: BuildRequest) -> dict[str, float]:
    """Milliseconds of each stage and of the whole."""
    begin = perf_counter()
    built = compiler.submit(request).result()
    compiled = perf_counter()
    device.load(built.binary)
    end = perf_counter()
    spent = dict(built.stages) | {"load": end - compiled, "whole": end - begin}
    spent["between"] = compiled - begin - sum(seconds for _, seconds in built.stages)
    return {stage: 1e3 * seconds for stage, seconds in spent.items()}


def main(repetitions: int = 5) -> bool:
    print(describe())
    spent: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    device = open_device("cpu")
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as cache, Compiler(1, cache=Path(cache)) as compiler:
            wanted = requests(device)
            start = replace(wanted["localarr"], configuration=Configuration(pipeline="O1"))  # code of no other kernel
            compiler.submit(start).result()  # starts the worker
            for name, request in wanted.items():
                own = replace(request, files=(("k.cu", alone(name)),))
                first = timed(compiler, device, own)
                other = replace(own, configuration=Configuration(pipeline="O2", tuning=(("loop_unrolling", False),)))
                first["again"] = timed(compiler, device, other)["whole"]
                for stage, ms in first.items():
                    spent[name][stage].append(ms)
    device.close()
    least = {name: [min(stages[stage]) for stage in STAGES] for name, stages in spent.items()}
    least["median"] = [median(column) for column in zip(*least.values(), strict=True)]
    rows = [[name, *found] for name, found in least.items()]
    print(tabulate(rows, headers=["kernel, ms", *STAGES], floatfmt=".1f"))
    wholes = [ms for stages in spent.values() for ms in stages["whole"]]
    print(f"every repetition of every kernel: median {median(wholes):.0f} ms; {describe()}")
    whole = STAGES.index("whole")
    most = max(row[1:][whole] for row in rows)
    holds = judge("source to callable, median of the kernels,", least["median"][whole], MEDIAN_MS, "ms")
    return judge("source to callable, slowest kernel,", most, MOST_MS, "ms") and holds


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
