"""The client's side of a cluster: what is asked becomes tasks, built first and replayed then; see :class:`Cluster`."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import inf
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, cast
from uuid import uuid4

import distributed
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from r3bench import remix, store
from r3bench.cluster import worker
from r3bench.cluster.batches import Batches
from r3bench.cluster.worker import COMPILE, REPLAY, Absent, Session, kind_of
from r3bench.errors import BuildError, DeviceUnavailable, R3Error, ServiceError, WorkerLost
from r3bench.model import Capture, Outcome, Variant, content_id
from r3bench.overrides import id_of
from r3bench.remix import BuildRequest
from r3bench.replay import build, without_memory
from r3bench.server.requests import Asking, Compare, Compile, Identity, Profile, Request, Submit
from r3bench.server.spool import parts
from r3bench.toolchain import Built

_LOOK_S = 1.0  # from one look at which workers there are to the next
# So long a worker may be at one request, what is before it there included; no launch or build of it takes half of that.
MOST_S = 1800.0
_END_S = 30.0  # for a worker that is to end
_TRIES = 3  # of a request over which workers hang


class Noted:
    """A compiler that builds nothing: it only notes what would be built."""

    def __init__(self) -> None:
        self.request: BuildRequest | None = None

    def submit(self, request: BuildRequest) -> Future[Built]:
        self.request = request
        return Future()

    def close(self) -> None:
        """There is nothing to end."""


class Cluster(Asking):
    """Replays on the devices of a cluster; a context manager, which ends what ``owned`` holds.

    All its devices are of one model, so that their rankings can stand beside each other; every contest is timed on one
    device, which its conditions name. A request whose worker is lost is done again by another.
    """

    def __init__(
        self, client: distributed.Client, url: str, device: str, timeout_s: float, patience_s: float | None
    ) -> None:
        self.owned = ExitStack()
        self.owned.callback(client.close)
        self._client, self._url = client, url
        self._loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
        self._session = Session(id=uuid4().hex, device=device, timeout_s=timeout_s)
        self._unfinished: set[Future[Any]] = set()
        self._sources: dict[str, dict[str, str]] = {}
        self._first: dict[Hashable, asyncio.Future[Outcome]] = {}
        self._sent: dict[Hashable, asyncio.Future[float]] = {}
        self._checked: dict[Hashable, asyncio.Future[Capture]] = {}
        self._asked: dict[distributed.Future, tuple[str, str | None]] = {}
        self._hung: Counter[distributed.Future] = Counter()
        self._patience_s = patience_s
        self._slots = self._slots_of(client.scheduler_info(n_workers=-1)["workers"])  # looked after from now on
        self._builds = Batches(self._built, lambda: self._slots[COMPILE])
        self._replays = Batches(self._answered, lambda: self._slots[REPLAY])
        self._start(self._watch())
        self.identity = self._one_kind(self._replay_workers())
        self._kind = kind_of(self.identity)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End at once: what has not ended is cancelled, and what was started for this is ended. Idempotent."""
        for future in list(self._unfinished):
            future.cancel()
        if self._client.status == "running":
            self._client.run(worker.ended, self._session, on_error="ignore")
        self.owned.close()

    def conditions(self) -> dict[str, str]:
        asked: Future[dict[str, str]] = self._start(self._on(REPLAY, worker.conditions, self._session))
        return asked.result()

    @property
    def at_once(self) -> int:
        """Twice as many as all workers take: what waits goes several to a task."""
        return 2 * self._slots_of(self._client.scheduler_info(n_workers=-1)["workers"]).total()

    # -- who is there -----------------------------------------------------------------------------------------------

    @staticmethod
    def _slots_of(known: Mapping[str, Any]) -> Counter[str]:
        """How many tasks of each kind the workers take at once."""
        found: Counter[str] = Counter()
        for each in known.values():
            found.update({resource: int(amount) for resource, amount in each["resources"].items()})
        return found

    def _workers(self, resource: str) -> list[str]:
        """The addresses of the workers of a kind, now. Not for coroutines: there Dask tells of the first few only."""
        known = self._client.scheduler_info(n_workers=-1)["workers"]
        return [address for address, each in known.items() if each["resources"].get(resource)]

    def _replay_workers(self) -> list[str]:
        begin, patience_s = monotonic(), self._patience_s
        while not self._workers(REPLAY):
            if patience_s is not None and monotonic() - begin > patience_s:
                raise ServiceError(f"{self._url} has no replay workers; start r3bench worker on its nodes")
            sleep(0.1)
        return self._workers(REPLAY)

    def _one_kind(self, replays: Sequence[str]) -> Identity:
        """What all replay workers are. DeviceUnavailable where they differ, for their times could not be compared."""

        async def of(address: str) -> Identity | None:
            with suppress(WorkerLost):  # the one in its place says with its first answer whether it is of this kind
                return cast(Identity, await self._on(REPLAY, worker.identity, self._session, at=address))
            return None

        async def all_of_them() -> list[Identity]:
            return [each for each in await asyncio.gather(*map(of, replays)) if each is not None]

        found: list[Identity] = self._start(all_of_them()).result()
        if not found:
            return self._one_kind(self._replay_workers())
        kinds = sorted({kind_of(identity) for identity in found})
        if len(kinds) > 1:
            raise DeviceUnavailable(
                f"{self._url} has devices of several kinds ({', '.join(kinds)}), whose times cannot be compared: "
                "start a cluster for each"
            )
        return found[0]

    # -- from request to tasks --------------------------------------------------------------------------------------

    def _id_of(self, capture: Capture) -> str:
        return id_of(capture)

    def _ask(self, request: Request, capture: Capture) -> Future[Any]:
        return self._start(self._answer(request, capture))

    def _start(self, work: Any) -> Future[Any]:
        """Run a coroutine beside this thread; it ends when the cluster is closed."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    async def _answer(self, request: Request, capture: Capture) -> Any:
        await self._check(request.capture, capture)
        made = await asyncio.gather(*(self._made(request, capture, variant) for variant in _variants(request)))
        if isinstance(request, Compile):
            return _or_raise(made[0][1])
        delivery = {wanted: built for wanted, built in made if wanted is not None and built is not None}
        if isinstance(request, Submit) and request.timing in ("once", "race") and isinstance(made[0][1], Built):
            return await self._once(request, capture, made[0][1], delivery)
        return await self._replay(request, capture, delivery)

    async def _made(
        self, request: Request, capture: Capture, variant: Variant
    ) -> tuple[BuildRequest | None, Built | BuildError | None]:
        """What a variant is built from, and what that gave on a compile worker; None where a replay worker builds, or
        finds out what is wrong."""
        noted, identity = Noted(), request.capture
        if not 0 <= request.unit < len(capture.units):
            return None, None
        if identity not in self._sources:
            self._sources[identity] = await asyncio.to_thread(store.sources, capture)
        material = without_memory(capture, request.unit, self._sources[identity])
        target = request.target if isinstance(request, Compile) else self.target
        made = build(material, variant, target, noted)
        if noted.request is None:
            return None, made.result() if made.exception() is None or isinstance(request, Compile) else None
        if not isinstance(request, Compile) and not self._slots[COMPILE]:
            return noted.request, None
        return noted.request, await self._builds.ask(noted.request)

    async def _once(self, request: Submit, capture: Capture, built: Built, delivery: worker.Delivery) -> Outcome:
        """The outcome of this code and launch on whichever device had it first; of one text where it races."""
        launch = remix.launch_for(capture.units[request.unit], request.variant)
        text = content_id(request.variant.files) if request.timing == "race" else ""
        key = request.capture, request.unit, built.binary.sha256, launch, text
        if key not in self._first:
            self._first[key] = asyncio.ensure_future(self._replay(request, capture, delivery))
            return await asyncio.shield(self._first[key])
        outcome = await asyncio.shield(self._first[key])
        return replace(outcome, variant=content_id(request.variant), module=built.module, stages=built.stages)

    async def _replay(self, request: Request, capture: Capture, delivery: worker.Delivery) -> Any:
        """The answer of a replay worker; its node is sent the capture where it does not have it."""
        while True:
            begin = monotonic()
            asked = request, capture.path, delivery
            # What takes long comes alone: all of a task are answered when its last is.
            short = isinstance(request, Submit)
            found = await self._replays.ask(asked) if short else (await self._answered([asked]))[0]
            if isinstance(found, R3Error):
                raise found
            if not isinstance(found, Absent):
                return found
            with suppress(WorkerLost):  # whoever is asked next says whether its node has the capture
                await self._send(found, request.capture, capture, begin)

    async def _built(self, requests: list[BuildRequest]) -> list[Built | BuildError]:
        return cast(list[Built | BuildError], await self._on(COMPILE, worker.built, requests))

    async def _answered(self, asked: list[worker.Asked]) -> list[Any]:
        return cast(list[Any], await self._on(REPLAY, worker.answered, self._session, self._kind, asked))

    async def _on(self, resource: str, function: Callable[..., Any], *arguments: Any, at: str | None = None) -> Any:
        """Run a function on some worker of a kind, or on the one at an address: WorkerLost where that has gone.
        ServiceError where workers end of it, or the cluster or all of the kind are gone."""
        where = {"workers": [at]} if at else {}
        asked = self._client.submit(function, *arguments, resources={resource: 1}, pure=False, **where)
        self._asked[asked] = resource, at
        try:
            return await asked
        except KilledWorker as error:
            raise ServiceError(f"{error.last_worker} and others of {self._url} ended over one request") from error
        except FutureCancelledError as error:
            if self._hung[asked] == _TRIES:
                raise ServiceError(
                    f"{_TRIES} {resource} workers of {self._url} in turn did not end one request within {MOST_S:g} s; "
                    "see what they wait for, and start the cluster again"
                ) from error
            if at and self._client.status == "running":
                raise WorkerLost(f"{at} of {self._url} has gone") from error
            raise ServiceError(
                f"the cluster {self._url} or all its {resource} workers are gone; start it again"
            ) from error
        finally:
            del self._asked[asked], self._hung[asked]

    async def _watch(self) -> None:
        """Cancel what Dask would wait for without end: tasks of one worker that has gone, as the one started in its
        place has another address, and tasks of a kind of which there has been no worker for too long. Replace workers
        that are at a task for too long, though they say that they live: Dask gives it to others then."""
        seen: defaultdict[str, float] = defaultdict(monotonic)
        since: dict[tuple[distributed.Future, str], float] = {}
        while self._client.status == "running":
            with suppress(OSError):  # the scheduler does not answer: Dask cancels everything if that lasts
                for task in await self._lost(seen):
                    await task.cancel()
                since = await self._working(since)
                now = monotonic()
                for task, address in [pair for pair, begin in since.items() if now - begin > MOST_S]:
                    await self._replace(task, address)
            await asyncio.sleep(_LOOK_S)

    async def _working(
        self, since: Mapping[tuple[distributed.Future, str], float]
    ) -> dict[tuple[distributed.Future, str], float]:
        """Since when the scheduler has listed each task with the worker that has it now."""
        asked, now = {task.key: task for task in self._asked}, monotonic()
        listed = (await self._client.scheduler.processing()).items()
        pairs = [(asked[key], address) for address, keys in listed for key in keys if key in asked]
        return {pair: since.get(pair, now) for pair in pairs}

    async def _replace(self, task: distributed.Future, address: str) -> None:
        """End a worker that hangs; its nanny starts another. Give up what several hung over."""
        self._hung[task] += 1
        if self._hung[task] == _TRIES:
            await task.cancel()
        how = {"timeout": _END_S, "wait_for_workers": False, "on_error": "return"}
        await self._client.scheduler.restart_workers(workers=[address], stimulus_id=f"r3bench {address} hangs", **how)

    async def _lost(self, seen: defaultdict[str, float]) -> list[distributed.Future]:
        """What nobody is left for; ``seen`` says when there was a worker of a kind."""
        asked = dict(self._asked)  # before the workers that it was asked of
        known = (await self._client.scheduler.identity(n_workers=-1))["workers"]
        now, patience_s = monotonic(), inf if self._patience_s is None else self._patience_s
        seen.update((resource, now) for each in known.values() for resource in each["resources"])
        self._slots = self._slots_of(known)
        return [
            task
            for task, (resource, at) in asked.items()
            if now - seen[resource] > patience_s or (at and at not in known)
        ]

    # -- captures ---------------------------------------------------------------------------------------------------

    async def _check(self, identity: str, capture: Capture) -> None:
        """Check the client's copy of a capture once, for a node may have another that is sound."""
        key = identity, capture.path
        if key not in self._checked:
            self._checked[key] = asyncio.ensure_future(asyncio.to_thread(store.verify, capture.path))
        await asyncio.shield(self._checked[key])

    async def _send(self, absent: Absent, identity: str, capture: Capture, asked_at: float) -> None:
        """Send a capture to a node, once for all its workers; again only to a node that has lost it since."""
        key = absent.host, identity
        sent = self._sent.get(key)
        if sent is None or (sent.done() and (sent.exception() is not None or sent.result() < asked_at)):
            sent = self._sent[key] = asyncio.ensure_future(self._ship(absent, identity, capture))
        await asyncio.shield(sent)

    async def _ship(self, absent: Absent, identity: str, capture: Capture) -> float:
        """Send a capture part by part; when it was complete. WorkerLost where its worker has gone."""
        for part in parts(capture):
            await self._on(REPLAY, worker.received, self._session, identity, *part, at=absent.worker)
        await self._on(REPLAY, worker.complete, self._session, identity, at=absent.worker)
        return monotonic()


def _variants(request: Request) -> tuple[Variant, ...]:
    if isinstance(request, Profile):
        return ()
    return (request.baseline, request.candidate) if isinstance(request, Compare) else (request.variant,)


def _or_raise(made: Built | BuildError | None) -> Built:
    if isinstance(made, BuildError):
        raise made
    assert made is not None
    return made
