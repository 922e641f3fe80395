"""What the replay server achieves, one line a figure; each part ends within its seconds.

- *rate*: distinct verified binaries a second of known sources, ranked, until there are 2,000. Their configurations are
  drawn at random, before the clock starts, over all kernels of captures/miniweather. The share of the time in which
  the device's stage, by NVML the GPU, this process (of one processor, for one thread runs at a time) and all processors
  were at work; and the median milliseconds of each stage. Asked on an H200 with 16 cores: 120 a second, GPU half busy.
  On two cores of a CPU: 15 configurations a second.
- *source*: from a source that was never seen to its verdict. Asked on the H200: 120 ms.
- *cold*: the same evaluation in a process of its own each time, against the resident server. Asked: 50 times.
- *rebuild*: nvcc and a run of the application for each candidate, against the same. Asked: 20 times.
- *kill*: a process of the server's is killed every two seconds: every request is answered, none twice. What does not
  match is told in full: a GPU refuses 7 of the first 396 draws, whose threads want more registers than there are.
- *growth*: memory of this process, its workers and the largest of these, over 10,000 evaluations or as many as there
  is time for. Asked: at most the captures and 300 MB, and no growth.
- *large*: a capture of 1 GB, from the first request to the verdict on the device. Asked on the H200: 3 s. Then the same
  where the GPU reads what was recorded from the host.
- *dask*: configurations of one kernel a second through a cluster of one worker, against those without. Asked on the
  H200: 90 %. For a CPU: tests/benchmarks/cluster.py.

    python -m tests.benchmarks.server cpu|cuda PART[=SECONDS] ...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import count, cycle, islice, takewhile
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time, sleep

import numpy as np

from r3bench import remix, store
from r3bench.devices import Device
from r3bench.devices.cuda import nvml, survey
from r3bench.devices.cuda.device import CudaDevice
from r3bench.model import (
    Allocation,
    Capture,
    LaunchConfig,
    Outcome,
    Parameter,
    Pointer,
    ReplayUnit,
    Source,
    Status,
    Variant,
)
from r3bench.record.images import find_nvcc
from r3bench.server import ReplayServer
from r3bench.space import Space
from r3bench.store import UnitContents, text_sha256
from tests.benchmarks import cluster
from tests.benchmarks.machine import describe

ROOT = Path(__file__).parents[2]
CORES = len(os.sched_getaffinity(0))
IN_FLIGHT = 4 * CORES
SECONDS = {"rate": 40, "source": 15, "cold": 20, "rebuild": 30, "kill": 40, "growth": 60, "large": 30, "dask": 25}
DISTINCT = 2000
MIB = 1 << 20


def captures() -> list[Capture]:
    return [store.open_capture(path) for path in store.find([ROOT / "captures" / "miniweather"])]


def configurations(capture: Capture, server: ReplayServer) -> Iterator[Variant]:
    """Configurations drawn at random, each knob changed from its default with probability 1/2, none twice."""
    unit, random, seen = capture.units[0], Random(capture.symbol), set[Variant]()
    space = Space.for_unit(capture, unit, server.target, remix.legal_blocks(capture, unit, store.sources(capture)))
    while True:
        changed = {knob.name: random.choice(knob.values) for knob in space.knobs if random.random() < 0.5}
        configuration, launch = space.decode(changed)
        variant = Variant(configuration=configuration, launch=launch)
        if variant not in seen:
            seen.add(variant)
            yield variant


def requests(server: ReplayServer, found: Sequence[Capture]) -> Iterator[tuple[Capture, Variant]]:
    drawn = [configurations(capture, server) for capture in found]
    for capture, variants in cycle(zip(found, drawn, strict=True)):
        yield capture, next(variants)


def stream(
    server: ReplayServer,
    wanted: Iterator[tuple[Capture, Variant]],
    most: int,
    seconds: float,
    seen: Callable[[Outcome], object] = lambda outcome: None,
) -> tuple[list[Outcome], Counter[int], float]:
    """Outcomes of as many requests as there is time for, how often each was answered, and the seconds it took."""
    outcomes: list[Outcome] = []
    answers: Counter[int] = Counter()
    room, guard = threading.Semaphore(IN_FLIGHT), threading.Lock()
    begin = perf_counter()

    def answered(number: int, future: Future[Outcome]) -> None:
        with guard:
            answers[number] += 1
            outcomes.append(future.result())
            seen(outcomes[-1])
        room.release()

    for number, (capture, variant) in enumerate(islice(wanted, most)):
        room.acquire()
        if perf_counter() - begin > seconds:
            room.release()
            break
        server.submit(capture, variant, 0, "race").add_done_callback(lambda done, at=number: answered(at, done))
    for _ in range(IN_FLIGHT):
        room.acquire()
    return outcomes, answers, perf_counter() - begin


def warmed(server: ReplayServer, found: Sequence[Capture]) -> None:
    for future in [server.submit(capture, Variant()) for capture in found]:
        verdict = future.result(120).verdict
        assert verdict.status is Status.MATCH, verdict


def stages(outcomes: Sequence[Outcome]) -> str:
    spent: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        for name, seconds in outcome.stages:
            spent[name].append(1e3 * seconds)
    return ", ".join(f"{name} {median(ms):.1f}" for name, ms in spent.items())


class Watch:
    """How busy NVML says the first visible GPU is, sampled until it is asked."""

    def __init__(self) -> None:
        self._samples: list[int] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        with suppress(OSError, IndexError, ValueError), nvml.opened() as library:
            number = int(survey.visible()[0])
            while not self._ends.wait(0.2):
                self._samples.append(library.busy()[number])

    def percent(self) -> float:
        self._ends.set()
        self._thread.join()
        return sum(self._samples) / len(self._samples) if self._samples else 0.0


def at_work() -> tuple[int, int]:
    """Ticks that all processors of this machine were at work by now, and all ticks."""
    user, nice, system, idle, waiting, *others = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + sum(others)
    return busy, busy + idle + waiting


# -- the parts ------------------------------------------------------------------------------------------------------


def rate(device: str, seconds: float, cache: Path) -> None:
    found, binaries = captures(), set[tuple[str, str | None]]()

    def seen(outcome: Outcome) -> None:
        if outcome.verdict.status is Status.MATCH:
            binaries.add((outcome.capture, outcome.binary))

    with ReplayServer(device, cache=cache) as server:
        warmed(server, found)
        drawn = list(islice(requests(server, found), round(min(2 * DISTINCT, 200 * seconds))))
        watch, cpu, before = Watch(), process_time(), at_work()
        wanted = takewhile(lambda _: len(binaries) < DISTINCT, drawn)
        outcomes, _, took = stream(server, wanted, len(drawn), seconds, seen)
        busy, cpu, ticks = (
            watch.percent(),
            process_time() - cpu,
            [b - a for a, b in zip(before, at_work(), strict=True)],
        )
    matched = [outcome for outcome in outcomes if outcome.verdict.status is Status.MATCH]
    on_device = sum(s for o in outcomes for name, s in o.stages if name in ("load", "verify", "time"))
    print(f"rate     {len(binaries) / took:.1f} distinct verified binaries/s ({len(binaries)} in {took:.1f} s)")
    print(f"rate     {len(outcomes) / took:.1f} configurations/s, {len(matched)} of {len(outcomes)} match")
    print(f"rate     device stage at work {on_device / took:.0%} of the time, GPU by NVML {busy:.0f} %")
    ranked = [outcome.measurement for outcome in matched if outcome.measurement]
    few, taken = sum(each.cut_ns is not None for each in ranked), sum(len(each.samples_ns) for each in ranked)
    print(f"rate     {taken / len(ranked):.1f} windows a ranking, {few / len(ranked):.0%} of which were cut off")
    own = f"this process at work {cpu / took:.0%} of the time, {1e3 * cpu / len(outcomes):.1f} ms an evaluation"
    print(f"rate     {own}; all processors {ticks[0] / ticks[1]:.0%}")
    print(f"rate     median ms: {stages([o for o in outcomes if o.measurement])}")


def changed(capture: Capture, number: int) -> Variant:
    """The recorded kernel with a test at its begin that never holds: another source and another binary each time."""
    files = store.sources(capture)
    assert capture.source is not None
    text = files[capture.source.main]
    at = text.index("{", text.index(f"void {capture.symbol}(")) + 1
    test = f" if (blockIdx.x == {1_000_000 + number}) return;"
    return Variant(files=((capture.source.main, text[:at] + test + text[at:]),))


def source(device: str, seconds: float, cache: Path) -> None:
    found = captures()
    with ReplayServer(device, cache=cache) as server:
        warmed(server, found)
        outcomes, times, ends = list[Outcome](), list[float](), perf_counter() + seconds
        for number, capture in enumerate(islice(cycle(found), 200)):
            variant = changed(capture, number)  # what is in the store is read for it, before the clock starts
            begin = perf_counter()
            outcomes.append(server.submit(capture, variant, 0, "none").result(60))
            times.append(1e3 * (perf_counter() - begin))
            if perf_counter() > ends:
                break
    assert {outcome.verdict.status for outcome in outcomes} == {Status.MATCH}
    print(f"source   new source to verdict: median {median(times):.0f} ms, most {max(times):.0f} ms of {len(times)}")
    print(f"source   median ms: {stages(outcomes)}")


COLD = """
import sys
from pathlib import Path
from r3bench import store
from r3bench.model import Variant
from r3bench.server import ReplayServer
from tests.benchmarks.server import changed
capture = store.open_capture(sys.argv[2])
with ReplayServer(sys.argv[1], cache=Path(sys.argv[3])) as server:
    assert server.submit(capture, changed(capture, int(sys.argv[4]))).result(120).measurement
