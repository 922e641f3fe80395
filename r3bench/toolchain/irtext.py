"""The text of an LLVM module as a list of top-level items, and what can be decided from names alone.

llvmlite can neither rename, remove nor internalize a function, and walking its values is slow; LLVM's text has one
top-level item per line or, for a function body, per ``define ... }``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_NAME = r'(?:"(?:[^"\\]|\\.)*"|[\w$.-]+)'
_DEFINED = re.compile(rf"^@({_NAME})\s*=|^(?:define|declare)\b[^@\n]*@({_NAME})\s*\(")
_REFERENCE = re.compile(rf"@({_NAME})")
_APPENDING = ("llvm.used", "llvm.compiler.used")
_LINKAGE = re.compile(
    r"\b(private|internal|available_externally|linkonce_odr|linkonce|weak_odr|weak|common|external|dso_local|hidden"
    r"|protected|ptx_kernel)\b\s*"
)


@dataclass(frozen=True, slots=True)
class Item:
    """One top-level item; ``name`` is the symbol it introduces, without quotes, ``""`` for types and metadata."""

    name: str
    text: str

    @property
    def is_function(self) -> bool:
        return self.text.startswith("define")

    @property
    def is_kernel(self) -> bool:
        return self.is_function and "ptx_kernel" in self.text.split("@", 1)[0]


def items(ir: str) -> list[Item]:
    """The top-level items of a module in order, without comments and empty lines."""
    return [Item(_name(text), text) for text in _texts(ir)]


def text_of(parts: Iterable[Item]) -> str:
    return "\n".join(part.text for part in parts) + "\n"


def _texts(ir: str) -> Iterator[str]:
    body: list[str] = []
    for line in ir.splitlines():
        if body:
            body.append(line)
        elif line.startswith("define"):
            body = [line]
        elif line and not line.startswith((";", " ")):
            yield line
        if body and line == "}":
            yield "\n".join(body)
            body = []


def _name(text: str) -> str:
    match = _DEFINED.match(text)
    return (match[1] or match[2]).strip('"') if match else ""


def reachable(parts: Iterable[Item], roots: Iterable[str]) -> list[Item]:
    """Only what ``roots`` lead to, with every item that introduces no symbol; lists of used symbols are dropped."""
    kept = [part for part in parts if part.name not in _APPENDING]
    named = {part.name: part for part in kept if part.name}
    waiting, seen = list(roots), set[str]()
    while waiting:
        name = waiting.pop()
        if name in named and name not in seen:
            seen.add(name)
            waiting += (found.strip('"') for found in _REFERENCE.findall(named[name].text))
    return [part for part in kept if not part.name or part.name in seen]


_UNDEFINED = re.compile(r"declare\b|@[^=]+= (?:dso_local |hidden )*external \S*\s*addrspace\([14]\)")
SUPPLIED = re.compile(r"llvm\.|__nv_|__nvvm_reflect$|(?:vprintf|__assertfail|malloc|free)$")


def undefined(modules: Iterable[str], symbol: str) -> list[str]:
    """What ``symbol`` leads to and none of these modules defines: functions and variables, in order.

    What LLVM, libdevice or the driver supplies is left out.
    """
    parts = [part for ir in modules for part in items(ir)]
    declared_first = sorted(parts, key=lambda part: not _UNDEFINED.match(part.text))
    kept = {part.name: part for part in reachable(declared_first, (symbol,)) if part.name}
    return [name for name, part in kept.items() if _UNDEFINED.match(part.text) and not SUPPLIED.match(name)]


def defines(ir: str, symbol: str) -> bool:
    return any(part.name == symbol and not _UNDEFINED.match(part.text) for part in items(ir))


def internal(function: Item) -> Item:
    """The same function, visible in its module only."""
    head, rest = function.text.split("@", 1)
    return Item(function.name, f"define internal {_LINKAGE.sub('', head.removeprefix('define')).lstrip()}@{rest}")


def isolate(ir: str, symbol: str) -> str:
    """The module with one kernel: what it does not reach is gone, what it calls is internal, variables stay visible.

    Constructors stay too, so that whoever refuses them sees them. KeyError where the kernel is not defined.
    """
    parts = items(ir)
    if not any(part.name == symbol and part.is_kernel for part in parts):
        raise KeyError(symbol)
    kept = reachable(parts, (symbol, "llvm.global_ctors"))
    return text_of(internal(part) if part.is_function and part.name != symbol else part for part in kept)
