"""Which settings of a winner's configuration are left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from r3bench.evolve.evaluate import Evaluator
from r3bench.evolve.slim import slim
from r3bench.ledger import Ledger
from r3bench.model import Configuration, LaunchRule, Specialization, Variant
from tests.search.fake_server import Behaviour, FakeServer, capture

FULL = Configuration(
    pipeline="O2",
    before=("sroa", "lower_switch"),
    after=("sinking",),
    tuning=(("slp", True),),
    options=(("unroll-count", "4"), ("enable-gvn-hoist", "true")),
    specialize=Specialization(arguments=("n", "width"), block=True, align=True),
    bound_threads="max",
    min_blocks=2,
    max_registers=64,
)

Code = Callable[[Configuration, int], object]


def slimmed(folder: Path, code: Code, whole: Configuration | None = FULL) -> Configuration | None:
    """What is left where a configuration has this code on a unit."""

    def model(variant: Variant, unit: int) -> Behaviour:
        return Behaviour(module=str(code(variant.configuration or Configuration(), unit)))

    variant = Variant(configuration=whole, launch=LaunchRule(block=(64, 1, 1)))
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        left = slim(Evaluator(capture(), FakeServer(model), ledger), variant)
    assert (left.files, left.launch) == (variant.files, variant.launch)
    return left.configuration


def test_what_changes_no_code_goes(tmp_path: Path) -> None:
    left = slimmed(tmp_path, lambda c, unit: ("sroa" in c.before, c.specialize.arguments[:1], c.max_registers))
    assert left == Configuration(
        before=("sroa",), specialize=Specialization(arguments=("n",)), max_registers=FULL.max_registers
    )


def test_what_changes_code_stays(tmp_path: Path) -> None:
    assert slimmed(tmp_path, lambda c, unit: c) == FULL
    assert slimmed(tmp_path, lambda c, unit: c, None) is None


def test_one_of_two_stays_where_either_does_the_work(tmp_path: Path) -> None:
    left = slimmed(tmp_path, lambda c, unit: "sroa" in c.before or "sinking" in c.after)
    assert left in (Configuration(before=("sroa",)), Configuration(after=("sinking",)))


@pytest.mark.parametrize("unit", [1, 2])
def test_code_for_the_other_launches_counts(tmp_path: Path, unit: int) -> None:
    assert slimmed(tmp_path, lambda c, at: at == unit and c) == FULL
    left = slimmed(tmp_path / "other", lambda c, at: ("sroa" in c.before, at == unit and c.max_registers))
    assert left == Configuration(before=("sroa",), max_registers=FULL.max_registers)


def test_blocks_per_multiprocessor_go_with_the_bound_that_they_need(tmp_path: Path) -> None:
    left = slimmed(tmp_path, lambda c, unit: "broken" if c.min_blocks and c.bound_threads == "none" else 0)
    assert left == Configuration()
