"""The CPU device, with objects written by hand; tests/device/conftest.py has other fixtures of these names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from r3bench.devices import open_device
from r3bench.devices.cpu.device import CpuDevice
from r3bench.model import Binary
from tests.device.cpu_case import Build, compile_object


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """C text to a binary for this machine, compiled once."""
    folder = tmp_path_factory.mktemp("objects")
    with_target = open_device("cpu", threads=1)
    target = with_target.target
    with_target.close()

    @cache
    def built(text: str) -> Binary:
        return Binary(target=target, symbol="kernel", image=compile_object(folder, text), format="object")

    return built


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def device(request: pytest.FixtureRequest) -> Iterator[CpuDevice]:
    opened = CpuDevice(threads=request.param)
    yield opened
    opened.close()


@pytest.fixture
def single() -> Iterator[CpuDevice]:
    opened = CpuDevice(threads=1)
    yield opened
    opened.close()
