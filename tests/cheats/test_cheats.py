"""Every cheat is caught, and passes where its check is taken away: so it is that check which catches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r3bench import windows
from r3bench.model import Capture, Configuration, Level, Status, Variant, Verdict
from r3bench.record import Session
from r3bench.server import ReplayServer
from r3bench.server.local import key_of
from r3bench.stats import Comparison, Decision
from tests.cheats.checks import IN_THE_COMPILER, IN_THE_WORKER, off
from tests.cheats.table import CHEATS, COPIES_ITS_NEIGHBOUR, KNOWS_THE_VALUES, SOURCE, Cheat

N, OTHER = 200, 300
LEVELS = {level.value: level for level in Level}


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory, device: str) -> dict[str, Capture]:
    """One capture for each kernel; relax was launched before, so that the end of its result is there already."""
    folder = tmp_path_factory.mktemp("cheats")
    (folder / "kernels.cu").write_text(SOURCE)
    chance = np.random.default_rng(0)
    with Session("cheats", folder, device) as session:
        module = session.module("kernels.cu")
        session.capture("relax", (1, 3))
        for size in (N, OTHER):
            given, result = chance.random(size), chance.random(size)
            given[0], result[-1] = 0.0, np.nan  # at the ends, which stay as they are
            held = session.array("from", given), session.array("to", result)
            session.launch(module, "relax", 5, 64, (*held, size, 3, 0.1))
            held[0].values[: size // 2 - 2] *= 1.5
            session.launch(module, "relax", 5, 64, (*held, size, 3, 0.1))
        session.capture("small")
        session.launch(module, "small", 1, 8, (*arrays(session, chance.random(8)), 8))
        session.capture("step")
        session.launch(module, "step", 4, 64, arrays(session, chance.random(256)))
        session.capture("last")
        session.launch(module, "last", 4, 64, arrays(session, chance.random(256), np.zeros(4)))
        session.capture("square")
        session.launch(module, "square", 4, 64, (*arrays(session, chance.random(200).astype(np.float32)), 200))
        session.capture("shift", (0, 1))
        apart = arrays(session, chance.random(N))
        session.launch(module, "shift", 4, 64, (*apart, N))
        session.launch(module, "shift", 4, 64, (apart[0], apart[0], N))
        session.capture("scaled")
        session.launch(module, "scaled", 1, 64, arrays(session, chance.random(64)))
        session.capture("slowly")
        given = chance.random(64)
        given[0] = 0.5
        session.launch(module, "slowly", 1, 64, arrays(session, given))
        session.capture("upwind")
        flow, mask = session.array("flow", 1 + chance.random(N)), session.array("mask", np.ones(N, np.int32))
        session.launch(module, "upwind", 4, 64, (flow, mask, *arrays(session, chance.random(N)), N))
        return {capture.symbol: capture for capture in session.save(folder)}


def arrays(session: Session, given: Any, to: Any = None) -> tuple[Any, Any]:
    return session.array("from", given), session.array("to", np.zeros_like(given) if to is None else to)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, device: str) -> Iterator[ReplayServer]:
    with ReplayServer(device, cache=tmp_path_factory.mktemp("cache")) as server:
        yield server


@pytest.fixture
def server(opened: ReplayServer) -> ReplayServer:
    """The server, with nothing known of any unit."""
    opened._placements.clear()
    opened._observed.clear()
    return opened


def known(server: ReplayServer, capture: Capture) -> dict[str, object]:
    """What a cheat may know of this machine: where the memories of a unit are, and the recorded answers.

    The recorded kernel has left its results in all memories that are not verified on.
    """
    assert server.submit(capture, Variant(), 0, "none").result(60).verdict.status is Status.MATCH
    key, device = key_of(capture, 0), server.device
    recorded = server._originals.get(key)
    assert recorded is not None
    placement, original = server._placements._items[key], device.load(recorded.result().binary)
    timed = placement.ring.take(4)
    for memory in timed:
        device.launch(original, memory, capture.units[0].launch)
    at, verified = ([address(memory) for memory in memories] for memories in (timed, placement._probes))
    answers = placement.material.expected["to"].view(np.float64)
    return {
        "{FIRST}": verified[0],
        "{SECOND}": verified[1],
        "{FIRST_TIMED}": at[1],
        "{SECOND_TIMED}": at[2],
        "{THIRD_TIMED}": at[3],
        "{FROM_FIRST}": at[1] - verified[0],
        "{FROM_SECOND}": at[1] - verified[1],
        "{ANSWERS}": "{" + ", ".join(f"{answer:.17g}" for answer in answers[:8]) + "}",
    }


def address(memory: Any) -> int:
    """Where the buffer "to" is in a memory of either device."""
    return int(memory.addresses["to"] if hasattr(memory, "addresses") else memory.segment.address("to"))


def judged(server: ReplayServer, capture: Capture, cheat: Cheat) -> Verdict:
    """The verdict where the cheat shows; a match where that level of verification is not offered."""
    text = cheat.text(known(server, capture) if "{" + cheat.knows + "}" in cheat.new else {})
    variant = Variant(files=(("kernels.cu", text),), configuration=Configuration())
    if cheat.stage in ("verify", "rank"):
        timing = "rank" if cheat.stage == "rank" else "none"
        return server.submit(capture, variant, 0, timing).result(600).verdict  # type: ignore[arg-type]
    first = server.submit(capture, variant, 0, "none").result(600).verdict
    assert first.status is Status.MATCH, f"{cheat.name} shows without its level: {first.detail}"
    level = LEVELS[cheat.stage]
    if level not in server.levels:
        return first
    return server.verify(capture, variant, level, int(level is Level.HELD_OUT)).result(600).verdict


@pytest.mark.parametrize("kernel", ["relax", "small", "step", "last", "square", "shift", "scaled", "slowly", "upwind"])
def test_the_kernels_themselves_pass_every_check(
    server: ReplayServer, captures: dict[str, Capture], kernel: str
) -> None:
    capture = captures[kernel]
    verdicts = [server.submit(capture, Variant(), 0).result(60).verdict]
    verdicts += [server.verify(capture, Variant(), level).result(60).verdict for level in server.levels]
    assert [each.detail for each in verdicts if each.status is not Status.MATCH] == []


LIMITS = {"time limit": 0.25}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_is_caught(
    monkeypatch: pytest.MonkeyPatch, server: ReplayServer, captures: dict[str, Capture], cheat: Cheat, device: str
) -> None:
    if cheat.check in LIMITS:
        server.submit(captures[cheat.kernel], Variant(), 0, "none").result(60)  # the recorded kernel has longer
    monkeypatch.setattr(server, "_timeout_s", LIMITS.get(cheat.check, 60.0))
    found, expected = judged(server, captures[cheat.kernel], cheat.on(device)), cheat.on(device)
    assert found.status is not Status.MATCH
    assert expected.says in found.detail


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_passes_without_the_check_that_catches_it(
    monkeypatch: pytest.MonkeyPatch,
    server: ReplayServer,
    captures: dict[str, Capture],
    cheat: Cheat,
    device: str,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(server, "_timeout_s", LIMITS.get(cheat.check, 60.0))
    check = cheat.on(device).check
    off(check, device)(monkeypatch)
    elsewhere = check in IN_THE_COMPILER or (device == "cuda" and check in IN_THE_WORKER)
    with ReplayServer(device, cache=tmp_path) if elsewhere else nullcontext(server) as asked:
        found = judged(asked, captures[cheat.kernel], cheat.on(device))
    assert found.status is Status.MATCH, found.detail


def test_a_kernel_that_is_fast_on_the_recorded_values_only_gains_nothing(
    monkeypatch: pytest.MonkeyPatch, server: ReplayServer, captures: dict[str, Capture], device: str
) -> None:
    cheat = KNOWS_THE_VALUES.on(device)
    knowing = Variant(files=(("kernels.cu", cheat.text({})),), configuration=Configuration())

    def decision() -> Decision:
        honest = Variant(configuration=Configuration())
        return server.compare(captures[cheat.kernel], 0, honest, knowing, gate=0.5).result(600).decision

    assert decision() is Decision.UNSTABLE
    off(cheat.check, device)(monkeypatch)
    assert decision() is Decision.FASTER


def test_a_kernel_that_copies_its_neighbour_in_a_window_is_refused(
    monkeypatch: pytest.MonkeyPatch, server: ReplayServer, captures: dict[str, Capture], device: str
) -> None:
    cheat = COPIES_ITS_NEIGHBOUR.on(device)
    monkeypatch.setattr(windows, "ALONE", windows.GPU.clones)  # each of a window's memories

    def found() -> Comparison:
        """Memory lies elsewhere in the worker after a fault: what the cheat knows is learned anew."""
        text = cheat.text(known(server, captures[cheat.kernel]))
        knowing = Variant(files=(("kernels.cu", text),))
        return server.compare(captures[cheat.kernel], 0, Variant(), knowing, gate=0.5).result(600)

    refused = found()
    assert (refused.decision, refused.refused) == (Decision.REFUSED, "candidate")
    assert cheat.says in refused.verdict.detail
    off(cheat.check, device)(monkeypatch)
    assert found().decision is not Decision.REFUSED
