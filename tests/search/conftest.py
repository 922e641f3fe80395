"""What tests of the search share: a compiler and the CPU device per file, and a model's server of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from r3bench.devices import Device, open_device
from r3bench.evolve.propose import patience
from r3bench.toolchain import Compiler
from tests.search.model_server import ModelServer, serving


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    compiler = Compiler(workers=2)
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = open_device("cpu", threads=2)
    yield device
    device.close()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A server that speaks OpenAI's protocol."""
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
def _no_key_and_short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.01)


@pytest.fixture(autouse=True)
def no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures that :mod:`tests.search.fake_server` makes up hold no memory to look at."""
    monkeypatch.setattr("r3bench.evolve.exploring.value_ranges", lambda capture: {})
