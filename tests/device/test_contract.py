"""The contract holds for each back end, and every deliberately broken device fails the promise that it breaks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from contract_programs import PROGRAMS

from r3bench.compare import Tolerance
from r3bench.devices import Bytes, Device, Kernel, Memory
from r3bench.errors import CandidateFailure
from r3bench.model import Binary, LaunchConfig, ReplayUnit, Status, Verdict
from r3bench.testing import DeviceContract, FakeDevice, fake_binary
from r3bench.testing.fake import FakeKernel, FakeMemory


class TestFake(DeviceContract):
    @pytest.fixture
    def device(self) -> Device:
        return FakeDevice(PROGRAMS)

    @pytest.fixture
    def binary_for(self) -> Callable[[str], Binary]:
        return fake_binary


# -- devices that break one promise each ----------------------------------------------------------------------------


class ForgetsGlobals(FakeDevice):
    def restore(self, memory: Memory) -> None:
        assert isinstance(memory, FakeMemory)
        kept = {held.symbol: memory.live[held.symbol] for held in memory.unit.globals if held.symbol in memory.live}
        super().restore(memory)
        memory.live.update(kept)


class NeverRestores(FakeDevice):
    def restore(self, memory: Memory) -> None:
        assert isinstance(memory, FakeMemory)
        if not memory.live:
            super().restore(memory)


class SharesOneMemory(FakeDevice):
    def allocate(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> FakeMemory:
        first = self.__dict__.setdefault("first", {})
        if unit not in first:
            first[unit] = super().allocate(unit, before)
        return first[unit]


class DownloadsItself(FakeDevice):
    def download(self, memory: Memory) -> dict[str, Bytes]:
        assert isinstance(memory, FakeMemory)
        return memory.live


class ShowsOwnAddresses(FakeDevice):
    def download(self, memory: Memory) -> dict[str, Bytes]:
        assert isinstance(memory, FakeMemory)
        return {name: data.copy() for name, data in memory.live.items()}


class KeepsRecordedPointers(FakeDevice):
    """Leaves the application's addresses inside buffers, where nothing of this device is."""

    def restore(self, memory: Memory) -> None:
        assert isinstance(memory, FakeMemory)
        memory.live = {name: data.copy() for name, data in memory.before.items()}


class IgnoresGridDepth(FakeDevice):
    def launch(self, kernel: Kernel, memory: Memory, launch: LaunchConfig, **how: Any) -> None:
        flat = LaunchConfig(grid=(*launch.grid[:2], 1), block=launch.block, shared_bytes=launch.shared_bytes)
        super().launch(kernel, memory, flat, **how)


class IgnoresSharedBytes(FakeDevice):
    def launch(self, kernel: Kernel, memory: Memory, launch: LaunchConfig, **how: Any) -> None:
        super().launch(kernel, memory, LaunchConfig(grid=launch.grid, block=launch.block), **how)


class IgnoresOrder(FakeDevice):
    def launch(self, kernel: Kernel, memory: Memory, launch: LaunchConfig, **how: Any) -> None:
        super().launch(kernel, memory, launch, **{**how, "order": "forward"})


class LaunchesAsRecorded(FakeDevice):
    def launch(self, kernel: Kernel, memory: Memory, launch: LaunchConfig, **how: Any) -> None:
        super().launch(kernel, memory, memory.unit.launch, **how)


class WritesBesides(FakeDevice):
    def launch(self, kernel: Kernel, memory: Memory, launch: LaunchConfig, **how: Any) -> None:
        super().launch(kernel, memory, launch, **how)
        assert isinstance(memory, FakeMemory)
        reached = {pointer.allocation for pointer in memory.unit.pointers}
        for allocation in memory.unit.allocations:
            if allocation.name not in reached:
                memory.live[allocation.name][-1] ^= 1


class WindowOnOneMemory(FakeDevice):
    def window(self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, **how: Any) -> float:
        return super().window(kernel, [memories[0]] * len(memories), launch, **how)


class WindowPerLaunch(FakeDevice):
    def window(self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, **how: Any) -> float:
        return super().window(kernel, memories, launch, **how) / len(memories)


class WindowInMicroseconds(FakeDevice):
    def window(self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, **how: Any) -> float:
        return super().window(kernel, memories, launch, **how) / 1000


class AlwaysMatches(FakeDevice):
    def compare(
        self, memory: Memory, expected: Mapping[str, Bytes], tolerances: Mapping[str, Tolerance] | None = None
    ) -> Verdict:
        return Verdict(status=Status.MATCH)


