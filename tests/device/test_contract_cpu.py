"""The CPU device keeps every promise of the contract, with CUDA C++ compiled for it, on one thread and on several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from r3bench.devices import Device, open_device
from r3bench.model import Binary, Configuration, LaunchConfig, Target
from r3bench.testing import CONTRACT_SOURCE, DeviceContract
from r3bench.toolchain import BuildRequest, Compiler, UnitFacts

BinaryFor = Callable[[str], Binary]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Target], Binary]]:
    """Kernels of the contract by name, each built once."""
    with Compiler(cache=tmp_path_factory.mktemp("cache")) as compiler:

        @cache
        def built(symbol: str, target: Target) -> Binary:
            return compiler.submit(request(symbol, target)).result(60).binary

        yield built


def request(symbol: str, target: Target) -> BuildRequest:
    shape = LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1))
    return BuildRequest(
        files=(("contract.cu", CONTRACT_SOURCE),),
        main="contract.cu",
        flags=(),
        symbol=symbol,
        target=target,
        configuration=Configuration(),
        facts=UnitFacts(launch=shape, scalars=(), disjoint=False, alignments=(), parameters=()),
    )


class Cpu(DeviceContract):
    threads = 1

    @pytest.fixture
    def device(self) -> Iterator[Device]:
        opened = open_device("cpu", threads=self.threads)
        yield opened
        opened.close()

    @pytest.fixture
    def binary_for(self, device: Device, build: Callable[[str, Target], Binary]) -> BinaryFor:
        return lambda symbol: build(symbol, device.target)


class TestOneThread(Cpu):
    pass


class TestThreeThreads(Cpu):
    threads = 3
