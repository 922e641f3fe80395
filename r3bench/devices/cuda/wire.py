"""What travels between a CUDA device and its worker: JSON with its length in front, bulk data in shared files.

The device takes from a worker's answer only numbers and short texts; nothing is unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
_LARGEST = 1 << 26
_AT_ONCE = 1 << 16

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


def send(channel: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    body = json.dumps(message, separators=(",", ":")).encode()
    data = _LENGTH.pack(len(body)) + body
    # Each call lets another thread of a busy process go first: there is one for most messages.
    sent = socket.send_fds(channel, [data], list(fds)) if fds else 0
    if sent < len(data):
        channel.sendall(memoryview(data)[sent:])


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and the files that came with it; only when it is answered another one may be sent.

    EOFError when the other side is gone, ValueError for junk.
    """
    data, fds, _, _ = socket.recv_fds(channel, _AT_ONCE, 1)
    if not data:
        raise EOFError("the other side closed the channel")
    data += _exactly(channel, _LENGTH.size - len(data))
    (length,) = _LENGTH.unpack_from(data)
    if length > _LARGEST:
        raise ValueError("a message of impossible size")
    data += _exactly(channel, _LENGTH.size + length - len(data))
    message = json.loads(data[_LENGTH.size :])
    if not isinstance(message, dict):
        raise ValueError("a message that is not an object")
    return message, fds


def _exactly(channel: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = channel.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError("the other side closed the channel")
        data += part
    return bytes(data)
