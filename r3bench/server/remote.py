"""A replay server at an address, as if it were here: what is asked waits out a restart of it, and is asked again."""

from __future__ import annotations

import asyncio
import os
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain, count, repeat
from math import inf
from threading import Thread
from time import monotonic
from typing import Any, Self, TypeVar

from r3bench import store
from r3bench.errors import R3Error, ServiceError
from r3bench.model import Capture
from r3bench.nouns import decode, exactly, typed, whole
from r3bench.overrides import id_of
from r3bench.server.addresses import parse, token
from r3bench.server.frames import VERSION, BadMessage, Message, error_of, receive, send
from r3bench.server.requests import REQUESTS, Asking, Identity, Request
from r3bench.server.spool import parts

_GREETING_S = 30.0
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_VERBS = {kind: verb for verb, kind in REQUESTS.items()}
_LOST = (OSError, EOFError, BadMessage, TimeoutError)

T = TypeVar("T")


class _Connection:
    """One connection that was greeted: calls and their answers, and what the other side knows of our captures."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, greeting: Message) -> None:
        self.identity = decode(Identity, greeting["identity"])
        self._reader, self._writer = reader, writer
        self._room = asyncio.Semaphore(exactly(int, greeting["under_way"]))
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._sent: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.lost = False
        self._reading = asyncio.create_task(self._read())

    async def call(self, do: str, **what: Any) -> Any:
        """The result of one call. Raises the error of the other side, or EOFError when the connection ends."""
        async with self._room:
            number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
            self._waiting[number] = answer
            if self.lost:
                raise EOFError
            await send(self._writer, {"id": number, "do": do, **what})
            return await answer

    async def _read(self) -> None:
        """Take answers until the connection ends, and tell all who wait then."""
        with suppress(*_LOST, TypeError, KeyError):
            while (message := await receive(self._reader)) is not None:
                answer = self._waiting.pop(exactly(int, message["id"]), None)
                if answer is None or answer.done():
                    continue
                if "error" in message:
                    answer.set_exception(error_of(message))
                else:
                    answer.set_result(message.get("result"))
        self.lost = True
        self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(EOFError())

    async def close(self) -> None:
        self._writer.close()
        with suppress(*_LOST):
            await self._writer.wait_closed()

    async def ask(self, request: Request, capture: Capture) -> Any:
        """What a request gives, as plain data; its capture is sent before the first that needs it."""
        key = request.capture, capture.path
        if key not in self._sent:
            self._sent[key] = asyncio.create_task(self._send_capture(request.capture, capture))
        await asyncio.shield(self._sent[key])
        return await self.call(_VERBS[type(request)], request=whole(request))

    async def _send_capture(self, identity: str, capture: Capture) -> None:
        """Have the other side know a capture: where it lies, or by its files.

        It is checked here, for the other side may have a copy of it that is sound.
        """
        await asyncio.to_thread(store.verify, capture.path)
        if await self.call("know", capture=identity, path=os.path.abspath(capture.path)):
            return
        for name, at, part in parts(capture):
            await self.call("put", capture=identity, name=name, at=at, part=part)
        await self.call("keep", capture=identity)


class RemoteServer(Asking):
    """Replays on the server at a URL (``unix:/path``, ``tcp://host:port``, ``tls://host:port``); a context manager.

    Nothing is lost while the server is stopped and started again within ``patience_s``: what it has not answered is
    asked again. A future raises what the server's would, ServiceError where it stays away. The token for TCP is read
    from the environment. Used from any thread. ServiceError at once where the server does not answer or refuses.
    """

    def __init__(self, url: str, *, patience_s: float = 60.0) -> None:
        self._address, self._patience_s = parse(url), patience_s
        self._token = "" if self._address.scheme == "unix" else token()
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()
        self._failed = -inf, ""  # when nobody answered, and why
        self._unanswered: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="r3bench-remote", daemon=True)
        self._thread.start()
        try:
            self.identity = self._here(self._connected(patience_s=0.0)).identity
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def conditions(self) -> dict[str, str]:
        found = self._here(self._patiently(lambda connection: connection.call("conditions")))
        return {str(name): str(text) for name, text in exactly(dict, found).items()}

    def close(self) -> None:
        """Give up what was not answered; the server goes on. Idempotent."""
        if self._thread.is_alive():
            self._here(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # -- from call to future --------------------------------------------------------------------------------------

    def _id_of(self, capture: Capture) -> str:
        return id_of(capture)

    def _ask(self, request: Request, capture: Capture) -> Future[Any]:
        result: Future[Any] = Future()
        if self._loop.is_closed():
            raise RuntimeError("the replay server is closed")
        self._loop.call_soon_threadsafe(self._begin, request, capture, result)
        return result

    def _begin(self, request: Request, capture: Capture, result: Future[Any]) -> None:
        task = self._loop.create_task(self._carry(request, capture, result))
        self._unanswered.add(task)
        task.add_done_callback(self._unanswered.discard)

    async def _carry(self, request: Request, capture: Capture, result: Future[Any]) -> None:
        """Bring a request to its result."""
        try:
            answer = await self._patiently(lambda connection: connection.ask(request, capture))
            found = typed(request.result, answer)
        except asyncio.CancelledError:
            result.cancel()
        except R3Error as error:
            _settle(result, error=error)
        except (ValueError, TypeError, KeyError) as error:
            _settle(result, error=ServiceError(f"{self._address} answered what cannot be read ({error})."))
        else:
            _settle(result, found)

    # -- in the loop's thread -------------------------------------------------------------------------------------

    def _here(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _patiently(self, ask: Callable[[_Connection], Coroutine[Any, Any, Any]]) -> Any:
        """What is answered, on this connection or one after it."""
        while True:
            connection = await self._connected(self._patience_s)
            try:
                return await ask(connection)
            except _LOST:
                connection.lost = True

    async def _connected(self, patience_s: float) -> _Connection:
        """The connection there is, or a new one. ServiceError where none comes in time, or this client is refused."""
        deadline, pauses = monotonic() + patience_s, chain(_PAUSES_S, repeat(_PAUSES_S[-1]))
        async with self._connecting:
            while self._connection is None or self._connection.lost:
                tried, why = self._failed
                if tried >= deadline:  # by whoever waited before, too: all give up together
                    where = f"no replay server answers at {self._address} ({why})"
                    raise ServiceError(f"{where}: start it with r3bench serve.")
                try:
                    self._connection = await self._greet()
                except _LOST as error:
                    self._failed = monotonic(), str(error) or type(error).__name__
                    if self._failed[0] < deadline:
                        await asyncio.sleep(next(pauses))
            return self._connection

    async def _greet(self) -> _Connection:
        async with asyncio.timeout(_GREETING_S):
            reader, writer = await self._open()
            try:
                await send(writer, {"r3bench": VERSION, "token": self._token})
                return self._welcomed(reader, writer, await receive(reader))
            except BaseException:
                writer.close()
                raise

    def _welcomed(self, reader: StreamReader, writer: StreamWriter, greeting: Message | None) -> _Connection:
        if greeting is None:
            raise EOFError("it closed the connection")
        try:
            if "error" not in greeting:
                return _Connection(reader, writer, greeting)
            refusal = str(error_of(greeting))
        except (KeyError, TypeError, ValueError) as error:
            refusal = f"its greeting cannot be understood ({error})."
        raise ServiceError(f"{self._address} does not serve this client: {refusal}")

    async def _open(self) -> tuple[StreamReader, StreamWriter]:
        if self._address.scheme == "unix":
            return await asyncio.open_unix_connection(self._address.path)
        tls = ssl.create_default_context() if self._address.scheme == "tls" else None
        return await asyncio.open_connection(self._address.host, self._address.port, ssl=tls)

    async def _end(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        if self._connection is not None:
            await self._connection.close()


def _settle(result: Future[Any], found: Any = None, error: R3Error | None = None) -> None:
    """Give a result what it came to, unless its owner wants it no more."""
    if not result.set_running_or_notify_cancel():
        return
    if error is None:
        result.set_result(found)
    else:
        result.set_exception(error)
