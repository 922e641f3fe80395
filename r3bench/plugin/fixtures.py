"""Fixtures for users' own tests: ``replay_unit``, ``r3_device``, ``r3_replay``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from r3bench.errors import CaptureError
from r3bench.plugin.checks import server_of

if TYPE_CHECKING:
    from r3bench.devices import Device
    from r3bench.model import Outcome, Variant
    from r3bench.replay import Timing
    from r3bench.store import RecordedUnit


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "replay_unit" not in metafunc.fixturenames:
        return
    from r3bench import store

    folders = [metafunc.config.rootpath / folder for folder in metafunc.config.getini("r3_captures")]
    try:
        captures = [store.open_capture(path) for path in store.find(folders)]
    except CaptureError as error:
        raise pytest.Collector.CollectError(f"replay_unit: {error}") from error
    if not captures:
        named = ", ".join(map(str, folders)) or "nothing"
        raise pytest.Collector.CollectError(
            f"replay_unit: the ini key r3_captures names {named}: no capture is there; "
            "write the line 'r3_captures = captures' (your folder of captures) into pytest.ini, below [pytest]"
        )
    units = [(capture, unit.index) for capture in captures for unit in capture.units]
    ids = [f"{capture.name}-{index}" for capture, index in units]
    metafunc.parametrize("replay_unit", units, ids=ids, indirect=True)


@pytest.fixture
def replay_unit(request: pytest.FixtureRequest) -> RecordedUnit:
    """One recorded launch after the other, over all units of the captures below the ini key r3_captures."""
    from r3bench.store import RecordedUnit

    return RecordedUnit(*request.param)


@pytest.fixture
def r3_device(request: pytest.FixtureRequest) -> Device:
    """The device that --r3-device names. UsageError with --r3-server or --r3-cluster, whose devices are others'."""
    from r3bench.server import ReplayServer

    server = server_of(request.config)
    if not isinstance(server, ReplayServer):
        raise pytest.UsageError("r3_device is a device of this process: leave out --r3-server and --r3-cluster")
    return server.device


@pytest.fixture
def r3_replay(request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    """``r3_replay(replay_unit, variant=None, timing="none")``: the outcome of a variant on a recorded launch.

    Without a variant the recorded kernel itself is replayed. ``timing`` is ``none`` (verify only) or ``rank`` (time it
    too, for a ranking).
    """

    def replay(recorded: RecordedUnit, variant: Variant | None = None, timing: Timing = "none") -> Outcome:
        from r3bench.model import Variant

        if timing not in ("none", "rank"):
            raise ValueError(f"timing is 'none' (verify only) or 'rank' (time it too), not {timing!r}")
        server = server_of(request.config)
        return server.submit(recorded.capture, variant or Variant(), recorded.unit.index, timing=timing).result()

    return replay
