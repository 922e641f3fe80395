"""One launch in a process of its own (alone.py), under a tool that watches it: compute-sanitizer, or Nsight Compute."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from r3bench.devices.cuda import survey
from r3bench.devices.cuda.memory import CudaMemory
from r3bench.errors import ReplayTimeout
from r3bench.files import scratch
from r3bench.model import Binary, LaunchConfig

FAILED = 85
"""What the process ends with where the launch failed."""
_PROCESS = "r3bench.devices.cuda.alone"


def find(name: str, wheel: str = "") -> Path | None:
    """A tool: of NVIDIA's wheel that ``wheel`` names, of a CUDA toolkit, on PATH, or below /usr/local/cuda."""
    return next((path for path in _places(name, wheel) if path.is_file()), None)


def _places(name: str, wheel: str) -> Iterator[Path]:
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    yield from sorted(packages.glob(wheel), reverse=True) if wheel else ()
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / name
    if on_path := shutil.which(name):
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin") / name


def nothing(tool: Sequence[str], index: int, timeout_s: float) -> tuple[int, str]:
    """Open a GPU under a tool, and launch nothing: exit status and output. ReplayTimeout if it does not end."""
    with scratch("r3bench-watched-") as folder:
        (Path(folder) / "job.json").write_text(json.dumps({"index": index}))
        return _ended(tool, folder, index, timeout_s, "nothing")


def launched(
    tool: Sequence[str], index: int, binary: Binary, memory: CudaMemory, launch: LaunchConfig, timeout_s: float
) -> tuple[int, str]:
    """Launch a kernel once on what was recorded: exit status and output. ReplayTimeout if it does not end."""
    with scratch("r3bench-watched-") as folder:
        _write(Path(folder), index, binary, memory, launch)
        return _ended(tool, folder, index, timeout_s, binary.symbol)


def _write(folder: Path, index: int, binary: Binary, memory: CudaMemory, launch: LaunchConfig) -> None:
    (folder / "image").write_bytes(binary.image)
    buffers = memory.recorded.buffers
    for number, buffer in enumerate(buffers):
        (folder / str(number)).write_bytes(memory.recorded.arrays[buffer.name].tobytes())
    held = memory.description()
    job = {
        "index": index,
        "symbol": binary.symbol,
        "options": binary.options,
        "launch": [getattr(launch, field.name) for field in fields(launch)],
        "buffers": [(buffer.name, buffer.nbytes, buffer.address is None) for buffer in buffers],
        "arguments": held["arguments"],
        "pointers": held["pointers"],
    }
    (folder / "job.json").write_text(json.dumps(job))


def _ended(tool: Sequence[str], folder: str, index: int, timeout_s: float, symbol: str) -> tuple[int, str]:
    """Exit status and output of a process that ends with all that it started."""
    command = [*tool, sys.executable, "-m", _PROCESS, folder]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | survey.environment(index),
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ReplayTimeout(f"{symbol} did not end within {timeout_s:g} s under {Path(tool[0]).name}") from None
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, said.decode("utf-8", "replace")
