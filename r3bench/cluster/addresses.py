"""What ``--r3-cluster`` may say: a cluster to start (``local:4``, ``slurm:2,queue=gpu``) or the address of one."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from r3bench.errors import ServiceError

QUEUES = ("slurm", "pbs", "lsf")
_FORMS = "tls://host:port, tcp://127.0.0.1:port, local:N, slurm:N, pbs:N or lsf:N"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A cluster to be started: ``local`` or a kind of queue, how many workers or jobs, and settings of the jobs."""

    kind: str
    count: int
    settings: tuple[tuple[str, str], ...] = ()


def parse(text: str) -> Start | str:
    """A cluster to start, or the address of a scheduler as Dask takes it. ServiceError where it is neither."""
    kind, _, rest = text.partition(":")
    if kind != "local" and kind not in QUEUES:
        return scheduler(text)
    count, *settings = rest.split(",")
    pairs = tuple((name, value) for name, _, value in (each.partition("=") for each in settings))
    if not count.isdigit() or not 1 <= int(count) <= 10_000 or not all(name and value for name, value in pairs):
        example = "local:4" if kind == "local" else f"{kind}:4 or {kind}:4,queue=gpu,walltime=01:00:00"
        raise ServiceError(f"{text!r} names no cluster; say {example}")
    return Start(kind=kind, count=int(count), settings=pairs)


def scheduler(text: str) -> str:
    """The address of a scheduler. ServiceError for one whose traffic anyone on the way could read and change."""
    parts = urlsplit(text)
    try:
        complete = parts.hostname and parts.port
    except ValueError:
        complete = None
    if parts.scheme not in ("tcp", "tls", "tcp+private") or not complete:
        raise ServiceError(f"{text!r} names no cluster; say {_FORMS}")
    if parts.scheme == "tcp" and not _is_loopback(str(parts.hostname)):
        raise ServiceError(
            f"{text} is neither encrypted nor authenticated, and whoever reaches it can run code as you: use tls://, "
            "or say tcp+private:// where all of the network is yours"
        )
    return text.replace("tcp+private://", "tcp://")


def _is_loopback(host: str) -> bool:
    try:
        return all(ipaddress.ip_address(str(found[4][0])).is_loopback for found in socket.getaddrinfo(host, None))
    except OSError:
        return False
