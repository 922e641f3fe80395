"""What the front end's IR says of its kernels: their symbols, and from debug information names and parameters."""

from __future__ import annotations

import re
from typing import Literal

from r3bench.model import Parameter

_DEFINITION = re.compile(r'^define [^@\n]*\bptx_kernel\b[^@\n]*@("[^"]+"|[\w.$]+)\((.*?)\) ([^)\n]*)\{$', re.MULTILINE)


def kernels(ir: str) -> tuple[str, ...]:
    """The symbols of all kernels defined in ``ir``, in order."""
    return tuple(match[1].strip('"') for match in _DEFINITION.finditer(ir))


def readable_name(ir: str, symbol: str) -> str:
    """A kernel's name as its author wrote it, for example ``ns::scale<float, 4>``; ``ir`` compiled with ``debug``."""
    types = _DebugInfo(ir)
    subprogram = types.fields(types.subprogram(symbol))
    names, scope = [_text(subprogram["name"])], subprogram.get("scope", "")
    while "name" in (outer := types.fields(scope)):
        names.append(_text(outer["name"]))
        scope = outer.get("scope", "")
    return "::".join(reversed(names))


def parameters(ir: str, symbol: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel, in order; ``ir`` must have been compiled with ``debug=True``.

    bfloat16 elements are given as ``uint16``, since NumPy has no such type; elements of structs that hold one type
    only (``float4``, ``half2``) as that type. Raises KeyError if ``ir`` defines no such kernel, ValueError if it was
    compiled without ``debug``.
    """
    types = _DebugInfo(ir)
    arguments = types.arguments(symbol)
    out: list[Parameter] = []
    end = 0
    for index, (text, node) in enumerate(zip(arguments, types.parameter_nodes(symbol), strict=True)):
        kind, size = types.kind(node), types.nbytes(node)
        by_value = re.search(r"\bbyval\(.*\) align (\d+)", text)
        align = int(by_value[1]) if by_value else size
        offset = -(-end // align) * align
        end = offset + size
        name = text.rsplit("%", 1)[1].strip('"')
        out.append(
            Parameter(
                name=f"arg{index}" if name.isdigit() else name,
                offset=offset,
                size=size,
                kind=kind,
                dtype=None if kind == "struct" else types.dtype(types.pointee(node) if kind == "pointer" else node),
                const=kind == "pointer" and types.is_const(types.pointee(node)),
                restrict=bool(re.search(r"\bnoalias\b", text)),
            )
        )
    return tuple(out)


_NODE = re.compile(r"^(!\d+) = (?:distinct )?!(?:(DI\w+)\((.*)\)|\{(.*)\})$", re.MULTILINE)
_FIELD = re.compile(r'(\w+): ("(?:[^"\\]|\\.)*"|!\{.*?\}|[^,]+)')
_QUALIFIERS = {"DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type", "DW_TAG_typedef"}
_POINTERS = {"DW_TAG_pointer_type", "DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}
_STRUCTS = {"DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"}
_ENCODINGS = {
    "DW_ATE_float": "float",
    "DW_ATE_signed": "int",
    "DW_ATE_signed_char": "int",
    "DW_ATE_unsigned": "uint",
    "DW_ATE_unsigned_char": "uint",
    "DW_ATE_UTF": "uint",
}


def _text(quoted: str) -> str:
    return quoted.strip('"')


class _DebugInfo:
    """The debug information of a module's text; a node is named as in the text (``!12``)."""

    def __init__(self, ir: str) -> None:
        self._nodes = {name: (kind or "", body or items or "") for name, kind, body, items in _NODE.findall(ir)}
        self._definitions = {match[1].strip('"'): match for match in _DEFINITION.finditer(ir)}

    def fields(self, node: str) -> dict[str, str]:
        return dict(_FIELD.findall(self._nodes.get(node, ("", ""))[1]))

    def _items(self, node: str) -> list[str]:
        return [item.strip() for item in self._nodes[node][1].split(",")]

    def arguments(self, symbol: str) -> list[str]:
        """The text of each argument in the definition."""
        return re.findall(r"(?:\([^()]*\)|[^,()])+", self._definitions[symbol][2])

    def subprogram(self, symbol: str) -> str:
        attached = re.search(r"!dbg (!\d+)", self._definitions[symbol][3])
        if not attached:
            raise ValueError(f"{symbol}: the IR has no types of parameters: compile it with debug=True")
        return attached[1]

    def parameter_nodes(self, symbol: str) -> list[str]:
        signature = self.fields(self.fields(self.subprogram(symbol))["type"])
        return self._items(signature["types"])[1:]

    def _plain(self, node: str) -> dict[str, str]:
        """The type without typedefs and qualifiers."""
        fields = self.fields(node)
        while fields.get("tag") in _QUALIFIERS:
            fields = self.fields(fields["baseType"])
        return fields

    def is_const(self, node: str) -> bool:
        fields = self.fields(node)
        while fields.get("tag") in _QUALIFIERS:
            if fields["tag"] == "DW_TAG_const_type":
                return True
            fields = self.fields(fields["baseType"])
        return False

    def kind(self, node: str) -> Literal["pointer", "scalar", "struct"]:
        tag = self._plain(node).get("tag")
        return "pointer" if tag in _POINTERS else "struct" if tag in _STRUCTS else "scalar"

    def pointee(self, node: str) -> str:
        return self._plain(node)["baseType"]

    def nbytes(self, node: str) -> int:
        return int(self._plain(node)["size"]) // 8

    def dtype(self, node: str) -> str | None:
        """NumPy's name of the type, or of the one type that all members have; None if there is no such name."""
        fields = self._plain(node)
        tag = fields.get("tag")
        if tag in _POINTERS:
            return "uint64"
        if tag in _STRUCTS:
            members = {self.dtype(member) for member in self._members(fields)}
            return members.pop() if len(members) == 1 else None
        if "encoding" in fields:
            return _basic(fields)
        return self.dtype(fields["baseType"]) if "baseType" in fields else None

    def _members(self, struct: dict[str, str]) -> list[str]:
        items = [self.fields(item) for item in self._items(struct["elements"])]
        return [
            item["baseType"]
            for item in items
            if item.get("tag") in ("DW_TAG_member", "DW_TAG_inheritance")
            and "DIFlagStaticMember" not in item.get("flags", "")
        ]


def _basic(fields: dict[str, str]) -> str | None:
    if fields["encoding"] == "DW_ATE_boolean":
        return "bool"
    prefix = "uint" if _text(fields["name"]) == "__bf16" else _ENCODINGS.get(fields["encoding"])
    return f"{prefix}{fields['size']}" if prefix else None