class ComparesWithoutTolerances(FakeDevice):
    def compare(
        self, memory: Memory, expected: Mapping[str, Bytes], tolerances: Mapping[str, Tolerance] | None = None
    ) -> Verdict:
        return super().compare(memory, expected)


class SwallowsFaults(FakeDevice):
    def launch(self, kernel: Kernel, memory: Memory, launch: LaunchConfig, **how: Any) -> None:
        try:
            super().launch(kernel, memory, launch, **how)
        except CandidateFailure:
            return


class LosesMemoryInAFault(FakeDevice):
    """As after a crash of the worker, when nothing is put on its replacement."""

    def allocate(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> FakeMemory:
        memory = super().allocate(unit, before)
        self.__dict__.setdefault("all", []).append(memory)
        return memory

    def launch(self, kernel: Kernel, memory: Memory, launch: LaunchConfig, **how: Any) -> None:
        try:
            super().launch(kernel, memory, launch, **how)
        except CandidateFailure:
            for held in self.__dict__["all"]:
                held.before = {name: np.zeros_like(data) for name, data in held.before.items()}
            raise


class LoadsAnything(FakeDevice):
    def load(self, binary: Binary) -> FakeKernel:
        return FakeKernel(binary, PROGRAMS[binary.symbol])


class ClosesOnce(FakeDevice):
    def close(self) -> None:
        assert not self.closed, "closed twice"
        super().close()


BROKEN = {
    ForgetsGlobals: "test_restore_brings_back_globals",
    NeverRestores: "test_restore_brings_back_every_allocation",
    SharesOneMemory: "test_memories_of_one_unit_are_independent",
    DownloadsItself: "test_a_download_is_a_copy",
    ShowsOwnAddresses: "test_pointers_in_memory_read_as_recorded",
    KeepsRecordedPointers: "test_pointers_in_memory_are_followed",
    IgnoresGridDepth: "test_every_thread_has_its_place",
    IgnoresSharedBytes: "test_a_block_shares_memory",
    IgnoresOrder: "test_reverse_order_runs_the_threads_in_another_order",
    LaunchesAsRecorded: "test_the_launch_decides_the_shape",
    WritesBesides: "test_a_launch_changes_what_the_kernel_writes_and_nothing_else",
    WindowOnOneMemory: "test_a_window_launches_once_on_each_memory",
    WindowPerLaunch: "test_a_window_is_timed_as_a_whole_in_nanoseconds",
    WindowInMicroseconds: "test_a_window_is_timed_as_a_whole_in_nanoseconds",
    AlwaysMatches: "test_compare_names_the_element",
    ComparesWithoutTolerances: "test_compare_allows_what_a_tolerance_allows",
    SwallowsFaults: "test_a_kernel_that_hangs_is_ended_in_time",
    LosesMemoryInAFault: "test_a_fault_leaves_every_handle_usable",
    LoadsAnything: "test_a_binary_of_another_target_is_refused",
    ClosesOnce: "test_close_may_be_called_twice",
}


def promises() -> Iterator[tuple[str, Callable[..., None]]]:
    return ((name, test) for name, test in inspect.getmembers(DeviceContract, inspect.isfunction) if "test_" in name)


def kept(test: Callable[..., None], device: Device) -> bool:
    """Whether a device keeps one promise, for a parametrized test in its first form."""
    given: dict[str, Any] = {"device": device, "binary_for": fake_binary}
    for mark in getattr(test, "pytestmark", ()):
        given[mark.args[0]] = mark.args[1][0]
    wanted = [name for name in inspect.signature(test).parameters if name != "self"]
    try:
        test(DeviceContract(), **{name: given[name] for name in wanted})
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - any way to fail is the answer
        return False
    return True


@pytest.mark.parametrize(("broken", "promise"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_device_fails_the_promise_it_breaks(broken: type[FakeDevice], promise: str) -> None:
    assert not kept(dict(promises())[promise], broken(PROGRAMS))


def test_a_sound_device_keeps_every_promise() -> None:
    assert all(kept(test, FakeDevice(PROGRAMS)) for _, test in promises())


def test_the_broken_devices_are_not_broken_altogether() -> None:
    """Each keeps most promises: it is found by the test of its flaw, not by everything at once."""
    for broken in BROKEN:
        held = [kept(test, broken(PROGRAMS)) for _, test in promises()]
        assert sum(held) >= len(held) // 2, broken.__name__
