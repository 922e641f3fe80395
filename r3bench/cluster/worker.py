"""What runs on a cluster's workers: a replay server on each replay worker, a compiler on each compile worker."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

from distributed import get_worker

from r3bench.errors import BuildError, CaptureError, DeviceUnavailable, R3Error
from r3bench.model import Capture, Outcome
from r3bench.remix import BuildRequest
from r3bench.server import ReplayServer
from r3bench.server.requests import Identity, Request, identity_of
from r3bench.server.spool import Spool
from r3bench.stats import Comparison
from r3bench.toolchain import Built, Compiler

REPLAY, COMPILE = "replay", "compile"
"""The resources that a worker of either kind offers: so many requests at once."""

PROCESSORS = "R3BENCH_PROCESSORS"
"""The variable that holds the numbers of a worker's processors."""

Delivery = Mapping[BuildRequest, Built | BuildError]
Asked = tuple[Request, str, Delivery]
"""A request, where the client has its capture, and what was built for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a client's requests have in common: its own id, and how its replay servers are opened."""

    id: str
    device: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Absent:
    """The answer of a worker whose node (``host``) does not have the capture yet."""

    host: str
    worker: str


class Prepared:
    """The compiler of a replay worker: takes what a compile worker made, and makes the rest itself."""

    def __init__(self) -> None:
        self._compiler = compiler()
        self._ready: dict[BuildRequest, Built | BuildError] = {}

    @contextmanager
    def holding(self, delivered: Delivery) -> Iterator[None]:
        self._ready.update(delivered)
        try:
            yield
        finally:
            for request in delivered:
                self._ready.pop(request, None)

    def submit(self, request: BuildRequest) -> Future[Built]:
        made = self._ready.get(request)
        if made is None:
            return self._compiler.submit(request)
        done: Future[Built] = Future()
        if isinstance(made, BuildError):
            done.set_exception(made)
        else:
            done.set_result(made)
        return done

    def close(self) -> None:
        """The compiler serves all sessions of the process."""


class Station:
    """The replay server of this worker, which stays for all sessions that want the same device and time limit."""

    def __init__(self, device: str, timeout_s: float) -> None:
        self._prepared = Prepared()
        self._server = ReplayServer(device, timeout_s=timeout_s, compiler=self._prepared)

    @cached_property
    def identity(self) -> Identity:
        return identity_of(self._server)

    @property
    def place(self) -> str:
        """Where times are taken: device, host, and of a processor which part."""
        cores = f", processors {os.environ[PROCESSORS]}" if self.identity.target.device == "cpu" else ""
        return f"{self.identity.machine} on {platform.node()}{cores}"

    def close(self) -> None:
        self._server.close()

    def conditions(self) -> dict[str, str]:
        return self._server.conditions()

    def answers(self, asked: Sequence[tuple[Request, Capture, Delivery]]) -> list[Any]:
        """The answer to each request, or what it raises where that is its own fault."""
        with self._prepared.holding({wanted: made for _, _, delivered in asked for wanted, made in delivered.items()}):
            futures = [request.ask(self._server, capture) for request, capture, _ in asked]
            return [self._told(future.result() if (error := _own(future)) is None else error) for future in futures]

    def _told(self, found: Any) -> Any:
        """With the device in the conditions of whatever was timed."""
        if isinstance(found, Outcome) and found.measurement is not None:
            return replace(found, measurement=self._placed(found.measurement))
        if isinstance(found, Comparison):
            again = self._placed(found.repeat) if found.repeat is not None else None
            return self._placed(replace(found, repeat=again))
        return found

    def _placed(self, timed: Any) -> Any:
        return replace(timed, conditions=(*timed.conditions, ("device", self.place)))


def _own(future: Future[Any]) -> R3Error | None:
    """What a request raised that speaks of its capture or its device; anything else is an error of ours."""
    error = future.exception()
    return error if isinstance(error, R3Error) else None


# -- what is asked of a worker; each process keeps what it has opened --------------------------------------------------


