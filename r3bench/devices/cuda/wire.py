"""What travels between a CUDA device and its worker: JSON behind its length, bulk data in shared files.

The device takes from a worker's answer only numbers and short texts; nothing is unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_HEAD = struct.Struct("<I")
_LENGTH_BITS = 28  # of a head; the others count the files that come with the message
_LARGEST = 1 << 26
_AT_ONCE = 1 << 16

PORTION = 32 << 20  # bytes of recorded contents that come with one request

# The numbers that service.cu has for types of elements.
TYPES = {
    "bool": 0,
    "uint8": 0,
    "uint16": 1,
    "uint32": 2,
    "uint64": 3,
    "int8": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "float16": 8,
    "bfloat16": 9,
    "float32": 10,
    "float64": 11,
}


def send(channel: socket.socket, *messages: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send some messages, and files with the first."""
    data = b"".join(_packed(message, 0 if number else len(fds)) for number, message in enumerate(messages))
    # Each call lets another thread of a busy process go first: there is one for most messages.
    sent = socket.send_fds(channel, [data], list(fds)) if fds else 0
    if sent < len(data):
        channel.sendall(memoryview(data)[sent:])


def _packed(message: dict[str, Any], files: int) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEAD.pack(len(body) | files << _LENGTH_BITS) + body


class Inbox:
    """What comes from the other side of a channel, message by message; several may be under way."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._data, self._fds = b"", list[int]()

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next message and the files that came with it: EOFError when the other side is gone, ValueError for
        junk."""
        (head,) = _HEAD.unpack(self._take(_HEAD.size))
        length, count = head & (1 << _LENGTH_BITS) - 1, head >> _LENGTH_BITS
        if length > _LARGEST:
            raise ValueError("a message of impossible size")
        message = json.loads(self._take(length))
        if not isinstance(message, dict):
            raise ValueError("a message that is not an object")
        fds, self._fds = self._fds[:count], self._fds[count:]
        return message, fds

    def _take(self, count: int) -> bytes:
        """The next bytes; what comes with them stays for the next message."""
        parts = [self._data]
        missing = count - len(self._data)
        while missing > 0:
            data, fds, _, _ = socket.recv_fds(self._channel, max(_AT_ONCE, min(missing, 1 << 20)), 1)
            if not data:
                raise EOFError("the other side closed the channel")
            self._fds += fds
            parts.append(data)
            missing -= len(data)
        whole = b"".join(parts)
        self._data = whole[count:]
        return whole[:count]
