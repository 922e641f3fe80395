"""The device's end of its worker process."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, RLock
from time import perf_counter
from typing import Any, NamedTuple

from r3bench.devices.cuda import survey, wire
from r3bench.devices.cuda.outcome import failure
from r3bench.devices.cuda.placement import Range
from r3bench.errors import DeviceUnavailable, WorkerLost

_PROGRAM = "r3bench.devices.cuda.worker"
_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 60.0
_SEND_TIMEOUT_S = 60
# For requests that run no kernel of a candidate; moving a gigabyte takes a second at most.
_SETUP_TIMEOUT_S = 60.0


# What somebody else ends a process with, and no fault of its own.
ENDED_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

# Workers of this process that are on a GPU: to themselves and to each other they are nobody else.
OURS: set[int] = set()


class Request(NamedTuple):
    """What a worker is asked for, ``what`` it is then at, how long the answer may take, and the files that go along:
    with the first of some requests only."""

    message: dict[str, Any]
    what: str
    timeout_s: float | None = None
    fds: Sequence[int] = ()


Reply = dict[str, Any]
"""An ``answer``, the ``seconds`` that the worker was at work for it, how long it ``took`` and ``waited`` before."""


class WorkerDied(Exception):
    """The worker ended before it answered; the text says how, ``from_outside`` whether it was killed."""

    def __init__(self, how: str, *, from_outside: bool = False) -> None:
        super().__init__(how)
        self.from_outside = from_outside


def _behind() -> WorkerDied:
    return WorkerDied("it ended at what was asked of it before", from_outside=True)


class Worker:
    """One worker process: it does one request after the other, and is gone as soon as one of them fails.

    Several threads may ask at once; each is answered in its turn. What it has been given is noted here by number:
    contents, copies, kernels, rules. The addresses in ``kept``, as far as they are free, are reserved for units before
    anything else lies there. DeviceUnavailable if it does not start.
    """

    def __init__(self, index: int, kept: Sequence[Range] = ()) -> None:
        self.contents: set[int] = set()
        self.copies: set[int] = set()
        self.kernels: set[int] = set()
        self.rules: set[int] = set()
        self._errors = os.memfd_create("r3bench-errors", os.MFD_CLOEXEC)
        self._channel, theirs = socket.socketpair()
        self._inbox = wire.Inbox(self._channel)
        limit = struct.pack("@ll", _SEND_TIMEOUT_S, 0)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._limit_s = 0.0
        self._asking, self._turns, self._ending = Lock(), Lock(), RLock()
        self._gates: deque[Lock] = deque()  # of those whose turn comes, in order
        self._asked = self._answered = 0
        self._failed = False
        with theirs:
            numbers = (theirs.fileno(), index, *(edge for each in kept for edge in (each.start, each.end)))
            command = [sys.executable, "-P", "-m", _PROGRAM, *map(str, numbers)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(theirs.fileno(),),
                env=_environment() | survey.environment(index),
                process_group=0,
            )
        OURS.add(self._process.pid)
        self.hello = self._greeting()

    def _greeting(self) -> dict[str, Any]:
        """Its first message: a kernel of ours has run, so the GPU is free and works."""
        try:
            hello = self._answer(_START_TIMEOUT_S)
        except (TimeoutError, WorkerDied) as error:
            self.close()
            if isinstance(error, WorkerDied) and error.from_outside:
                raise WorkerLost(f"the CUDA device's worker did not start: {error}") from None
            said = str(error) if isinstance(error, WorkerDied) else f"it said nothing for {_START_TIMEOUT_S:g} s"
            raise DeviceUnavailable(f"the CUDA device's worker did not start: {said}; see nvidia-smi.") from None
        if "error" in hello:
            self.close()
            code, name, call = int(hello["code"]), str(hello["error"]), str(hello["call"])
            failed = failure("starting", code, name, call, lost=True)
            raise failed if isinstance(failed, DeviceUnavailable) else DeviceUnavailable(f"{failed}; see nvidia-smi.")
        return hello

    def alive(self) -> bool:
        """Whether it still listens; an idle worker sends nothing, so anything to read is its end."""
        with self._asking:
            if self._failed or self.waits:
                return not self._failed  # who waits for an answer learns of its end
            try:
                self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except OSError:
                return False
            return False

    @property
    def waits(self) -> bool:
        """Whether somebody waits for an answer."""
        return self._asked != self._answered

    def ask(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        """Send requests together, and wait for their answers: nothing that other threads ask comes between them.

        TimeoutError or WorkerDied stands for an answer that did not come, and ends them, as does the answer that the
        worker's context is ``lost``. The time of the first begins with its turn; where what another thread asked
        before ends the worker, it died from outside.
        """
        replies: list[Reply | Exception] = []
        try:
            with self._asking:
                self._send([request.message for request in requests], requests[0].fds)
                gate = self._gate()
            waited = self._wait(gate) if gate else 0.0
            with self._turn():
                for request in requests:
                    begin = perf_counter()
                    reply = self._answer(request.timeout_s or _SETUP_TIMEOUT_S)
                    if not isinstance(reply.get("answer"), dict) or not isinstance(reply.get("seconds"), float):
                        self.close()
                        raise WorkerDied("it sent an answer that is none")
                    replies.append({**reply, "took": perf_counter() - begin, "waited": 0.0 if replies else waited})
                    if reply["answer"].get("lost"):
                        self._failed = True
                        break
        except (TimeoutError, WorkerDied) as error:
            replies.append(error)
        return replies

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Whose turn it is takes its answers; then the next one's comes, or that of all where there are none."""
        try:
            yield
        except BaseException:
            self._failed = True
            raise
        finally:
            with self._turns:
                self._answered += 1
                for _ in range(len(self._gates) if self._failed else min(1, len(self._gates))):
                    self._gates.popleft().release()

    def _gate(self) -> Lock | None:
        """What the request before opens; None where there is none, and this one is next."""
        with self._turns:
            if self._failed:
                raise _behind()
            gate = Lock() if self.waits else None
            if gate is not None:
                gate.acquire()
                self._gates.append(gate)
            self._asked += 1
            return gate

    def _wait(self, gate: Lock) -> float:
        """Wait for what was asked before: for so many seconds."""
        begin = perf_counter()
        try:
            gate.acquire()
        except BaseException:  # an interrupt: nobody would take the answer
            self.close()
            raise
        if self._failed:
            raise _behind()
        return perf_counter() - begin

    def _send(self, messages: Sequence[dict[str, Any]], fds: Sequence[int]) -> None:
        try:
            wire.send(self._channel, *messages, fds=fds)
        except BlockingIOError:
            raise TimeoutError from None
        except OSError:
            raise _behind() if self.waits else self._end() from None
        except BaseException:  # an interrupt: half a request may have been sent
            self.close()
            raise

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        try:
            self._limit(timeout_s)
            return self._inbox.receive()[0]
        except BlockingIOError:
            raise TimeoutError from None
        except (OSError, EOFError):
            raise self._end() from None
        except ValueError as nonsense:
            self.close()
            raise WorkerDied(f"it sent {nonsense}") from None
        except BaseException:  # an interrupt: the answer would be taken for that of the next request
            self.close()
            raise

    def _limit(self, timeout_s: float) -> None:
        """How long the channel waits for an answer. Python's own time limit would wait twice for each message, and let
        other threads of a busy process go first each time."""
        if timeout_s != self._limit_s:
            limit = struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6) + 1)
            self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._limit_s = timeout_s

    def _end(self) -> WorkerDied:
        """Its end, with what it said last, or how it ended: giving back a GPU's memory may take a process seconds."""
        with self._ending:
            if self._errors < 0:
                return _behind()
            try:
                status = self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                status = 0
            said = os.pread(self._errors, 1 << 16, 0).decode("utf-8", "replace").strip().splitlines()
            self.close()
        if status < 0:
            how = f"it was killed by {signal.Signals(-status).name}"
            return WorkerDied(how, from_outside=-status in ENDED_FROM_OUTSIDE)
        return WorkerDied(said[-1].strip() if said else f"it ended with exit code {status}")

    def close(self) -> None:
        """Kill it and wait until it is gone, and with it all that it had on the GPU; idempotent."""
        self._process.kill()
        with self._ending:
            if self._errors < 0:
                return
            self._channel.close()
            os.close(self._errors)
            self._errors = -1
            try:
                self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                what = f"the worker (process {self._process.pid}) cannot be ended, so the GPU is not free"
                raise DeviceUnavailable(f"{what}; see nvidia-smi.") from None
            OURS.discard(self._process.pid)


def _environment() -> dict[str, str]:
    """The user's own, so that the driver sees its settings, and where this package is; modules are loaded whole."""
    spec = importlib.util.find_spec("r3bench")
    assert spec is not None
    assert spec.origin is not None
    here = str(Path(spec.origin).parent.parent)
    added = {"PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)]), "CUDA_MODULE_LOADING": "EAGER"}
    return {**os.environ, **added, "OPENBLAS_NUM_THREADS": "1"}
