"""What the outer search itself costs a step: drawing, the prompt, the answer's text, novelty, features, the ledger.

A search of 200 steps on a server and a proposer that answer at once, each text under its default configuration: what
time this thread takes is the search's own. The tuners' part in it (making one, ask, tell) is taken off: ask_tell has
the inner search's cost. The figure asked for: at most 5 ms a step.

    python -m tests.benchmarks.outer_loop
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from r3bench.evolve import Settings, evolve
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose import Reply
from r3bench.evolve.tuning import Tuner
from r3bench.ledger import Ledger
from r3bench.model import Variant
from tests.benchmarks.machine import describe, judge
from tests.search.fake_server import TEXT, Behaviour, FakeServer, capture, tree

STEPS = 200


class Instant:
    """The parent with one constant more: a new text each time."""

    def propose(self, prompt: Prompt) -> Reply:
        text = dict(prompt.parent.files)["kernels.cu"]
        edited = text.replace("if (i >= n)", f"const int c{prompt.step} = {prompt.step}; if (i >= n)")
        return Reply(text=f"CHANGE: a constant\n```cuda\n{edited}```\n", origin="test:instant")

    def close(self) -> None:
        pass


def by_constants(variant: Variant, unit: int) -> Behaviour:
    text = dict(variant.files or (("kernels.cu", TEXT),))["kernels.cu"]
    return Behaviour(ns=1000.0 - len(text) % 97)


def milliseconds(steps: int) -> tuple[float, float]:
    """The time of this thread per step of a search, without and in its tuners."""
    settings = Settings(search="llm", trials=1, iterations=steps)
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.jsonl") as ledger:
        tuners = Clock()
        with patch.multiple(
            Tuner, **{name: tuners.around(getattr(Tuner, name)) for name in ("__init__", "ask", "tell")}
        ):
            begin = time.thread_time()
            evolve([capture()], FakeServer(by_constants), settings, ledger, Instant(), working=tree())
            whole = time.thread_time() - begin
        return 1e3 * (whole - tuners.seconds) / steps, 1e3 * tuners.seconds / steps


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


def main() -> bool:
    print(describe())
    with patch("r3bench.evolve.exploring.value_ranges", lambda capture: {}):
        milliseconds(10)  # imports and caches
        found = [milliseconds(STEPS) for _ in range(3)]
    print(f"{STEPS} steps: {', '.join(f'{own:.2f} + {tuning:.2f}' for own, tuning in found)} ms a step (own + tuners)")
    return judge("least cost of a step", min(found)[0], 5.0, "ms")


if __name__ == "__main__":
    sys.exit(not main())
