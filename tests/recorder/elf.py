"""Dynamic symbols of an ELF file, for machines without binutils."""

from __future__ import annotations

import struct

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM, _VERSYM, _VERNEED = 11, 0x6FFFFFFF, 0x6FFFFFFE


def dynamic_symbols(data: bytes) -> list[tuple[str, str, str]]:
    """Name, ``defined`` or ``undefined``, and version of each."""
    (start,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [_SECTION.unpack_from(data, start + i * _SECTION.size) for i in range(count)]
    (table,) = (s for s in sections if s[1] == _DYNSYM)
    strings = sections[table[6]][4]
    versions = _needed(data, sections)
    (numbers,) = (s[4] for s in sections if s[1] == _VERSYM)
    found = []
    for index in range(1, table[5] // _SYMBOL.size):
        name, _, _, section, _, _ = _SYMBOL.unpack_from(data, table[4] + index * _SYMBOL.size)
        (number,) = struct.unpack_from("<H", data, numbers + 2 * index)
        where = "defined" if section else "undefined"
        found.append((_text(data, strings + name), where, versions.get(number & 0x7FFF, "")))
    return found


def _needed(data: bytes, sections: list[tuple[int, ...]]) -> dict[int, str]:
    """Names of the versions that are asked of other libraries, by number."""
    names: dict[int, str] = {}
    for section in (s for s in sections if s[1] == _VERNEED):
        strings, at = sections[section[6]][4], section[4]
        while True:
            _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
            place = at + first
            for _ in range(count):
                _, _, number, name, step = struct.unpack_from("<IHHII", data, place)
                names[number] = _text(data, strings + name)
                place += step
            if not following:
                break
            at += following
    return names


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
