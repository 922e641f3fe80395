"""DeviceContract: what every back end promises, one test per promise, on kernels that show one thing each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from math import inf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from r3bench.compare import Tolerance
from r3bench.devices import Bytes, Device, Memory
from r3bench.errors import DeviceFault, LaunchError, ReplayTimeout
from r3bench.model import Allocation, Binary, Dim3, Global, LaunchConfig, Pointer, ReplayUnit, Status, Target

CONTRACT_SOURCE = files("r3bench.testing").joinpath("contract.cu").read_text(encoding="utf-8")
BASE = 0x7F00_0000_0000

BinaryFor = Callable[[str], Binary]
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A unit with the bytes it starts from."""

    unit: ReplayUnit
    before: Mapping[str, Bytes]

    def expect(self, **after: Array) -> dict[str, Bytes]:
        """The bytes of all memory, with these buffers changed."""
        return {**self.before, **{name: _bytes(values) for name, values in after.items()}}


def case(
    buffers: Mapping[str, Array],
    arguments: Sequence[str | np.generic],
    *,
    grid: Dim3 = (1, 1, 1),
    block: Dim3 = (32, 1, 1),
    shared_bytes: int = 0,
    globals: Mapping[str, Array] | None = None,
    pointers: Sequence[Pointer] = (),
    displacement: int = 0,
) -> Case:
    """A unit whose arguments are names of buffers (pointers, ``displacement`` bytes in) and NumPy scalars."""
    block_bytes, pointing = _argument_block(arguments, displacement)
    names = tuple(buffers) + tuple(globals or {})
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=grid, block=block, shared_bytes=shared_bytes),
        arguments=block_bytes,
        pointers=(*pointing, *pointers),
        allocations=tuple(
            Allocation(
                name=name,
                address=address_of(buffers, name),
                nbytes=values.nbytes,
                dtype=str(values.dtype),
                shape=values.shape,
            )
            for name, values in buffers.items()
        ),
        globals=tuple(
            Global(symbol=name, nbytes=values.nbytes, dtype=str(values.dtype), shape=values.shape)
            for name, values in (globals or {}).items()
        ),
        written=names,
    )
    return Case(unit, {name: _bytes(values) for name, values in {**buffers, **(globals or {})}.items()})


def address_of(buffers: Mapping[str, Array], name: str) -> int:
    """Where the application had a buffer: 1 MiB apart, in order."""
    return BASE + (list(buffers).index(name) << 20)


def _argument_block(arguments: Sequence[str | np.generic], displacement: int) -> tuple[bytes, tuple[Pointer, ...]]:
    data, pointing = bytearray(), []
    for argument in arguments:
        size = 8 if isinstance(argument, str) else argument.nbytes
        data += bytes(-len(data) % size)
        if isinstance(argument, str):
            pointing.append(Pointer(offset=len(data), allocation=argument, displacement=displacement))
        data += bytes(8) if isinstance(argument, str) else argument.tobytes()
    return bytes(data), tuple(pointing)


def _bytes(values: Array) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).copy()


def _int32(values: Array) -> Array:
    return np.ascontiguousarray(values, dtype=np.int32).reshape(-1)


def adding(a: float = 1.5, n: int = 100) -> Case:
    """``x += a`` in place, with a neighbour that nothing may touch."""
    buffers: dict[str, Array] = {"x": np.arange(n, dtype=np.float64), "neighbour": np.full(37, 7, np.int32)}
    return case(buffers, ["x", np.float64(a), np.int32(n)], grid=(4, 1, 1))


def linked() -> Case:
    """A list that holds a pointer, 16 bytes into its data."""
    buffers = {"list": np.zeros(2, np.uint64), "data": np.arange(1.0, 9.0)}
    buffers["list"][:] = address_of(buffers, "data") + 16, 6
    return case(buffers, ["list"], pointers=[Pointer(holder="list", offset=0, allocation="data", displacement=16)])


def counting() -> Case:
    """A kernel that counts in a ``__device__`` variable and reads a ``__constant__`` one."""
    table = np.array([0.5, 1.5, 2.5, 3.5])
    kept = {"contract_counter": np.array([5], np.int32), "contract_table": table}
    return case({"out": np.zeros(1)}, ["out"], globals=kept)


def swapping() -> Case:
    """A pair of pointers, into two different buffers."""
    buffers = {"pair": np.zeros(2, np.uint64), "left": np.zeros(4), "right": np.ones(6)}
    buffers["pair"][:] = address_of(buffers, "left"), address_of(buffers, "right") + 8
    return case(
        buffers,
        ["pair"],
        pointers=[
            Pointer(holder="pair", offset=0, allocation="left"),
            Pointer(holder="pair", offset=8, allocation="right", displacement=8),
        ],
    )