"""


def resident_s(server: ReplayServer, capture: Capture, numbers: Iterator[int]) -> float:
    """Seconds for one of many candidates with sources of their own, on the resident server."""
    server.submit(capture, Variant()).result(120)
    wanted = ((capture, changed(capture, number)) for number in numbers)
    outcomes, _, took = stream(server, wanted, 200, 8)
    assert all(outcome.measurement for outcome in outcomes)
    return took / len(outcomes)


def cold(device: str, seconds: float, cache: Path) -> None:
    capture = next(each for each in captures() if each.symbol == "tendencies_x")
    numbers, times = count(10_000), []
    with ReplayServer(device, cache=cache / "resident") as server:
        resident = resident_s(server, capture, numbers)
    ends = perf_counter() + seconds - 8
    while perf_counter() < ends or len(times) < 3:
        begin = perf_counter()
        command = [sys.executable, "-c", COLD, device, capture.path, str(cache / "cold"), str(next(numbers))]
        subprocess.run(command, cwd=ROOT, check=True)
        times.append(perf_counter() - begin)
    each = f"resident {1e3 * resident:.1f} ms, in a process of its own {1e3 * median(times):.0f} ms"
    print(f"cold     a candidate, timed: {each}: {median(times) / resident:.0f} times")


def rebuild(device: str, seconds: float, cache: Path) -> None:
    nvcc = find_nvcc()
    if nvcc is None or device != "cuda":
        print("rebuild  not measured: it takes nvcc and a GPU")
        return
    capture = next(each for each in captures() if each.symbol == "tendencies_x")
    with ReplayServer(device, cache=cache) as server:
        resident = resident_s(server, capture, count(10_000))
    times, ends = [], perf_counter() + seconds - 8
    main = ROOT / "kernels/miniweather/main.cu"
    while perf_counter() < ends or len(times) < 3:
        begin = perf_counter()
        (cache / "kernels.cu").write_text(dict(changed(capture, len(times)).files or ())["kernels.cu"])
        (cache / "constants.h").write_text(main.with_name("constants.h").read_text())
        (cache / "main.cu").write_text(main.read_text())
        subprocess.run([nvcc, "-O3", "-arch=native", cache / "main.cu", "-o", cache / "miniweather"], check=True)
        subprocess.run([cache / "miniweather", "400", "200", "100", "thermal"], check=True, capture_output=True)
        times.append(perf_counter() - begin)
    each = f"resident {1e3 * resident:.1f} ms, nvcc and a run of 100 s of weather {1e3 * median(times):.0f} ms"
    print(f"rebuild  a candidate, timed: {each}: {median(times) / resident:.0f} times")


def descendants(of: int) -> list[int]:
    """The processes below one, parents first."""
    found = [of]
    for pid in found:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found[1:]


def kill(device: str, seconds: float, cache: Path) -> None:
    found, random, ended, killed = captures(), Random(1), threading.Event(), 0

    def killing() -> None:
        nonlocal killed
        while not ended.wait(2.0):
            with suppress(OSError, IndexError):
                os.kill(random.choice(descendants(os.getpid())), signal.SIGKILL)
                killed += 1

    with ReplayServer(device, cache=cache) as server:
        warmed(server, found)
        killer = threading.Thread(target=killing)
        killer.start()
        outcomes, answers, took = stream(server, requests(server, found), 1000, seconds)
        ended.set()
        killer.join()
    statuses = Counter(outcome.verdict.status.value for outcome in outcomes)
    twice = sum(times > 1 for times in answers.values())
    print(f"kill     {killed} kills in {took:.0f} s: {len(answers)} asked, {len(outcomes)} answered, {twice} twice")
    print(f"kill     {', '.join(f'{number} {status}' for status, number in statuses.items())}")
    others = [outcome.verdict for outcome in outcomes if outcome.verdict.status is not Status.MATCH]
    for detail, number in Counter(f"{verdict.status.value}: {verdict.detail}" for verdict in others).items():
        print(f"kill     {number} times: {detail}")


def resident_bytes(pid: int) -> int:
    """What a process alone holds, shared pages counted in part."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
    return 0


