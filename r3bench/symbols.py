"""Names of kernels as people call them, from their symbols alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Itanium C++ ABI, 5.1.5.2: builtin types.
_TYPES = {
    "f": "float", "d": "double", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long",
}  # fmt: skip
_ARGUMENT = re.compile(rf"([{''.join(_TYPES)}])|L([{''.join(_TYPES)}])(n?)(\d+)E")


def demangled(symbol: str) -> str:
    """``ns::kernel`` of ``_ZN2ns6kernelEPd``, ``kernel<float, 4>`` or, where its arguments are more than numbers and
    their types, ``kernel<...>`` of an instantiation; other symbols as they are."""
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
    arguments = ", ".join(_arguments(rest[1:])) if rest.startswith("I") else ""
    return "::".join(names) + (f"<{arguments}>" if arguments else "")


def _arguments(rest: str) -> Iterator[str]:
    """Template arguments as far as they can be read, then dots."""
    while not rest.startswith("E"):
        match = _ARGUMENT.match(rest)
        if match is None:
            yield "..."
            return
        kind, value, minus, number = match.groups()
        yield _TYPES[kind] if kind else _literal(value, f"-{number}" if minus else number)
        rest = rest[match.end() :]


def _literal(kind: str, number: str) -> str:
    return {"0": "false", "1": "true"}.get(number, number) if kind == "b" else number


def short_name(kernel: str) -> str:
    """What people call ``<application>/<symbol>``, the application left out."""
    return demangled(kernel.split("/", 1)[-1])


def full_name(kernel: str) -> str:
    """As :func:`short_name`, with the application."""
    application, slash, symbol = kernel.partition("/")
    return f"{application}{slash}{demangled(symbol)}"
