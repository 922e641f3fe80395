"""A module's ``__device__`` and ``__constant__`` variables and their first values, read from the text of its IR."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from r3bench.errors import RecordError

_VARIABLE = re.compile(
    r'^@(?P<name>"[^"]+"|[\w.$-]+) = [^\n]*?addrspace\((?P<space>[14])\) (?:externally_initialized )?'
    r"(?:global|constant) (?P<rest>[^\n]*)$",
    re.MULTILINE,
)
_NAMED_TYPE = re.compile(r'^(%(?:"[^"]+"|[\w.$-]+)) = type (.*)$', re.MULTILINE)
_TOKEN = re.compile(r'c"(?:[^"\\]|\\..)*"|[%@]"[^"]*"|[%@][\w.$-]+|<\{|\}>|[\[\]{}<>(),]|[^\s\[\]{}<>(),]+')
_SEQUENCES = ("array", "vector", "struct", "packed")
_CLOSING = ("]", ">", "}", "}>")
_ZEROS = ("zeroinitializer", "undef", "poison", "null")
_FLOATS = {"half": ("<e", "float16"), "float": ("<f", "float32"), "double": ("<d", "float64")}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: its bytes when the module is loaded; dtype and shape where it is a number or an array of them."""

    symbol: str
    first: bytes
    dtype: str
    shape: tuple[int, ...]


def variable_names(ir: str) -> tuple[str, ...]:
    """The symbols of all variables in device memory, in order."""
    return tuple(match["name"].strip('"') for match in _VARIABLE.finditer(ir))


def read_variable(ir: str, symbol: str) -> Variable:
    """One variable; RecordError where its first value is no number or collection of numbers."""
    types = {match[1]: match[2] for match in _NAMED_TYPE.finditer(ir)}
    found = {match["name"].strip('"'): match["rest"] for match in _VARIABLE.finditer(ir)}
    if symbol not in found:
        raise RecordError(f"the module has no variable {symbol} in device memory: check its name")
    reader = _Reader(symbol, _TOKEN.findall(found[symbol]), types)
    kind = reader.type()
    dtype, shape = _element(kind)
    return Variable(symbol, reader.value(kind), dtype, shape)


# -- types ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Type:
    """A type of LLVM: a scalar by name, ``count`` times one member (array, vector), or a struct's members."""

    name: str
    members: tuple[_Type, ...] = ()
    count: int = 1

    @property
    def nbytes(self) -> int:
        if self.name == "struct":
            end = 0
            for member in self.members:
                end = _up(end, member.align) + member.nbytes
            return _up(end, self.align)
        if self.name in _SEQUENCES:
            return self.count * sum(member.nbytes for member in self.members)
        return _scalar_bytes(self.name)

    @property
    def align(self) -> int:
        if self.name == "packed":
            return 1
        if self.name in ("array", "struct"):
            return max((member.align for member in self.members), default=1)
        return 1 << max(self.nbytes - 1, 0).bit_length()

    def item(self, index: int) -> _Type:
        return self.members[0] if self.name in ("array", "vector") else self.members[index]


def _up(offset: int, align: int) -> int:
    return -(-offset // align) * align


def _scalar_bytes(name: str) -> int:
    if re.fullmatch(r"i\d+", name):
        return 1 << max((int(name[1:]) + 7) // 8 - 1, 0).bit_length()
    return {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}[name]


def _element(kind: _Type) -> tuple[str, tuple[int, ...]]:
    """NumPy's name and shape for a number or (nested) array of one; bytes for everything else."""
    shape: list[int] = []
    element = kind
    while element.name == "array":
        shape.append(element.count)
        element = element.members[0]
    if element.name in _FLOATS:
        return _FLOATS[element.name][1], tuple(shape)
    if element.name in ("i8", "i16", "i32", "i64"):
        return f"int{element.name[1:]}", tuple(shape)
    return ("bfloat16", tuple(shape)) if element.name == "bfloat" else ("uint8", (kind.nbytes,))


# -- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the tokens of ``<type> <value>`` as LLVM writes them."""

    def __init__(self, symbol: str, tokens: list[str], types: dict[str, str]) -> None:
        self._symbol = symbol
        self._tokens = tokens
        self._types = types
        self._at = 0

    def type(self) -> _Type:
        token = self._next()
        if token in ("[", "<"):
            count = int(self._next())
            self._expect("x")
            member = self.type()
            self._next()
            return _Type("array" if token == "[" else "vector", (member,), count)
        if token in ("{", "<{"):
            return _Type("struct" if token == "{" else "packed", tuple(self._list(self.type)))
        if token.startswith("%"):
            return _Reader(self._symbol, _TOKEN.findall(self._types.get(token, "opaque")), self._types).type()
        if token == "ptr" and self._tokens[self._at : self._at + 1] == ["addrspace"]:
            self._at += 4
        if not re.fullmatch(r"i\d+|half|bfloat|float|double|ptr", token):
            raise self._strange(token)
        return _Type(token)

    def value(self, kind: _Type) -> bytes:
        token = self._next()
        if token in _ZEROS:
            return bytes(kind.nbytes)
        if token.startswith('c"'):
            return re.sub(rb"\\(..)", lambda m: bytes.fromhex(m[1].decode()), token[2:-1].encode("latin-1"))
        if token in ("[", "<", "{", "<{") and kind.name in _SEQUENCES:
            return self._members(kind, self._list(lambda: self.value(self.type())))
        return self._scalar(kind, token)

    def _members(self, kind: _Type, values: list[bytes]) -> bytes:
        data = bytearray()
        for index, value in enumerate(values):
            place = _up(len(data), kind.item(index).align) if kind.name == "struct" else len(data)
            data += bytes(place - len(data)) + value
        return bytes(data.ljust(kind.nbytes, b"\0"))

    def _scalar(self, kind: _Type, token: str) -> bytes:
        if re.fullmatch(r"i\d+", kind.name) and re.fullmatch(r"-?\d+|true|false", token):
            number = int(token == "true") if token in ("true", "false") else int(token)
            return (number % (1 << (8 * kind.nbytes))).to_bytes(kind.nbytes, "little")
        if kind.name == "bfloat" and token.startswith("0xR"):
            return int(token[3:], 16).to_bytes(2, "little")
        if kind.name == "half" and token.startswith("0xH"):
            return int(token[3:], 16).to_bytes(2, "little")
        if kind.name in _FLOATS and re.fullmatch(r"0x[0-9A-Fa-f]{16}|[-+]?\d[\d.]*(e[-+]\d+)?", token):
            (value,) = struct.unpack(">d", bytes.fromhex(token[2:])) if token.startswith("0x") else (float(token),)
            return struct.pack(_FLOATS[kind.name][0], value)
        raise self._strange(token)

    def _list(self, item: Callable[[], T]) -> list[T]:
        """Items separated by commas, up to the bracket that closes them."""
        if self._tokens[self._at : self._at + 1] and self._tokens[self._at] in _CLOSING:
            self._at += 1
            return []
        found = [item()]
        while (token := self._next()) not in _CLOSING:
            if token != ",":
                raise self._strange(token)
            found.append(item())
        return found

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise self._strange("the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, wanted: str) -> None:
        if (token := self._next()) != wanted:
            raise self._strange(token)

    def _strange(self, token: str) -> RecordError:
        return RecordError(
            f"the first value of variable {self._symbol} cannot be read ('{token}'): initialize it with numbers only"
        )
