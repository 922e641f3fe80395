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
    missing, image = _closure(path, wanted, edited)
    if missing:
        return missing
    library = llvm.parse_bitcode(image, context)
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
def _closure(path: Path, wanted: tuple[str, ...], edited: Callable[[str], str]) -> tuple[list[str], bytes]:
    """What a library lacks of the functions wanted; these and all they call, as bitcode, which is read sooner."""
    kept = reachable(library(path), wanted)
    missing = sorted(set(wanted) - {item.name for item in kept if item.is_function})
    # Named metadata (module flags, identification) would be added to the kernel's own.
    text = text_of(_discardable(item) for item in kept if not re.match(r"!\D", item.text))
    return missing, llvm.parse_assembly(edited(text), llvm.create_context()).as_bitcode()


def _discardable(item: Item) -> Item:
    """A function that may go once it is inlined."""
    if not item.is_function:
        return item
    return Item(item.name, re.sub(r"^define (?:linkonce_odr |weak_odr |internal )?", "define linkonce_odr ", item.text))
