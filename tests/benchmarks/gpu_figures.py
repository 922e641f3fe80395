"""What the CUDA device achieves on this machine's GPU, one line a figure.

- *units*: recorded captures, replayed from their source: all must match.
- *bandwidth*: restoring and comparing a large buffer against the driver's own copy: at least 70 %.
- *evaluation*: a known source under a configuration not seen before, from request to verdict, and loading alone: at
  most 40 ms and 1 ms for a small kernel.
- *recovery*: from a kernel that fails in each way to the verdict on the next: at most 2 s.
- *classes*: how many units may be copied elsewhere, and how many may be launched on what they left behind.
- *reproducible*: a median of windows in this process's device against another's, for kernels above 10 us: 1 %.
- *apart*: launches timed one by one, on restored memory with caches flushed, against those on copies.
- *A/A*: the binary of a source and another of the same work, with padding in its kernel, in a contest with a gate of
  1 %, for kernels above 10 us: SAME each time; the apparent speedups are the noise floor.

    python -m tests.benchmarks.gpu_figures [contests of A/A] [--folder DIR | --cells NX NZ] [--only PART ...]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from kernels.miniweather.driver import TOP, open_session
from kernels.miniweather.record import Run, record, tolerances
from r3bench import store
from r3bench.devices import open_device
from r3bench.devices.cuda.device import CudaDevice
from r3bench.measure import Terms, contest
from r3bench.model import Allocation, Capture, Configuration, LaunchConfig, Pointer, ReplayUnit, Status, Variant
from r3bench.record.images import Maker, find_nvrtc
from r3bench.replay import Placement, build, read_material
from r3bench.server import ReplayServer
from r3bench.stats import Budget, Decision
from r3bench.toolchain import Compiler
from r3bench.windows import GPU, Arm, fit, window

LONG_NS = 10_000.0
HEAVY = ("tendencies_x", "tendencies_z", "update", "diagnostics")
SOURCE = Variant(configuration=Configuration())  # recorded, through our pipeline


def cuda() -> CudaDevice:
    device = open_device("cuda")
    assert isinstance(device, CudaDevice)
    return device


def captures(folder: Path) -> list[Capture]:
    return [store.open_capture(path) for path in store.find([folder])]


def milliseconds(action: Callable[[], object], times: int = 15) -> float:
    action()
    samples = []
    for _ in range(times):
        begin = perf_counter()
        action()
        samples.append(1e3 * (perf_counter() - begin))
    return statistics.median(samples)


# -- what is recorded on the machine --------------------------------------------------------------------------------


@contextmanager
def large_units(nx: int, nz: int, maker: Maker) -> Iterator[list[Capture]]:
    """miniweather's heavy kernels on a fine grid, with the image of one of NVIDIA's compilers."""
    kept = dict.fromkeys(HEAVY, ((0, 1),)) | {"diagnostics": ((0, 0),)}
    with tempfile.TemporaryDirectory() as folder:
        with open_session("cuda", "tests.benchmarks.gpu_figures", maker) as session:
            run = Run(weather="thermal", nx=nx, nz=nz, kept=kept)
            record(session, run, Path(folder))
        for name, text in tolerances([run]).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        yield captures(Path(folder))


def large_buffer(mebibytes: int) -> tuple[ReplayUnit, dict[str, np.ndarray]]:
    values = np.random.default_rng(1).random(mebibytes << 17)
    data = values.view(np.uint8)
    data.flags.writeable = False
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
        arguments=bytes(8),
        pointers=(Pointer(offset=0, allocation="x"),),
        allocations=(
            Allocation(name="x", address=0x7F00_0000_0000, nbytes=data.size, dtype="float64", shape=values.shape),
        ),
        written=("x",),
    )
    return unit, {"x": data}


# -- the figures ----------------------------------------------------------------------------------------------------


def units(server: ReplayServer, found: list[Capture], what: str) -> None:
    pending = [
        (capture, unit.index, server.submit(capture, variant, unit.index, "none"))
        for capture in found
        for unit in capture.units
        for variant in (Variant(), SOURCE)
    ]
    outcomes = [(capture, index, future.result(120)) for capture, index, future in pending]
    failed = [(c.name, i, o.verdict.detail) for c, i, o in outcomes if o.verdict.status is not Status.MATCH]
    print(
        f"units          {len(outcomes) - len(failed)} of {len(outcomes)} replays match ({what})", *failed, sep="\n  "
    )


def bandwidth(device: CudaDevice, mebibytes: int) -> None:
    unit, before = large_buffer(mebibytes)
    memory = device.allocate(unit, before)
    rounded = (before["x"].view(np.float64) * (1 + 2**-52)).view(np.uint8)
    rounded.flags.writeable = False
    found = device.seconds(memory, before)
    found["compare, every element rounded"] = device.seconds(memory, {"x": rounded})["compare"]
    copy, moved = found.pop("copy"), 2 * before["x"].size / 1e9
    for name, seconds in found.items():
        share = f"{copy / seconds:.0%} of the driver's copy ({moved / copy:.0f} GB/s)"
        print(f"bandwidth      {mebibytes} MiB {name}: {moved / seconds:.0f} GB/s, {share}")
    whole = milliseconds(lambda: device.compare(memory, before))
    print(f"bandwidth      {mebibytes} MiB compare, from request to verdict: {whole:.2f} ms")
    device.release(memory)


def evaluation(server: ReplayServer, capture: Capture) -> None:
    server.submit(capture, SOURCE, 0, "none").result(60)
    tried = [Configuration(after=(name,)) for name in ("sinking", "sccp", "reassociate", "lcssa", "jump_threading")]
    tried += [Configuration(max_registers=cap) for cap in (40, 48, 56, 64, 96, 128)]
    tried += [Configuration(pipeline="O1"), Configuration(pipeline="O2"), Configuration(bound_threads="max")]
    seconds, stages = [], []
    for configuration in tried:
        begin = perf_counter()
        outcome = server.submit(capture, Variant(configuration=configuration), 0, "none").result(60)
        seconds.append(perf_counter() - begin)
        assert outcome.verdict.status is Status.MATCH, outcome.verdict.detail
        stages.append(dict(outcome.stages))
    names = dict.fromkeys(name for stage in stages for name in stage)
    parts = {name: statistics.median(stage[name] for stage in stages if name in stage) * 1e3 for name in names}
    said = ", ".join(f"{name} {value:.2f}" for name, value in parts.items())
    print(f"evaluation     {capture.name}: median {statistics.median(seconds) * 1e3:.1f} ms ({said})")


FAILING = {
    "illegal address": "result[(1ll << 40) + inside] = start[inside]",
    "misaligned": "*(volatile double *)((char *)result + 4) = start[inside]",
    "trap": "__trap()",
    "null pointer": "*(volatile double *)(long long)v = start[inside]",
    "endless": "while (dt > 0) result[inside] = *(volatile double *)&result[inside]",
}


def recovery(server: ReplayServer, capture: Capture) -> None:
    text = store.sources(capture)["kernels.cu"]
    start = text.index("void update(")
    place = "result[inside] = start[inside] + dt * tendency[(v * nz + k) * nx + i]"
    assert place in text[start:]
    for name, code in FAILING.items():
        bad = Variant(files=(("kernels.cu", text[:start] + text[start:].replace(place, code)),))
        failed = server.submit(capture, bad, 0, "none").result(60).verdict.status.value
        begin = perf_counter()
        after = server.submit(capture, SOURCE, 0, "none").result(60)
        took = perf_counter() - begin
        print(f"recovery       {name}: {failed}, the next {after.verdict.status.value} in {took:.2f} s")


def placed(device: CudaDevice, compiler: Compiler, capture: Capture, unit: int = 0) -> tuple[Placement, Arm]:
    """A unit on a device, classed, and the recorded kernel as an arm that matches there."""
    placement = Placement(device, read_material(capture, unit))
    arm = made(placement, compiler, Variant())
    placement.classify(arm, 10.0)
    return placement, arm


def made(placement: Placement, compiler: Compiler, variant: Variant, *, padded: bool = False) -> Arm:
    device, material = placement.device, placement.material
    built = build(material, variant, device.target, compiler, padded=padded).result()
    arm = Arm(device.load(built.binary), material.unit.launch, "baseline")
    verdict = placement.verify(arm, 10.0)
    assert verdict.status is Status.MATCH, verdict.detail
    return arm


def classes(device: CudaDevice, compiler: Compiler, found: list[Capture]) -> None:
    kinds: Counter[str] = Counter()
    for capture in found:
        for unit in capture.units:
            placement, _ = placed(device, compiler, capture, unit.index)
            kinds["relocatable"] += placement.ring.relocatable
            kinds["idempotent"] += placement.ring.idempotent
            kinds["units"] += 1
            placement.release()
    print(f"classes        {kinds['relocatable']} relocatable and {kinds['idempotent']} idempotent of {kinds['units']}")


def apart(device: CudaDevice, compiler: Compiler, found: list[Capture]) -> None:
    for capture in found:
        placement, arm = placed(device, compiler, capture)
        times = []
        for alone in (False, True):
            placement.ring.relocatable = not alone
            launches, _ = fit([arm], placement.ring, GPU)
            times.append(statistics.median(window(arm, placement.ring, launches, 10.0) for _ in range(21)) / 1e3)
        print(f"apart          {capture.name}: {times[1]:.2f} us, on copies {times[0]:.2f} us")
        placement.release()


def reproducible(compiler: Compiler, found: list[Capture]) -> None:
    medians: dict[str, list[float]] = {capture.name: [] for capture in found}
    for _ in range(2):
        with closing(cuda()) as device:
            for capture in found:
                placement, arm = placed(device, compiler, capture)
                clones, _ = fit([arm], placement.ring, GPU)
                samples = [window(arm, placement.ring, clones, 10.0) for _ in range(51)]
                medians[capture.name].append(statistics.median(samples))
                quarters = [f"{q / 1e3:.2f}" for q in statistics.quantiles(samples)]
                print(f"windows        {capture.name}: {clones} launches each, quarters {', '.join(quarters)} us")
                placement.release()
    for name, (first, second) in medians.items():
        print(
            f"reproducible   {name}: {first / 1e3:.2f} and {second / 1e3:.2f} us, {abs(second / first - 1):.2%} apart"
        )


def same_work(device: CudaDevice, compiler: Compiler, found: list[Capture], contests: int) -> None:
    terms = Terms(gate=0.01, budget=Budget(kernels=1, looks=3), procedure=replace(GPU, warm_up_ns=20_000_000.0))
    decisions: Counter[Decision] = Counter()
    apparent = []
    for capture in found:
        placement, _ = placed(device, compiler, capture)
        arm, other = (made(placement, compiler, SOURCE, padded=padded) for padded in (False, True))
        assert arm.kernel.binary.sha256 != other.kernel.binary.sha256
        speedups = []
        for seed in range(max(1, contests // len(found))):
            result = contest(arm, other, placement.ring, placement.check, terms, seed)
            if result.baseline_ns is not None and result.baseline_ns < LONG_NS:
                break
            decisions[result.decision] += 1
            speedups.append(result.speedup or 1.0)
        if speedups:
            print(f"A/A            {capture.name}: apparent speedups {min(speedups):.4f} to {max(speedups):.4f}")
        apparent += speedups
        placement.release()
    counted = ", ".join(f"{count} {decision.value}" for decision, count in decisions.items())
    spread = f"apparent speedups {min(apparent):.4f} to {max(apparent):.4f}" if apparent else "no kernel above 10 us"
    print(f"A/A            {counted}; {spread}")


PARTS = ("device", "bandwidth", "nvrtc", "large", "reproducible", "classes", "apart", "same")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contests", type=int, nargs="?", default=100, help="of A/A")
    parser.add_argument("--folder", type=Path, help="large captures of miniweather that were recorded here")
    parser.add_argument("--cells", type=int, nargs=2, default=(1600, 800), help="along x and z, of those recorded now")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    wanted, small = set(arguments.only), captures(TOP / "captures" / "miniweather")
    nx, nz = arguments.cells
    if "device" in wanted:
        of_the_device(small)
    if "bandwidth" in wanted:
        with closing(cuda()) as device:
            for mebibytes in (64, 256, 1024):
                bandwidth(device, mebibytes)
    if "nvrtc" in wanted and find_nvrtc():
        with large_units(nx // 4, nz // 4, "nvrtc") as found, ReplayServer("cuda", timeout_s=5.0) as server:
            units(server, found, f"recorded here with NVRTC's image, {nx // 4} x {nz // 4} cells")
    if wanted & {"large", "reproducible", "classes", "apart", "same"}:
        there = arguments.folder
        with nullcontext(captures(there)) if there else large_units(nx, nz, "nvcc") as found:
            of_large_units(found, small, wanted, arguments.contests)


def of_the_device(small: list[Capture]) -> None:
    update = next(capture for capture in small if capture.symbol == "update")
    with ReplayServer("cuda", timeout_s=1.0) as server:
        print(f"device         {dict(server.device.conditions())}")
        units(server, small, "recorded on a CPU")
        evaluation(server, update)
        recovery(server, update)


def of_large_units(found: list[Capture], small: list[Capture], wanted: set[str], contests: int) -> None:
    if "large" in wanted:
        with ReplayServer("cuda", timeout_s=5.0) as server:
            units(server, found, "large, recorded here with the application's image")
            evaluation(server, next(capture for capture in found if capture.symbol == "tendencies_x"))
    heavy = [capture for capture in found if capture.symbol in HEAVY]
    with Compiler() as compiler:
        if "reproducible" in wanted:
            reproducible(compiler, heavy)
        with closing(cuda()) as device:
            if "classes" in wanted:
                classes(device, compiler, small)
            if "apart" in wanted:
                apart(device, compiler, heavy)
            if "same" in wanted:
                same_work(device, compiler, heavy, contests)


if __name__ == "__main__":
    main()
