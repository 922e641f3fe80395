"""Fat binaries: the machine code and PTX that nvcc puts into a program, unpacked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from numcodecs import LZ4, Zstd

from r3bench.errors import RecordError

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
# kind, version, header bytes, payload bytes, packed bytes, options' place, code version, architecture
_ENTRY = struct.Struct("<HHIQIIHHI")
_FLAGS_AT, _UNPACKED_AT = 40, 56
_LZ4, _ZSTD = 0x2000, 0x8000
_KINDS: dict[int, Literal["ptx", "cubin"]] = {1: "ptx", 2: "cubin"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One image of a fat binary; ``arch`` is a number such as 90."""

    kind: Literal["ptx", "cubin"]
    arch: int
    data: bytes


def entries(image: bytes) -> Iterator[Entry]:
    """The images of a fat binary that hold machine code or PTX; RecordError where it is cut off."""
    try:
        magic, _, header, length = _HEADER.unpack_from(image)
        if magic != _MAGIC:
            raise RecordError("an image is no fat binary, though the recorder called it one: record again")
        at, end = header, min(header + length, len(image))
        while at + _UNPACKED_AT + 8 <= end:
            kind, _, size, payload, packed, _, _, _, arch = _ENTRY.unpack_from(image, at)
            if kind in _KINDS:
                yield Entry(_KINDS[kind], arch, _unpacked(image, at, size, packed or payload))
            at += size + payload
    except (struct.error, ValueError, RuntimeError) as error:
        raise RecordError(f"a fat binary cannot be read ({error}): record again") from error


def _unpacked(image: bytes, at: int, header: int, nbytes: int) -> bytes:
    (flags,) = struct.unpack_from("<Q", image, at + _FLAGS_AT)
    (unpacked,) = struct.unpack_from("<Q", image, at + _UNPACKED_AT)
    data = image[at + header : at + header + nbytes]
    if flags & _ZSTD:
        return bytes(Zstd().decode(data))
    if flags & _LZ4:
        return bytes(LZ4().decode(struct.pack("<I", unpacked) + data))
    return data


def machine_code(image: bytes, arch: str) -> bytes | None:
    """The machine code in a fat binary that a device of this architecture (``sm_90``) loads; None if there is none.

    That is the newest of its generation which is not newer than the device.
    """
    wanted = int("".join(filter(str.isdigit, arch)))
    fitting = [e for e in entries(image) if e.kind == "cubin" and e.arch // 10 == wanted // 10 and e.arch <= wanted]
    return max(fitting, key=lambda entry: entry.arch).data if fitting else None
