"""Searches on a made-up server, for tests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from r3bench.evolve import Settings, evolve
from r3bench.evolve.propose import Proposer, open_proposers
from r3bench.ledger import KernelResult, Ledger
from r3bench.model import Capture, Outcome, Variant
from tests.search.fake_server import TEXT, Behaviour, FakeServer, Model, capture, tree

QUICK = Settings(trials=3, iterations=24, race=False)
LONG = replace(QUICK, iterations=60)
ONE_BY_ONE = replace(QUICK, islands=1, stale=1)


def text_of(variant: Variant) -> str:
    return dict(variant.files or (("kernels.cu", TEXT),))["kernels.cu"]


def by_text(**gains: float) -> Model:
    """Times that depend on words in the text only: each word in it divides the time."""

    def model(variant: Variant, unit: int) -> Behaviour:
        ns = 1000.0
        for word, gain in gains.items():
            ns /= gain if word in text_of(variant) else 1.0
        return Behaviour(ns=ns)

    return model


def specialized(variant: Variant, unit: int) -> Behaviour:
    """Only compiling in the block's shape gains anything."""
    chosen = variant.configuration is not None and variant.configuration.specialize.block
    return Behaviour(ns=500.0 if chosen else 1000.0)


def search(
    folder: Path,
    server: FakeServer,
    settings: Settings = QUICK,
    *,
    captures: list[Capture] | None = None,
    working: Callable[[Capture], Variant | None] | None = None,
    neighbours: list[Capture] | None = None,
    progress: Callable[[str], None] = lambda line: None,
    proposer: Proposer | None = None,
) -> list[KernelResult]:
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        return evolve(
            captures or [capture()],
            server,
            settings,
            ledger,
            proposer or open_proposers("rules", seed=settings.seed),
            progress,
            working=working or tree(),
            neighbours=neighbours or [],
        )


def interrupted_after(calls: int, model: Model) -> FakeServer:
    """A server at whose n-th request the user presses ctrl-C."""

    class Server(FakeServer):
        def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
            if len(self.submitted) >= calls:
                raise KeyboardInterrupt
            return super().submit(capture, variant, unit, timing)

    return Server(model)
