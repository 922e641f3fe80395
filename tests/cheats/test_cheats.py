"""Every cheat is caught, and passes where its check is switched off: so it is that check which catches it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from r3bench.model import Capture, Configuration, Level, Status, Variant, Verdict
from r3bench.record import Session
from r3bench.server import ReplayServer, key_of
from r3bench.toolchain import Compiler
from tests.cheats.checks import CHECKS
from tests.cheats.table import CHEATS, SOURCE, Cheat

N, OTHER = 200, 300
LEVELS = {level.value: level for level in Level}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Capture]:
    """One capture for each kernel; relax was launched before, so that the end of its result is there already."""
    folder = tmp_path_factory.mktemp("cheats")
    (folder / "kernels.cu").write_text(SOURCE)
    chance = np.random.default_rng(0)
    with Session("cheats", folder, "cpu") as session:
        module = session.module("kernels.cu")
        session.capture("relax", (1, 3))
        for size in (N, OTHER):
            held = session.array("from", chance.random(size)), session.array("to", chance.random(size))
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
        return {capture.symbol: capture for capture in session.save(folder)}


def arrays(session: Session, given: Any, to: Any = None) -> tuple[Any, Any]:
    return session.array("from", given), session.array("to", np.zeros_like(given) if to is None else to)


class Kept(Compiler):
    """A compiler that outlives the servers which use it."""

    def close(self) -> None:
        """Nothing: its fixture ends it."""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    opened = Kept(cache=tmp_path_factory.mktemp("cache"))
    yield opened
    Compiler.close(opened)


@pytest.fixture
def server(request: pytest.FixtureRequest, compiler: Kept) -> Iterator[ReplayServer]:
    with ReplayServer("cpu", timeout_s=getattr(request, "param", 10.0), compiler=compiler) as opened:
        yield opened


def known(server: ReplayServer, capture: Capture) -> dict[str, object]:
    """What a cheat may know of this machine: where the memories of a unit are, and the recorded answers.

    The recorded kernel has left its results in all memories that are not verified on.
    """
    assert server.submit(capture, Variant(), 0, "none").result(60).verdict.status is Status.MATCH
    key, device = key_of(capture, 0), server.device
    placement, original = server._placements._items[key], device.load(server._originals[key].result().binary)
    timed = placement.ring.take(4)
    for memory in timed:
        device.launch(original, memory, capture.units[0].launch)
    at, verified = (
        [memory.segment.address("to") for memory in memories]  # type: ignore[attr-defined]
        for memories in (timed, placement._probes)
    )
    assert max(verified) < at[1], "what is only timed lies behind what is verified"
    assert at[1] - verified[0] == at[2] - verified[1]
    answers = placement.material.expected["to"].view(np.float64)
    return {
        "{LAST_VERIFIED}": max(verified),
        "{TO_OTHER}": at[1] - verified[0],
        "{ANSWERS}": "{" + ", ".join(f"{answer:.17g}" for answer in answers[:8]) + "}",
    }


def judged(server: ReplayServer, capture: Capture, cheat: Cheat) -> Verdict:
    """The verdict where the cheat shows; a match where that level of verification is not offered."""
    text = cheat.text(known(server, capture) if "{" + cheat.knows + "}" in cheat.new else {})
    variant = Variant(files=(("kernels.cu", text),), configuration=Configuration())
    if cheat.stage in ("verify", "rank"):
        timing = "rank" if cheat.stage == "rank" else "none"
        return server.submit(capture, variant, 0, timing).result(120).verdict  # type: ignore[arg-type]
    first = server.submit(capture, variant, 0, "none").result(120).verdict
    assert first.status is Status.MATCH, f"{cheat.name} shows without its level: {first.detail}"
    level = LEVELS[cheat.stage]
    if level not in server.levels:
        return first
    return server.verify(capture, variant, level, int(level is Level.HELD_OUT)).result(120).verdict


@pytest.mark.parametrize("kernel", ["relax", "small", "step", "last", "square"])
def test_the_kernels_themselves_pass_every_check(
    server: ReplayServer, captures: dict[str, Capture], kernel: str
) -> None:
    capture = captures[kernel]
    verdicts = [server.submit(capture, Variant(), 0).result(60).verdict]
    verdicts += [server.verify(capture, Variant(), level).result(60).verdict for level in server.levels]
    assert [each.detail for each in verdicts if each.status is not Status.MATCH] == []


def limit(cheat: Cheat) -> float:
    return 0.25 if cheat.check == "time limit" else 10.0


TABLE = [pytest.param(limit(cheat), cheat, id=cheat.name) for cheat in CHEATS]


@pytest.mark.parametrize(("server", "cheat"), TABLE, indirect=["server"])
def test_a_cheat_is_caught(server: ReplayServer, captures: dict[str, Capture], cheat: Cheat) -> None:
    verdict = judged(server, captures[cheat.kernel], cheat)
    assert verdict.status is not Status.MATCH
    assert cheat.says in verdict.detail


@pytest.mark.parametrize(("server", "cheat"), TABLE, indirect=["server"])
def test_a_cheat_passes_without_the_check_that_catches_it(
    monkeypatch: pytest.MonkeyPatch, server: ReplayServer, captures: dict[str, Capture], cheat: Cheat
) -> None:
    CHECKS[cheat.check](monkeypatch)
    verdict = judged(server, captures[cheat.kernel], cheat)
    assert verdict.status is Status.MATCH, verdict.detail
