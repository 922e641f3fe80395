"""Compile workers as seen by the parent: start, ask, kill and replace. Knows processes, not compilers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from r3bench.errors import BuildError, BuildTimeout, DeviceUnavailable, WorkerLost
from r3bench.space import Options
from r3bench.toolchain import wire

_BOOT = "import sys; sys.path[:] = sys.argv[2:]; from r3bench.toolchain.worker import main; main(int(sys.argv[1]))"
_START_S = 60.0
_END_S = 10.0
_KILLED = "it was ended by SIGKILL"


class Server:
    """The compile server process; it forks workers. Its first message says who it is (``hello``).

    Asked when it has ended, it raises WorkerLost: another takes over. One that stands still is ended.
    """

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_START_S)
        self._lock = threading.RLock()
        self._log = os.memfd_create("r3bench-compile-server")
        path = [entry or os.getcwd() for entry in sys.path]
        # A session of its own: ctrl-C in the terminal is the parent's to handle.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), *path],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        theirs.close()
        self._hello: dict[str, str] | None = None

    def hello(self) -> dict[str, str]:
        """Who it is; DeviceUnavailable where it cannot start."""
        with self._lock:
            if self._hello is None:
                self._hello = {key: str(value) for key, value in self._reply().items()}
            return self._hello

    def fork(self, options: Options, role: str, memory_bytes: int) -> Worker:
        """A fresh worker with these LLVM options, for jobs of this role alone."""
        ours, theirs = socket.socketpair()
        log = os.memfd_create("r3bench-compile-worker")
        try:
            with theirs:
                wanted = {"options": options, "role": role, "memory_bytes": memory_bytes}
                pid = int(self._ask(wanted, theirs.fileno(), log)["pid"])
        except (WorkerLost, DeviceUnavailable):
            ours.close()
            os.close(log)
            raise
        return Worker(self, pid, ours, log, (options, role))

    def alive(self) -> bool:
        return self._process.poll() is None

    def reap(self, pid: int) -> int:
        """The wait status of a worker that has ended or was killed, as it is when the server is gone."""
        with suppress(WorkerLost):
            return int(self._ask({"reap": pid})["status"])
        return signal.SIGKILL

    def _ask(self, request: dict[str, Any], *fds: int) -> dict[str, Any]:
        with self._lock:
            self.hello()
            with suppress(OSError):  # no reply comes then
                socket.send_fds(self._control, [json.dumps(request).encode()], fds)
            return self._reply()

    def _reply(self) -> dict[str, Any]:
        try:
            message = self._control.recv(1 << 16)
        except TimeoutError:
            self._process.kill()  # a reply that comes late would be taken for that to the next request
            message = b""
        except OSError:
            message = b""
        if message:
            reply: dict[str, Any] = json.loads(message)
            return reply
        killed = self._wait() == -signal.SIGKILL
        if self._hello or killed or self._control.fileno() < 0:
            raise WorkerLost("the compile server was ended")
        raise DeviceUnavailable(f"the compile server cannot start: {_last_line(self._log)}")

    def _wait(self) -> int:
        """Its exit code, once it has ended; it is made to where it does not by itself."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_S)
        self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        """End the server and, through it, every worker; who waits for a reply stops waiting. Idempotent."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._wait()
        with self._lock:
            if self._control.fileno() >= 0:
                self._control.close()
                os.close(self._log)


class Worker:
    """One worker process, for one ``kind``: LLVM options and role. Not shared between threads while it works.

    ``asked`` counts its jobs."""

    def __init__(self, server: Server, pid: int, channel: socket.socket, log: int, kind: tuple[Options, str]) -> None:
        self._server, self._pid, self._channel, self._log = server, pid, channel, log
        self.kind = kind
        self.asked = 0

    def alive(self) -> bool:
        """Whether it still listens; an idle worker says nothing, so anything to read is its end."""
        self._channel.settimeout(0)
        try:
            self._channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return self._server.alive()  # its workers end with it, and may not have yet
        except OSError:
            return False
        return False

    def ask(
        self,
        request: bytes,
        *,
        what: str,
        timeout_s: float,
        known: Callable[[str], bool] = lambda _: False,
    ) -> tuple[dict[str, Any], bytes]:
        """The worker's answer. With the worker gone: BuildError where it died or sent nonsense, BuildTimeout where it
        took too long, WorkerLost where somebody else killed or stopped it.

        ``known`` answers the worker's question whether code for an optimized module is at hand already.
        """
        self.asked += 1
        deadline = time.monotonic() + timeout_s
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)
        try:
            self._channel.settimeout(timeout_s)
            wire.send(self._channel, {}, request)
            header, blob = self._receive(deadline)
            while "known?" in header:
                wire.send(self._channel, {"known": known(str(header["known?"]))})
                header, blob = self._receive(deadline)
        except TimeoutError as error:
            stopped = self._stopped()
            self.end()
            if stopped:
                raise WorkerLost(f"{what} did not end: its compiler was stopped from outside") from error
            raise BuildTimeout(f"{what} took longer than {timeout_s:g} s and was stopped") from None
        except (EOFError, ConnectionError, ValueError) as error:
            words = self._last_words()
            if words == _KILLED:
                raise WorkerLost(f"{what} did not end: its compiler was killed") from error
            raise BuildError(f"{what} ended the compiler: {words}") from None
        return header, blob

    def _receive(self, deadline: float) -> tuple[dict[str, Any], bytes]:
        self._channel.settimeout(max(deadline - time.monotonic(), 0.001))
        return wire.receive(self._channel)

    def _stopped(self) -> bool:
        """Whether a signal has it stand still."""
        with suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
        return False

    def _last_words(self) -> str:
        text = _text(self._log)
        status = self.end()
        fatal = re.search(r"^LLVM ERROR.*|Assertion `.*' failed", text, re.MULTILINE)
        if fatal:
            return fatal[0]
        if os.WIFSIGNALED(status) and "Traceback" not in text:
            return f"it was ended by {signal.Signals(os.WTERMSIG(status)).name}"
        return _last(text) or "it exited without a word"

    def end(self) -> int:
        """Kill the worker with everything it started; its wait status."""
        self._channel.close()
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        status = self._server.reap(self._pid)
        os.close(self._log)
        return status


def _text(log: int) -> str:
    return os.pread(log, 1 << 20, 0).decode(errors="replace")


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _last_line(log: int) -> str:
    return _last(_text(log)) or "it said nothing"
