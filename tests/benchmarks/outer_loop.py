"""What the outer search itself costs a step: drawing, the prompt, the answer's text, novelty, features, the ledger.

A search of 200 steps on a server and a proposer that answer at once, each text under its default configuration: what
time this thread takes is the search's own. What the server takes is taken off, and the tuners' part (making one, ask,
tell): ask_tell has the inner search's cost. The figure asked for: at most 5 ms a step, on the file of a recorded kernel
and on a small one.

    python -m tests.benchmarks.outer_loop [kernel of captures/miniweather]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from r3bench import store
from r3bench.evolve import Kernel, Search, Settings
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose import Reply
from r3bench.evolve.tuning import Tuner
from r3bench.ledger import Ledger
from r3bench.model import Capture, Outcome, Variant
from tests.benchmarks.machine import describe, judge
from tests.search.fake_server import Behaviour, FakeServer, capture, tree

STEPS = 200
CAPTURES = Path(__file__).parents[2] / "captures" / "miniweather"


class Instant:
    """The parent's kernel with one constant more: a new text each time."""

    def propose(self, prompt: Prompt) -> Reply:
        text = dict(prompt.parent.files)[prompt.brief.main]  # not by syntax: what is parsed here would be known there
        place = text.index(f" {prompt.brief.name}(")
        kernel = text[text.rfind("\n", 0, place) + 1 : text.index("\n}", place) + 2]
        edited = kernel.replace("{", f"{{\n    const int c{prompt.step} = {prompt.step};", 1)
        return Reply(text=f"CHANGE: a constant\n```cuda\n{edited}\n```\n", origin="test:instant")

    def close(self) -> None:
        pass


class Built(FakeServer):
    """Outcomes have facts, as those of a device have."""

    def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
        found = super().submit(capture, variant, unit, timing).result()
        done: Future[Outcome] = Future()
        size = sum(len(text) for _, text in variant.files or ())
        facts = (("ir_instructions", size), *((f"op_{name}", size % number) for number, name in enumerate(OPCODES, 5)))
        done.set_result(replace(found, facts=facts))
        return done


OPCODES = ("add", "br", "fadd", "fmul", "getelementptr", "icmp", "load", "phi", "ret", "select", "sext", "store")


def by_length(variant: Variant, unit: int) -> Behaviour:
    return Behaviour(ns=1000.0 - sum(len(text) for _, text in variant.files or ()) % 97)


def milliseconds(steps: int, subject: Capture) -> tuple[float, float]:
    """The time of this thread per step of a search, in all but its tuners, and in them."""
    settings = Settings(search="llm", trials=1, iterations=steps)
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.jsonl") as ledger:
        tuners, server = Clock(), Clock()
        timed = {name: tuners.around(getattr(Tuner, name)) for name in ("__init__", "ask", "tell")}
        with patch.multiple(Tuner, **timed), patch.object(Built, "submit", server.around(Built.submit)):
            working = (lambda capture: None) if Path(subject.path).exists() else tree()
            kernel = Kernel(capture=subject, ledger=ledger, working=working)
            search = Search([kernel], Built(by_length), Instant(), settings)
            begin = time.thread_time()
            search.explore()
            whole = time.thread_time() - begin
        return 1e3 * (whole - tuners.seconds - server.seconds) / steps, 1e3 * tuners.seconds / steps


class Clock:
    """Adds up the thread's time in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*what: Any, **how: Any) -> Any:
            begin = time.thread_time()
            try:
                return function(*what, **how)
            finally:
                self.seconds += time.thread_time() - begin

        return timed


def main(kernel: str = "tendencies_x") -> bool:
    print(describe())
    least = 0.0
    for subject in (store.open_capture(CAPTURES / f"{kernel}.zarr"), capture()):
        with patch("r3bench.evolve.exploring.value_ranges", lambda capture: {}):
            milliseconds(10, subject)  # imports and caches
            found = [milliseconds(STEPS, subject) for _ in range(3)]
        told = ", ".join(f"{own:.2f} + {tuning:.2f}" for own, tuning in found)
        print(f"{subject.symbol}, {STEPS} steps: {told} ms a step (own + tuners)")
        least = max(least, min(found)[0])
    return judge("least cost of a step", least, 5.0, "ms")


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
