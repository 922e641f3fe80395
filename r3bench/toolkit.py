"""clang with CUDA's own headers, for sources that include the runtime and the host's libraries.

It takes a CUDA toolkit on this machine, or the headers of one from PyPI, and the headers of clang that ziglang leaves
out, which the package clang-tidy of the same version carries, or a clang of that version on PATH.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from r3bench.errors import Unsupported

# In a capture's flags: its source is compiled with CUDA's own headers, not with ours.
FLAG = "--cuda-headers"
HEADERS = Path(__file__).parent / "prelude/toolkit"
# What comes before every such source; it can be parsed beforehand.
HEADER = HEADERS / "compatibility.h"
_LLVM = "22"
# Of the driver's arguments: the file's own, and what HEADER includes.
_WITH_VALUE = ("-main-file-name", "-o", "-x", "-ferror-limit", "-include")
_DROPPED = ("-cuid=", "-fdebug-compilation-dir=", "-fcoverage-compilation-dir=")
_AGAIN = ("-emit-llvm", "-discard-value-names")  # said by the caller; parameters keep their names
_FOLDERS = ("-isystem", "-internal-isystem", "-internal-externc-isystem", "-idirafter", "-resource-dir")


def cuda_folder() -> Path | None:
    """A CUDA toolkit: CUDA_HOME, CUDA_PATH, or /usr/local/cuda."""
    named = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    return next((Path(p) for p in named if p and Path(p, "include/cuda_runtime.h").is_file()), None)


def resource_folder() -> Path | None:
    """clang's own headers of the version that ziglang's clang is."""
    return next((f for f in _resource_folders() if (f / "include/__clang_cuda_runtime_wrapper.h").is_file()), None)


def _resource_folders() -> Iterator[Path]:
    found = importlib.util.find_spec("clang_tidy")
    if found and found.origin:
        yield Path(found.origin).parent / f"data/lib/clang/{_LLVM}"
    for name in (f"clang-{_LLVM}", "clang"):
        if installed := shutil.which(name):
            yield Path(installed).resolve().parent.parent / f"lib/clang/{_LLVM}"


def missing() -> str:
    """What this machine lacks for CUDA's headers, as a sentence; empty where nothing does."""
    if cuda_folder() is None:
        return "there is no CUDA toolkit here: install one, or set CUDA_HOME"
    if resource_folder() is None:
        return "clang's CUDA headers are not here: pip install 'r3bench[toolkit]'"
    return ""


@functools.lru_cache(maxsize=8)
def arguments(compiler: Path, arch: str, debug: bool) -> tuple[str, ...]:
    """The command that compiles with CUDA's headers, up to HEADER and what a source adds, as clang's driver makes it.

    Raises Unsupported where the headers are not here.
    """
    if lack := missing():
        raise Unsupported(f"the source needs CUDA's own headers, and {lack}")
    with tempfile.TemporaryDirectory(prefix="r3-") as folder:
        empty = Path(folder, "empty.cu")
        empty.touch()
        command = [str(compiler), "clang", "-###", *_driver_flags(arch), str(empty)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    line = next((line for line in done.stderr.splitlines() if '"-cc1"' in line), "")
    if not line:
        raise Unsupported(f"clang does not take CUDA's headers: {done.stderr.strip().splitlines()[-1:]}")
    types = ("-debug-info-kind=standalone", "-dwarf-version=4") if debug else ()
    return (str(compiler), "clang", *_kept(shlex.split(line)[1:]), *types)


def _driver_flags(arch: str) -> tuple[str, ...]:
    cuda, resource = cuda_folder(), resource_folder()
    return (
        *("-x", "cuda", "--cuda-device-only", f"--cuda-gpu-arch={arch}", f"--cuda-path={cuda}"),
        *("-resource-dir", str(resource), "-isystem", f"{cuda}/include/cccl", "-idirafter", str(HEADERS)),
        *("--target=x86_64-linux-gnu", "-std=c++17", "-O3", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-S"),
        *("-fclang-abi-compat=17", "-fomit-frame-pointer", "-nocudalib", "-Xclang", "-target-sdk-version=12.9", "-w"),
        *("-fno-caret-diagnostics", "-fno-diagnostics-show-option", "-fno-spell-checking"),
    )


def _kept(given: list[str]) -> Iterator[str]:
    """The arguments of clang's front end but for those of the empty file, which is the last."""
    rest = iter(given[:-1])
    for argument in rest:
        if argument in _WITH_VALUE:
            next(rest, None)
        elif argument not in _AGAIN and not argument.startswith(_DROPPED):
            yield argument


def folders(given: tuple[str, ...]) -> list[Path]:
    """The folders of headers that such a command reads."""
    places = [Path(value) for name, value in pairwise(given) if name in _FOLDERS]
    return sorted({place.resolve() for place in places if place.is_dir()} | {HEADERS})
