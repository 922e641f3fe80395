"""CUDA's device mathematics (``__nv_expf`` ...) from NVIDIA's libdevice bitcode, linked into PTX builds only."""

from __future__ import annotations

import functools
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm

from r3bench.errors import BuildError
from r3bench.toolchain.irtext import Item, items, reachable, text_of

_DECLARED = re.compile(r"^declare [^\n]*@(__nv_\w+)\(", re.MULTILINE)
_FILE = Path("nvvm/libdevice/libdevice.10.bc")


def find() -> Path | None:
    """libdevice.10.bc of a CUDA toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda) or of NVIDIA's wheels."""
    return next((path for path in _places() if path.is_file()), None)


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
    library = llvm.parse_assembly(_closure(path, wanted), context)
    library.triple, library.data_layout = module.triple, module.data_layout
    module.link_in(library)


def preload() -> None:
    """Read libdevice now, where it is here, so that processes forked from this one have it at once."""
    path = find()
    if path is not None:
        _library(path)


@functools.cache
def _library(path: Path) -> tuple[Item, ...]:
    return tuple(items(str(llvm.parse_bitcode(path.read_bytes(), llvm.create_context()))))


@functools.lru_cache(maxsize=256)
def _closure(path: Path, wanted: tuple[str, ...]) -> str:
    """The text of the functions wanted and all they call, each of which may go once it is inlined."""
    kept = reachable(_library(path), wanted)
    missing = set(wanted) - {item.name for item in kept if item.is_function}
    if missing:
        raise BuildError(f"{path} has no {sorted(missing)[0]}; use a newer CUDA toolkit")
    # Named metadata (module flags, identification) would be added to the kernel's own.
    return text_of(_discardable(item) for item in kept if not re.match(r"!\D", item.text))


def _discardable(item: Item) -> Item:
    if not item.is_function:
        return item
    return Item(item.name, re.sub(r"^define (?:linkonce_odr |weak_odr |internal )?", "define linkonce_odr ", item.text))
