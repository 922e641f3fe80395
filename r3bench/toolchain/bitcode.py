"""Libraries of device mathematics that come as LLVM bitcode: what a kernel calls of one is linked into its module."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite.binding as llvm

from r3bench.toolchain.irtext import Item, items, reachable, text_of


def link(
    module: llvm.ModuleRef,
    context: llvm.ContextRef,
    path: Path,
    wanted: tuple[str, ...],
    edited: Callable[[str], str] = str,
) -> list[str]:
    """Link functions of a library, its text ``edited``, into a module; those it lacks are returned, and none linked."""
    kept = _closure(path, wanted)
    missing = sorted(set(wanted) - {item.name for item in kept if item.is_function})
    if missing:
        return missing
    # Named metadata (module flags, identification) would be added to the kernel's own.
    text = text_of(_discardable(item) for item in kept if not re.match(r"!\D", item.text))
    library = llvm.parse_assembly(edited(text), context)
    library.triple, library.data_layout = module.triple, module.data_layout
    module.link_in(library)
    return []


def found(places: Iterator[Path]) -> Path | None:
    """The first file that exists."""
    return next((path for path in places if path.is_file()), None)


@functools.cache
def library(path: Path) -> tuple[Item, ...]:
    """A library's text as items, read once."""
    return tuple(items(str(llvm.parse_bitcode(path.read_bytes(), llvm.create_context()))))


@functools.lru_cache(maxsize=256)
def _closure(path: Path, wanted: tuple[str, ...]) -> tuple[Item, ...]:
    """The functions wanted and all they call."""
    return tuple(reachable(library(path), wanted))


def _discardable(item: Item) -> Item:
    """A function that may go once it is inlined."""
    if not item.is_function:
        return item
    return Item(item.name, re.sub(r"^define (?:linkonce_odr |weak_odr |internal )?", "define linkonce_odr ", item.text))
