"""A cluster that runs, from what ``--r3-cluster`` says."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
import distributed

from r3bench.cluster import addresses, nodes
from r3bench.cluster.client import Cluster
from r3bench.errors import ServiceError

_CLASSES = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster"}
# A job whose node fails is run again, where the queue can do that.
_AGAIN = {"slurm": ["--requeue"], "pbs": ["-r y"], "lsf": ["-r"]}
# What the scheduler shows of itself stays on this machine.
_DASHBOARD = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
_PATIENCE_S = 60.0  # for the first worker; jobs may have to wait as long as their queue lets them


def open_cluster(text: str, device: str = "auto", timeout_s: float = 10.0) -> Cluster:
    """Start a cluster or join one; what is started ends with it. ServiceError or DeviceUnavailable say why not."""
    asked = addresses.parse(text)
    with ExitStack() as stack:
        if isinstance(asked, str):
            client = stack.enter_context(_joined(asked))
        else:
            started = stack.enter_context(_started(asked, device, stack))
            here = asked.kind == "local"  # a client of a queue's jobs may not reach their nodes
            client = stack.enter_context(distributed.Client(started, set_as_default=False, direct_to_workers=here))
        patience_s = None if isinstance(asked, addresses.Start) and asked.kind != "local" else _PATIENCE_S
        cluster = Cluster(client, text, device, timeout_s, patience_s)
        cluster.owned.push(stack.pop_all())
    return cluster


def _started(asked: addresses.Start, device: str, stack: ExitStack) -> Any:
    try:
        return _local(asked, device) if asked.kind == "local" else _queued(asked, _shared(stack))
    except (RuntimeError, TimeoutError) as error:  # of Dask, where processes end while they start
        raise ServiceError(
            f"the cluster's workers do not start ({error.__cause__ or error}): start it again"
        ) from error


def _joined(address: str) -> distributed.Client:
    """A client of a scheduler that runs; certificates for tls:// come from Dask's own configuration."""
    try:
        return distributed.Client(address, set_as_default=False, timeout=30)
    except (OSError, TypeError) as error:
        raise ServiceError(f"no scheduler answers at {address} ({error}); start one with dask scheduler") from error


def _security() -> distributed.Security:
    """Certificates of one cluster: nobody else can connect to it."""
    try:
        return distributed.Security.temporary()
    except ImportError as error:
        raise ServiceError("a cluster needs the package cryptography: pip install 'r3bench[cluster]'") from error


def _local(asked: addresses.Start, device: str) -> distributed.SpecCluster:
    """A scheduler in this process and workers on this machine, which nobody else reaches."""
    own = _security()
    options = {
        "host": "127.0.0.1",
        "port": 0,
        "protocol": "tls://",
        "security": own,
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",
    }
    return distributed.SpecCluster(
        workers=nodes.nannies(nodes.roles(asked.count, device), {"security": own}),
        scheduler={"cls": distributed.Scheduler, "options": options},
        security=own,
        silence_logs=logging.ERROR,
    )


def _shared(stack: ExitStack) -> distributed.Security:
    """Certificates of one cluster in files that jobs find: in a home that all nodes have, for its owner alone."""
    home = Path.home() / ".r3bench"
    home.mkdir(mode=0o700, exist_ok=True)
    folder, own = Path(stack.enter_context(TemporaryDirectory(dir=home))), _security()
    files = {}
    for part, text in (("ca", own.tls_ca_file), ("cert", own.tls_worker_cert), ("key", own.tls_worker_key)):
        files[part] = str(folder / f"{part}.pem")
        Path(files[part]).write_text(text)
    of_roles = {
        f"tls_{role}_{part}": files[part] for role in ("client", "scheduler", "worker") for part in ("cert", "key")
    }
    return distributed.Security(tls_ca_file=files["ca"], require_encryption=True, **of_roles)


def _queued(asked: addresses.Start, security: distributed.Security) -> Any:
    """A scheduler in this process, and jobs of a queue that each run ``r3bench worker`` on a node.

    Settings of the jobs come from the command line, from Dask's own configuration (``jobqueue.slurm`` and so on), or
    from here.
    """
    try:
        queues = import_module("dask_jobqueue")
    except ImportError as error:
        raise ServiceError("jobs need the package dask-jobqueue: pip install 'r3bench[cluster]'") from error
    usual: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)),
        "memory": "16GB",
        "python": sys.executable,
        "job_extra_directives": _AGAIN[asked.kind],
    }
    unset = {name: value for name, value in usual.items() if not _configured(asked.kind, name)}
    given = {name: int(value) if value.isdigit() else value for name, value in asked.settings}
    cluster = getattr(queues, _CLASSES[asked.kind])(
        **(unset | given),
        processes=1,
        worker_command="r3bench worker",
        security=security,
        scheduler_options=_DASHBOARD,
        silence_logs=logging.ERROR,
    )
    cluster.scale(jobs=asked.count)
    return cluster


def _configured(kind: str, name: str) -> object:
    return dask.config.get(f"jobqueue.{kind}.{name.replace('_', '-')}", None)
