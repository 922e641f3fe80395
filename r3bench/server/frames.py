"""Messages between a replay server and its clients: a length, then a map in msgpack, never more than a limit.

The first message of a client is a greeting with the protocol's version and, over TCP, a token; the answer says who
serves, or why not. Then the client sends requests with a number each (``{"id": 7, "do": "submit", ...}``), and the
server answers in any order: ``{"id": 7, "result": ...}`` or ``{"id": 7, "error": class, "message": text}``. All of it
is plain data, which :mod:`r3bench.nouns` reads by type.
"""

from __future__ import annotations

import struct
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from typing import Any

import msgpack

from r3bench import errors
from r3bench.errors import R3Error, ServiceError

VERSION = 1
MOST_BYTES = 1 << 26
GREETING_BYTES = 1 << 12
_LENGTH = struct.Struct("!I")

Message = dict[str, Any]


class BadMessage(Exception):
    """What came is no message of this protocol."""


async def send(writer: StreamWriter, message: Message) -> None:
    """Send one message, and wait while the other side takes nothing. ServiceError where it is too long."""
    body = msgpack.packb(message, unicode_errors="surrogateescape")
    if len(body) > MOST_BYTES:
        raise ServiceError(f"{len(body)} bytes are too many for one message to or from a replay server.")
    writer.write(_LENGTH.pack(len(body)) + body)
    await writer.drain()


async def receive(reader: StreamReader, most_bytes: int = MOST_BYTES) -> Message | None:
    """The next message, None at the end. BadMessage where it is none or too long."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > most_bytes:
            raise BadMessage(f"a message of {length} bytes, of which {most_bytes} may be sent")
        message = msgpack.unpackb(await reader.readexactly(length), unicode_errors="surrogateescape")
    except IncompleteReadError:
        return None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadMessage(f"no msgpack ({error or type(error).__name__})") from error
    if type(message) is not dict:
        raise BadMessage("no map")
    return message


def failed(error: BaseException) -> Message:
    """An error as part of a message: ours by name, others as the server's own failure."""
    if isinstance(error, R3Error):
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": ServiceError.__name__, "message": f"the replay server failed: {type(error).__name__}: {error}"}


def error_of(message: Message) -> R3Error:
    """The error that a message holds."""
    kind = getattr(errors, str(message["error"]), None)
    text = str(message.get("message", ""))
    return kind(text) if isinstance(kind, type) and issubclass(kind, R3Error) else ServiceError(text)