def lone() -> Case:
    """One buffer of one element, for kernels that fail."""
    return case({"x": np.ones(1)}, ["x"], block=(1, 1, 1))


def run(device: Device, binary: Binary, given: Case) -> Memory:
    """Launch once on new memory of a case, as its unit says."""
    memory = device.allocate(given.unit, given.before)
    device.launch(device.load(binary), memory, given.unit.launch)
    return memory


def same(actual: Mapping[str, Bytes], expected: Mapping[str, Bytes]) -> None:
    """Assert that memory holds exactly these bytes."""
    assert actual.keys() == expected.keys()
    for name, data in expected.items():
        np.testing.assert_array_equal(actual[name], data, err_msg=name)


@contextmanager
def surviving(device: Device, binary_for: BinaryFor) -> Iterator[None]:
    """Assert that a memory and a kernel from before a failure serve after it."""
    count = counting()
    kernel, memory = device.load(binary_for("contract_count")), device.allocate(count.unit, count.before)
    device.launch(kernel, memory, count.unit.launch)
    yield
    device.restore(memory)
    same(device.download(memory), count.before)
    device.launch(kernel, memory, count.unit.launch)
    counted = count.expect(out=np.array([6 * 2.5]), contract_counter=np.array([6], np.int32))
    same(device.download(memory), counted)


