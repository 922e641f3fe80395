"""CUDA's device mathematics (``__nv_expf`` ...) from NVIDIA's libdevice bitcode, linked into PTX builds only."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm

from r3bench.errors import BuildError
from r3bench.toolchain import bitcode

_DECLARED = re.compile(r"^declare [^\n]*@(__nv_\w+)\(", re.MULTILINE)
_FILE = Path("nvvm/libdevice/libdevice.10.bc")


def find() -> Path | None:
    """libdevice.10.bc of a CUDA toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda) or of NVIDIA's wheels."""
    return bitcode.found(_places())


def _places() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / _FILE
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    yield from sorted(packages.glob(f"*/{_FILE}"), reverse=True)
    yield Path("/usr/local/cuda") / _FILE


def link(module: llvm.ModuleRef, ir: str, context: llvm.ContextRef) -> None:
    """Give every ``__nv_*`` function that ``ir`` declares its definition; BuildError where libdevice is not here."""
    wanted = tuple(sorted(set(_DECLARED.findall(ir))))
    if not wanted:
        return
    path = find()
    if path is None:
        raise BuildError(
            f"{wanted[0]} needs NVIDIA's libdevice, which is not here; install r3bench[cuda] or set CUDA_HOME"
        )
    missing = bitcode.link(module, context, path, wanted)
    if missing:
        raise BuildError(f"{path} has no {missing[0]}; use a newer CUDA toolkit")


def preload() -> None:
    """Read libdevice now, where it is here, so that processes forked from this one have it at once."""
    path = find()
    if path is not None:
        bitcode.library(path)
