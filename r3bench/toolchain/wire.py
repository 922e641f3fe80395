"""Messages between the compiler and its workers: a JSON header and bytes, with both lengths in front.

Requests travel pickled in the bytes, from the parent to a worker. Answers are plain data and are never unpickled: a
worker runs compilers on text that nobody has read.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_LENGTHS = struct.Struct("<II")
_LARGEST = 1 << 28


def send(channel: socket.socket, header: dict[str, Any], blob: bytes = b"") -> None:
    head = json.dumps(header).encode()
    channel.sendall(_LENGTHS.pack(len(head), len(blob)) + head + blob)


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next message. EOFError when the other side is gone, ValueError when what it sent is no message."""
    head_length, blob_length = _LENGTHS.unpack(_exactly(channel, _LENGTHS.size))
    if head_length > _LARGEST or blob_length > _LARGEST:
        raise ValueError("a compile worker sent a message of impossible size")
    header = json.loads(_exactly(channel, head_length))
    if not isinstance(header, dict):
        raise ValueError("a compile worker sent a message without a header")
    return header, _exactly(channel, blob_length)


def _exactly(channel: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = channel.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError("the other side closed the channel")
        data += part
    return bytes(data)
