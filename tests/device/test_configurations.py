"""A configuration changes a kernel's code, never what it computes: points of the space against the default pipeline."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from r3bench import frontend
from r3bench.devices import Device, open_device
from r3bench.errors import BuildError
from r3bench.model import (
    Allocation,
    Capture,
    Configuration,
    LaunchConfig,
    Parameter,
    Pointer,
    ReplayUnit,
    Source,
    Variant,
)
from r3bench.remix import build_request, launch_for, legal_blocks
from r3bench.space import Space
from r3bench.toolchain import Compiler

TEXT = (Path(__file__).parent.parent / "unit" / "knobs.cu").read_text()
COUNT = 200
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "series": (COUNT, 9, "float64", "float64"),
    "convolve": (COUNT, 7, "float32", "float32", "float32"),
    "machine": (COUNT, "int32", "int32"),
    "smooth": (16, 40, "float32", "float32"),
    "mixed": (COUNT, 4, "float32", "float32"),
    "matrix": (24, "float32", "float32", "float32"),
    "branches": (COUNT, 0.4, "float32", "float32"),
}


@pytest.fixture(scope="module")
def typed_ir() -> str:
    return frontend.compile_ir({"knobs.cu": TEXT}, "knobs.cu", debug=True)


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device("cpu")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(cache=tmp_path_factory.mktemp("cache")) as made:
        yield made


def recorded(symbol: str, parameters: Sequence[Parameter]) -> tuple[Capture, ReplayUnit, dict[str, NDArray[Any]]]:
    """The kernel as if recorded: a buffer of 4 KiB per pointer, of numbers between 0 and 1 (integers below 8)."""
    noise, block, buffers = np.random.default_rng(3), bytearray(), dict[str, NDArray[Any]]()
    for parameter, value in zip(parameters, ARGUMENTS[symbol], strict=True):
        block = block.ljust(parameter.offset, b"\0")
        if isinstance(value, str):
            numbers = noise.random(4096 // np.dtype(value).itemsize) * (8 if value == "int32" else 1)
            buffers[parameter.name] = numbers.astype(value)
            block += bytes(8)
        else:
            block += struct.pack("<f" if isinstance(value, float) else "<i", value)
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(4, 1, 1), block=(64, 1, 1)),
        arguments=bytes(block),
        pointers=tuple(Pointer(offset=p.offset, allocation=p.name) for p in parameters if p.kind == "pointer"),
        allocations=tuple(
            Allocation(name=name, address=4096 * n, nbytes=4096) for n, name in enumerate(buffers, start=1)
        ),
    )
    capture = Capture(
        path="knobs.zarr",
        application="knobs",
        symbol=symbol,
        demangled=symbol,
        parameters=tuple(parameters),
        source=Source(root=".", main="knobs.cu", span=(1, 1), files=()),
        units=(unit,),
    )
    return capture, unit, buffers


def points(space: Space, count: int, seed: int) -> list[tuple[Configuration, Any]]:
    """Random points, and the one with every specialization on."""
    choose = random.Random(seed)
    every = {knob.name: knob.values[-1] for knob in space.knobs if knob.name.startswith("specialize.")}
    chosen = [{knob.name: choose.choice(knob.values) for knob in space.knobs} for _ in range(count)]
    return [space.decode(point) for point in (every, *chosen)]


@pytest.mark.parametrize("symbol", ARGUMENTS)
def test_every_configuration_computes_the_same(symbol: str, typed_ir: str, device: Device, compiler: Compiler) -> None:
    capture, unit, buffers = recorded(symbol, frontend.parameters(typed_ir, symbol))
    memory = device.allocate(unit, {name: array.view(np.uint8) for name, array in buffers.items()})

    def results(variant: Variant) -> dict[str, NDArray[Any]]:
        request = build_request(capture, {"knobs.cu": TEXT}, unit, variant, device.target)
        kernel = device.load(compiler.submit(request).result().binary)
        device.restore(memory)
        device.launch(kernel, memory, launch_for(unit, variant))
        return {name: data.view(buffers[name].dtype) for name, data in device.download(memory).items()}

    expected = results(Variant())
    assert any(not np.array_equal(expected[name], buffers[name]) for name in buffers)
    blocks = legal_blocks(capture, unit, {"knobs.cu": TEXT})
    space, free = (Space.for_unit(capture, unit, device.target, blocks, slots=slots) for slots in (0, 8))
    assert "block" in {knob.name for knob in space.knobs}
    chosen, built = [*points(space, 4, seed=len(symbol)), *points(free, 3, seed=len(symbol))], 0
    for configuration, launch in chosen:
        with suppress(BuildError):  # some orders of LLVM's loop passes end it
            for name, actual in results(Variant(configuration=configuration, launch=launch)).items():
                said = f"{name}: {configuration}"
                np.testing.assert_allclose(actual, expected[name], rtol=2e-5, atol=1e-6, err_msg=said)
            built += 1
    assert built >= len(chosen) - 2
    device.release(memory)


def test_specialized_code_ignores_the_argument(typed_ir: str, device: Device, compiler: Compiler) -> None:
    """That values come from the unit, and are compiled in: another value at the launch changes nothing."""
    capture, unit, buffers = recorded("branches", frontend.parameters(typed_ir, "branches"))
    other = replace(unit, arguments=struct.pack("<if", COUNT, 0.9) + unit.arguments[8:])
    fixed = Configuration(specialize=replace(Configuration().specialize, arguments=("cut",)))
    request = build_request(capture, {"knobs.cu": TEXT}, unit, Variant(configuration=fixed), device.target)
    kernel = device.load(compiler.submit(request).result().binary)
    results = []
    for one in (unit, other):
        memory = device.allocate(one, {name: array.view(np.uint8) for name, array in buffers.items()})
        device.launch(kernel, memory, one.launch)
        results.append(device.download(memory)["y"])
        device.release(memory)
    np.testing.assert_array_equal(*results)


@pytest.mark.skipif("fma" not in Path("/proc/cpuinfo").read_text(), reason="this processor has no fused multiply-add")
def test_products_and_sums_are_fused_as_cuda_does(device: Device, compiler: Compiler) -> None:
    text = 'extern "C" __global__ void k(const float* x, float* y) { int i = threadIdx.x; y[i] = x[i] * x[i] + y[i]; }'
    parameters = tuple(Parameter(name=n, offset=8 * k, size=8, kind="pointer") for k, n in enumerate("xy"))
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(256, 1, 1)),
        arguments=bytes(16),
        pointers=tuple(Pointer(offset=p.offset, allocation=p.name) for p in parameters),
        allocations=tuple(Allocation(name=p.name, address=4096 * (1 + p.offset), nbytes=1024) for p in parameters),
    )
    capture = Capture(
        path="k.zarr",
        application="fma",
        symbol="k",
        demangled="k",
        parameters=parameters,
        source=Source(root=".", main="k.cu", span=(1, 1), files=()),
        units=(unit,),
    )
    x, y = np.random.default_rng(5).random((2, 256), dtype=np.float32)
    request = build_request(capture, {"k.cu": text}, unit, Variant(), device.target)
    memory = device.allocate(unit, {"x": x.view(np.uint8), "y": y.view(np.uint8)})
    device.launch(device.load(compiler.submit(request).result().binary), memory, unit.launch)
    fused = (x.astype(np.float64) ** 2 + y).astype(np.float32)
    np.testing.assert_array_equal(device.download(memory)["y"].view(np.float32), fused)
    assert np.any(fused != x * x + y)
