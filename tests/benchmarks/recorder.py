"""What recording and substitution cost on a GPU (needs nvcc and a CUDA device): python -m tests.benchmarks.recorder
[launches] [snapshots] [replays] [rounds=7].

Prints the cost of a launch that is counted and of one that is substituted, the pause of a snapshot against a plain
pinned copy, a sparse pool, replays against their own epilogue, and times in the application against replayed ones.
"""

from __future__ import annotations

import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
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
LAUNCHES = 100_000
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


def launches(folder: Path, rounds: int) -> None:
    """Seconds of 100,000 launches of a kernel of two microseconds, by what the recorder does."""
    many = folder / "many"
    (folder / "first").mkdir()
    run([str(many), "10"], Plan(folder=folder / "first", max_per_kernel=1), keep_output=True)
    (launched,) = dump.launches(folder / "first")
    image = conversion.image_of(launched)
    assert image is not None
    (folder / "turn.cubin").write_bytes(image[0])
    (folder / "turn").write_text(f"kernel {launched.kernel}\nimage {folder / 'turn.cubin'}\nblock 128 1 1\n")
    found: dict[str, list[float]] = {"without": [], "counted": [], "substituted": []}
    for index in range(rounds):
        for name, taken in found.items():
            substitutes = (folder / "turn",) if name == "substituted" else ()
            plan = Plan(folder=folder / f"{name}{index}", max_per_kernel=0, substitutes=substitutes)
            command = [str(many), str(LAUNCHES)]
            done = subprocess.run(command, capture_output=True, check=True) if name == "without" else None
            taken.append(float(done.stdout if done else trials.trial(command, plan).output))
    base = statistics.median(found["without"])
    for name, taken in found.items():
        middle = statistics.median(taken)
        share, each_us = 100 * (middle / base - 1), 1e6 * (middle - base) / LAUNCHES
        print(f"{name}: {middle:.4f} s, {share:+.2f} %, {each_us:+.3f} us each", flush=True)


def snapshots(folder: Path, _: int) -> None:
    """Snapshots of 4 GiB without repetition, and of 18.7 GB of which little is used: how long the application pauses,
    and when all is on disk; against a plain pinned copy, and against plain writing to the same disk."""
    large = folder / "large"
    said = subprocess.run([large], capture_output=True, check=True).stdout.decode().strip()
    plain_writing = " and ".join(f"{writing(folder, flags) / 1e9:.1f} GB/s {how}" for how, flags in WAYS.items())
    print(f"{said}; plain writing to {folder.parent}: {plain_writing}", flush=True)
    plain = 1e9 * float(said.split()[-2])
    for command in ([str(large)], [str(folder / "weather"), "pool"]):
        plan = Plan(folder=folder / f"dump{command[-1][-4:]}", max_per_kernel=3)
        run(command, plan, keep_output=True)
        print(f"{Path(command[0]).name}:")
        for launched in dump.launches(plan.folder):
            pause, written = launched.facts["pause_seconds"], launched.facts["written_seconds"]
            rate, nbytes = launched.nbytes / pause, launched.nbytes
            print(
                f"  {launched.kernel}: {nbytes} bytes, {pause:.3f} s of pause ({rate / 1e9:.1f} GB/s, "
                f"{100 * rate / plain:.0f} % of the plain copy), "
                f"on disk after {written:.3f} s ({nbytes / written / 1e9:.1f} GB/s)"
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


def replays(folder: Path, _: int) -> None:
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
    rounds = next((int(word.removeprefix("rounds=")) for word in asked if word.startswith("rounds=")), 7)
    known = {part.__name__: part for part in (launches, snapshots, replays)}
    parts = [known[word] for word in asked if word in known]
    with tempfile.TemporaryDirectory(prefix="r3bench-recorder-") as place:
        build_all(Path(place))
        for part in parts or known.values():
            begin = time.perf_counter()
            part(Path(place), rounds)
            print(f"({part.__name__}: {time.perf_counter() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
