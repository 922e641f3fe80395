"""What runs on a cluster's workers: a replay server on each replay worker, a compiler on each compile worker."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from distributed import get_worker

from r3bench.errors import BuildError, CaptureError, DeviceUnavailable
from r3bench.model import Outcome
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
    """A session's replay server on this worker, and the captures that its node has."""

    def __init__(self, session: Session) -> None:
        self._prepared = Prepared()
        self._server = ReplayServer(session.device, timeout_s=session.timeout_s, compiler=self._prepared)
        self._spool = Spool(folder_of(session))

    @cached_property
    def identity(self) -> Identity:
        return identity_of(self._server)

    @property
    def place(self) -> str:
        """Where times are taken: device, host, and of a processor which part."""
        cores = f", processors {os.environ[PROCESSORS]}" if self.identity.target.device == "cpu" else ""
        return f"{self.identity.machine} on {platform.node()}{cores}"

    def has(self, capture: str, path: str) -> bool:
        """Whether the node has a capture: where the client has it, or because it was sent."""
        if self._spool.know(capture, path):
            return True
        with suppress(CaptureError):
            self._spool.keep(capture)
        return self._spool.know(capture, "")

    def close(self) -> None:
        self._server.close()

    def conditions(self) -> dict[str, str]:
        return self._server.conditions()

    def answer(self, request: Request, delivered: Delivery) -> Any:
        with self._prepared.holding(delivered):
            return self._told(request.ask(self._server, self._spool.capture(request.capture)).result())

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


# -- what is asked of a worker; each process keeps what it has opened --------------------------------------------------


def dask_setup(worker: object) -> None:
    """Keep to the worker's processors. Dask calls this in the thread from which all others come, and processes."""
    os.sched_setaffinity(0, {int(number) for number in os.environ[PROCESSORS].split(",")})


def dask_teardown(worker: object) -> None:
    """End what the worker has opened; Dask calls this."""
    for session in list(_stations):
        ended(session)
    if compiler.cache_info().currsize:
        compiler().close()


@cache
def compiler() -> Compiler:
    return Compiler()


_stations: dict[Session, Station] = {}
_opening = Lock()


def station(session: Session) -> Station:
    with _opening:
        if session not in _stations:
            _stations[session] = Station(session)
        return _stations[session]


def built(request: BuildRequest) -> Built | BuildError:
    """A build; what is wrong with the request is its answer."""
    try:
        return compiler().submit(request).result()
    except BuildError as error:
        return error


def identity(session: Session) -> Identity:
    """Who replays here. DeviceUnavailable where nobody can."""
    return station(session).identity


def conditions(session: Session) -> dict[str, str]:
    return station(session).conditions()


def answered(session: Session, kind: str, request: Request, path: str, delivered: Delivery) -> Any:
    """The answer to a request; ``path`` is where the client has the capture. DeviceUnavailable on another kind of
    device than the session's, with whose times its own must not be compared."""
    own = station(session)
    if kind_of(own.identity) != kind:
        raise DeviceUnavailable(
            f"{platform.node()} has {kind_of(own.identity)}, not {kind} like the rest of the cluster; "
            "end its workers, or start a cluster for each kind of device"
        )
    if not own.has(request.capture, path):
        return Absent(platform.node(), get_worker().address)
    return own.answer(request, delivered)


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
    """Give back what a session holds on this worker and its node."""
    with _opening:
        own = _stations.pop(session, None)
    if own is not None:
        own.close()
    shutil.rmtree(folder_of(session), ignore_errors=True)
