"""What a crashed launch did wrong, for a person: the signal, and the buffer nearest to the address that faulted."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from r3bench.devices.contents import ARGUMENTS
from r3bench.devices.cpu.arena import PAGE, Segment, Span
from r3bench.devices.cpu.process import ended_by
from r3bench.devices.cpu.wire import FRAMES, FRAMES_BYTES, Reply, Result

# An address further from every buffer than this says nothing about any of them.
_FAR = 1 << 32
_ACCESS = {1: "read", 2: "wrote"}
_STOPPED = {
    Reply.DEADLOCK: "deadlocked: a barrier or a warp collective was not reached by every thread that it waits for",
    Reply.ASSERTION: "failed an assertion",
    Reply.TRAP: "trapped",
    Reply.DIVERGED: "has a divergent barrier: lanes of one warp wait at different calls of __syncthreads",
}


def stopped(kernel: str, result: Result) -> str:
    """The sentence for a block that gave up by itself."""
    how = _STOPPED.get(result.status, "had its worker send an answer that no launch has")
    return f"{kernel} {how}, in block {result.block}"


def crashed(kernel: str, exit_code: int | None, fault: tuple[int, int, int], segments: Iterable[Segment]) -> str:
    """The sentence for a worker that died while it ran a kernel."""
    access, number, address = fault
    if exit_code == -signal.SIGSYS:
        return f"{kernel} was ended by the seal of its worker: it made a system call that kernels have no use for"
    if exit_code is None or exit_code != -number:
        return f"{kernel} did not end: its worker was {ended_by(exit_code)}"
    name = signal.Signals(number).name
    if number == signal.SIGFPE:
        return f"{kernel} crashed ({name}): an integer division by zero or overflow"
    if number == signal.SIGILL:
        return f"{kernel} trapped ({name})"
    return f"{kernel} {_ACCESS.get(access, 'touched')} {place(address, segments)} ({name})"


def spoiled(kernel: str, address: int, segment: Segment) -> str:
    """The sentence for a kernel that wrote beside a buffer without reaching a guard page."""
    return f"{kernel} wrote {place(address, [segment])}"


def place(address: int, segments: Iterable[Segment]) -> str:
    """Where an address is, in terms of the launch's buffers."""
    if FRAMES <= address < FRAMES + FRAMES_BYTES:
        return "outside the block's shared memory and locals"
    if address < PAGE:
        return f"through a null pointer (address {address:#x})"
    distance, where = min(_distance(address - each.base, span) for each in segments for span in each.spans.values())
    return where if distance < _FAR else f"at address {address:#x}, far from every buffer"


def _distance(offset: int, span: Span) -> tuple[int, str]:
    name = f"buffer {span.name}" if span.name != ARGUMENTS else "the argument block"
    size = f"{name} ({span.nbytes} bytes)"
    if offset >= span.end:
        past = offset - span.end
        return past, f"{_bytes(past)} past the end of {size}"
    if offset < span.start:
        before = span.start - offset - 1
        return before, f"{_bytes(before)} before the start of {size}"
    return 0, f"byte {offset - span.start} of {size}"


def _bytes(count: int) -> str:
    return f"{count} bytes" if count else "just"
