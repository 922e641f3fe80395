"""The symbols of an object file: what it needs, what it defines. ELF, 64-bit, little endian, nothing else."""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATABLE, _SYMBOL_TABLE, _WRITABLE = 1, 2, 1
_LOCAL, _INDIRECT = 0, 10
# Arrays of constructors and destructors, by type and by name.
_RUN_AT_LOAD = {14, 15, 16}
_NAMED_AT_LOAD = (".init", ".fini", ".preinit", ".ctors", ".dtors")
_MACHINES = {"x86_64": 62, "aarch64": 183}

SLOT = "r3_slot."


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


@dataclass(frozen=True, slots=True)
class Definition:
    """A symbol that other code can reach: its size in bytes and whether its section can be written."""

    nbytes: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Symbols:
    """What an object file needs from outside and what it defines, by name; ``variables`` are reached through slots."""

    undefined: frozenset[str]
    defined: dict[str, Definition]
    variables: dict[str, Definition]


def read_symbols(image: bytes) -> Symbols:
    """The global symbols of a relocatable object for this machine; ValueError if it is something else."""
    try:
        return _read(image)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a damaged object file: {error}") from error


def _read(image: bytes) -> Symbols:
    header = _HEADER.unpack_from(image)
    if header[0][:6] != b"\x7fELF\x02\x01" or header[1] != _RELOCATABLE:
        raise ValueError("not a 64-bit little-endian ELF object file")
    if header[2] != _MACHINES.get(platform.machine()):
        raise ValueError(f"an object file for another machine than this {platform.machine()}")
    table, count = header[6], header[12]
    sections = [_Section._make(_SECTION.unpack_from(image, table + i * _SECTION.size)) for i in range(count)]
    _refuse_constructors(image, sections, sections[header[13]].offset)
    undefined: set[str] = set()
    defined: dict[str, Definition] = {}
    for name, section, size in _global_symbols(image, sections):
        if section == 0:
            undefined.add(name)
        else:
            writable = section < count and bool(sections[section].flags & _WRITABLE)
            defined[name] = Definition(size, writable)
    slots = [name.removeprefix(SLOT) for name in defined if name.startswith(SLOT)]
    return Symbols(frozenset(undefined), defined, {name: defined[name] for name in slots if name in defined})


def _refuse_constructors(image: bytes, sections: list[_Section], names: int) -> None:
    """ValueError for code that would run while the object is linked, before its process is sealed."""
    for section in sections:
        start = names + section.name
        name = image[start : image.index(b"\0", start)].decode().removeprefix(".rela")
        if section.type in _RUN_AT_LOAD or name.startswith(_NAMED_AT_LOAD):
            raise ValueError(f"it has code that runs when it is loaded ({name})")
        if section.type == _SYMBOL_TABLE:
            kinds = image[section.offset + 4 : section.offset + section.size : _SYMBOL.size]
            if any(info & 15 == _INDIRECT for info in kinds):
                raise ValueError("it has code that runs when it is loaded (an indirect function)")


def _global_symbols(image: bytes, sections: list[_Section]) -> Iterator[tuple[str, int, int]]:
    """Name, section index and size of every symbol that is not local."""
    for table in (section for section in sections if section.type == _SYMBOL_TABLE):
        strings = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, info, _, section, _, size = _SYMBOL.unpack_from(image, at)
            if name and info >> 4 != _LOCAL:
                start = strings + name
                yield image[start : image.index(b"\0", start)].decode(), section, size
