"""The whole search against its ablations where the best is known: a device that is a formula, many seeds.

On each landscape, ``full``, ``bo`` and ``llm`` search a made-up kernel for so many evaluations. A time is a product of
effects drawn by lot: one for each change of the text, one for each value of a knob, and one for each pair of both, with
noise on every measurement. So what was chosen can be judged by its true time. Landscapes differ in what effects are
large: configurations alone, texts alone, both, or both with pairs that undo each other (what is best for one text is
not for another). Printed for each: how full's choice stands against the others' in the median and in the worst tenth,
and how often it is more than 5 % slower. No figure is asked for; tests/search/test_allocation.py holds a few seeds.

    python -m tests.benchmarks.search_simulated [--evaluations 60] [--seeds 40] [landscape ...]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import exp
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
from tabulate import tabulate

from r3bench.evolve import MODES, Kernel, Limits, Search, Settings
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose import Reply
from r3bench.ledger import Ledger
from r3bench.ledger import SearchMode as Mode
from r3bench.model import Configuration, Status, Variant
from r3bench.nouns import encode
from tests.benchmarks.machine import describe
from tests.search.fake_server import TEXT, Behaviour, FakeServer, capture, tree

MODES_RUN: tuple[Mode, ...] = ("full", "bo", "llm")
NOISE = 0.02


@dataclass(frozen=True)
class Landscape:
    """Standard deviations of the logarithm of a time: of changes to a text, of settings, of pairs of both."""

    texts: float
    settings: float
    pairs: float


LANDSCAPES = {
    "configurations": Landscape(0.02, 0.2, 0.0),
    "texts": Landscape(0.25, 0.02, 0.0),
    "both": Landscape(0.15, 0.1, 0.0),
    "both, in pairs": Landscape(0.15, 0.1, 0.15),
}
CHANGES = 12  # that anybody thinks of


@dataclass
class Kernels:
    """The times of a made-up kernel's variants."""

    landscape: Landscape
    seed: int
    calls: count[int] = field(default_factory=count)

    def ns(self, variant: Variant) -> float:
        """The true time."""
        text = dict(variant.files or (("kernels.cu", TEXT),))["kernels.cu"]
        changes = _changes(text)
        settings = list(_settings(variant))
        effects = [self._effect("text", change, self.landscape.texts) for change in changes]
        effects += [self._effect("setting", each, self.landscape.settings) for each in settings]
        effects += [self._effect("pair", c + s, self.landscape.pairs) for c in changes for s in settings]
        return 1e5 * exp(sum(effects))

    def _effect(self, kind: str, name: str, spread: float) -> float:
        """Most settings and pairs do not matter; of the changes that are made, half do."""
        chance = Random(f"{self.seed} {kind} {name}")
        return chance.gauss(0.0, spread) if chance.random() < (0.5 if kind == "text" else 0.15) else 0.0

    def __call__(self, variant: Variant, unit: int) -> Behaviour:
        fails = Random(f"{self.seed} fails {variant.configuration}").random() < 0.1
        if fails and variant.configuration not in (None, Configuration()):
            return Behaviour(status=Status.BUILD_FAILED, detail="drawn by lot")
        noise = abs(Random(f"{self.seed} {next(self.calls)}").gauss(0.0, NOISE))
        return Behaviour(ns=self.ns(variant) * exp(noise))


def _changes(text: str) -> list[str]:
    return [word for word in text.split() if word.startswith("change")]


def _settings(variant: Variant) -> list[str]:
    """What a variant sets that is not the default."""
    chosen, plain = encode(variant.configuration or Configuration()), encode(Configuration())
    found = [f"block {variant.launch.block}"] if variant.launch is not None else []
    for name, value in chosen.items():
        parts = value if isinstance(value, list) else value.items() if isinstance(value, dict) else [value]
        known = plain[name]
        rest = known if isinstance(known, list) else known.items() if isinstance(known, dict) else [known]
        found += [f"{name} {part}" for part in parts if part not in rest]
    return found


@dataclass
class Changing:
    """Answers with the parent and one change more."""

    def propose(self, prompt: Prompt) -> Reply:
        text = dict(prompt.parent.files)["kernels.cu"]
        made = set(_changes(text)) | {f"change{Random(prompt.step).randrange(CHANGES)}"}
        lines = "".join(f"    const int {change} = 0;\n" for change in sorted(made))
        text = TEXT.replace("    if (i >= n)", f"{lines}    if (i >= n)")
        return Reply(text=f"CHANGE: {prompt.step}\n```cuda\n{text}```\n", origin="test:model", model="", seconds=0.0)

    def close(self) -> None:
        pass


def chosen_ns(landscape: Landscape, seed: int, mode: Mode, evaluations: int) -> float:
    """The true time of what one search chooses."""
    trials = max(MODES[mode].trials, evaluations if mode == "bo" else 0)
    limits = Limits(evaluations=evaluations)
    settings = Settings(search=mode, trials=trials, iterations=10 * evaluations, limits=limits, seed=seed)
    model, recorded = Kernels(landscape, seed), capture()
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.jsonl") as ledger:
        kernel = Kernel(capture=recorded, ledger=ledger, working=tree())
        search = Search([kernel], FakeServer(model), Changing(), settings)
        search.explore()
        return model.ns(search.best(recorded) or Variant())


def contests(evaluations: int, landscape: Landscape, seed: int) -> list[float]:
    """How many times faster than each other mode's choice full's choice is."""
    with patch("r3bench.evolve.exploring.value_ranges", lambda capture: {}):  # it holds no memory to look at
        full, *others = (chosen_ns(landscape, seed, mode, evaluations) for mode in MODES_RUN)
    return [other / full for other in others]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("landscapes", nargs="*", default=list(LANDSCAPES))
    asked = parser.parse_args(arguments)
    print(describe())
    rows = []
    with ProcessPoolExecutor() as workers:
        for name in asked.landscapes:
            one = partial(contests, asked.evaluations, LANDSCAPES[name])
            ratios = np.array(list(workers.map(one, range(asked.seeds))))
            for other, column in zip(MODES_RUN[1:], ratios.T, strict=True):
                rows.append([name, other, np.median(column), np.quantile(column, 0.1), np.mean(column < 0.95)])
    head = ("landscape", "against", "other / full", "worst tenth", "slower by 5 %")
    print(tabulate(rows, headers=head, floatfmt=".3f"))


if __name__ == "__main__":
    main()
