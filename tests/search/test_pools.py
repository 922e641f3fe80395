"""Places that all kernels share, the pace of a search, and the race for more trials."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from r3bench.evolve.inner import goes_on
from r3bench.evolve.pools import Pace, Place, Pool, Rank
from r3bench.evolve.settings import Settings
from r3bench.evolve.sources import Source, make_source
from r3bench.evolve.tuning import Ask
from r3bench.model import Configuration, Outcome, Status, Target, Verdict
from tests.search.fake_server import FAKE, TEXT, capture


def test_a_free_place_goes_to_the_lowest_rank_and_the_first_of_equals() -> None:
    order: list[str] = []

    async def wait(pool: Pool, rank: Rank, name: str) -> None:
        with await pool.enter(rank):
            order.append(name)

    async def main() -> None:
        pool = Pool(1)
        held = await pool.enter((0.0, 0))
        ranks = {"later": (-1.0, 7), "poor": (-0.5, 1), "first": (-1.0, 2), "second": (-1.0, 2)}
        waiting = [asyncio.create_task(wait(pool, rank, name)) for name, rank in ranks.items()]
        await asyncio.sleep(0)
        held.leave()
        await asyncio.gather(*waiting)

    asyncio.run(main())
    assert order == ["first", "second", "later", "poor"]


def test_who_gives_up_waiting_takes_no_place_and_a_place_is_left_once() -> None:
    async def main() -> tuple[Place, Place]:
        pool = Pool(1)
        held = await pool.enter((0.0, 0))
        impatient = asyncio.create_task(pool.enter((-9.0, 0)))
        await asyncio.sleep(0)
        impatient.cancel()
        patient = asyncio.create_task(pool.enter((0.0, 1)))
        await asyncio.sleep(0)
        held.leave()
        held.leave()
        second = await patient
        third = asyncio.create_task(pool.enter((0.0, 2)))
        await asyncio.sleep(0)
        assert not third.done(), "leaving twice would have made a second place"
        second.leave()
        return second, await third

    asyncio.run(main())


def test_as_many_children_are_under_way_as_keep_both_pools_busy() -> None:
    settings = Settings(stale=5, islands=4, in_flight=4, evaluating=4)
    quick, slow, far = Pace(settings), Pace(settings), Pace(settings)
    for _ in range(40):
        quick.learn(0.1, 10.0)
        slow.learn(25.0, 10.0)
        far.learn(1000.0, 1.0)
    assert (quick.ahead, slow.ahead, far.ahead) == (3, 5, 20)
    assert Pace(replace(settings, evaluating=32)).ahead == 10
    assert Pace(replace(settings, stale=1, islands=1)).ahead == 1


def source(*times: float | None) -> Source:
    made = make_source(
        capture(), FAKE, Settings(), step=1, rule="x", description="", files=(("kernels.cu", TEXT),)
    )  # fmt: skip
    outcome = Outcome(
        capture="demo/smooth", unit=0, variant="v", target=Target(device="cpu", arch="fake"),
        verdict=Verdict(status=Status.MATCH),
    )  # fmt: skip
    made.outcomes = [(Ask({}, (Configuration(), None), None), outcome, ns) for ns in times]  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("time", "standing", "on"),
    [
        (5.0, (), True),
        (5.0, (4.0,), False),
        (5.0, (5.0,), True),
        (5.0, (1.0, 6.0), False),
        (5.0, (1.0, 6.0, 6.0, 6.0), True),
        (None, (), False),
    ],
)
def test_only_the_best_quarter_goes_on(time: float | None, standing: tuple[float, ...], on: bool) -> None:
    assert goes_on(source(time), standing) is on
