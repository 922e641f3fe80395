"""Whether a kernel reads or writes textures or surfaces, told by its code: no capture holds what their handles name.

A handle is a small number that may lie in an argument, a buffer or a constant, where nothing tells it from others.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from r3bench.record.fatbin import entries, sections

_PTX = re.compile(r"\b(?:tex|tld4|txq|suld|sust|sured|suq)\.\w")
_SIXTEEN_BYTES_FROM = 70  # older architectures have other instructions
# Low nine bits of an instruction of 16 bytes, whose others say where operands lie, as ptxas 13.0 writes them for sm_75,
# sm_80, sm_90, sm_100 and sm_120.
_TEXTURES = (0x160, 0x161, 0x163, 0x164, 0x166, 0x167, 0x16C, 0x16D, 0x16F, 0x170)  # TEX, TLD4, TLD, TXD, TXQ
_SURFACES = (0x199, 0x19A, 0x19D, 0x19E, 0x19F, 0x1A0)  # SULD, SUST, SURED
_OPCODES = frozenset((*_TEXTURES, *_SURFACES))


def used(image: bytes, kind: str, kernel: str, arch: int) -> bool:
    """Whether a kernel's code in an image (cubin, ptx or fatbin) uses any; False where it cannot be read.

    ``arch`` is that of machine code, a number such as 90.
    """
    if kind == "fatbin":
        return any(used(entry.data, entry.kind, kernel, entry.arch) for entry in entries(image))
    if kind == "ptx":
        return any(_PTX.search(body) for body in _bodies(image.decode("utf-8", "replace"), kernel))
    return (
        kind == "cubin"
        and arch >= _SIXTEEN_BYTES_FROM
        and any(_uses(code) for title, code in sections(image) if title == f".text.{kernel}")
    )


def _uses(code: bytes) -> bool:
    return any(word & 0x1FF in _OPCODES for word, _ in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16]))


def _bodies(text: str, kernel: str) -> Iterator[str]:
    """The kernel's own text; what it calls may lie elsewhere."""
    for found in re.finditer(rf"\.entry\s+{re.escape(kernel)}\b", text):
        yield text[found.start() :].partition("\n}")[0]
