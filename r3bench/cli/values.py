"""Values of options, checked before anything runs: a ValueError or ArgumentTypeError is a usage error."""

from __future__ import annotations

import argparse
import ctypes
import os
from math import inf

_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
_REG_EXTENDED = 1


def positive(text: str) -> int:
    if not text.isdecimal() or (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return value


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 0,2") from None


def ranks(text: str) -> tuple[int, ...]:
    """Ranks; none stand for all."""
    return () if text == "all" else numbers(text)


def nbytes(text: str) -> int:
    """A size with or without a unit."""
    scale = _UNITS.get(text[-1:].upper(), 0)
    try:
        size = int(float(text[:-1] if scale else text) * (1 << scale))
    except (ValueError, OverflowError):
        size = -1
    if not 0 <= size < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 500M or 20G")
    return size


def pattern(text: str) -> str:
    """An extended regular expression of POSIX, which the preload library leaves to the C library, too."""
    library = ctypes.CDLL(None)
    compiled = ctypes.create_string_buffer(1024)  # more than a regex_t of any C library
    code = library.regcomp(compiled, os.fsencode(text), _REG_EXTENDED)
    if code:
        said = ctypes.create_string_buffer(200)
        library.regerror(code, compiled, said, ctypes.c_size_t(len(said)))
        raise argparse.ArgumentTypeError(f"{text!r} is no extended regular expression ({said.value.decode()})")
    library.regfree(compiled)
    return text
