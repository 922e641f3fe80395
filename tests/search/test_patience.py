"""How often a model is asked again, and after which pauses, on a clock that only the pauses move."""

from __future__ import annotations

from threading import Event

import pytest

from r3bench.errors import ModelError
from r3bench.evolve.propose import patience
from r3bench.evolve.propose.patience import Failed, patiently
from r3bench.evolve.propose.reply import Reply


class Clock(Event):
    """What the proposer's being closed is, and the time: each wait for it passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.pauses = 0.0, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self.now += timeout
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(patience, "monotonic", lambda: clock.now)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 1.0)
    return clock


def asked(clock: Clock, reason: str, after_s: float | None = None, *, takes_s: float = 0.0) -> tuple[str, list[float]]:
    """How it ends where every try fails, and how long each try was allowed to take."""
    allowed: list[float] = []

    def fails(left_s: float) -> Reply:
        allowed.append(left_s)
        clock.now += takes_s
        raise Failed(reason, "no", after_s)

    with pytest.raises(ModelError) as caught:
        patiently(fails, 300.0, clock)
    assert caught.value.reason == reason
    return str(caught.value), allowed


def test_pauses_double_up_to_a_minute_as_long_as_patience_lasts(clock: Clock) -> None:
    ended, allowed = asked(clock, "server error")
    assert clock.pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (ended, len(allowed)) == ("no (10 tries)", 10)
    assert allowed == [300 - sum(clock.pauses[:tries]) for tries in range(10)]


def test_a_pause_that_the_server_asks_for_is_kept(clock: Clock) -> None:
    assert asked(clock, "rate limit", 100.0)[0] == "no (3 tries)"
    assert clock.pauses == [100, 100]


@pytest.mark.parametrize(("reason", "tries"), [("unreachable", 3), ("bad answer", 2), ("not UTF-8", 2)])
def test_what_does_not_pass_by_itself_is_tried_a_few_times(clock: Clock, reason: str, tries: int) -> None:
    assert asked(clock, reason)[0] == f"no ({tries} tries)"


def test_a_try_that_begins_late_has_a_moment_left(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    late = iter((0.0, 0.0, 298.0, 300.5, 301.0))  # the beginning, then before and after each try
    monkeypatch.setattr(patience, "monotonic", lambda: next(late))
    assert asked(clock, "server error")[1] == [300.0, 1.0]
