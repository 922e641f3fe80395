"""Fat binaries: the machine code and PTX that nvcc puts into a program, unpacked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from numcodecs import LZ4, Zstd

from r3bench.errors import RecordError

_MAGIC = 0xBA55ED50
_MAGIC_BYTES = struct.pack("<I", _MAGIC)
_HEADER = struct.Struct("<IHHQ")
# kind, version, header bytes, payload bytes, packed bytes, options' place, code version, architecture
_ENTRY = struct.Struct("<HHIQIIHHI")
_FLAGS_AT, _UNPACKED_AT = 40, 56
_LZ4, _ZSTD = 0x2000, 0x8000
_KINDS: dict[int, Literal["ptx", "cubin"]] = {1: "ptx", 2: "cubin"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One image of a fat binary, unpacked; ``arch`` is a number such as 90, ``packed`` how it lay in the file."""

    kind: Literal["ptx", "cubin"]
    arch: int
    data: bytes
    packed: bool


def entries(image: bytes) -> Iterator[Entry]:
    """The images of a fat binary that hold machine code or PTX; RecordError where it is cut off."""
    try:
        magic, _, header, length = _HEADER.unpack_from(image)
        if magic != _MAGIC:
            raise RecordError("an image is no fat binary, though the recorder called it one: record again")
        at, end = header, min(header + length, len(image))
        while at + _UNPACKED_AT + 8 <= end:
            kind, _, size, payload, packed, _, _, _, arch = _ENTRY.unpack_from(image, at)
            if not size:  # a header is never empty; going on would take no step
                raise ValueError(f"the header at byte {at} is empty")
            if kind in _KINDS:
                yield Entry(_KINDS[kind], arch, *_unpacked(image, at, size, packed or payload))
            at += size + payload
    except (struct.error, ValueError, RuntimeError) as error:
        raise RecordError(f"a fat binary cannot be read ({error}): record again") from error


def _unpacked(image: bytes, at: int, header: int, nbytes: int) -> tuple[bytes, bool]:
    (flags,) = struct.unpack_from("<Q", image, at + _FLAGS_AT)
    (unpacked,) = struct.unpack_from("<Q", image, at + _UNPACKED_AT)
    data = image[at + header : at + header + nbytes]
    if flags & _ZSTD:
        return bytes(Zstd().decode(data)), True
    if flags & _LZ4:
        return bytes(LZ4().decode(struct.pack("<I", unpacked) + data)), True
    return data, False


def machine_code(image: bytes, arch: str) -> bytes | None:
    """The machine code in a fat binary that a device of this architecture (``sm_90``) loads; None if there is none.

    That is the newest of its generation which is not newer than the device.
    """
    wanted = int("".join(filter(str.isdigit, arch)))
    fitting = [e for e in entries(image) if e.kind == "cubin" and e.arch // 10 == wanted // 10 and e.arch <= wanted]
    return max(fitting, key=lambda entry: entry.arch).data if fitting else None


# -- variables that the preload library cannot see --------------------------------------------------------------------

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _OBJECT = 2, 1


def packed_variables(program: Path) -> Iterator[tuple[str, bool]]:
    """Device variables in the packed machine code of a program, and whether each is constant.

    The preload library finds those of unpacked code by itself; it has nothing to unpack with.
    """
    try:
        data = program.read_bytes()
    except OSError:
        return  # whoever starts it says so
    at = data.find(_MAGIC_BYTES)
    while at >= 0:
        _, version, header, length = _HEADER.unpack_from(data.ljust(at + _HEADER.size, b"\0"), at)
        if (version, header) == (1, _HEADER.size):
            image = data[at : at + header + length]
            yield from (v for e in entries(image) if e.packed and e.kind == "cubin" for v in variables(e.data))
        at = data.find(_MAGIC_BYTES, at + 1)


def variables(code: bytes) -> Iterator[tuple[str, bool]]:
    """The device variables of machine code by name, and whether each is constant."""
    found, titles = _headers(code)
    for section in (section for section in found if section[1] == _SYMTAB):
        for place in range(section[4], section[4] + section[5], _SYMBOL.size):
            name, info, _, index, _, nbytes = _SYMBOL.unpack_from(code, place)
            title = titles[index] if info & 15 == _OBJECT and nbytes and index < len(titles) else ""
            if title.startswith((".nv.global", ".nv.constant3")):
                yield _text(code, found[section[6]][4] + name), title.startswith(".nv.constant3")


def sections(code: bytes) -> Iterator[tuple[str, bytes]]:
    """The sections of machine code by title; none where it cannot be read."""
    try:
        found, titles = _headers(code)
    except (struct.error, ValueError, IndexError):
        return
    for title, section in zip(titles, found, strict=True):
        yield title, code[section[4] : section[4] + section[5]]


def _headers(code: bytes) -> tuple[list[tuple[int, ...]], list[str]]:
    (start,) = struct.unpack_from("<Q", code, 40)
    count, names = struct.unpack_from("<HH", code, 60)
    found = [_SECTION.unpack_from(code, start + index * _SECTION.size) for index in range(count)]
    return found, [_text(code, found[names][4] + section[0]) for section in found]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")
