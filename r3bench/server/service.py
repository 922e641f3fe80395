"""``r3bench serve``: a replay server for other processes.

A Unix socket is its owner's alone, by its mode and by whom the kernel says is at the other end; TCP takes a token. One
connection has at most so many requests under way: what comes beyond them is not read, so that the client's socket
fills and it waits. A client that goes away takes its requests with it; one that comes back asks again.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import os
import socket
import ssl
import stat
import struct
import sys
from asyncio import Semaphore, StreamReader, StreamWriter, Task
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from r3bench.errors import R3Error, ServiceError
from r3bench.nouns import decode, exactly, whole
from r3bench.server.addresses import Address
from r3bench.server.frames import GREETING_BYTES, VERSION, BadMessage, Message, failed, receive, send
from r3bench.server.requests import REQUESTS, Server, identity_of
from r3bench.server.spool import Spool

_GREETING_S = 30.0
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group


class Service:
    """Serves one replay server at an address until :meth:`stop`; ``under_way`` bounds each client's requests, by
    default to 64 or what keeps the server busy."""

    def __init__(self, server: Server, spool: Spool, address: Address, token: str = "", under_way: int = 0) -> None:
        self._server, self._spool, self._address, self._token = server, spool, address, token
        self._under_way = under_way or max(64, server.at_once)
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="r3bench-serve")  # what may wait for a disk
        self._clients: set[Task[None]] = set()
        self._stopping = asyncio.Event()
        self._identity = identity_of(server)

    async def run(self, ready: Callable[[Address], None], tls: ssl.SSLContext | None = None) -> None:
        """Listen until stopped; ``ready`` is told where, once clients may come."""
        listening = await self._listen(tls)
        try:
            ready(self._bound(listening))
            await self._stopping.wait()
        finally:
            listening.close()
            if self._address.scheme == "unix":
                Path(self._address.path).unlink(missing_ok=True)
            for client in self._clients:
                client.cancel()
            if self._clients:
                await asyncio.wait(self._clients)

    def stop(self) -> None:
        self._stopping.set()

    # -- listening ------------------------------------------------------------------------------------------------

    async def _listen(self, tls: ssl.SSLContext | None) -> asyncio.Server:
        if self._address.scheme == "unix":
            return await asyncio.start_unix_server(self._accept, sock=unix_socket(Path(self._address.path)))
        try:
            return await asyncio.start_server(self._accept, self._address.host, self._address.port, ssl=tls)
        except OSError as error:
            raise ServiceError(f"nothing can listen at {self._address} ({error.strerror}): name another.") from error

    def _bound(self, listening: asyncio.Server) -> Address:
        """The address with the port that was given where 0 was asked for."""
        if self._address.scheme == "unix":
            return self._address
        return Address(self._address.scheme, host=self._address.host, port=listening.sockets[0].getsockname()[1])

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        client = asyncio.current_task()
        assert client is not None
        self._clients.add(client)
        try:
            if await self._greeted(reader, writer):
                await self._attend(reader, writer)
        except (BadMessage, ConnectionError, ssl.SSLError, TimeoutError) as error:
            print(f"r3bench serve: a client was dropped: {error or type(error).__name__}", file=sys.stderr)
        except asyncio.CancelledError:
            pass  # the service stops
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError, TimeoutError, asyncio.CancelledError):
                await writer.wait_closed()
            self._clients.discard(client)

    async def _greeted(self, reader: StreamReader, writer: StreamWriter) -> bool:
        async with asyncio.timeout(_GREETING_S):
            greeting = await receive(reader, GREETING_BYTES)
        if greeting is None:
            return False
        refusal = self._refusal(greeting, writer)
        if refusal:
            await send(writer, {"r3bench": VERSION, **failed(ServiceError(refusal))})
            return False
        await send(writer, {"r3bench": VERSION, "identity": whole(self._identity), "under_way": self._under_way})
        return True

    def _refusal(self, greeting: Message, writer: StreamWriter) -> str:
        """Why a client is not served; empty where it is."""
        if greeting.get("r3bench") != VERSION:
            theirs = greeting.get("r3bench")
            return f"the server speaks version {VERSION} of the protocol, the client {theirs}: use the same r3bench."
        if self._address.scheme == "unix":
            found = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            return "" if _CREDENTIALS.unpack(found)[1] == os.getuid() else "the server is another user's."
        shown = str(greeting.get("token", "")).encode(errors="surrogateescape")
        return "" if hmac.compare_digest(shown, self._token.encode()) else "the token is not the server's."

    # -- one client's requests ------------------------------------------------------------------------------------

    async def _attend(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer requests until the client goes; then what it asked for is given up."""
        room, tasks, turn = Semaphore(self._under_way), set[Task[None]](), asyncio.Lock()
        try:
            while True:
                await room.acquire()
                message = await receive(reader)
                if message is None:
                    return
                task = asyncio.create_task(self._answer(message, writer, turn))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: room.release())
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _answer(self, message: Message, writer: StreamWriter, turn: asyncio.Lock) -> None:
        number, answer = message.get("id"), await self._answered(message)
        async with turn:
            with suppress(ConnectionError):  # it has gone; reading says so, too
                try:
                    await send(writer, {"id": number, **answer})
                except ServiceError as error:
                    await send(writer, {"id": number, **failed(error)})

    async def _answered(self, message: Message) -> Message:
        try:
            asked = self._started(message)
        except (KeyError, TypeError, ValueError) as error:
            return failed(ServiceError(f"the request cannot be understood ({error}): use the same r3bench."))
        except R3Error as error:
            return failed(error)
        done = asyncio.wrap_future(asked)
        try:
            await asyncio.wait([done])
        finally:
            done.cancel()  # where the client went away
        broken = CancelledError("it was given up") if done.cancelled() else done.exception()
        return {"result": whole(done.result())} if broken is None else failed(broken)

    def _started(self, message: Message) -> Future[Any]:
        """Begin what a message asks for. KeyError, TypeError or ValueError where it asks for nothing we know."""
        verb = exactly(str, message["do"])
        if verb in REQUESTS:
            request = decode(REQUESTS[verb], message["request"])
            return request.ask(self._server, self._spool.capture(request.capture))
        if verb == "conditions":
            return self._calls.submit(self._server.conditions)
        identity = exactly(str, message["capture"])
        if verb == "know":
            # A path means something on this machine only, and may be named only by its owner.
            path = exactly(str, message["path"]) if self._address.scheme == "unix" else ""
            return self._calls.submit(self._spool.know, identity, path)
        if verb == "put":
            place = exactly(str, message["name"]), exactly(int, message["at"])
            return self._calls.submit(self._spool.put, identity, *place, exactly(bytes, message["part"]))
        if verb == "keep":
            return self._calls.submit(self._spool.keep, identity)
        raise ValueError(f"there is no {verb!r}")


def unix_socket(path: Path) -> socket.socket:
    """A new socket at a path that only its owner can open. ServiceError where another server listens there."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_deserted(path)
        mask = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(mask)
    except OSError as error:
        listening.close()
        raise ServiceError(f"nothing can listen at {path} ({error.strerror or error}): name another.") from error
    return listening


def _remove_deserted(path: Path) -> None:
    """Remove a socket that a server left behind which was killed. OSError where one listens, or it is no socket."""
    with socket.socket(socket.AF_UNIX) as there:
        try:
            there.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise
            path.unlink()
            return
    raise FileExistsError(errno.EADDRINUSE, "a replay server listens there")
