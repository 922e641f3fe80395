"""What recording and substitution cost on a GPU (needs nvcc and a CUDA device): python -m tests.benchmarks.recorder
[snapshots] [launches] [application] [replays] [seconds=30].

Prints the pause of a snapshot against a plain pinned copy, on the disk and in memory; the cost of a launch that is
counted and of one that is substituted, and of a whole application of which nothing is captured, in turns for so many
seconds; replays against their own epilogue, and times in the application against replayed ones.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from r3bench import store
from r3bench.devices import open_device
from r3bench.record import conversion, dump, trials
from r3bench.record.application import Plan, run
from r3bench.record.dump import STRIPE_BYTES, STRIPES
from r3bench.record.images import find_nvcc
from r3bench.record.times import times
from r3bench.record.verification import verify
from r3bench.toolchain import Compiler

PROGRAMS = Path(__file__).parent.parent / "recorder/programs"
# As pipeline.cpp writes.
WRITERS = 10


def build_all(folder: Path) -> None:
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("nvcc is not here")
    commands = [
        [nvcc, "-O3", "-arch=native", PROGRAMS / f"{name}.cu", "-o", folder / name]
        for name in ("many", "large", "weather", "solver", "lookups")
    ]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda command: subprocess.run(command, check=True), commands))


def in_turns(arms: Mapping[str, Callable[[], float]], seconds: float) -> dict[str, list[float]]:
    """What each arm gives in two turns or more, in an order that is drawn anew each time, until the time is over."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or min(map(len, found.values())) < 2:
        for name in random.sample(list(arms), len(arms)):
            found[name].append(arms[name]())
    return found


def tell(found: Mapping[str, list[float]], each: int = 0) -> None:
    """Medians; the median of the turns' shares above the first arm, and their middle half; what a launch costs."""
    base = next(iter(found.values()))
    for name, taken in found.items():
        shares = [mine / own - 1 for mine, own in zip(taken, base, strict=True)]
        low, middle, high = statistics.quantiles(shares, n=4)
        cost = f", {1e6 * middle * statistics.median(base) / each:+.3f} us each" if each else ""
        print(
            f"  {name}: {statistics.median(taken):.4f} s, {middle:+.2%} ({low:+.2%} to {high:+.2%}){cost}", flush=True
        )


def plain(command: list[str]) -> bytes:
    return subprocess.run(command, capture_output=True, check=True).stdout


LAUNCHES, WINDOWS = 20_000, 10


def launches(folder: Path, seconds: float) -> None:
    """Seconds of many launches of a kernel of two microseconds, by what the recorder does."""
    many = folder / "many"
    (folder / "first").mkdir()
    run([str(many), "10"], Plan(folder=folder / "first", max_per_kernel=1), keep_output=True)
    (launched,) = dump.launches(folder / "first")
    image = conversion.image_of(launched)
    assert image is not None
    (folder / "turn.cubin").write_bytes(image[0])
    (folder / "turn").write_text(f"kernel {launched.kernel}\nimage {folder / 'turn.cubin'}\nblock 128 1 1\n")
    command = [str(many), str(LAUNCHES), str(WINDOWS)]
    counted = Plan(folder=folder / "counted", max_per_kernel=0)
    substituted = Plan(folder=folder / "substituted", max_per_kernel=0, substitutes=(folder / "turn",))

    def least(output: bytes) -> float:
        return min(map(float, output.split()))

    found = in_turns(
        {
            "without": lambda: least(plain(command)),
            "again without": lambda: least(plain(command)),
            "counted": lambda: least(run(command, counted, keep_output=True)[1]),
            "substituted": lambda: least(run(command, substituted, keep_output=True)[1]),
        },
        seconds,
    )
    print(f"{LAUNCHES} launches, least of {WINDOWS} windows, {len(found['counted'])} runs of each kind in turns:")
    tell(found, LAUNCHES)


