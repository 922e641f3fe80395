"""What a source file declares outside the kernel: macros, types, constants, variables, functions.

Types are named as NumPy does (``float64``, ``int32``). None always means "not known".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from r3bench.syntax import Function, Node, functions, parse, text_of, walk


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_BUILTIN = {
    "bool": "bool", "char": "int8", "signed char": "int8", "unsigned char": "uint8", "int8_t": "int8",
    "uint8_t": "uint8", "short": "int16", "unsigned short": "uint16", "int16_t": "int16", "uint16_t": "uint16",
    "int": "int32", "signed": "int32", "signed int": "int32", "int32_t": "int32", "unsigned": "uint32",
    "unsigned int": "uint32", "uint": "uint32", "uint32_t": "uint32", "long": "int64", "long int": "int64",
    "long long": "int64", "int64_t": "int64", "ptrdiff_t": "int64", "ssize_t": "int64", "intptr_t": "int64",
    "unsigned long": "uint64", "unsigned long long": "uint64", "uint64_t": "uint64", "size_t": "uint64",
    "uintptr_t": "uint64", "float": "float32", "double": "float64",
}  # fmt: skip
_VECTORS = {"char": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32",
            "long": "int64", "ulong": "uint64", "longlong": "int64", "ulonglong": "uint64", "float": "float32",
            "double": "float64"}  # fmt: skip
INDEX_NAMES = ("threadIdx", "blockIdx", "blockDim", "gridDim")

# Free of side effects, without errno in device code, the same for equal arguments.
MATH = words(
    """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfinv exp exp10 exp2
    expm1 fabs fdim floor fma fmax fmin fmod hypot j0 j1 ldexp lgamma log log10 log1p log2 logb nearbyint pow rcbrt
    remainder rhypot rint round rsqrt sin sinh sinpi sqrt tan tanh tgamma trunc y0 y1"""
)
_PLAIN = words("abs max min labs llabs __mul24 __popc __clz __ffs __brev isnan isinf isfinite signbit")


def is_pure(name: str) -> bool:
    """Whether a function of this name (without ``std::``) only computes a value from its arguments."""
    bare = name.removeprefix("std::")
    bare = bare.removeprefix("__").removesuffix("f") if bare.startswith("__") and bare.endswith("f") else bare
    return bare in MATH or bare.removesuffix("f") in MATH or bare in _PLAIN


@dataclass(frozen=True)
class Macro:
    """``parameters`` is None where the macro takes none (``#define N 4``)."""

    parameters: tuple[str, ...] | None
    body: str


@dataclass
class Declared:
    """Macros, type names, fields of structs, variables and functions of a file (and of the files given beside it)."""

    macros: dict[str, Macro] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    structs: dict[str, dict[str, str]] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    overloaded: set[str] = field(default_factory=set)
    summaries: dict[str, object] = field(default_factory=dict)

    def dtype(self, type_text: str) -> str | None:
        """The NumPy name of a written type, through typedefs and macros."""
        text = re.sub(r"\b(const|volatile|static|constexpr|register|__restrict__)\b", " ", type_text)
        text = " ".join(text.split())
        for _ in range(8):
            if text in _BUILTIN:
                return _BUILTIN[text]
            macro = self.macros.get(text)
            following = self.aliases.get(text) or (macro.body if macro else None)
            if following is None or following == text:
                return None
            text = following
        return None

    def field_type(self, type_text: str, name: str) -> str | None:
        """The type of a field of a struct or of CUDA's vector types."""
        bare = " ".join(re.sub(r"\b(const|volatile|struct|__restrict__)\b", " ", type_text).split())
        bare = self.aliases.get(bare, bare)
        if bare in self.structs:
            return self.dtype(self.structs[bare].get(name, ""))
        vector = re.fullmatch(r"([a-z]+)[1-4]", bare)
        return _VECTORS.get(vector[1]) if vector and name in "xyzw" else None

    def spelled_out(self, text: str) -> set[str]:
        """Every name in a text, and in the macros that it uses."""
        found, pending = set[str](), re.findall(r"(?<![\w.])[A-Za-z_]\w*", text)
        while pending:
            name = pending.pop()
            if name not in found and name in self.macros:
                pending += re.findall(r"(?<![\w.])[A-Za-z_]\w*", self.macros[name].body)
            found.add(name)
        return found

    def constant(self, text: str, depth: int = 0) -> int | None:
        """The value of an integer constant expression; None where it is not one."""
        names = {name: self._number(name, depth) for name in re.findall(r"\b[A-Za-z_]\w*\b", text)}
        if depth > 8 or any(value is None for value in names.values()):
            return None
        plain = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: str(names[m[0]]), re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text))
        value = _calculate(plain, _whole)
        return int(value) if value is not None else None

    def _number(self, name: str, depth: int) -> int | None:
        text = self._text(name)
        return self.constant(text, depth + 1) if text else None

    def _text(self, name: str) -> str | None:
        macro = self.macros.get(name)
        return macro.body if macro and macro.parameters is None else self.values.get(name)

    def real(self, text: str, depth: int = 0) -> float | None:
        """The value of a constant expression, worked out in floating point; None where it is not one."""
        names = {n: self._text(n) for n in re.findall(r"(?<![\w.])[A-Za-z_]\w*", text)}
        if depth > 8 or any(value is None for value in names.values()):
            return None
        values = {n: self.real(value or "", depth + 1) for n, value in names.items()}
        if any(value is None for value in values.values()):
            return None
        return _calculate(re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: repr(values[m[0]]), text), float)