class DeviceContract:
    """Subclass it with the fixtures ``device`` and ``binary_for``; every test must pass."""

    # -- memory -----------------------------------------------------------------------------------------------------

    def test_new_memory_holds_what_was_recorded(self, device: Device) -> None:
        count = counting()
        same(device.download(device.allocate(count.unit, count.before)), count.before)

    def test_restore_brings_back_every_allocation(self, device: Device, binary_for: BinaryFor) -> None:
        add = adding()
        memory = run(device, binary_for("contract_add"), add)
        device.restore(memory)
        same(device.download(memory), add.before)

    def test_restore_brings_back_globals(self, device: Device, binary_for: BinaryFor) -> None:
        count = counting()
        memory = run(device, binary_for("contract_count"), count)
        device.restore(memory)
        same(device.download(memory), count.before)

    def test_a_download_is_a_copy(self, device: Device) -> None:
        add = adding()
        memory = device.allocate(add.unit, add.before)
        device.download(memory)["x"][:] = 0
        same(device.download(memory), add.before)

    def test_memories_of_one_unit_are_independent(self, device: Device, binary_for: BinaryFor) -> None:
        count = counting()
        untouched = device.allocate(count.unit, count.before)
        run(device, binary_for("contract_count"), count)
        same(device.download(untouched), count.before)

    def test_other_memory_stays_when_one_is_released(self, device: Device, binary_for: BinaryFor) -> None:
        add = adding()
        kept, given = device.allocate(add.unit, add.before), device.allocate(add.unit, add.before)
        device.release(given)
        device.launch(device.load(binary_for("contract_add")), kept, add.unit.launch)
        same(device.download(kept), add.expect(x=np.arange(100) + 1.5))

    def test_evict_changes_nothing(self, device: Device) -> None:
        add = adding()
        memory = device.allocate(add.unit, add.before)
        device.evict()
        same(device.download(memory), add.before)

    # -- launching --------------------------------------------------------------------------------------------------

    def test_a_launch_changes_what_the_kernel_writes_and_nothing_else(
        self, device: Device, binary_for: BinaryFor
    ) -> None:
        add = adding()
        same(
            device.download(run(device, binary_for("contract_add"), add)),
            add.expect(x=np.arange(100) + 1.5),
        )

    def test_launches_add_up_until_restored(self, device: Device, binary_for: BinaryFor) -> None:
        add = adding()
        kernel, memory = device.load(binary_for("contract_add")), device.allocate(add.unit, add.before)
        for _ in range(3):
            device.launch(kernel, memory, add.unit.launch)
        same(device.download(memory), add.expect(x=np.arange(100) + 4.5))

    def test_pointers_reach_into_an_allocation(self, device: Device, binary_for: BinaryFor) -> None:
        values = np.arange(64, dtype=np.float32)
        buffers = {"from": values, "to": np.zeros(64, np.float32)}
        shifted = case(buffers, ["from", "to", np.int32(32)], displacement=64)
        after = np.zeros(64, np.float32)
        after[16:48] = 2 * values[16:48]
        same(device.download(run(device, binary_for("contract_double"), shifted)), shifted.expect(to=after))

    def test_every_thread_has_its_place(self, device: Device, binary_for: BinaryFor) -> None:
        shape = case({"out": np.full(2 * 3 * 2 * 4 * 3 * 2, -1, np.int32)}, ["out"], grid=(2, 3, 2), block=(4, 3, 2))
        z, y, x, k, j, i = np.indices((2, 3, 2, 2, 3, 4))
        wanted = i + 10 * j + 100 * k + 1000 * (x + 10 * y + 100 * z)
        same(device.download(run(device, binary_for("contract_geometry"), shape)), shape.expect(out=_int32(wanted)))

    def test_the_launch_decides_the_shape(self, device: Device, binary_for: BinaryFor) -> None:
        shape = case({"out": np.full(24, -1, np.int32)}, ["out"])
        memory = device.allocate(shape.unit, shape.before)
        device.launch(
            device.load(binary_for("contract_geometry")), memory, LaunchConfig(grid=(3, 1, 1), block=(8, 1, 1))
        )
        x, i = np.indices((3, 8))
        same(device.download(memory), shape.expect(out=_int32(i + 1000 * x)))

    def test_a_block_shares_memory(self, device: Device, binary_for: BinaryFor) -> None:
        shared = case({"out": np.zeros(192, np.int32)}, ["out"], grid=(3, 1, 1), block=(64, 1, 1), shared_bytes=256)
        x, i = np.indices((3, 64))
        same(
            device.download(run(device, binary_for("contract_shared"), shared)),
            shared.expect(out=_int32(100 * x + 63 - i)),
        )

    def test_globals_are_read_and_written(self, device: Device, binary_for: BinaryFor) -> None:
        count = counting()
        after = count.expect(out=np.array([6 * 2.5]), contract_counter=np.array([6], np.int32))
        same(device.download(run(device, binary_for("contract_count"), count)), after)

    def test_reverse_order_runs_the_threads_in_another_order(self, device: Device, binary_for: BinaryFor) -> None:
        last = case({"out": np.full(1, -1, np.int32)}, ["out"])
        winners = {}
        for order in device.orders:
            memory = device.allocate(last.unit, last.before)
            device.launch(device.load(binary_for("contract_last")), memory, last.unit.launch, order=order)
            winners[order] = int(device.download(memory)["out"].view(np.int32)[0])
        assert device.orders[0] == "forward"
        assert winners["forward"] != winners.get("reverse")

    # -- pointers inside memory -------------------------------------------------------------------------------------

    def test_pointers_in_memory_are_followed(self, device: Device, binary_for: BinaryFor) -> None:
        link = linked()
        data = np.arange(1.0, 9.0)
        data[2:] *= 3
        same(device.download(run(device, binary_for("contract_follow"), link)), link.expect(data=data))

    def test_pointers_in_memory_read_as_recorded(self, device: Device, binary_for: BinaryFor) -> None:
        """Where a kernel exchanges two pointers, the recorded addresses come back exchanged."""
        swap = swapping()
        word = swap.before["pair"].view(np.uint64)
        memory = run(device, binary_for("contract_swap"), swap)
        same(device.download(memory), swap.expect(pair=word[::-1]))
        assert device.compare(memory, swap.expect(pair=word[::-1])).status is Status.MATCH

    def test_restored_pointers_are_followed_too(self, device: Device, binary_for: BinaryFor) -> None:
        swap = swapping()
        memory = run(device, binary_for("contract_swap"), swap)
        device.restore(memory)
        device.launch(device.load(binary_for("contract_swap")), memory, swap.unit.launch)
        same(device.download(memory), swap.expect(pair=swap.before["pair"].view(np.uint64)[::-1]))

    # -- comparing --------------------------------------------------------------------------------------------------

    def test_compare_says_match(self, device: Device, binary_for: BinaryFor) -> None:
        link = linked()
        data = np.arange(1.0, 9.0)
        data[2:] *= 3
        verdict = device.compare(run(device, binary_for("contract_follow"), link), link.expect(data=data))
        assert verdict.status is Status.MATCH

    def test_compare_names_the_element(self, device: Device, binary_for: BinaryFor) -> None:
        add = adding()
        expected = np.arange(100) + 1.5
        expected[41] += 1
        verdict = device.compare(run(device, binary_for("contract_add"), add), add.expect(x=expected))
        assert verdict.status is Status.MISMATCH
        assert [(found.buffer, found.first, found.count) for found in verdict.differences] == [("x", (41,), 1)]

    def test_compare_allows_what_a_tolerance_allows(self, device: Device, binary_for: BinaryFor) -> None:
        add = adding()
        memory, expected = run(device, binary_for("contract_add"), add), add.expect(x=np.arange(100) + 1.75)
        wide, narrow = (Tolerance(kind="float", atol=atol) for atol in (0.25, 0.2))
        assert device.compare(memory, expected, {"x": wide}).status is Status.MATCH
        assert device.compare(memory, expected, {"x": narrow}).status is Status.MISMATCH

    def test_compare_sees_globals(self, device: Device, binary_for: BinaryFor) -> None:
        count = counting()
        memory = run(device, binary_for("contract_count"), count)
        verdict = device.compare(memory, count.expect(out=np.array([6 * 2.5])))
        assert [found.buffer for found in verdict.differences] == ["contract_counter"]

    # -- timing -----------------------------------------------------------------------------------------------------

    def test_a_window_launches_once_on_each_memory(self, device: Device, binary_for: BinaryFor) -> None:
        add = adding()
        memories = [device.allocate(add.unit, add.before) for _ in range(4)]
        device.window(device.load(binary_for("contract_add")), memories[:3], add.unit.launch)
        for memory in memories[:3]:
            same(device.download(memory), add.expect(x=np.arange(100) + 1.5))
        same(device.download(memories[3]), add.before)

    def test_windows_in_a_row_each_begin_with_restored_memory(self, device: Device, binary_for: BinaryFor) -> None:
        add = adding()
        memory, kernel = device.allocate(add.unit, add.before), device.load(binary_for("contract_add"))
        found = device.windows(kernel, [memory], add.unit.launch, 3, flush=True, stops=[(1, 1e12)])
        assert len(found) == 3
        assert min(found) > 0
        stopped = device.windows(kernel, [memory], add.unit.launch, 5, stops=[(1, 1e12), (2, 0.0)], judged=memory)
        assert len(stopped) == 2
        same(device.download(memory), add.expect(x=np.arange(100) + 1.5))

    def test_a_window_is_timed_as_a_whole_in_nanoseconds(self, device: Device, binary_for: BinaryFor) -> None:
        """A million dependent steps take between a tenth and a hundred nanoseconds each, on any device."""
        spin = case({"x": np.ones(1)}, ["x", np.int32(1_000_000)], block=(1, 1, 1))
        memories = [device.allocate(spin.unit, spin.before) for _ in range(4)]
        kernel = device.load(binary_for("contract_spin"))
        one = four = inf
        for rounds in range(100):  # on a busy machine it may take many until one was not disturbed
            one = min(one, device.window(kernel, memories[:1], spin.unit.launch))
            four = min(four, device.window(kernel, memories, spin.unit.launch))
            if rounds >= 4 and four > 2.5 * one:
                break
        assert 1e5 < one < 1e8
        assert four > 2.5 * one

    def test_conditions_are_texts_by_name(self, device: Device) -> None:
        assert all(isinstance(text, str) for pair in device.conditions().items() for text in pair)

    # -- failures ---------------------------------------------------------------------------------------------------

    def test_a_binary_of_another_target_is_refused(self, device: Device, binary_for: BinaryFor) -> None:
        other = Target(device="hip" if device.target.device != "hip" else "cuda", arch="none")
        with surviving(device, binary_for), pytest.raises(LaunchError):
            device.load(replace(binary_for("contract_add"), target=other))

    @pytest.mark.parametrize("block", [(2048, 1, 1), (0, 1, 1)])
    def test_an_impossible_launch_is_refused(self, device: Device, binary_for: BinaryFor, block: Dim3) -> None:
        add = adding()
        memory = device.allocate(add.unit, add.before)
        with surviving(device, binary_for), pytest.raises(LaunchError):
            device.launch(device.load(binary_for("contract_add")), memory, LaunchConfig(grid=(1, 1, 1), block=block))
        same(device.download(memory), add.before)

    @pytest.mark.parametrize("kernel", ["contract_stray", "contract_trap"])
    def test_a_fault_leaves_every_handle_usable(self, device: Device, binary_for: BinaryFor, kernel: str) -> None:
        with surviving(device, binary_for), pytest.raises(DeviceFault):
            run(device, binary_for(kernel), lone())

    def test_a_fault_in_a_window_leaves_every_handle_usable(self, device: Device, binary_for: BinaryFor) -> None:
        one = lone()
        memories = [device.allocate(one.unit, one.before) for _ in range(3)]
        with surviving(device, binary_for), pytest.raises(DeviceFault):
            device.window(device.load(binary_for("contract_stray")), memories, one.unit.launch)

    def test_a_kernel_that_hangs_is_ended_in_time(self, device: Device, binary_for: BinaryFor) -> None:
        flag = case({"flag": np.zeros(1, np.int32)}, ["flag"], block=(1, 1, 1))
        memory = device.allocate(flag.unit, flag.before)
        with surviving(device, binary_for), pytest.raises(ReplayTimeout):
            device.launch(device.load(binary_for("contract_hang")), memory, flag.unit.launch, timeout_s=0.2)

    # -- the end ----------------------------------------------------------------------------------------------------

    def test_close_may_be_called_twice(self, device: Device) -> None:
        device.close()
        device.close()
