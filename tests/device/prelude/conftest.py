"""The device prelude is tried on the CPU device; tests/device/conftest.py has other fixtures of these names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from r3bench.devices import Device, open_device
from r3bench.toolchain import Compiler
from tests.device.run_kernel import Runner


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    compiler = Compiler(1)
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = open_device("cpu", threads=2)
    yield device
    device.close()


@pytest.fixture
def build(compiler: Compiler, device: Device) -> Callable[..., Runner]:
    return lambda text, flags=(): Runner(compiler, device, text, flags)
