"""Runs programs on the CPU device in every order and on one and two threads, and compares all memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from r3bench.devices import Device, open_device
from r3bench.errors import CandidateFailure
from r3bench.model import Allocation, Configuration, LaunchConfig, Pointer, ReplayUnit, Specialization
from r3bench.remix import BuildRequest
from r3bench.space import UnitFacts
from r3bench.toolchain import Built, Compiler
from tests.fuzz.expressions import Array
from tests.fuzz.program import PRELUDE, Program

_PAGE = 1 << 20
CONFIGURATIONS = (
    Configuration(),
    Configuration(),
    Configuration(specialize=Specialization(block=True, grid=True)),
    Configuration(specialize=Specialization(block=True), pipeline="O2"),
    Configuration(pipeline="O1"),
)


@dataclass(frozen=True)
class Failure:
    """A program that did not do what its interpretation did; ``what`` says where it differs."""

    program: Program
    what: str


class Bench:
    """A compiler and two CPU devices, with one and two threads."""

    def __init__(self, cache: Path | None = None, workers: int = 2) -> None:
        self.compiler = Compiler(workers=workers, cache=cache, timeout_s=120.0)
        self.devices: list[Device] = [open_device("cpu", threads=count) for count in (1, 2)]

    def close(self) -> None:
        self.compiler.close()
        for device in self.devices:
            device.close()

    def failures(self, programs: Sequence[Program], *, checked: bool = False) -> Iterator[Failure]:
        """Those of a few programs that fail; they are compiled as one source, ``checked`` if asked."""
        for number, program in enumerate(programs):
            program.name = f"k{number}"
        text = PRELUDE + "\n\n".join(program.text() for program in programs)
        builds = [self._build(text, program, checked) for program in programs]
        for program, build in zip(programs, builds, strict=True):
            what = self._run(program, build)
            if what:
                yield Failure(program, what)

    def _build(self, text: str, program: Program, checked: bool) -> Future[Built]:
        return self.compiler.submit(
            BuildRequest(
                files=(("k.cu", text),),
                main="k.cu",
                flags=("-fmad=false",),
                symbol=program.name,
                target=self.devices[0].target,
                configuration=CONFIGURATIONS[program.choice % len(CONFIGURATIONS)],
                facts=UnitFacts(launch=launch_of(program)),
                checked=checked,
            )
        )

    def _run(self, program: Program, build: Future[Built]) -> str:
        inputs = program.inputs()
        expected = program.expected(inputs)
        unit = _unit(program, inputs)
        try:
            binary = build.result().binary
            for device in self.devices:
                kernel = device.load(binary)
                memory = device.allocate(unit, {name: array.view(np.uint8) for name, array in inputs.items()})
                for order in device.orders:
                    device.restore(memory)
                    device.launch(kernel, memory, unit.launch, order=order, timeout_s=60.0)
                    found = {name: data.view(np.uint32) for name, data in device.download(memory).items()}
                    if what := _difference(expected, found):
                        return f"{what} in order {order}"
                device.release(memory)
        except CandidateFailure as failure:
            return str(failure)
        return ""


def launch_of(program: Program) -> LaunchConfig:
    grid, block = ((*dims, 1, 1)[:3] for dims in (program.shape.grid, program.shape.block))
    dynamic = 8 * program.shape.threads if program.waits else 0
    return LaunchConfig(grid=(grid[0], grid[1], grid[2]), block=(block[0], block[1], block[2]), shared_bytes=dynamic)


def _unit(program: Program, inputs: dict[str, Array]) -> ReplayUnit:
    addresses = [_PAGE * (k + 1) for k in range(len(inputs))]
    return ReplayUnit(
        index=0,
        launch=launch_of(program),
        arguments=program.arguments(addresses),
        pointers=tuple(Pointer(offset=8 * k, allocation=name) for k, name in enumerate(inputs)),
        allocations=tuple(
            Allocation(name=name, address=address, nbytes=array.nbytes)
            for (name, array), address in zip(inputs.items(), addresses, strict=True)
        ),
    )


def _difference(expected: dict[str, Array], found: dict[str, Array]) -> str:
    for name, right in expected.items():
        if len(wrong := np.flatnonzero(right != found[name])):
            k = int(wrong[0])
            return f"{name}[{k}] is {found[name][k]}, not {right[k]} ({len(wrong)} of {len(right)} differ)"
    return ""