def growth(device: str, seconds: float, cache: Path) -> None:
    found = captures()
    with ReplayServer(device, cache=cache) as server:
        warmed(server, found)
        wanted, done, sizes, ends = requests(server, found), 0, [], perf_counter() + seconds
        while done < 10_000 and perf_counter() < ends:
            outcomes, _, _ = stream(server, wanted, 500, ends - perf_counter())
            done += len(outcomes)
            pids = [os.getpid(), *descendants(os.getpid())]
            own, *workers = [resident_bytes(pid) // MIB for pid in pids]
            sizes.append((done, own, sum(workers), max(workers)))
    few = sizes[:1] + sizes[1 :: max(1, len(sizes) // 6)]
    told = "; ".join(f"{at}: {own} + {workers} ({most})" for at, own, workers, most in few)
    print(f"growth   MiB of this process + all its workers (the largest) after so many evaluations: {told}")


def large_capture(folder: Path, nbytes: int) -> Capture:
    """y = 2 x over two buffers of random doubles, of so many bytes together."""
    text = 'extern "C" __global__ void twice(const double* x, double* y, int n) {\n'
    text += "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = 2 * x[i];\n}\n"
    values = np.random.default_rng(1).random(nbytes // 16)
    before = {"x": values.view(np.uint8), "y": np.zeros(nbytes // 2, np.uint8)}
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(-(-values.size // 256), 1, 1), block=(256, 1, 1)),
        arguments=bytes(16) + values.size.to_bytes(4, "little"),
        pointers=(Pointer(offset=0, allocation="x"), Pointer(offset=8, allocation="y")),
        allocations=tuple(
            Allocation(name=name, address=at, nbytes=nbytes // 2, dtype="float64", shape=(values.size,))
            for name, at in (("x", 0x7E00_0000_0000), ("y", 0x7E80_0000_0000))
        ),
    )
    pointers = (("x", 0, True), ("y", 8, False))
    made = Capture(
        path=str(folder / "twice.zarr"),
        application="large",
        symbol="twice",
        demangled="twice",
        parameters=(
            *(Parameter(name=n, offset=o, size=8, kind="pointer", dtype="float64", const=c) for n, o, c in pointers),
            Parameter(name="n", offset=16, size=4, kind="scalar", dtype="int32"),
        ),
        source=Source(root=".", main="twice.cu", span=(1, 4), files=(("twice.cu", text_sha256(text)),)),
        units=(unit,),
    )
    held = UnitContents(before, {"y": (2 * values).view(np.uint8)})
    return store.write(folder / "twice.zarr", made, [held], {"twice.cu": text})


def large(device: str, seconds: float, cache: Path) -> None:
    begin = perf_counter()
    capture = large_capture(cache, 1 << 30)
    written = perf_counter() - begin
    begin = perf_counter()
    store.contents(capture, 0)
    print(f"large    read alone: {perf_counter() - begin:.2f} s")
    with ReplayServer(device, cache=cache / "builds") as server:
        print(f"large    written in {written:.1f} s; {server.name}")
        for what in ("first", "second"):
            begin = perf_counter()
            outcome = server.submit(capture, Variant(), 0, "none").result(seconds)
            took = perf_counter() - begin
            print(f"large    1 GB, {what} request to verdict {outcome.verdict.status.value}: {took:.2f} s")
            spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in server.device.spent.items())
            print(f"large    s of the device by now: {spent}; ms of the request: {stages([outcome])}")
    if device == "cuda":
        with ReplayServer(small_gpu, cache=cache / "builds") as server:
            for what in ("first", "second"):
                begin = perf_counter()
                outcome = server.submit(capture, Variant(), 0, "none").result(seconds)
                status, took = outcome.verdict.status, perf_counter() - begin
                print(f"large    1 GB read from the host, {what} request to verdict {status}: {took:.2f} s")


def small_gpu() -> Device:
    """A GPU that seems to have so little memory that what was recorded of 1 GB stays on the host."""
    found = CudaDevice(index=0)
    found.hello["memory_bytes"] = (2 << 30) - 1
    return found


def dask(device: str, seconds: float, cache: Path) -> None:
    if device == "cuda":
        cluster.cuda(round(20 * seconds))
    else:
        print("dask     not measured: python -m tests.benchmarks.cluster cpu")


PARTS: dict[str, Callable[[str, float, Path], None]] = {
    "rate": rate, "source": source, "cold": cold, "rebuild": rebuild, "kill": kill, "growth": growth, "large": large,
    "dask": dask,
}  # fmt: skip


def main(device: str, *parts: str) -> None:
    print(describe())
    for part in parts or PARTS:
        name, _, seconds = part.partition("=")
        with tempfile.TemporaryDirectory() as cache:
            PARTS[name](device, float(seconds or SECONDS[name]), Path(cache))
        sys.stdout.flush()
        sleep(0.1)
    print(describe())


if __name__ == "__main__":
    main(*sys.argv[1:])
