"""``r3bench worker``: give this node's devices and processors to a cluster."""

from __future__ import annotations

import argparse
import asyncio

from r3bench.errors import ServiceError


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "worker",
        help="give this node's devices to a cluster (pytest --r3-cluster)",
        description="Run a replay worker for each GPU of this node (or one, on its processors) and a compile worker.",
    )
    parser.add_argument("address", help="the scheduler's: tls://host:port, or tcp://127.0.0.1:port")
    parser.add_argument("--replays", type=int, help="replay workers (default: one for each visible GPU, or one)")
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"), help="cpu: leave GPUs alone")
    parser.add_argument("--name", default="", help="what the names of its workers begin with")
    for kind in ("ca-file", "cert", "key"):
        parser.add_argument(f"--tls-{kind}", help="for tls:// (default: as Dask's configuration says)")
    parser.add_argument("--interface", help="network interface to use (default: the one that leads to the scheduler)")
    parser.add_argument("--local-directory", help="folder for what its workers write (default: the system's)")
    for given in ("nthreads", "memory-limit", "death-timeout", "protocol"):
        parser.add_argument(f"--{given}", help=argparse.SUPPRESS)  # what job queues say to any worker of Dask's
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Work until the scheduler is gone or a signal ends it."""
    try:
        import distributed

        from r3bench.cluster import addresses, nodes
    except ImportError as error:
        raise ServiceError(f"a cluster needs {error.name}: pip install 'r3bench[cluster]'") from error

    address = addresses.scheduler(arguments.address)
    own = {"ca": arguments.tls_ca_file, "cert": arguments.tls_cert, "key": arguments.tls_key}
    files = {"tls_ca_file": own["ca"], "tls_worker_cert": own["cert"], "tls_worker_key": own["key"]}
    security = distributed.Security(require_encryption=True, **files) if all(own.values()) else None
    roles = nodes.roles(arguments.replays, arguments.device)
    places = {"interface": arguments.interface, "local_directory": arguments.local_directory}
    asyncio.run(nodes.serve(address, roles, arguments.name, {"security": security, **places}))
    return 0
