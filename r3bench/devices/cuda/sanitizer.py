"""One launch under compute-sanitizer, in a process of its own: see alone.py.

There every buffer is an allocation of its own and of exactly its size, with padding around it: memcheck knows the
program's allocations, not what lies within them. racecheck sees shared memory only; races in global memory show in
repeated runs, if at all.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from r3bench.devices.cuda.memory import CudaMemory
from r3bench.errors import DeviceFault, LaunchError, ReplayTimeout
from r3bench.model import LaunchConfig

TOOLS = ("memcheck", "racecheck", "synccheck")
# What the process ends with, or the sanitizer around it.
FAILED, _FOUND = 85, 86
_PROCESS = "r3bench.devices.cuda.alone"
_PADDING = 256
_START_TIMEOUT_S = 30.0


def find() -> Path | None:
    """compute-sanitizer of NVIDIA's wheel, of a CUDA toolkit, on PATH, or below /usr/local/cuda."""
    return next((path for path in _places() if path.is_file()), None)


def _places() -> Iterator[Path]:
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    yield from sorted(packages.glob("*/compute-sanitizer/compute-sanitizer"), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin/compute-sanitizer"
    if on_path := shutil.which("compute-sanitizer"):
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/compute-sanitizer")


def tools(index: int) -> tuple[str, ...]:
    """The tools, if they run on this GPU: some systems let no program watch another's use of it."""
    path = find()
    if path is None:
        return ()
    with tempfile.TemporaryDirectory(prefix="r3bench-sanitizer-") as folder:
        (Path(folder) / "job.json").write_text(json.dumps({"index": index}))
        try:
            status, _ = _ended(_command(path, TOOLS[0], folder), _START_TIMEOUT_S, "nothing")
        except ReplayTimeout:
            return ()
    return () if status else TOOLS


def run(
    tool: str, index: int, image: bytes, symbol: str, memory: CudaMemory, launch: LaunchConfig, timeout_s: float
) -> None:
    """Launch a kernel once under a tool; DeviceFault says what it found, LaunchError why it could not be run."""
    path = find()
    if path is None:
        raise LaunchError("compute-sanitizer is not here any more; install r3bench[cuda]")
    with tempfile.TemporaryDirectory(prefix="r3bench-sanitizer-") as folder:
        _write(Path(folder), index, image, symbol, memory, launch)
        status, said = _ended(_command(path, tool, folder), timeout_s, symbol)
    if status in (FAILED, _FOUND):
        raise DeviceFault(f"{symbol}: {_finding(said)}")
    if status:
        raise LaunchError(f"compute-sanitizer could not run {symbol} (status {status}): {_finding(said)}")


def _command(path: Path, tool: str, folder: str) -> list[str]:
    padding = ("--padding", str(_PADDING)) if tool == "memcheck" else ()
    how = ("--tool", tool, "--error-exitcode", str(_FOUND), "--report-api-errors", "no", *padding)
    return [str(path), *how, sys.executable, "-m", _PROCESS, folder]


def _write(folder: Path, index: int, image: bytes, symbol: str, memory: CudaMemory, launch: LaunchConfig) -> None:
    (folder / "image").write_bytes(image)
    buffers = memory.recorded.buffers
    for number, buffer in enumerate(buffers):
        (folder / str(number)).write_bytes(memory.recorded.arrays[buffer.name].tobytes())
    held = memory.description()
    job = {
        "index": index,
        "symbol": symbol,
        "launch": [getattr(launch, field.name) for field in fields(launch)],
        "buffers": [(buffer.name, buffer.nbytes, buffer.address is None) for buffer in buffers],
        "arguments": held["arguments"],
        "pointers": held["pointers"],
    }
    (folder / "job.json").write_text(json.dumps(job))


def _ended(command: list[str], timeout_s: float, symbol: str) -> tuple[int, str]:
    """Exit status and output of a process that ends with all that it started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ReplayTimeout(f"{symbol} did not end within {timeout_s:g} s under compute-sanitizer") from None
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, said.decode("utf-8", "replace")


def _finding(said: str) -> str:
    """The first lines that the sanitizer prints after its own name; what there is where it printed none."""
    lines = [line.removeprefix("=========").strip() for line in said.splitlines() if line.startswith("=========")]
    found = [line for line in lines if line and line != "COMPUTE-SANITIZER"]
    return "; ".join(found[:3]) or (said.strip().splitlines() or ["it said nothing"])[-1]