def application(folder: Path, seconds: float) -> None:
    """Seconds of whole runs of which nothing is captured."""
    command = [str(folder / "weather"), "device", "2048", "2048", "8000"]
    plan = Plan(folder=folder / "nothing", max_per_kernel=0)

    def seconds_of(work: Callable[[], object]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    found = in_turns(
        {
            "without": lambda: seconds_of(lambda: plain(command)),
            "counted": lambda: seconds_of(lambda: run(command, plan, keep_output=True)),
        },
        seconds,
    )
    print(f"{' '.join(command[1:])}: {len(found['counted'])} runs of each kind in turns:")
    tell(found)


MEMORY = Path("/dev/shm")


def snapshots(folder: Path, _: float) -> None:
    """Snapshots of 4 GiB without repetition, and of 18.7 GB of which little is used: how long the application pauses,
    and when all is on disk; against a plain pinned copy, and against plain writing to the same place. In memory there
    is no disk that could be the limit."""
    said = plain([str(folder / "large")]).decode().strip()
    rate = 1e9 * float(said.split()[-2])
    print(said, flush=True)
    for place in (folder, MEMORY) if shutil.disk_usage(MEMORY).free > 24 << 30 else (folder,):
        with tempfile.TemporaryDirectory(dir=place) as there:
            rates = {how: writing(Path(there), flags) for how, flags in WAYS.items()}
            told = " and ".join(f"{found / 1e9:.1f} GB/s {how}" for how, found in rates.items() if found)
            print(f"{place}: plain writing {told}", flush=True)
            snapshot([str(folder / "large")], Path(there, "large"), rate)
    snapshot([str(folder / "weather"), "pool"], folder / "pool", rate)


def snapshot(command: list[str], folder: Path, rate: float) -> None:
    run(command, Plan(folder=folder, max_per_kernel=2), keep_output=True)
    for launched in dump.launches(folder):
        pause, written, nbytes = launched.facts["pause_seconds"], launched.facts["written_seconds"], launched.nbytes
        print(
            f"  {launched.kernel}: {nbytes} bytes, {pause:.3f} s of pause ({nbytes / pause / 1e9:.1f} GB/s, "
            f"{nbytes / pause / rate:.0%} of the plain copy), written after {written:.3f} s "
            f"({nbytes / written / 1e9:.1f} GB/s, {nbytes / written / rate:.0%})",
            flush=True,
        )


WAYS = {"directly": os.O_DIRECT, "through the page cache": 0}


def writing(folder: Path, flags: int) -> float:
    """Bytes a second of threads that write 4 GiB in stripes, as the recorder does; 0 where the disk refuses the way."""
    data, count = mmap.mmap(-1, STRIPE_BYTES), (4 << 30) // STRIPE_BYTES
    data.write(os.urandom(STRIPE_BYTES))
    files = [folder / f"written{i}" for i in range(STRIPES)]
    try:
        opened = [os.open(file, os.O_RDWR | os.O_CREAT | flags) for file in files]
        with ThreadPoolExecutor(WRITERS) as pool:
            begin = time.perf_counter()
            place = (divmod(i, STRIPES) for i in range(count))
            done = sum(pool.map(lambda at: os.pwrite(opened[at[1]], data, at[0] * STRIPE_BYTES), place))
            seconds = time.perf_counter() - begin
        for file in opened:
            os.close(file)
    except OSError:
        return 0.0
    finally:
        for path in files:
            path.unlink(missing_ok=True)
    return done / seconds


# Programs with kernels above 50 microseconds, and arguments with which they run long enough to warm up.
TIMED = (
    ("weather", "device", "4096", "4096", "200"),
    ("solver", "2000", "2000", "60"),
    ("lookups", "60", "200000", "2000000", "20"),
)


def replays(folder: Path, _: float) -> None:
    """Replays against the recorded epilogue; times of a launch in the application, and alone with other caches."""
    with closing(open_device("cuda")) as device, Compiler() as compiler:
        for name, *arguments in TIMED:
            command = [str(folder / name), *arguments]
            own = trials.trial(command, Plan(folder=folder / f"times-{name}", profile=True))
            seconds = {k["kernel"]: k["gpu_seconds"] / k["launches"] for k in own.kernels}
            plan = Plan(folder=folder / f"units-{name}", launches=(2,))
            run(command, plan, keep_output=True)
            for launched in dump.launches(plan.folder):
                path = folder / f"{name}-{len(list(folder.glob('*.zarr')))}.zarr"
                capture = store.open_capture(conversion.write(path, name, (), [launched], None).path)
                (found,) = verify(capture, device, compiler, 10)
                there = times(capture, device, compiler, 1e6 * seconds[launched.kernel])
                around_us = 1e6 * launched.facts["events_seconds"]
                print(
                    f"{name} {launched.kernel}: {found.exact} of {found.runs} exact, {there}; two events take "
                    f"{around_us:.2f} us, which were taken off",
                    flush=True,
                )


def main(*asked: str) -> None:
    seconds = next((float(word.removeprefix("seconds=")) for word in asked if word.startswith("seconds=")), 30.0)
    known = {part.__name__: part for part in (snapshots, launches, application, replays)}
    parts = [known[word] for word in asked if word in known]
    with tempfile.TemporaryDirectory(prefix="r3bench-recorder-") as place:
        build_all(Path(place))
        for part in parts or known.values():
            begin = time.perf_counter()
            part(Path(place), seconds)
            print(f"({part.__name__}: {time.perf_counter() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
