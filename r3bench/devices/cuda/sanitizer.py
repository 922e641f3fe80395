"""One launch under compute-sanitizer, in a process of its own: see watched.py.

There every buffer is an allocation of its own and of exactly its size, with padding around it: memcheck knows the
program's allocations, not what lies within them. racecheck sees shared memory only; races in global memory show in
repeated runs, if at all.
"""

from __future__ import annotations

from pathlib import Path

from r3bench.devices.cuda import watched
from r3bench.devices.cuda.memory import CudaMemory
from r3bench.errors import DeviceFault, LaunchError, ReplayTimeout
from r3bench.model import Binary, LaunchConfig

TOOLS = ("memcheck", "racecheck", "synccheck")
_FOUND = 86  # what the sanitizer ends with
_PADDING = 256
_START_TIMEOUT_S = 30.0


def find() -> Path | None:
    """compute-sanitizer of NVIDIA's wheel, or as :func:`r3bench.devices.cuda.watched.find` finds it."""
    return watched.find("compute-sanitizer", "*/compute-sanitizer/compute-sanitizer")


def tools(index: int) -> tuple[str, ...]:
    """The tools, if they run on this GPU: some systems let no program watch another's use of it."""
    path = find()
    if path is None:
        return ()
    try:
        status, _ = watched.nothing(_command(path, TOOLS[0]), index, _START_TIMEOUT_S)
    except ReplayTimeout:
        return ()
    return () if status else TOOLS


def run(tool: str, index: int, binary: Binary, memory: CudaMemory, launch: LaunchConfig, timeout_s: float) -> None:
    """Launch a kernel once under a tool; DeviceFault says what it found, LaunchError why it could not be run."""
    path, symbol = find(), binary.symbol
    if path is None:
        raise LaunchError("compute-sanitizer is not here any more; install r3bench[cuda]")
    status, said = watched.launched(_command(path, tool), index, binary, memory, launch, timeout_s)
    if status in (watched.FAILED, _FOUND):
        raise DeviceFault(f"{symbol}: {_finding(said)}")
    if status:
        raise LaunchError(f"compute-sanitizer could not run {symbol} (status {status}): {_finding(said)}")


def _command(path: Path, tool: str) -> list[str]:
    padding = ("--padding", str(_PADDING)) if tool == "memcheck" else ()
    return [str(path), "--tool", tool, "--error-exitcode", str(_FOUND), "--report-api-errors", "no", *padding]


def _finding(said: str) -> str:
    """The first lines that the sanitizer prints after its own name; what there is where it printed none."""
    lines = [line.removeprefix("=========").strip() for line in said.splitlines() if line.startswith("=========")]
    found = [line for line in lines if line and line != "COMPUTE-SANITIZER"]
    return "; ".join(found[:3]) or (said.strip().splitlines() or ["it said nothing"])[-1]
