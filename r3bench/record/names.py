"""Names of kernels from their symbols, for those whose source is not known."""

from __future__ import annotations

import re


def demangled(symbol: str) -> str:
    """``ns::kernel`` of ``_ZN2ns6kernelEPd`` and ``kernel<...>`` of an instantiation; other symbols as they are."""
    match = re.match(r"_Z(N?)L?", symbol)
    if not match:
        return symbol
    names, rest = [], symbol[match.end() :]
    while (length := re.match(r"L?(\d+)", rest)) and len(rest) >= length.end() + int(length[1]):
        end = length.end() + int(length[1])
        names.append(rest[length.end() : end])
        rest = rest[end:]
        if not match[1]:
            break
    if not names:
        return symbol
    return "::".join(names) + ("<...>" if rest.startswith("I") else "")
