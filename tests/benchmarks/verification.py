"""What verification costs an evaluation inside the search, on a unit that is large: at most two runs, a restore and a
comparison on the device.

An evaluation verifies before it is timed, and judges what one of the timed launches left behind. What then leads its
text is verified in a second order of threads, too (*leading*: a few of a text's trials, no part of the share). All are
measured here from request to verdict, on a kernel of one addition an element, and beside them what they are made of: a
launch, and restoring and comparing the unit's memory, as the device itself measures them. The difference is talking to
the worker, access that is given and taken, poison, and where comparing takes longer than a launch, that it is done
twice: *by its work* is what a restore, a launch and two comparisons alone would be (tests/device/test_cuda_counts.py
counts them). Beside it, miniweather's small units.

    python -m tests.benchmarks.verification [cpu or cuda] [MiB of each of three buffers]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from kernels.miniweather.driver import TOP
from r3bench import store
from r3bench.devices import Device, open_device
from r3bench.devices.cuda.device import CudaDevice
from r3bench.measure import rank
from r3bench.model import Capture, Configuration, Status, Variant
from r3bench.record import Session
from r3bench.replay import Placement, build, read_material
from r3bench.toolchain import Compiler
from r3bench.windows import Arm, procedure_for
from tests.benchmarks.machine import describe, judge

TEXT = """
extern "C" __global__ void add(const double* a, const double* b, double* c, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""


def record(folder: Path, device: str, mebibytes: int) -> Capture:
    (folder / "add.cu").write_text(TEXT)
    count, chance = mebibytes << 17, np.random.default_rng(0)
    with Session("verification", folder, device) as session:
        module = session.module("add.cu")
        session.capture("add")
        held = [session.array(name, values) for name, values in _values(chance, count)]
        session.launch(module, "add", -(-count // 256), 256, (*held, np.int64(count)))
        return session.save(folder)[0]


def _values(chance: np.random.Generator, count: int) -> list[tuple[str, np.ndarray]]:
    return [("a", chance.random(count)), ("b", chance.random(count)), ("c", np.zeros(count))]


def seconds(action: Callable[[], object], times: int = 9) -> float:
    action()
    samples = []
    for _ in range(times):
        begin = perf_counter()
        action()
        samples.append(perf_counter() - begin)
    return median(samples)


def overhead(device: Device, compiler: Compiler, capture: Capture) -> float:
    """What verification takes of an evaluation, as a share of what it may; its parts are printed."""
    material = read_material(capture, 0)
    placement = Placement(device, material, build(material, Variant(), device.target, compiler))
    built = build(material, Variant(configuration=Configuration()), device.target, compiler).result()
    arm = Arm(device.load(built.binary), material.unit.launch, "candidate")
    assert placement.verify(arm, 10.0).status is Status.MATCH
    placement.classify(arm, 10.0)
    timed = rank(arm, placement.ring, placement.check, procedure_for(device.target, ranking=True))
    run = min(timed.samples_ns) / 1e9
    memory = placement.ring.take(1)[0]
    before = seconds(lambda: placement.verify(arm, 10.0, device.orders[:1]))
    after = seconds(lambda: placement.check(memory))
    if isinstance(device, CudaDevice):
        parts = device.seconds(memory, material.before)  # what matches is compared in the least time
        restore, compare = parts["restore"], parts["compare"]
    else:
        restore, compare = seconds(lambda: device.restore(memory)), after
    leading = seconds(lambda: placement.verify(arm, 10.0, device.orders[1:2])) if len(device.orders) > 1 else 0.0
    placement.release()
    most = 2 * run + restore + compare
    share, work = (before + after) / most, (restore + run + 2 * compare) / most
    parts_ms = "  ".join(f"{1e3 * each:8.3f}" for each in (run, restore, compare, before, after, leading))
    print(f"{capture.symbol:14} {parts_ms}  {share:5.2f}  {work:5.2f}")
    return share


def main(name: str = "cpu", mebibytes: int = 64) -> bool:
    print(describe())
    print(
        "ms:               launch   restore   compare    before     after   leading  share of what it may, by its work"
    )
    with tempfile.TemporaryDirectory() as place, Compiler(1) as compiler, closing(open_device(name)) as device:
        small = [store.open_capture(path) for path in store.find([TOP / "captures" / "miniweather"])]
        shares = [overhead(device, compiler, capture) for capture in (*small, record(Path(place), name, mebibytes))]
    print(f"recorded small units: {min(shares[:-1]):.2f} to {max(shares[:-1]):.2f}")
    return judge("verification of a large unit, of 2 launches + restoring + comparing", shares[-1], 1.0, "")


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:2], *map(int, sys.argv[2:])))
