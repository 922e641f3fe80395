"""Replay on many devices and nodes at once, with Dask distributed (the extra ``cluster``).

::

    here                      the cluster
    client.py   Cluster  ---  compile workers   a compiler on each node's processors       worker.py
                         ---  replay workers    a resident replay server for each device   worker.py
    start.py    starts both, here or as jobs of Slurm, PBS or LSF; nodes.py is what a node runs

A cluster is a :class:`~r3bench.server.Server` like any other. A request is built on a compile worker
and goes with its code to whichever replay worker is free; both arms of a contest are timed by one. A worker that is
lost is started again, and what it had been given is done by others.

Distributed unpickles what it receives: whoever can connect to a scheduler or a worker runs code as its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3bench.errors import ServiceError

if TYPE_CHECKING:
    from r3bench.cluster.client import Cluster

__all__ = ["open_cluster"]


def open_cluster(text: str, device: str = "auto", timeout_s: float = 10.0) -> Cluster:
    """Start a cluster or join one; see :func:`r3bench.cluster.start.open_cluster`. ServiceError without Dask."""
    try:
        from r3bench.cluster import start
    except ImportError as error:
        raise ServiceError(f"a cluster needs the package {error.name}: pip install 'r3bench[cluster]'") from error
    return start.open_cluster(text, device, timeout_s)
