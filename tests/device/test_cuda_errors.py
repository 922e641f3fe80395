"""What goes wrong on a GPU, each by its class, and what its driver refuses; the next candidate is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from cuda_case import built, lone

from r3bench.devices import Device
from r3bench.devices.cuda.memory import CudaMemory
from r3bench.devices.cuda.supply import Supply
from r3bench.errors import DeviceFault, LaunchError
from r3bench.model import Binary, LaunchConfig, Target
from r3bench.testing.contract import case, run, same
from r3bench.toolchain import Compiler

pytestmark = pytest.mark.gpu

Build = Callable[..., Binary]


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("misaligned", "MISALIGNED"),
        ("asserting", "ASSERT"),
        ("trapping", "ILLEGAL_INSTRUCTION|LAUNCH_FAILED"),
        ("stray", "ILLEGAL_ADDRESS"),
        ("through_null", "ILLEGAL_ADDRESS"),
    ],
)
def test_a_fault_says_what_it_was_and_the_next_candidate_is_answered(
    device: Device, build: Build, kernel: str, says: str
) -> None:
    one, bad, good = lone(), build(kernel), build("doubled")
    begin = perf_counter()
    with pytest.raises(DeviceFault, match=says):
        run(device, bad, one)
    same(device.download(run(device, good, one)), one.expect(x=np.array([2.0, 1, 1, 1])))
    assert perf_counter() - begin < 4


def test_more_memory_than_there_is(device: Device) -> None:
    huge = case({"x": np.ones(1)}, ["x"])
    whole = huge.unit.allocations[0]
    with pytest.raises(LaunchError, match="out of memory"):
        device.allocate(
            type(huge.unit)(
                index=0,
                launch=huge.unit.launch,
                arguments=huge.unit.arguments,
                pointers=huge.unit.pointers,
                allocations=(type(whole)(name="x", address=whole.address, nbytes=1 << 40),),
            ),
            {"x": np.broadcast_to(np.uint8(0), (1 << 40,))},
        )


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=300 << 10), "refused"),
        (LaunchConfig(grid=(1, 70000, 1), block=(1, 1, 1)), "refused"),
        (LaunchConfig(grid=(100000, 1, 1), block=(1024, 1, 1), cooperative=True), "refused"),
        (LaunchConfig(grid=(3, 1, 1), block=(1, 1, 1), cluster=(2, 1, 1)), "refused"),
    ],
)
def test_what_the_gpu_cannot_do_is_refused(device: Device, build: Build, launch: LaunchConfig, says: str) -> None:
    one = lone()
    memory = device.allocate(one.unit, one.before)
    kernel = device.load(build("doubled"))
    with pytest.raises(LaunchError, match=says):
        device.launch(kernel, memory, launch)
    with pytest.raises(LaunchError, match=says):
        device.window(kernel, [memory], launch)
    device.launch(kernel, memory, one.unit.launch)
    same(device.download(memory), one.expect(x=np.array([2.0, 1, 1, 1])))
    device.release(memory)


def test_arguments_of_another_size_are_refused(device: Device, build: Build) -> None:
    two = case({"x": np.ones(4)}, ["x", np.int32(3)], block=(1, 1, 1))
    with pytest.raises(LaunchError, match="takes 8 bytes of arguments, but the unit has 12"):
        run(device, build("doubled"), two)


def test_code_that_is_no_code_is_refused(device: Device, build: Build) -> None:
    made = build("doubled")
    broken = Binary(target=made.target, symbol="doubled", image=b"\x7fELF nothing", format="cubin")
    with pytest.raises(LaunchError, match="refused"):
        device.load(broken)
    with pytest.raises(LaunchError, match="refused"):
        device.load(Binary(target=made.target, symbol="missing", image=made.image, format=made.format))


def test_what_the_drivers_compiler_says_is_told(device: Device) -> None:
    text = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { nonsense; }\n"
    with pytest.raises(LaunchError, match="nonsense"):
        device.load(Binary(target=device.target, symbol="k", image=text, format="ptx"))


def test_the_drivers_own_word_on_memory(device: Device) -> None:
    """What is left of the GPU's memory is known to the driver alone."""
    one = lone()
    memory = device.allocate(one.unit, one.before)
    assert isinstance(memory, CudaMemory)
    asked = {**memory.description(), "op": "make", "id": -1, "buffers": [("x", None, 1 << 41, 256)], "as_recorded": 0}
    supply: Supply = device._supply  # type: ignore[attr-defined]
    with pytest.raises(LaunchError, match=r"out of memory: a unit needs more than the GPU has left \(cuMemCreate\)"):
        supply.ask(supply.worker(), asked, "a unit")
    same(device.download(memory), one.before)
    device.release(memory)


def test_ptx_of_a_newer_version_than_the_driver_knows(device: Device) -> None:
    text = b".version 9.9\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"
    with pytest.raises(LaunchError, match="the code is PTX of a newer version than the driver knows: install a newer"):
        device.load(Binary(target=device.target, symbol="k", image=text, format="ptx"))


def test_code_for_another_gpu(device: Device, compiler: Compiler) -> None:
    text = 'extern "C" __global__ void doubled(double *x) { x[0] *= 2; }'
    other = built(compiler, "doubled", Target(device="cuda", arch="sm_80"), text)
    with pytest.raises(LaunchError, match="doubled: the code is for another kind of GPU"):
        device.load(replace(other, target=device.target))


def test_memory_that_a_launch_does_not_use_cannot_be_read(device: Device, build: Build) -> None:
    peek, one = build("peek"), lone()
    memories = [device.allocate(one.unit, one.before) for _ in range(2)]
    assert isinstance(memories[1], CudaMemory)
    there = case({"x": np.zeros(4)}, ["x", np.int64(memories[1].addresses["x"])], block=(1, 1, 1))
    with pytest.raises(DeviceFault, match="ILLEGAL_ADDRESS"):
        run(device, peek, there)
    own = case({"x": np.ones(4)}, ["x", np.int64(there.unit.allocations[0].address)], block=(1, 1, 1))
    same(device.download(run(device, peek, own)), own.before)
    for memory in memories:
        same(device.download(memory), one.before)
        device.release(memory)


def test_the_driver_compiles_with_options(device: Device, tmp_path: Path) -> None:
    with Compiler(1, cache=tmp_path, assemble=False) as compiler:
        plain, slow = (
            built(compiler, "shared_sum", device.target, assembler=options)
            for options in ((), (("opt-level", "0"), ("def-load-cache", "cg")))
        )
    assert (plain.format, plain.image) == ("ptx", slow.image)
    registers = [dict(device.load(binary).binary.facts)["registers"] for binary in (plain, slow)]
    assert registers[0] != registers[1]
