"""``r3bench serve``: a replay server for other processes, until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from r3bench.cli.values import seconds
from r3bench.errors import ServiceError
from r3bench.files import folder_of_this_process

if TYPE_CHECKING:
    from r3bench.server.addresses import Address


_NO_CERTIFICATE = (
    "tls:// needs --cert, a certificate that clients trust (SSL_CERT_FILE names one to them), "
    "and the token that clients show, in R3BENCH_TOKEN."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "keep captures on a device and replay for other processes: pytest --r3-server URL"
    parser = commands.add_parser("serve", help=text, description=text)
    parser.add_argument(
        "address",
        nargs="?",
        metavar="URL",
        help="unix:/path (default: a socket of the user's own), tcp://127.0.0.1:PORT, or tls://HOST:PORT; port 0 takes "
        "any. TCP takes a token from R3BENCH_TOKEN",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, or cuda: all visible GPUs (default: auto)")
    parser.add_argument("--timeout", type=seconds, default=10.0, metavar="S", help="seconds after which a kernel hangs")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="tls: the server's certificate, with its chain (PEM)")
    parser.add_argument("--key", type=Path, metavar="FILE", help="tls: the certificate's key (PEM), where it is apart")
    parser.set_defaults(run=serve)


def serve(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    from r3bench.server import addresses

    address = addresses.parse(arguments.address or addresses.usual())
    if address.scheme == "tls" and arguments.cert is None:
        raise ServiceError(_NO_CERTIFICATE)
    token = "" if address.scheme == "unix" else addresses.token()
    tls = _tls(arguments) if address.scheme == "tls" else None
    signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(128 + number)
    )  # nothing stays if it is told to at once
    with folder_of_this_process("r3-spool-") as folder:
        asyncio.run(_serve(arguments, address, token, tls, folder))
    return 0


async def _serve(
    arguments: argparse.Namespace, address: Address, token: str, tls: ssl.SSLContext | None, folder: Path
) -> None:
    from r3bench.server.fleet import open_server
    from r3bench.server.service import Service
    from r3bench.server.spool import Spool

    with closing(open_server(arguments.device, arguments.timeout)) as server:
        service = Service(server, Spool(folder), address, token)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, service.stop)
        name = server.name
        await service.run(lambda bound: print(f"{name} at {bound}", flush=True), tls)


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(arguments.cert, arguments.key)
    except (OSError, ssl.SSLError) as error:
        raise ServiceError(f"{arguments.cert} cannot be used as a certificate ({error}); see --cert, --key.") from error
    return context
