"""What a node gives to a cluster: a replay worker for each of its devices, and one compile worker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import distributed
from distributed.comm import connect

from r3bench.cluster import worker
from r3bench.cluster.worker import COMPILE, PROCESSORS, REPLAY
from r3bench.devices import visible_gpus
from r3bench.errors import ServiceError

# Requests that a replay worker has at hand: one on the device, and the next one being made ready for it.
AT_HAND = 2
_ANSWER_S = 15.0  # for a scheduler to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A worker of a node: how many requests of which kind it takes at once, on which processors, with which GPU."""

    name: str
    resource: str
    slots: int
    processors: tuple[int, ...]
    gpu: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        gpu = {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu is not None else {}
        return {PROCESSORS: ",".join(map(str, self.processors))} | gpu


def roles(replays: int | None = None, device: str = "auto") -> list[Role]:
    """One replay worker for each GPU that is visible here, or so many; where there is none, for the processor.

    Replay workers without a GPU get processors of their own, half of them all together, where there are enough.
    """
    gpus, own = [] if device == "cpu" else visible_gpus(), sorted(os.sched_getaffinity(0))
    count = replays or max(1, len(gpus))
    shares, rest = ([own] * count, own) if gpus else divided(own, count)
    found = [
        Role(
            name=f"{REPLAY}-{number}",
            resource=REPLAY,
            slots=AT_HAND,
            processors=tuple(share),
            gpu=gpus[number % len(gpus)] if gpus else None,
        )
        for number, share in enumerate(shares)
    ]
    return [*found, Role(name=COMPILE, resource=COMPILE, slots=len(rest), processors=tuple(rest))]


def divided(processors: Sequence[int], count: int) -> tuple[list[Sequence[int]], Sequence[int]]:
    """Equal shares of half the processors, and what is left; all of them for everyone where they are too few."""
    share = max(1, len(processors) // (2 * count))
    if share * count >= len(processors):
        return [processors] * count, processors
    return [processors[at * share : (at + 1) * share] for at in range(count)], processors[count * share :]


def nannies(found: Sequence[Role], options: Mapping[str, Any], prefix: str = "") -> dict[str, dict[str, Any]]:
    """The workers as a specification for Dask, with further options: each is started again when it ends."""
    return {
        f"{prefix}{role.name}": {
            "cls": distributed.Nanny,
            "options": {
                "nthreads": role.slots,
                "resources": {role.resource: role.slots},
                "env": role.environment,
                "preload": [worker.__name__],
                "memory_limit": None,
                "silence_logs": logging.ERROR,
                "death_timeout": 60,
                **options,
            },
        }
        for role in found
    }


async def serve(address: str, found: Sequence[Role], prefix: str, options: Mapping[str, Any]) -> None:
    """Run this node's workers until the scheduler is gone for a minute, or a signal asks for an end. ServiceError where
    no scheduler answers, or they do not start."""
    await _require_scheduler(address, options.get("security") or distributed.Security())
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    specified = nannies(found, options, prefix).items()
    try:
        running = await asyncio.gather(
            *(each["cls"](address, name=name, **each["options"]) for name, each in specified)
        )
    except (RuntimeError, OSError) as error:
        raise ServiceError(
            f"workers for {address} do not start ({error.__cause__ or error}): start them again"
        ) from error
    try:
        ends = asked.wait(), asyncio.wait([asyncio.ensure_future(nanny.finished()) for nanny in running])
        await asyncio.wait([asyncio.ensure_future(end) for end in ends], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await asyncio.gather(*(nanny.close() for nanny in running))


async def _require_scheduler(address: str, security: distributed.Security) -> None:
    try:
        comm = await connect(address, timeout=_ANSWER_S, **security.get_connection_args("worker"))
    except (OSError, TypeError) as error:
        raise ServiceError(f"no scheduler answers at {address} ({error}); start one with dask scheduler") from error
    await comm.close()
