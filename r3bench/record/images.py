"""The image an application would run: a module compiled by one of NVIDIA's own compilers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Literal

from r3bench.errors import RecordError

Maker = Literal["nvcc", "nvrtc"]
MAKERS: tuple[Maker, ...] = ("nvcc", "nvrtc")

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


def cubin(maker: Maker, texts: Mapping[str, str], main: str, flags: Sequence[str], arch: str) -> bytes:
    """The machine code that nvcc, or NVRTC (what frameworks compile with at run time), makes of a source file.

    RecordError where it is not here or refuses.
    """
    with _folder_of(texts) as folder:
        return (_nvcc if maker == "nvcc" else _nvrtc)(folder, main, flags, arch)


@contextmanager
def _folder_of(texts: Mapping[str, str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="r3bench-image-") as folder:
        for path, text in texts.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        yield Path(folder)


def _nvcc(folder: Path, main: str, flags: Sequence[str], arch: str) -> bytes:
    nvcc = find_nvcc()
    if nvcc is None:
        raise RecordError("nvcc is not here, so its image cannot be recorded: install a CUDA toolkit or set CUDA_HOME")
    command = [str(nvcc), "-cubin", f"-arch={arch}", *flags, main, "-o", "module.cubin"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise RecordError(f"nvcc did not compile {main} within {_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise _refused("nvcc", main, done.stderr + done.stdout)
    return Path(folder, "module.cubin").read_bytes()


def _nvrtc(folder: Path, main: str, flags: Sequence[str], arch: str) -> bytes:
    nvrtc = find_nvrtc()
    if nvrtc is None:
        needs = "pip install cuda-bindings nvidia-cuda-nvrtc"
        raise RecordError(f"NVRTC is not here, so its image cannot be recorded: {needs}")
    text, where = (folder / main).read_bytes(), [(folder / main).parent, folder]
    options = [f"-arch={arch}", *(f"-I{path}" for path in where), *(flag for flag in flags if flag[:2] != "-O")]
    program = nvrtc.nvrtcCreateProgram(text, main.encode(), 0, [], [])[1]
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            said = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
            nvrtc.nvrtcGetProgramLog(program, said)
            raise _refused("NVRTC", main, said.decode("utf-8", "replace"))
        made = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
        nvrtc.nvrtcGetCUBIN(program, made)
        return bytes(made)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def find_nvrtc() -> ModuleType | None:
    """The bindings of a library that is here."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):  # no bindings, or no library for them
        return None
    found: ModuleType = nvrtc
    return found


def _refused(maker: str, main: str, said: str) -> RecordError:
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it gave no reason"]
    reason = next((line for line in lines if re.search(r"\berror\b", line)), lines[0])
    return RecordError(f"{maker} refused {main}: {reason}")
