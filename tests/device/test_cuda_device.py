"""What only the CUDA device does: errors of the GPU by their class, redzones, relocation, registers, clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_case import TEXT, lone
from run_kernel import Runner

from r3bench.devices import Device, Memory, open_device
from r3bench.devices.cuda.device import CudaDevice
from r3bench.devices.cuda.memory import CudaMemory
from r3bench.devices.cuda.process import OURS
from r3bench.errors import DeviceFault, LaunchError
from r3bench.model import Binary, LaunchConfig, Status
from r3bench.testing.contract import Case, case, linked, run, same
from r3bench.toolchain import Compiler

pytestmark = pytest.mark.gpu

Build = Callable[..., Binary]


def test_writing_beside_a_buffer_is_found(device: Device, build: Build) -> None:
    with pytest.raises(DeviceFault, match=r"8 bytes past the end of buffer x \(32 bytes\)"):
        run(device, build("past_the_end"), lone())
    both = case({"first": np.ones(4), "x": np.ones(4)}, ["x"], block=(1, 1, 1))
    with pytest.raises(DeviceFault, match="16 bytes before the start of buffer x"):
        run(device, build("before_the_start"), both)


def test_a_deep_stack_needs_the_recorded_limit(device: Device, build: Build) -> None:
    one, kernel = case({"x": np.ones(4)}, ["x", np.int32(400)], block=(1, 1, 1)), build("recursive")
    with pytest.raises(DeviceFault):
        run(device, kernel, one)
    memory = device.allocate(one.unit, one.before)
    device.launch(device.load(kernel), memory, replace(one.unit.launch, stack_bytes=400 * 512))
    same(device.download(memory), one.expect(x=np.array([1, 1, 1, 401.0])))


def test_a_carveout_is_taken_as_recorded(device: Device, build: Build) -> None:
    one = lone()
    memory = device.allocate(one.unit, one.before)
    device.launch(device.load(build("doubled")), memory, replace(one.unit.launch, carveout=100))
    same(device.download(memory), one.expect(x=np.array([2.0, 1, 1, 1])))
    with pytest.raises(LaunchError, match="refused"):
        device.launch(device.load(build("doubled")), memory, replace(one.unit.launch, carveout=1000))


def test_a_unit_of_more_than_half_of_the_memory_is_read_from_the_host(build: Build) -> None:
    one = lone()
    with closing(CudaDevice(index=0)) as device:
        device.hello["memory_bytes"] = 2 * sum(data.nbytes for data in one.before.values()) - 1
        memory, kernel = device.allocate(one.unit, one.before), device.load(build("doubled"))
        for _ in range(2):
            device.restore(memory)
            device.launch(kernel, memory, one.unit.launch)
            assert device.compare(memory, one.expect(x=np.array([2.0, 1, 1, 1]))).status is Status.MATCH
            assert device.compare(memory, one.before).status is Status.MISMATCH


def test_units_take_turns_where_they_were_recorded(device: Device, build: Build) -> None:
    """Both at the same addresses: what is in the memory of one outlasts the other's being there."""
    first, second = lone(), case({"x": np.full(1 << 20, 3.0)}, ["x"], block=(1, 1, 1))
    kernel = device.load(build("doubled"))
    memories = [device.allocate(each.unit, each.before) for each in (first, second)]
    for memory, each in zip(memories, (first, second), strict=True):
        device.launch(kernel, memory, each.unit.launch)
    same(device.download(memories[0]), first.expect(x=np.array([2.0, 1, 1, 1])))
    assert device.download(memories[1])["x"].view(np.float64)[:2].tolist() == [6.0, 3.0]
    memories.append(device.allocate(first.unit, first.before))
    assert isinstance(memories[2], CudaMemory)
    assert not memories[2].as_recorded
    device.restore(memories[0])
    same(device.download(memories[0]), first.before)
    for memory in memories:
        device.release(memory)


def recorded_at(address: int) -> Case:
    """One array that was recorded at this address."""
    one = lone()
    return replace(one, unit=replace(one.unit, allocations=(replace(one.unit.allocations[0], address=address),)))


@pytest.fixture
def alone() -> Iterator[tuple[Device, Callable[[], int]]]:
    """A device of its own, and the number of its worker's process."""
    others = set(OURS)
    opened = open_device("cuda")
    yield opened, lambda: (OURS - others).pop()
    opened.close()


def test_addresses_that_something_else_has_are_had_in_a_fresh_process(
    alone: tuple[Device, Callable[[], int]], build: Build
) -> None:
    device, process = alone
    first = process()
    mapped = Path(f"/proc/{first}/maps").read_text(encoding="utf-8").splitlines()
    taken = next(int(line.split("-")[0], 16) for line in mapped if "libcuda.so" in line)
    one = recorded_at(taken)
    memory = run(device, build("doubled"), one)
    same(device.download(memory), one.expect(x=np.array([2.0, 1, 1, 1])))
    assert process() != first
    assert device.conditions()["addresses"] == "as recorded, in a process begun anew to have them"


def test_addresses_that_nobody_can_have_are_relocated(alone: tuple[Device, Callable[[], int]], build: Build) -> None:
    device, process = alone
    one, kernel, first = recorded_at(4096), device.load(build("doubled")), process()
    memories = [device.allocate(one.unit, one.before) for _ in range(2)]
    second = process()
    device.window(kernel, memories, one.unit.launch)
    assert len({first, second}) == 2
    assert process() == second
    for memory in memories:
        same(device.download(memory), one.expect(x=np.array([2.0, 1, 1, 1])))
    assert device.conditions()["relocated"].startswith("by the table of pointers")


