"""The CUDA device keeps every promise of the contract, with CUDA C++ compiled for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from r3bench.devices import Device, open_device
from r3bench.model import Binary, Configuration, LaunchConfig, Target
from r3bench.testing import CONTRACT_SOURCE, DeviceContract
from r3bench.toolchain import BuildRequest, Compiler, UnitFacts

pytestmark = pytest.mark.gpu

BinaryFor = Callable[[str], Binary]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Target], Binary]]:
    """Kernels of the contract by name, each built once."""
    with Compiler(cache=tmp_path_factory.mktemp("cache")) as compiler:

        @cache
        def built(symbol: str, target: Target) -> Binary:
            request = BuildRequest(
                files=(("contract.cu", CONTRACT_SOURCE),),
                main="contract.cu",
                flags=(),
                symbol=symbol,
                target=target,
                configuration=Configuration(),
                facts=UnitFacts(
                    launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
                    scalars=(),
                    disjoint=False,
                    alignments=(),
                    parameters=(),
                ),
            )
            return compiler.submit(request).result(60).binary

        yield built


class TestCuda(DeviceContract):
    @pytest.fixture
    def device(self) -> Iterator[Device]:
        opened = open_device("cuda")
        yield opened
        opened.close()

    @pytest.fixture
    def binary_for(self, device: Device, build: Callable[[str, Target], Binary]) -> BinaryFor:
        return lambda symbol: build(symbol, device.target)
