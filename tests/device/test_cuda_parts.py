"""The parts of the CUDA device that need no GPU: where buffers go, messages, what errors mean, what the survey says."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from r3bench.devices import open_device, survey
from r3bench.devices.cuda import device as cuda_device
from r3bench.devices.cuda import nvml, wire
from r3bench.devices.cuda import survey as cuda_survey
from r3bench.devices.cuda.outcome import failure
from r3bench.devices.cuda.placement import (
    ALIGN,
    GRANULE,
    REDZONE,
    SLAB,
    Buffer,
    Range,
    gap,
    packed,
    recorded_ranges,
    redzones,
    relocated,
    slots,
)
from r3bench.errors import DeviceFault, DeviceUnavailable, LaunchError

BASE = 0x7F00_0000_0000
BUFFERS = (
    Buffer("a", BASE + 4096, 1000),
    Buffer("b", BASE + GRANULE + 16, 3 * GRANULE),
    Buffer("c", BASE + 9 * GRANULE + 512, 24, 512),
    Buffer("variable", None, 4),
)

# -- placement --------------------------------------------------------------------------------------------------------


def test_recorded_ranges_are_the_granules_in_use() -> None:
    assert recorded_ranges(BUFFERS) == [
        Range(BASE, BASE + 5 * GRANULE),
        Range(BASE + 9 * GRANULE, BASE + 10 * GRANULE),
    ]
    assert recorded_ranges([Buffer("empty", BASE, 0)]) == []


def test_relocated_buffers_keep_their_alignment_and_their_distance() -> None:
    layout = relocated(BUFFERS)
    assert layout.nbytes % GRANULE == 0
    for buffer in BUFFERS:
        step = max(ALIGN, buffer.align)
        assert (layout.offsets[buffer.name] - (buffer.address or 0)) % step == 0
    spans = sorted((layout.offsets[b.name], layout.offsets[b.name] + b.nbytes) for b in BUFFERS)
    assert spans[0][0] >= REDZONE
    assert all(later[0] - earlier[1] >= REDZONE for earlier, later in pairwise(spans))


def test_the_last_relocated_buffer_ends_where_memory_ends() -> None:
    layout = relocated([Buffer("x", BASE, 1 << 16)])
    assert layout.offsets["x"] + (1 << 16) == layout.nbytes == GRANULE


def test_packed_contents_are_congruent_to_their_addresses() -> None:
    layout = packed(BUFFERS)
    assert all((layout.offsets[b.name] - (b.address or 0)) % ALIGN == 0 for b in BUFFERS)
    assert layout.offsets["b"] >= layout.offsets["a"] + 1000
    assert layout.nbytes % GRANULE == 0


def test_slabs_grow_with_the_number_of_copies_up_to_a_size() -> None:
    most = SLAB // GRANULE
    assert [slots(GRANULE, made) for made in (0, 1, 5, most - 3, most, 10 * most)] == [1, 1, 5, 3, most, most]
    assert slots(3 * SLAB, 7) == 1


def test_the_first_gap_that_is_large_enough_is_taken() -> None:
    taken = [Range(40, 50), Range(10, 20)]
    sizes = {nbytes: gap(Range(10, 60), taken, nbytes) for nbytes in (10, 20, 21)}
    assert sizes == {10: Range(20, 30), 20: Range(20, 40), 21: None}
    assert gap(Range(0, 60), taken, 10) == Range(0, 10)
    assert gap(Range(10, 61), taken, 11) == Range(20, 31)
    assert gap(Range(30, 61), [Range(30, 50)], 11) == Range(50, 61)


def test_ranges_overlap_where_they_share_a_byte() -> None:
    held = Range(10, 20)
    assert [held.overlaps(Range(*each)) for each in ((0, 10), (0, 11), (12, 15), (19, 30), (20, 30))] == [
        False, True, True, True, False,
    ]  # fmt: skip


def test_redzones_lie_beside_buffers_within_what_is_mapped() -> None:
    mapped = Range(0, GRANULE)
    near, far = Range(8192, 9000), Range(10_000, 20_000)
    assert redzones([mapped], [far, near]) == [
        Range(8192 - REDZONE, 8192),
        Range(9000, 10_000),
        Range(20_000, 20_000 + REDZONE),
    ]
    assert redzones([mapped], [Range(0, GRANULE)]) == []


# -- messages ---------------------------------------------------------------------------------------------------------


def test_messages_carry_files() -> None:
    here, there = socket.socketpair()
    with here, there:
        fd = os.memfd_create("test")
        os.pwrite(fd, b"bytes", 0)
        sent: list[dict[str, Any]] = [{"op": "run"}, {"op": "load", "ids": [1, 2]}, {"op": "x" * 70_000}]
        for message in sent * 2:  # several are under way before the first is read
            wire.send(here, message, fds=[fd] if message["op"] == "load" else [])
        os.close(fd)
        inbox = wire.Inbox(there)
        for message in sent * 2:
            found, received = inbox.receive()
            assert (found, len(received)) == (message, int(message["op"] == "load"))
            for each in received:
                assert os.pread(each, 5, 0) == b"bytes"
                os.close(each)
        here.close()
        with pytest.raises(EOFError):
            inbox.receive()


@pytest.mark.parametrize("junk", [b"\xff\xff\xff\xff", b"\x02\x00\x00\x00[]", b"\x03\x00\x00\x00{a}"])
def test_what_is_no_message_is_refused(junk: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(junk)
        with pytest.raises(ValueError):  # noqa: PT011
            wire.Inbox(there).receive()


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "lost", "kind"),
    [
        (1, False, LaunchError),
        (2, False, LaunchError),
        (200, False, LaunchError),
        (209, False, LaunchError),
        (222, False, LaunchError),
        (221, False, DeviceUnavailable),
        (701, False, LaunchError),
        (720, False, LaunchError),
        (700, True, DeviceFault),
        (710, True, DeviceFault),
        (716, True, DeviceFault),
        (719, True, DeviceFault),
        (12345, True, DeviceFault),
        (100, False, DeviceUnavailable),
        (214, True, DeviceUnavailable),
        (803, True, DeviceUnavailable),
    ],
)
def test_what_an_error_of_the_driver_means(code: int, lost: bool, kind: type[Exception]) -> None:
    found = failure("blur", code, "CUDA_ERROR_NAME", "cuCall", lost=lost)
    assert type(found) is kind
    assert "CUDA_ERROR_NAME" in str(found) or "out of memory" in str(found)


# -- the survey -------------------------------------------------------------------------------------------------------


class FakeNvml:
    found: tuple[str, ...] = ("NVIDIA H200",)
    cut: ClassVar[dict[str, list[str]]] = {}

    def names(self) -> list[str]:
        return list(self.found)

    def slices(self) -> dict[str, list[str]]:
        return self.cut

    def driver(self) -> str:
        return "580.1"

    def close(self) -> None:
        pass


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(nvml, "Nvml", FakeNvml)
    monkeypatch.setattr(cuda_survey, "_importable", lambda name: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def test_a_gpu_with_driver_and_package_is_usable(with_gpu: pytest.MonkeyPatch) -> None:
    status = survey()[0]
    assert (status.name, status.usable, status.detail) == ("cuda", True, "NVIDIA H200, driver 580.1")


def test_auto_takes_a_gpu_that_is_there(with_gpu: pytest.MonkeyPatch) -> None:
    with_gpu.setattr(cuda_device, "CudaDevice", lambda **options: ("a GPU", options))
    assert open_device("auto", index=1) == ("a GPU", {"index": 1})
    with_gpu.setenv("CUDA_VISIBLE_DEVICES", "")
    with closing(open_device("auto")) as device:
        assert device.target.device == "cpu"


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_said_to_be_hidden(with_gpu: pytest.MonkeyPatch, hidden: str) -> None:
    with_gpu.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert "CUDA_VISIBLE_DEVICES hides" in survey()[0].detail


def test_a_missing_package_has_a_remedy(with_gpu: pytest.MonkeyPatch) -> None:
    with_gpu.setattr(cuda_survey, "_importable", lambda name: False)
    status = survey()[0]
    assert not status.usable
    assert status.remedy == "pip install 'r3bench[cuda]'"


def test_no_driver_and_no_gpu(with_gpu: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise OSError("libnvidia-ml.so.1 is not here")

    with_gpu.setattr(FakeNvml, "found", ())
    assert "no GPU" in survey()[0].detail
    with_gpu.setattr(nvml, "Nvml", fails)
    assert "no NVIDIA driver" in survey()[0].detail


@pytest.mark.parametrize(("worker", "index"), [(None, 0), ("gw0", 0), ("gw3", 3), ("master", 0)])
def test_workers_of_xdist_take_gpus_in_turn(monkeypatch: pytest.MonkeyPatch, worker: str | None, index: int) -> None:
    if worker is None:
        monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    else:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    assert cuda_survey.default_index() == index


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (None, ["0", "MIG-a", "MIG-b"]),
        ("1", ["MIG-a", "MIG-b"]),
        ("GPU-1,0", ["MIG-a", "MIG-b", "0"]),
        ("MIG-b", ["MIG-b"]),
        ("0", ["0"]),
    ],
)
def test_slices_count_as_devices(with_gpu: pytest.MonkeyPatch, given: str | None, seen: list[str]) -> None:
    with_gpu.setattr(FakeNvml, "found", ("NVIDIA H200", "NVIDIA H200"))
    with_gpu.setattr(FakeNvml, "cut", {name: ["MIG-a", "MIG-b"] for name in ("1", "GPU-1")})
    if given is not None:
        with_gpu.setenv("CUDA_VISIBLE_DEVICES", given)
    assert cuda_survey.visible() == seen
    shown = [cuda_survey.environment(index).get("CUDA_VISIBLE_DEVICES") for index in range(len(seen) + 1)]
    assert shown == ([*seen, seen[0]] if seen != ["0"] else [None, None])


class FakeLibrary:
    """The management library of two GPUs, of which the second one is cut into two slices of at most three."""

    def __getattr__(self, name: str) -> Any:
        return partial(self.call, name.removeprefix("nvmlDeviceGet"))

    def call(self, name: str, *arguments: Any) -> int:
        handle, *rest = (getattr(argument, "_obj", argument) for argument in arguments)
        if name == "Count_v2":
            handle.value = 2
        elif name == "HandleByIndex_v2":
            rest[0].value = 10 + handle.value
        elif name == "MigMode":
            rest[0].value = handle.value == 11
        elif name == "MaxMigDeviceCount":
            rest[0].value = 3
        elif name == "MigDeviceHandleByIndex":
            rest[1].value = 100 + rest[0].value
            return 6 if rest[0].value == 1 else 0
        else:
            rest[0].value = {"UUID": "MIG-" if handle.value >= 100 else "GPU-", "Name": "H"}[name].encode() + (
                str(handle.value).encode()
            )
        return 0


def test_the_slices_of_a_gpu_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    library = nvml.Nvml.__new__(nvml.Nvml)
    monkeypatch.setattr(library, "_library", FakeLibrary(), raising=False)
    assert library.names() == ["H10", "H11"]
    assert library.slices() == {name: ["MIG-100", "MIG-102"] for name in ("1", "GPU-11")}


def test_only_reasons_that_slow_a_gpu_down_count() -> None:
    assert nvml.throttling(0) == nvml.throttling(0x1 | 0x2) == "none"
    assert nvml.throttling(0x4 | 0x40 | 0x1) == "power cap, hardware thermal"
