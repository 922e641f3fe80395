"""Both pools on a clock of their own: whichever of model and device is slower has work, within the staleness bound."""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench.evolve import Kernel, Limits, Settings
from r3bench.evolve.budget import Budget
from r3bench.evolve.exploring import Exploration, Run
from r3bench.evolve.pools import Pool
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose import Reply
from r3bench.ledger import Ledger
from r3bench.model import Capture, Outcome, Variant
from tests.search.fake_server import TEXT, Behaviour, FakeServer, capture, tree


class Clock(selectors.DefaultSelector):
    """Whoever waits for a time has it at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        self.now += timeout or 0.0 if not ready else 0.0
        return ready


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


class Places:
    """So many things at a time, each of which takes so long; ``spent`` is what they took in all."""

    def __init__(self, loop: Loop, number: int, seconds: float) -> None:
        self.loop, self.free, self.seconds = loop, number, seconds
        self.spent, self.waiting = 0.0, deque[Callable[[], None]]()

    def take(self, done: Callable[[], None]) -> None:
        self.waiting.append(done)
        self._begin()

    def _begin(self) -> None:
        while self.free and self.waiting:
            self.free -= 1
            self.spent += self.seconds
            self.loop.call_later(self.seconds, self._end, self.waiting.popleft())

    def _end(self, done: Callable[[], None]) -> None:
        self.free += 1
        done()
        self._begin()


class Threads(Executor):
    """Calls that take their time in ``places``."""

    def __init__(self, places: Places) -> None:
        self.places = places

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        self.places.take(lambda: done.set_result(call(*arguments, **named)))
        return done


class Device(FakeServer):
    """Evaluations that take their time in ``places``."""

    places: Places

    def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
        found = replace(
            super().submit(capture, variant, unit, timing).result(), stages=(("time", self.places.seconds),)
        )
        done: Future[Outcome] = Future()
        self.places.take(lambda: done.set_result(found))
        return done


class Author:
    """A new text each time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def propose(self, prompt: Prompt) -> Reply:
        text = dict(prompt.parent.files)["kernels.cu"].replace("if (i", f"const int c{prompt.step} = 1; if (i")
        return Reply(text=f"CHANGE: x\n```cuda\n{text}```\n", origin="test:model", seconds=self.seconds)

    def close(self) -> None:
        pass


def by_constants(variant: Variant, unit: int) -> Behaviour:
    return Behaviour(
        ns=1000.0 / (1 + 0.001 * dict(variant.files or (("kernels.cu", TEXT),))["kernels.cu"].count("int c"))
    )


def busy(folder: Path, model_s: float, device_s: float, settings: Settings) -> tuple[float, float, int]:
    """Which share of the time a model's places and a device's were taken, and the largest lag of a child."""
    loop = Loop()
    device = Device(by_constants)
    device.places = Places(loop, settings.evaluating, device_s)
    model = Threads(Places(loop, settings.proposing, model_s))
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        run = Run(
            server=device, settings=settings, proposer=Author(model_s), threads=model, budget=Budget(settings.limits),
            proposing=Pool(settings.proposing), evaluating=Pool(settings.evaluating), progress=lambda line: None,
        )  # fmt: skip
        search = Exploration(Kernel(capture=capture(), ledger=ledger, working=tree()), run)
        loop.run_until_complete(search.explore())
        lag = max(record["program"]["lag"] for record in ledger.records("program"))
    took = loop.time()
    loop.close()
    assert search.trouble == ""
    return model.places.spent / took / settings.proposing, device.places.spent / took / settings.evaluating, lag


FAITHFUL = Settings(race=False, trials=8, iterations=60)
RACE = Settings(iterations=200, limits=Limits(evaluations=300))


@pytest.mark.parametrize(("settings", "least"), [(FAITHFUL, 0.95), (RACE, 0.85)])
@pytest.mark.parametrize("model_s", [0.05, 0.5])
def test_a_device_slower_than_the_model_always_has_work(
    tmp_path: Path, settings: Settings, least: float, model_s: float
) -> None:
    _, device, lag = busy(tmp_path, model_s, 1.0, settings)
    assert device > least
    assert lag <= 1, "no more is under way than it takes"


@pytest.mark.parametrize(("settings", "least"), [(FAITHFUL, 0.85), (RACE, 0.9)])
@pytest.mark.parametrize("model_s", [20.0, 200.0])
def test_a_model_slower_than_the_device_is_always_asked(
    tmp_path: Path, settings: Settings, least: float, model_s: float
) -> None:
    model, _, lag = busy(tmp_path, model_s, 1.0, settings)
    assert model > least
    assert lag <= settings.stale


def test_staleness_comes_before_what_is_busy(tmp_path: Path) -> None:
    model, _, lag = busy(tmp_path, 200.0, 1.0, replace(FAITHFUL, stale=1, islands=2))
    assert lag == 0
    assert model == pytest.approx(0.5, abs=0.05), "two islands, one text each, and four places"


@pytest.mark.parametrize(("places", "kernels", "out"), [(4, 1, 4), (32, 1, 12), (32, 4, 8), (32, 16, 4)])
def test_trials_take_a_kernels_share_of_all_places(tmp_path: Path, places: int, kernels: int, out: int) -> None:
    alone = Settings(search="bo", trials=240, evaluating=places, kernels=kernels)
    _, device, _ = busy(tmp_path, 1.0, 1.0, alone)
    assert device * places == pytest.approx(out, rel=0.06)
