"""The image an application would run: a module compiled by NVIDIA's own compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from r3bench.errors import RecordError

_TIMEOUT_S = 300.0


def find_nvcc() -> Path | None:
    """nvcc of a CUDA toolkit (CUDA_HOME, CUDA_PATH), on PATH, or below /usr/local/cuda."""
    return next((path for path in _places() if path.is_file()), None)


def _places() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin/nvcc"
    if on_path := shutil.which("nvcc"):
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/nvcc")


def nvcc_cubin(texts: Mapping[str, str], main: str, flags: Sequence[str], arch: str) -> bytes:
    """The machine code that nvcc makes of a source file; RecordError where it is not here or refuses."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise RecordError("nvcc is not here, so its image cannot be recorded: install a CUDA toolkit or set CUDA_HOME")
    with tempfile.TemporaryDirectory(prefix="r3bench-nvcc-") as folder:
        for path, text in texts.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        command = [str(nvcc), "-cubin", f"-arch={arch}", *flags, main, "-o", "module.cubin"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise RecordError(f"nvcc did not compile {main} within {_TIMEOUT_S:g} s") from None
        if done.returncode:
            said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if "error" in line]
            raise RecordError(f"nvcc refused {main}: {said[0] if said else 'it gave no reason'}")
        return Path(folder, "module.cubin").read_bytes()