_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def _calculate(text: str, number: Callable[[str], float]) -> float | None:
    """Numbers with + - * / % and brackets, as C calculates; by its own small reader, so nothing is ever executed."""
    plain = re.sub(rf"({_NUMBER})[uUlLfF]*", r"\1", text)
    tokens = re.findall(rf"{_NUMBER}|[-+*/%()]", plain)
    if "".join(tokens) != re.sub(r"\s+", "", plain) or not tokens:
        return None
    try:
        value, rest = _Calculator(number).sum(tokens)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    return value if not rest else None


class _Calculator:
    """Reads tokens from the left; whole numbers divide as integers do in C."""

    def __init__(self, number: Callable[[str], float]) -> None:
        self.number = number

    def sum(self, tokens: list[str]) -> tuple[float, list[str]]:
        value, rest = self.product(tokens)
        while rest and rest[0] in "+-":
            right, after = self.product(rest[1:])
            value, rest = (value + right if rest[0] == "+" else value - right), after
        return value, rest

    def product(self, tokens: list[str]) -> tuple[float, list[str]]:
        value, rest = self.atom(tokens)
        while rest and rest[0] in "*/%":
            right, after = self.atom(rest[1:])
            value, rest = self.times(value, rest[0], right), after
        return value, rest

    def times(self, left: float, operator: str, right: float) -> float:
        if operator == "*":
            return left * right
        if isinstance(left, float):
            return left / right
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right

    def atom(self, tokens: list[str]) -> tuple[float, list[str]]:
        if tokens[0] in "+-":
            value, rest = self.atom(tokens[1:])
            return (value if tokens[0] == "+" else -value), rest
        if tokens[0] == "(":
            value, rest = self.sum(tokens[1:])
            if rest[0] != ")":
                raise ValueError(tokens)
            return value, rest[1:]
        return self.number(tokens[0]), tokens[1:]


def _whole(token: str) -> int:
    return int(token, 8 if token.startswith("0") else 10)


# -- reading a file -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def declared(*texts: str) -> Declared:
    """The declarations of several texts, later ones going before earlier ones."""
    found = Declared()
    for text in texts:
        for node in parse(text).named_children:
            _read(node, found)
        for function in functions(text):
            found.overloaded |= {function.name} & set(found.functions)
            found.functions[function.name] = function
    return found


def _read(node: Node, found: Declared) -> None:
    reader = _READERS.get(node.type)
    if reader is not None:
        reader(node, found)
    if node.type in _NESTED:
        for child in node.named_children:
            _read(child, found)


def _field(node: Node, name: str) -> str:
    child = node.child_by_field_name(name)
    return text_of(child).strip() if child is not None else ""


_UNKNOWN = "?;"  # the body of a macro that is defined twice


def _read_macro(node: Node, found: Declared) -> None:
    listed = node.child_by_field_name("parameters")
    names = tuple(text_of(n) for n in listed.named_children) if listed is not None else None
    body = re.sub(r"//.*|/\*.*?\*/|\\\n", " ", _field(node, "value"))
    macro, name = Macro(names, body.strip()), _field(node, "name")
    ambiguous = found.macros.get(name, macro) != macro  # branches of an #if: nothing is known
    found.macros[name] = Macro(names, _UNKNOWN) if ambiguous else macro


def _read_typedef(node: Node, found: Declared) -> None:
    target = _field(node, "type")
    inner = node.child_by_field_name("type")
    name = _field(node, "declarator") or _field(node, "name")
    if inner is not None and inner.type == "struct_specifier":
        _read_struct(inner, found, name)
    elif re.fullmatch(r"\w+", name):
        found.aliases[name] = target


def _read_struct(node: Node, found: Declared, name: str = "") -> None:
    body = node.child_by_field_name("body")
    if body is None:
        return
    fields = found.structs.setdefault(name or _field(node, "name"), {})
    for member in body.named_children:
        if member.type == "field_declaration":
            simple = [n for n in member.named_children if n.type == "field_identifier"]
            fields.update({text_of(n): _field(member, "type") for n in simple})


def _read_enum(node: Node, found: Declared) -> None:
    body = node.child_by_field_name("body")
    following = "0"
    for item in body.named_children if body is not None else ():
        if item.type == "enumerator":
            name, value = _field(item, "name"), _field(item, "value") or following
            found.constants[name], found.values[name] = "int", value
            following = f"({value})+1"


def _read_variable(node: Node, found: Declared) -> None:
    for child in node.named_children:
        if child.type == "enum_specifier":
            _read_enum(child, found)
    head = text_of(node)
    fixed = re.search(r"\b(const|constexpr)\b", head.split("=")[0]) and "*" not in head.split("=")[0]
    for declarator in node.children_by_field_name("declarator"):
        name = next((text_of(n) for n in walk(declarator) if n.type == "identifier"), "")
        if fixed and declarator.type == "init_declarator" and "array" not in declarator.named_children[0].type:
            found.constants[name] = _field(node, "type")
            found.values[name] = _field(declarator, "value")
        elif "function_declarator" not in {n.type for n in walk(declarator)}:
            found.variables[name] = _field(node, "type")


_READERS: Mapping[str, Callable[[Node, Declared], None]] = {
    "preproc_def": _read_macro,
    "preproc_function_def": _read_macro,
    "type_definition": _read_typedef,
    "alias_declaration": _read_typedef,
    "struct_specifier": _read_struct,
    "enum_specifier": _read_enum,
    "declaration": _read_variable,
}
_NESTED = words(
    """preproc_if preproc_ifdef preproc_else preproc_elif namespace_definition declaration_list
    linkage_specification template_declaration"""
)