def test_many_copies_each_keep_their_own(device: Device, build: Build) -> None:
    one, kernel = lone(), device.load(build("doubled"))
    memories = [device.allocate(one.unit, one.before) for _ in range(70)]
    device.window(kernel, memories, one.unit.launch)
    for memory in memories[::7]:
        device.release(memory)
    more = [device.allocate(one.unit, one.before) for _ in range(20)]
    device.window(kernel, more, one.unit.launch)
    for memory in (*more, *(each for number, each in enumerate(memories) if number % 7)):
        same(device.download(memory), one.expect(x=np.array([2.0, 1, 1, 1])))
        device.release(memory)


def test_a_launch_alone_takes_as_long_as_one_among_others(device: Device, build: Build) -> None:
    one = case({"x": np.ones(1)}, ["x", np.int32(20 << 10)], block=(32, 1, 1), shared_bytes=160 << 10)
    kernel = device.load(build("shared_sum"))
    memories = [device.allocate(one.unit, one.before) for _ in range(8)]

    def shortest(memories: list[Memory]) -> float:
        return min(device.window(kernel, memories, one.unit.launch) for _ in range(9)) / len(memories)

    assert shortest(memories[:1]) == pytest.approx(shortest(memories), rel=0.05)
    device.evict()
    assert device.window(kernel, memories[:1], one.unit.launch) > 0
    for memory in memories:
        device.release(memory)


def test_much_dynamic_shared_memory(device: Device, build: Build) -> None:
    nbytes = 200 << 10
    one = case({"x": np.zeros(1)}, ["x", np.int32(nbytes // 8)], block=(32, 1, 1), shared_bytes=nbytes)
    assert device.download(run(device, build("shared_sum"), one))["x"].view(np.float64)[0] == nbytes // 8


def test_shared_memory_is_poisoned(device: Device, build: Build) -> None:
    one = case({"x": np.zeros(1)}, ["x"], block=(1, 1, 1), shared_bytes=64)
    found = [device.download(run(device, build("shared_unwritten"), one))["x"].view(np.uint64)[0] for _ in range(2)]
    assert sorted(map(int, found)) == [0x5C5C5C5C_5C5C5C5C, 0xFFFFFFFF_FFFFFFFF]  # the second is NaN


def test_clusters_share_memory(device: Device, build: Build) -> None:
    one = case({"x": np.zeros(8, np.int32)}, ["x"], grid=(8, 1, 1), block=(32, 1, 1))
    launch = LaunchConfig(grid=(8, 1, 1), block=(32, 1, 1), cluster=(4, 1, 1))
    memory = device.allocate(one.unit, one.before)
    device.launch(device.load(build("cluster_rank")), memory, launch)
    assert device.download(memory)["x"].view(np.int32).tolist() == [0, 1, 2, 3] * 2


def test_a_cooperative_launch(device: Device, build: Build) -> None:
    one = lone()
    memory = device.allocate(one.unit, one.before)
    launch = LaunchConfig(grid=(4, 1, 1), block=(32, 1, 1), cooperative=True)
    device.window(device.load(build("doubled")), [memory], launch)
    assert device.download(memory)["x"].view(np.float64)[0] in (2.0, 4.0, 8.0, 16.0)


def test_a_cluster_larger_than_all_gpus_have(device: Device, build: Build) -> None:
    one = case({"x": np.zeros(16, np.int32)}, ["x"], grid=(16, 1, 1), block=(32, 1, 1))
    memory = device.allocate(one.unit, one.before)
    device.launch(device.load(build("cluster_rank")), memory, replace(one.unit.launch, cluster=(16, 1, 1)))
    assert device.download(memory)["x"].view(np.int32).tolist() == [*range(16)]


def test_registers_and_spills_are_read_back(device: Device, build: Build) -> None:
    wide, narrow = (device.load(build("many_registers", max_registers=cap)) for cap in (None, 24))
    facts = [dict(kernel.binary.facts) for kernel in (wide, narrow)]
    assert facts[0]["registers"] > 24 >= facts[1]["registers"]
    assert facts[1]["local_bytes"] > 0


def test_relocated_copies_compare_as_recorded(device: Device, build: Build) -> None:
    link = linked()
    data = np.arange(1.0, 9.0)
    data[2:] *= 3
    kernel = device.load(build("follow"))
    memories = [device.allocate(link.unit, link.before) for _ in range(3)]
    device.window(kernel, memories, link.unit.launch)
    for memory in memories:
        assert device.compare(memory, link.expect(data=data)).status is Status.MATCH
    device.download(memories[1])
    for memory in memories:
        device.release(memory)


def test_variables_start_from_the_recorded_value_in_every_launch_of_a_window(device: Device, build: Build) -> None:
    kept = {"counter": np.array([5], np.int32), "table": np.array([0.5, 1.5, 2.5, 3.5])}
    count = case({"out": np.zeros(1)}, ["out"], globals=kept)
    memories = [device.allocate(count.unit, count.before) for _ in range(4)]
    device.window(device.load(build("count")), memories, count.unit.launch)
    expected = count.expect(out=np.array([6 * 2.5]), counter=np.array([6], np.int32))
    for memory in memories:
        same(device.download(memory), expected)


def test_conditions_name_gpu_clock_and_floor(device: Device) -> None:
    found = device.conditions()
    assert {"driver", "clock_mhz", "throttle", "temperature_c", "launch_floor_ns"} <= found.keys()
    assert "GPU-" in device.name
    assert 100 < float(found["launch_floor_ns"]) < 5000


def test_a_runner_works_on_it_too(compiler: Compiler, device: Device) -> None:
    x = np.arange(4.0)
    assert Runner(compiler, device, TEXT)("doubled", (1,), (1,), x)[0].tolist() == [0.0, 1.0, 2.0, 3.0]
