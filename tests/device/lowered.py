"""Runs lowered kernels in this process, straight on the object's interface: codes, frame and slots are seen."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from r3bench import frontend
from r3bench.devices.cpu import sources
from r3bench.devices.cpu.wire import ORDERS
from r3bench.lowering import Lowered, lower
from r3bench.model import Configuration, Target
from r3bench.toolchain import codegen, passes
from r3bench.toolchain.build import optimize_lightly

Array = NDArray[Any]
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
_GUARD = 64


class Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
    )


@cache
def _blocks() -> bytes:
    """The code that decides whose turn it is."""
    return sources.compiled()[sources.NAMES.index("blocks.c")]


def _machine() -> llvm.TargetMachine:
    """A new one each time: the engine that runs code owns its machine."""
    return codegen.machine(Target(device="cpu", arch=codegen.host_cpu()), 80)


def lowered(ir: str, symbol: str) -> Lowered:
    return lower(
        ir,
        symbol,
        triple=codegen.host_triple(),
        data_layout=str(_machine().target_data),
        optimize=optimize_lightly,
    )


class Kernel:
    """One kernel of a CUDA source (or of NVPTX IR), compiled and loaded."""

    def __init__(self, ir: str, symbol: str) -> None:
        self.lowered = lowered(ir, symbol)
        module = codegen.parse(self.lowered.ir)
        passes.run(module, machine := _machine(), Configuration())
        self._engine = llvm.create_mcjit_compiler(codegen.parse(str(module)), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(_blocks()))
        self._engine.finalize_object()
        address = self._engine.get_function_address
        self._bytes = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address("r3_frame_bytes"))
        self._run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(address("r3_run_block"))

    def slot(self, name: str) -> ctypes.c_void_p:
        """The pointer through which the code reaches a device variable; may be set."""
        return ctypes.c_void_p.from_address(self._engine.get_global_value_address(f"r3_slot.{name}"))

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: Any,
        shared_bytes: int = 0,
        order: str = "forward",
        poison: int = 0xA5,
        threads: int = 1,
    ) -> int:
        """Run all blocks; the first code that is not 0. Arrays go by address, ``bytes`` as structs of alignment 8."""
        launch = Launch(_dim3(grid), _dim3(block), shared_bytes, ORDERS.index(order), threads)
        block_of_arguments = ctypes.create_string_buffer(_packed(arguments))
        size = self._bytes(ctypes.byref(launch))
        frame = np.full(size + _GUARD, poison, np.uint8)
        indices = [
            (x, y, z) for z in range(launch.grid[2]) for y in range(launch.grid[1]) for x in range(launch.grid[0])
        ]
        for index in indices[:: -1 if order == "reverse" else 1]:
            place = (ctypes.c_uint32 * 3)(*index)
            code = self._run(block_of_arguments, ctypes.byref(launch), place, frame.ctypes.data)
            assert (frame[size:] == poison).all(), "the kernel wrote behind its frame"
            if code:
                return int(code)
        return 0


def _dim3(values: Sequence[int]) -> Any:
    return (ctypes.c_uint32 * 3)(*(*values, 1, 1)[:3])


def _packed(arguments: Sequence[Any]) -> bytes:
    block = bytearray()
    for argument in arguments:
        raw, align = _raw(argument)
        block += bytes(-len(block) % align) + raw
    return bytes(block) or bytes(1)


def _raw(argument: Any) -> tuple[bytes, int]:
    if isinstance(argument, bytes):
        return argument, 8
    scalar = np.uint64(argument.ctypes.data) if isinstance(argument, np.ndarray) else argument
    return scalar.tobytes(), scalar.nbytes


def compiled(text: str) -> str:
    return frontend.compile_ir({"k.cu": text}, "k.cu")
