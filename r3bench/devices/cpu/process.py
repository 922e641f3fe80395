"""The device's end of its processes: the fork server of this process, and one worker."""

from __future__ import annotations

import atexit
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from r3bench.devices.cpu.wire import DISMISS, FORK, HELLO, REAP, RESULT, SERVER_ANSWER, SERVER_REQUEST, Result
from r3bench.errors import DeviceUnavailable, R3Error, WorkerLost

_START_TIMEOUT_S = 60.0
_FORK_TIMEOUT_S = 20.0
# A kernel can read all of its own process: nothing of the user's environment but what finding packages takes.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")


class WorkerDied(Exception):
    """A worker ended before it answered; ``exit_code`` is negative for a signal, None if nobody could tell."""

    def __init__(self, exit_code: int | None, nonsense: bool = False) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
        # Its seal lets a kernel end its process by other signals only; one that answers nonsense is killed for it.
        self.from_outside = exit_code in (None, -signal.SIGKILL) and not nonsense


class ForkServer:
    """Forks workers; may be shared by devices on several threads."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._errors = os.memfd_create("r3bench-errors", os.MFD_CLOEXEC)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", "-m", "r3bench.devices.cpu.forkserver", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
                process_group=0,
            )
        self.processor = self._greeting()

    def _greeting(self) -> str:
        self._channel.settimeout(_START_TIMEOUT_S)
        try:
            record = self._channel.recv(HELLO.size)
        except OSError:
            record = b""
        except BaseException:
            self.close()
            raise
        if len(record) != HELLO.size:
            raise self._failed()
        (name,) = HELLO.unpack(record)
        return str(name.rstrip(b"\0").decode())

    def fork(self, fds: Sequence[int], threads: int) -> int:
        """The process id of a new worker that has these descriptors; OSError if the server is gone."""
        return self._ask(FORK, threads, fds)

    def reap(self, pid: int) -> int | None:
        """End a worker for good; its exit code, or None if the server is gone, and the worker with it."""
        try:
            return self._ask(REAP, pid)
        except OSError:
            return None

    def dismiss(self, pid: int) -> None:
        """Kill a worker of which nobody wants to know how it ended, without waiting for that."""
        with suppress(OSError):
            self._ask(DISMISS, pid)

    def close(self) -> None:
        """End the server and every worker."""
        self._channel.close()
        self._process.kill()
        self._process.wait()
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1

    def _ask(self, request: int, number: int, fds: Sequence[int] = ()) -> int:
        with self._lock:
            try:
                self._channel.settimeout(_FORK_TIMEOUT_S)
                socket.send_fds(self._channel, [SERVER_REQUEST.pack(request, number)], list(fds))
                answer = self._channel.recv(SERVER_ANSWER.size)
            except BaseException:  # the answer would be taken for that of the next request
                self.close()
                raise
        if not answer:
            raise ConnectionResetError("the fork server has ended")
        (value,) = SERVER_ANSWER.unpack(answer)
        return int(value)

    def _failed(self) -> R3Error:
        what = "the CPU device's fork server did not start"
        with suppress(subprocess.TimeoutExpired):
            if self._process.wait(1.0) == -signal.SIGKILL:
                self.close()
                return WorkerLost(f"{what}: it was killed")
        said = os.pread(self._errors, 1 << 16, 0).decode("utf-8", "replace").strip().splitlines()
        self.close()
        reason = said[-1].strip() if said else f"it ended with exit code {self._process.returncode} or was too slow"
        return DeviceUnavailable(f"{what}: {reason}; r3bench doctor says what is missing.")


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    spec = importlib.util.find_spec("r3bench")
    assert spec is not None
    assert spec.origin is not None
    here = str(Path(spec.origin).parent.parent)
    # One thread for NumPy's BLAS: a process with threads must not fork.
    return kept | {"PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)]), "OPENBLAS_NUM_THREADS": "1"}


_server: ForkServer | None = None
_server_lock = threading.Lock()


def shared_server(*, instead_of: ForkServer | None = None) -> ForkServer:
    """The fork server of this process, started if there is none or if the one there is has failed the caller."""
    global _server
    with _server_lock:
        if _server is not None and (_server is instead_of or _server.owner != os.getpid()):
            if _server.owner == os.getpid():
                _server.close()
            _server = None
        if _server is None:
            _server = ForkServer()
        return _server


@atexit.register
def _close_shared_server() -> None:
    if _server is not None and _server.owner == os.getpid():
        _server.close()


class Worker:
    """One worker process: requests go one at a time, and it is dead as soon as one of them fails."""

    def __init__(self, arena: int, threads: int) -> None:
        self.kernels: set[int] = set()
        self.memories: set[int] = set()
        self.sealed = False
        self._closed = False
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fds = (arena, theirs.fileno())
            self._server = shared_server()
            try:
                self.pid = self._server.fork(fds, threads)
            except OSError:
                self._server = shared_server(instead_of=self._server)
                try:
                    self.pid = self._server.fork(fds, threads)
                except OSError as error:
                    raise WorkerLost("the CPU device's fork server was killed, and so was the next one") from error

    @property
    def processor(self) -> str:
        return self._server.processor

    def alive(self) -> bool:
        """Whether it still listens; an idle worker sends nothing, so anything to read is its end."""
        try:
            self._channel.settimeout(0)
            self._channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def ask(self, message: bytes, *, timeout_s: float, fds: Sequence[int] = ()) -> Result:
        """Send a request and wait for its answer: TimeoutError, or WorkerDied."""
        self._channel.settimeout(timeout_s)
        try:
            if fds:
                socket.send_fds(self._channel, [message], list(fds))
            else:
                self._channel.send(message)
            record = self._channel.recv(RESULT.size)
        except TimeoutError:
            raise
        except OSError:
            record = b""
        except BaseException:  # an interrupt: the answer would be taken for that of the next request
            self.close()
            raise
        if len(record) != RESULT.size:
            raise WorkerDied(self.close(), nonsense=bool(record))
        return Result.unpack(record)

    def dismiss(self) -> None:
        """Kill it, and do not wait for its end."""
        if not self._closed:
            self._closed = True
            self._channel.close()
            self._server.dismiss(self.pid)

    def close(self) -> int | None:
        """Kill it; its exit code if it had ended by itself, else that of the kill; None if nobody can tell."""
        if self._closed:
            return None
        self._closed = True
        self._channel.close()
        return self._server.reap(self.pid)


def ended_by(exit_code: int | None) -> str:
    """What ended a worker, for a person."""
    if exit_code is None:
        return "killed with its fork server"
    if exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"
