"""PTX to machine code by ptxas, a process each time, and by nvJitLink in a process that stays: which takes less.

For the 7 kernels of miniweather and the 13 of tests/device/thirteen.cu, at each level: the least time and the processor
time of each way, alone, and whether both made the same code; then as many at once as there are processors: how many a
second, and the processor time of each.

    python -m tests.benchmarks.assemblers [seconds at once]
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns
from types import SimpleNamespace
from typing import Any

from kernels.miniweather.driver import TOP
from r3bench import store
from r3bench.model import Configuration, Target, Variant
from r3bench.replay import build, read_material
from r3bench.toolchain import Compiler, assembler, jitlink
from tests.benchmarks.machine import describe
from tests.benchmarks.source_to_callable import requests

TARGET = Target(device="cuda", arch="sm_90")
LEVELS: tuple[tuple[tuple[str, str], ...], ...] = ((), *((("opt-level", str(level)),) for level in (2, 1, 0)))
TRIES = 3
_numbers = count(perf_counter_ns())


@dataclass(frozen=True)
class Text:
    name: str
    symbol: str
    ptx: bytes


def texts() -> list[Text]:
    with Compiler(assemble=False, cache=Path(os.devnull)) as compiler:
        built = {
            capture.symbol: build(read_material(capture, 0), Variant(configuration=Configuration()), TARGET, compiler)
            for capture in map(store.open_capture, store.find([TOP / "captures" / "miniweather"]))
        }
        device: Any = SimpleNamespace(target=TARGET)
        built |= {name: compiler.submit(request) for name, request in requests(device).items()}
        binaries = {name: future.result().binary for name, future in built.items()}
    return [Text(name, binary.symbol, binary.image) for name, binary in binaries.items()]


def ways() -> Iterator[tuple[str, Path | None]]:
    if path := assembler.find():
        yield "ptxas", path
    if jitlink.version():
        yield "nvJitLink", None


def processor_s() -> float:
    """Of this process and of what it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def least_ms(action: Callable[[], object]) -> tuple[float, float]:
    """Time and processor time."""
    found = []
    for _ in range(TRIES):
        begin, used = perf_counter(), processor_s()
        action()
        found.append((1e3 * (perf_counter() - begin), 1e3 * (processor_s() - used)))
    wall, used_ms = (min(each) for each in zip(*found, strict=True))
    return wall, used_ms


def code(cubin: bytes, symbol: str) -> bytes:
    """The instructions of a kernel."""
    start, size, count, names = (*struct.unpack_from("<Q", cubin, 40), *struct.unpack_from("<HHH", cubin, 58))
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + number * size) for number in range(count)]
    at = sections[names][4]
    wanted = f".text.{symbol}\0".encode()
    return next(
        cubin[place : place + nbytes]
        for name, _, _, _, place, nbytes in sections
        if cubin[at + name : at + name + len(wanted)] == wanted
    )


def assembled(path: Path | None, text: Text, options: assembler.Options = ()) -> tuple[bytes, assembler.Facts]:
    """From a text that is another each time: newer nvJitLinks remember what they compiled."""
    with assembler.started(path, text.symbol, TARGET.arch, options) as assemble:
        return assemble(text.ptx + b"// %d\n" % next(_numbers))


def alone(found: list[Text]) -> None:
    for options in LEVELS:
        rows: dict[str, list[tuple[float, float]]] = {}
        made: dict[str, dict[str, Any]] = {}
        for way, path in ways():
            assembled(path, found[0], options)
            for text in found:
                cubin, facts = assembled(path, text, options)
                made.setdefault(text.name, {})[way] = facts, code(cubin, text.symbol)
                took = least_ms(partial(assembled, path, text, options))
                rows.setdefault(way, []).append(took)
        level = dict(options).get("opt-level", "3")
        for way, took in rows.items():
            wall, used = (median(each) for each in zip(*took, strict=True))
            each = ", ".join(f"{text.name} {ms:.1f}/{own:.1f}" for text, (ms, own) in zip(found, took, strict=True))
            print(f"level {level} {way:10} median {wall:.1f} ms, processor {used:.1f} ms ({each})")
        unlike = [name for name, each in made.items() if len(set(each.values())) > 1]
        told = [name for name in unlike if len({facts for facts, _ in made[name].values()}) > 1]
        print(f"level {level} other code: {unlike or 'none'}; other registers, spills, memory: {told or 'none'}")


def _work(path: Path | None, found: list[Text], seconds: float, answers: Any) -> None:
    assembled(path, found[0])
    begin, used, made = perf_counter(), processor_s(), 0
    while perf_counter() - begin < seconds:
        assembled(path, found[made % len(found)])
        made += 1
    answers.put((made, perf_counter() - begin, processor_s() - used))


def at_once(found: list[Text], seconds: float) -> None:
    fork = multiprocessing.get_context("fork")
    workers = len(os.sched_getaffinity(0))
    for way, path in ways():
        answers = fork.Queue()
        processes = [fork.Process(target=_work, args=(path, found, seconds, answers)) for _ in range(workers)]
        for process in processes:
            process.start()
        counts = [answers.get() for _ in processes]
        for process in processes:
            process.join()
        made, used = sum(each for each, _, _ in counts), sum(used for _, _, used in counts)
        rate = sum(each / took for each, took, _ in counts)
        print(f"{workers} at once  {way:10} {rate:.0f} a second, processor {1e3 * used / made:.1f} ms each")


def main(seconds: float = 4.0) -> None:
    print(describe())
    found = texts()
    at_once(found, seconds)  # before anything here has a thread
    alone(found)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
