"""Fixtures for tests of the CUDA device; files about other devices have their own of these names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from cuda_case import built

from r3bench.devices import Device, open_device
from r3bench.model import Binary
from r3bench.toolchain import Compiler


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(cache=tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device("cuda")
    yield opened
    opened.close()


@pytest.fixture
def build(compiler: Compiler, device: Device) -> Callable[..., Binary]:
    return lambda symbol, **configuration: built(compiler, symbol, device.target, **configuration)
