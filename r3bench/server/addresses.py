"""Where a replay server listens: ``unix:/path``, ``tcp://host:port`` or ``tls://host:port``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from r3bench.errors import ServiceError

TOKEN = "R3BENCH_TOKEN"
_LEAST_TOKEN = 16
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Address:
    """A place to listen at or to connect to; ``path`` for a Unix socket, host and port otherwise."""

    scheme: Literal["unix", "tcp", "tls"]
    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"unix:{self.path}" if self.scheme == "unix" else f"{self.scheme}://{host}:{self.port}"


def parse(url: str) -> Address:
    """ServiceError says what an address looks like; plain TCP stays on this machine."""
    if url.startswith("unix:") and url != "unix:":
        return Address("unix", path=os.path.abspath(url.removeprefix("unix:")))
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in ("tcp", "tls") or not host or port is None or parts.path or parts.query:
        raise ServiceError(f"{url!r} is no address: use unix:/path, tcp://127.0.0.1:PORT or tls://HOST:PORT.")
    if scheme == "tcp" and host not in _LOOPBACK:
        raise ServiceError(f"{url} would send a token in the clear: use tls://{host}:{port}.")
    return Address("tcp" if scheme == "tcp" else "tls", host=host, port=port)


def usual() -> str:
    """Where a user's server listens unless told otherwise: a socket in a folder of the user's own."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".cache" / "r3bench"
    return f"unix:{Path(folder) / 'r3bench.sock'}"


def token(environment: Mapping[str, str] = os.environ) -> str:
    """What clients over TCP show. ServiceError where the environment has none that could not be guessed."""
    found = environment.get(TOKEN, "")
    if len(found) < _LEAST_TOKEN:
        raise ServiceError(
            f"TCP needs a token of at least {_LEAST_TOKEN} characters in {TOKEN}, the same for server and clients: "
            f"export {TOKEN}=$(openssl rand -hex 16)"
        )
    return found
