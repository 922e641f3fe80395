"""Runs one kernel of a source on a device, on NumPy arrays and scalars, as tests need it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench import frontend
from r3bench.devices import Device
from r3bench.model import Allocation, Configuration, LaunchConfig, Parameter, Pointer, ReplayUnit
from r3bench.remix import BuildRequest, UnitFacts
from r3bench.toolchain import Compiler

Array = NDArray[Any]
_PAGE = 1 << 20


class Runner:
    """Builds kernels of one source for a device. Arrays go in by value; what they hold after the launch comes back."""

    def __init__(
        self, compiler: Compiler, device: Device, text: str, flags: Sequence[str] = (), *, checked: bool = False
    ) -> None:
        self._compiler, self.device, self._text, self._flags = compiler, device, text, tuple(flags)
        self._checked = checked
        self._typed = frontend.compile_ir({"k.cu": text}, "k.cu", flags=flags, debug=True)

    def symbol(self, kernel: str) -> str:
        return next(s for s in frontend.kernels(self._typed) if frontend.readable_name(self._typed, s) == kernel)

    def __call__(
        self,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: Any,
        shared_bytes: int = 0,
        order: str = "forward",
    ) -> list[Array]:
        """``arguments``: an array for a pointer, a number for a scalar; for a struct, a dict with its ``bytes`` and the
        arrays that the pointers at given offsets within it lead to."""
        symbol = self.symbol(kernel)
        parameters = frontend.parameters(self._typed, symbol)
        launch = LaunchConfig(grid=_dim3(grid), block=_dim3(block), shared_bytes=shared_bytes)
        arrays = [array for argument in arguments for array in _arrays(argument).values()]
        unit = _unit(launch, parameters, arguments)
        facts = UnitFacts(launch=launch, parameters=parameters)
        request = BuildRequest(
            files=(("k.cu", self._text),),
            main="k.cu",
            flags=self._flags,
            symbol=symbol,
            target=self.device.target,
            configuration=Configuration(),
            facts=facts,
            checked=self._checked,
        )
        loaded = self.device.load(self._compiler.submit(request).result().binary)
        before = {f"a{n}": array.reshape(-1).view(np.uint8) for n, array in enumerate(arrays)}
        memory = self.device.allocate(unit, before)
        try:
            self.device.launch(loaded, memory, launch, order=order)
            after = self.device.download(memory)
        finally:
            self.device.release(memory)
        return [after[f"a{n}"].view(array.dtype).reshape(array.shape) for n, array in enumerate(arrays)]


def _dim3(values: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _arrays(argument: Any) -> dict[int, Array]:
    """The arrays an argument leads to, by the offset of the pointer within it."""
    if isinstance(argument, dict):
        return {offset: array for offset, array in argument.items() if offset != "bytes"}
    return {0: argument} if isinstance(argument, np.ndarray) else {}


def _unit(launch: LaunchConfig, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> ReplayUnit:
    last = parameters[-1]
    block = bytearray(last.offset + last.size)
    allocations: list[Allocation] = []
    pointers: list[Pointer] = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        if isinstance(argument, dict):
            block[parameter.offset : parameter.offset + parameter.size] = argument["bytes"]
        elif not isinstance(argument, np.ndarray):
            value = np.array(argument, parameter.dtype).tobytes()
            block[parameter.offset : parameter.offset + parameter.size] = value
        for offset, array in _arrays(argument).items():
            name, address = f"a{len(allocations)}", _PAGE * (1 + len(allocations))
            allocations.append(Allocation(name=name, address=address, nbytes=array.nbytes, dtype=array.dtype.name))
            pointers.append(Pointer(offset=parameter.offset + offset, allocation=name))
            struct.pack_into("<Q", block, parameter.offset + offset, address)
    return ReplayUnit(
        index=0, launch=launch, arguments=bytes(block), pointers=tuple(pointers), allocations=tuple(allocations)
    )
