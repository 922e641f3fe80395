"""A small recorded kernel for tests of replay: its capture on disk, programs for the fake device, a fake compiler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path

import numpy as np

from r3bench import store
from r3bench.errors import BuildError, DeviceFault, LaunchError, ReplayTimeout, Unsupported, WorkerLost
from r3bench.model import (
    Allocation,
    Binary,
    Capture,
    LaunchConfig,
    Parameter,
    Pointer,
    ReplayUnit,
    Source,
    Variant,
)
from r3bench.store import UnitContents, text_sha256
from r3bench.testing import FakeLaunch, Program
from r3bench.toolchain import BuildRequest, Built

N = 16
MAIN = "kernels.cu"


# -- what the kernels do: x += y, the fake source being the name of one of these ------------------------------------


def add(run: FakeLaunch) -> None:
    run.array("x", "f8")[:] += run.array("y", "f8")


def add_wrongly(run: FakeLaunch) -> None:
    add(run)
    run.array("x", "f8")[3] += 1


def add_nearly(run: FakeLaunch) -> None:
    add(run)
    run.array("x", "f8")[3] += 0.75


def scribble(run: FakeLaunch) -> None:
    add(run)
    run.array("y", "f8")[0] = 5


def reversed_wrongly(run: FakeLaunch) -> None:
    add(run)
    if run.order == "reverse":
        run.array("x", "f8")[0] = 0


def racing_but_for_blocks_of_64(run: FakeLaunch) -> None:
    add(run)
    if run.order == "reverse" and run.launch.threads_per_block != 64:
        run.array("x", "f8")[0] = 0


def failing(error: Exception) -> Callable[[FakeLaunch], None]:
    def fail(run: FakeLaunch) -> None:
        raise error

    return fail


def right_at_first(launches: int) -> Callable[[FakeLaunch], None]:
    """Right for some launches and wrong ever after, as with a counter that no restore resets."""
    done = [0]

    def run_then_spoil(run: FakeLaunch) -> None:
        done[0] += 1
        (add if done[0] <= launches else add_wrongly)(run)

    return run_then_spoil


def crashing_later(launches: int) -> Callable[[FakeLaunch], None]:
    done = [0]

    def run_then_crash(run: FakeLaunch) -> None:
        done[0] += 1
        if done[0] > launches:
            raise DeviceFault("kernels.cu crashed.")
        add(run)

    return run_then_crash


def lost(launches: range) -> Callable[[FakeLaunch], None]:
    """Right, but that the worker is killed from outside at these launches."""
    done = count()

    def run_unless_killed(run: FakeLaunch) -> None:
        if next(done) in launches:
            raise WorkerLost("kernels.cu did not end: its worker was killed by SIGKILL")
        add(run)

    return run_unless_killed


def programs() -> dict[str, Program]:
    return {
        "add": Program(add, 100_000),
        "quick": Program(add, 80_000),
        "slow": Program(add, 130_000),
        "narrow": Program(add, lambda launch: 1000.0 * launch.threads_per_block),
        "wrong": Program(add_wrongly),
        "nearly": Program(add_nearly),
        "scribble": Program(scribble),
        "backwards": Program(reversed_wrongly),
        "racing": Program(racing_but_for_blocks_of_64, lambda launch: 1000.0 * launch.threads_per_block),
        "nothing": Program(lambda run: None),
        "crash": Program(failing(DeviceFault("kernels.cu crashed."))),
        "hang": Program(failing(ReplayTimeout("kernels.cu did not end within 10 s."))),
        "large": Program(failing(LaunchError("kernels.cu needs too much shared memory."))),
        "lost once": Program(lost(range(1)), 100_000),
        "lost while timed": Program(lost(range(4, 5)), 100_000),
        "lost always": Program(lost(range(1 << 30))),
        "later wrong": Program(right_at_first(2)),
        "later crash": Program(crashing_later(2)),
    }


def variant(name: str, **parts: object) -> Variant:
    return Variant(files=((MAIN, name),), **parts)  # type: ignore[arg-type]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class FakeCompiler:
    """Takes the source text for a program's name; ``gate`` holds builds back, ``requests`` keeps them."""

    def __init__(self) -> None:
        self.requests: list[BuildRequest] = []
        self.closed = False
        self.gate = threading.Event()
        self.gate.set()
        self._held: list[Future[Built]] = []

    def submit(self, request: BuildRequest) -> Future[Built]:
        self.requests.append(request)
        result: Future[Built] = Future()
        threading.Thread(target=self._build, args=(request, result), daemon=True).start()
        return result

    def _build(self, request: BuildRequest, result: Future[Built]) -> None:
        assert self.gate.wait(60)
        text = dict(request.files)[request.main]
        name, _, twin = text.partition("#")
        if name == "syntax error":
            result.set_exception(BuildError("kernels.cu:1:1: expected a declaration"))
        elif name == "texture":
            result.set_exception(Unsupported("kernels.cu reads a texture, which the fake device has not."))
        else:
            result.set_result(built(name, twin + "padded" * request.padded, request))

    def close(self) -> None:
        self.closed = True
        self.gate.set()


def built(name: str, twin: str, request: BuildRequest) -> Built:
    binary = Binary(
        target=request.target,
        symbol=request.symbol,
        image=f"{name}#{twin}".encode(),
        format="object",
        facts=(("ir_instructions", len(name)),),
    )
    return Built(binary=binary, module=text_sha256(name), stages=(("frontend", 0.001),))


# -- the capture ----------------------------------------------------------------------------------------------------


def unit(index: int = 0) -> ReplayUnit:
    return ReplayUnit(
        index=index,
        launch=LaunchConfig(grid=(4, 1, 1), block=(4, 1, 1)),
        arguments=bytes(16),
        pointers=(Pointer(offset=0, allocation="x"), Pointer(offset=8, allocation="y")),
        allocations=tuple(
            Allocation(name=name, address=0x7F00_0000_0000 + 4096 * at, nbytes=8 * N, dtype="float64", shape=(N,))
            for at, name in enumerate("xy")
        ),
        held_out=index > 0,
    )


def contents(index: int = 0, *, vacuous: bool = False, added: float = 0.0) -> UnitContents:
    before = {"x": np.arange(N) + 0.5, "y": np.linspace(1 + index, 2 + index, N)}
    after = {"x": before["x"] if vacuous else before["x"] + before["y"] + added}
    return UnitContents(
        {name: data.view(np.uint8) for name, data in before.items()},
        {name: data.view(np.uint8) for name, data in after.items()},
    )


def capture(
    folder: Path,
    *,
    text: str = "add",
    units: int = 2,
    vacuous: bool = False,
    added: float = 0.0,
    first: int = 0,
    headers: Sequence[str] = (),
) -> Capture:
    """x += y + ``added``, recorded ``units`` times; ``first`` numbers the contents of the first unit."""
    texts = {MAIN: text, **dict.fromkeys(headers, "// recorded")}
    parameters = tuple(
        Parameter(name=name, offset=8 * at, size=8, kind="pointer", dtype="float64") for at, name in enumerate("xy")
    )
    made = Capture(
        path=str(folder / "add.zarr"),
        application="app",
        symbol="add",
        demangled="add",
        parameters=parameters,
        source=Source(
            root=".", main=MAIN, span=(1, 1), files=tuple((path, text_sha256(each)) for path, each in texts.items())
        ),
        units=tuple(unit(index) for index in range(units)),
    )
    held = [contents(first + index, vacuous=vacuous, added=added) for index in range(units)]
    return store.write(folder / "add.zarr", made, held, texts)
