"""What travels between a CPU device, its fork server and its workers: fixed records, one datagram each.

The device trusts nothing that a worker sends beyond these records. Requests that carry a description (of an object's
symbols, of a memory's pages) are JSON; they only ever travel towards the worker.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

# A worker maps the byte at offset x of the arena's file at ARENA + x, so that pointers into it survive the worker; the
# first page holds the fault record. The frames (scratch of a block) of every worker begin at FRAMES.
ARENA = 1 << 44
FRAMES = ARENA + (1 << 43)
ARENA_BYTES = 1 << 43
FRAMES_BYTES = 1 << 42


class Op(IntEnum):
    """The first byte of a request to a worker."""

    PING = 0
    LOAD = 1
    UNLOAD = 2
    MAP = 3
    UNMAP = 4
    RUN = 5
    EVICT = 6
    SEAL = 7
    GATHER = 8


class Reply(IntEnum):
    """How a request ended. The first five are what ``r3_run_block`` returned."""

    DONE = 0
    DEADLOCK = 1
    ASSERTION = 2
    TRAP = 3
    DIVERGED = 4
    REFUSED = 64
    NO_MEMORY = 65


_REPLIES = {int(reply): reply for reply in Reply}


class Poison(IntEnum):
    """When frames are filled with bytes that no kernel may count on before use."""

    NONE = 0
    LAUNCH = 1
    BLOCK = 2


ORDERS = ("forward", "reverse", "separate")
"""In which order the threads of a block run, by number: forward as fast as they can; from the last to the first; from
the first to the last, each as far as it gets before it must wait."""

# op, poison, kernel; grid, block, shared bytes, order, of how many blocks one runs. The ids of the memories follow, 4
# bytes each.
RUN = struct.Struct("<BBxxI9I")
# status, which memory (from 0), block index; text
RESULT = struct.Struct("<II3I160s")
# access (1 read, 2 write, 0 unknown), signal, address; at the start of the arena
FAULT = struct.Struct("<IIQ")
# the server's greeting: name of the host's processor, as the compiler calls it
HELLO = struct.Struct("<64s")
# fork (number of threads), reap or dismiss (process id), and the answers (process id; exit code, negative for a signal)
SERVER_REQUEST = struct.Struct("<Bi")
SERVER_ANSWER = struct.Struct("<i")
FORK, REAP, DISMISS = 0, 1, 2


class Result(NamedTuple):
    """A worker's answer."""

    status: Reply
    which: int = 0
    block: tuple[int, int, int] = (0, 0, 0)
    text: str = ""

    def pack(self) -> bytes:
        return RESULT.pack(self.status, self.which, *self.block, self.text.encode("utf-8", "replace")[:160])

    @classmethod
    def unpack(cls, record: bytes) -> Result:
        """The answer in a record; a status that no worker sends is a refusal."""
        status, which, x, y, z, text = RESULT.unpack(record)
        known = _REPLIES.get(status, Reply.REFUSED)
        return cls(known, which, (x, y, z), text.rstrip(b"\0").decode("utf-8", "replace"))
