"""A worker of the CUDA device without a GPU, which is killed at one point of its talk, named by R3BENCH_ENDS_AT.

It echoes what it is asked. The file that R3BENCH_ENDED names says that one has been killed: the next ones live.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from r3bench.devices.cuda import wire


def reached(point: str) -> bool:
    """Whether this is the point, for the first time."""
    ended = Path(os.environ["R3BENCH_ENDED"])
    if os.environ["R3BENCH_ENDS_AT"] != point or ended.exists():
        return False
    ended.touch()
    return True


def end() -> None:
    number = int(os.environ.get("R3BENCH_ENDS_BY", signal.SIGKILL))
    if number != signal.SIGKILL:  # which nobody ignores; under nohup SIGHUP is
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def send(channel: socket.socket, message: dict[str, object], point: str) -> None:
    """Send a message, or only half of it."""
    if reached(point):
        body = json.dumps(message).encode()
        channel.sendall(len(body).to_bytes(4, "little") + body[: len(body) // 2])
        end()
    wire.send(channel, message)


def main(channel: socket.socket) -> None:
    if reached("starting"):
        end()
    send(channel, {"name": "GPU"}, "greeting")
    inbox = wire.Inbox(channel)
    while True:
        message, _ = inbox.receive()
        if reached("asked"):
            end()
        if reached("slowly"):  # as one does that has a GPU's memory to give back
            channel.close()
            time.sleep(1.5)
            end()
        if message["op"] in ("end", "lose"):
            inbox.receive()  # another request is under way
            if message["op"] == "end":
                sys.exit("out of order")
            wire.send(
                channel, {"answer": {"error": "UNKNOWN", "code": 700, "call": "it", "lost": True}, "seconds": 0.0}
            )
            return
        send(channel, {"junk": 1} if message["op"] == "junk" else {"answer": message, "seconds": 0.0}, "answering")
        if reached("idle"):
            end()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