def dask_setup(worker: object) -> None:
    """Keep to the worker's processors. Dask calls this in the thread from which all others come, and processes."""
    os.sched_setaffinity(0, {int(number) for number in os.environ[PROCESSORS].split(",")})


def dask_teardown(worker: object) -> None:
    """End what the worker has opened; Dask calls this."""
    for opened in _stations.values():
        opened.close()
    for started in _compilers:
        started.close()


_stations: dict[tuple[str, float], Station] = {}
_spools: dict[Session, Spool] = {}
_compilers: list[Compiler] = []
_opening = RLock()  # requests come in several threads


def compiler() -> Compiler:
    with _opening:
        if not _compilers:
            _compilers.append(Compiler())
        return _compilers[0]


def station(session: Session) -> Station:
    key = session.device, session.timeout_s
    with _opening:
        if key not in _stations:
            _stations[key] = Station(*key)
        return _stations[key]


def found(session: Session, capture: str, path: str) -> Capture | None:
    """A capture where this node has it: because the client's is seen here, or because it was sent."""
    with _opening:
        captures = _spools.setdefault(session, Spool(folder_of(session)))
        if not captures.know(capture, path):
            with suppress(CaptureError):
                captures.keep(capture)
        return captures.capture(capture) if captures.know(capture, "") else None


def built(requests: Sequence[BuildRequest]) -> list[Built | BuildError]:
    """Builds; what is wrong with a request is its answer."""
    started = [compiler().submit(request) for request in requests]
    return [_built(future) for future in started]


def _built(future: Future[Built]) -> Built | BuildError:
    error = future.exception()
    return error if isinstance(error, BuildError) else future.result()


def identity(session: Session) -> Identity:
    """Who replays here. DeviceUnavailable where nobody can."""
    return station(session).identity


def conditions(session: Session) -> dict[str, str]:
    return station(session).conditions()


def answered(session: Session, kind: str, asked: Sequence[Asked]) -> list[Any]:
    """The answers to requests that came together. DeviceUnavailable on another kind of device than the session's, with
    whose times its own must not be compared."""
    own = station(session)
    if kind_of(own.identity) != kind:
        raise DeviceUnavailable(
            f"{platform.node()} has {kind_of(own.identity)}, not {kind} like the rest of the cluster; "
            "end its workers, or start a cluster for each kind of device"
        )
    here = [_here(session, request.capture, path) for request, path, _ in asked]
    pairs = zip(asked, here, strict=True)
    answers = iter(
        own.answers([(each[0], capture, each[2]) for each, capture in pairs if isinstance(capture, Capture)])
    )
    return [next(answers) if isinstance(capture, Capture) else capture for capture in here]


def _here(session: Session, capture: str, path: str) -> Capture | Absent | CaptureError:
    try:
        return found(session, capture, path) or Absent(platform.node(), get_worker().address)
    except CaptureError as error:
        return error


def kind_of(identity: Identity) -> str:
    """What devices have in common whose times may stand in one ranking: model and architecture."""
    return f"{identity.machine.rpartition(' ')[0]} ({identity.target.arch})"


def received(session: Session, capture: str, name: str, at: int, part: bytes) -> None:
    """Write a part of a capture on this node, aside until all have come."""
    Spool(folder_of(session) / "arriving").put(capture, name, at, part)


def complete(session: Session, capture: str) -> None:
    """All parts of a capture have come: from now on the node has it."""
    folder = folder_of(session)
    (folder / "arriving" / capture).rename(folder / capture)


def folder_of(session: Session) -> Path:
    """Where a node keeps the captures of a session; only its user may look inside."""
    folder = Path(tempfile.gettempdir()) / f"r3bench-{os.getuid()}-{session.id}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def ended(session: Session) -> None:
    """Give back what a session has on this node; its replay server stays for others."""
    _spools.pop(session, None)
    shutil.rmtree(folder_of(session), ignore_errors=True)
