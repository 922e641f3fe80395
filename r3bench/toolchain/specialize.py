"""Facts of a unit written into a kernel's IR, as text, before any pass and for every target alike.

A dimension becomes a constant when the intrinsic that reads it gets a definition. An argument becomes a constant
through a wrapper: the recorded kernel becomes an internal function, always inlined, and a kernel of its name and
signature calls it with constants in place of arguments. Pointer facts are attributes of that kernel's parameters.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from r3bench.errors import BuildError
from r3bench.lowering.ir import closing, leading_type, split_list
from r3bench.model import Configuration
from r3bench.space import UnitFacts
from r3bench.toolchain.irtext import Item, items

BODY = "r3.body"
_BOUND_ATTRIBUTES = ("nvvm.maxntid", "nvvm.reqntid", "nvvm.minctasm", "nvvm.maxnreg")


def specialize(ir: str, symbol: str, configuration: Configuration, facts: UnitFacts) -> str:
    """The module with what ``configuration.specialize`` asks for compiled in, values from ``facts``."""
    special = configuration.specialize
    if special.block:
        ir = _fixed_dimensions(ir, "ntid", "tid", facts.launch.block)
    if special.grid:
        ir = _fixed_dimensions(ir, "nctaid", "ctaid", facts.launch.grid)
    if special.arguments or special.noalias or special.align:
        ir = _wrapped(ir, symbol, configuration, facts)
    return ir


# -- dimensions -----------------------------------------------------------------------------------------------------

_SREG = r"@llvm\.nvvm\.read\.ptx\.sreg\."
_SIZE = re.compile(rf"^declare [^\n]*{_SREG}(n\w+)\.([xyz])\(\)[^\n]*$", re.MULTILINE)
_SIZE_READ = re.compile(rf"{_SREG}(n\w+)\.([xyz])\(\)")
_INDEX = re.compile(rf"^(declare [^\n]*?)(?:range\([^)]*\) )?i32 ({_SREG}(tid|ctaid)\.([xyz]))\(\)", re.MULTILINE)


def _fixed_dimensions(ir: str, size: str, index: str, dims: tuple[int, int, int]) -> str:
    """Reads of a dimension give its value, and reads of the index in it are known to stay below."""
    value = dict(zip("xyz", dims, strict=True))

    def definition(found: re.Match[str]) -> str:
        body = f"define internal i32 @r3.{size}.{found[2]}() alwaysinline {{\n  ret i32 {value[found[2]]}\n}}"
        return body if found[1] == size else found[0]

    def read(found: re.Match[str]) -> str:
        return f"@r3.{size}.{found[2]}()" if found[1] == size else found[0]

    def limited(found: re.Match[str]) -> str:
        return f"{found[1]}range(i32 0, {value[found[4]]}) i32 {found[2]}()" if found[3] == index else found[0]

    return _INDEX.sub(limited, _SIZE_READ.sub(read, _SIZE.sub(definition, ir)))


# -- arguments ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel's definition in pieces: ``define {head}@{symbol}({parameters}) {tail}``, then the lines of its body."""

    head: str
    symbol: str
    parameters: tuple[str, ...]
    tail: str
    body: str


def _kernel(text: str, symbol: str) -> _Kernel:
    line, body = text.split("\n", 1)
    at = line.index("(", line.index("@"))
    end = closing(line, at)
    head = line[: line.index("@")].removeprefix("define ")
    return _Kernel(head, symbol, tuple(split_list(line[at + 1 : end])), line[end + 1 :], body)


def _found(parts: Sequence[Item], symbol: str) -> _Kernel:
    return _kernel(next(part.text for part in parts if part.name == symbol and part.is_function), symbol)


def parameter_count(ir: str, symbol: str) -> int:
    """How many parameters a kernel of the module has."""
    return len(_found(items(ir), symbol).parameters)


def _wrapped(ir: str, symbol: str, configuration: Configuration, facts: UnitFacts) -> str:
    parts = items(ir)
    kernel = _found(parts, symbol)
    if len(kernel.parameters) != len(facts.parameters):
        raise BuildError(
            f"kernel {symbol} has {len(kernel.parameters)} parameters where {len(facts.parameters)} were recorded; "
            "keep its signature"
        )
    groups = _AttributeGroups(ir)
    body_group = groups.edited(kernel.tail, drop=("noinline", "optnone"), add=("alwaysinline",))
    text = "\n".join((_body(kernel, body_group), _wrapper(kernel, configuration, facts)))
    rest = (text if part.name == symbol and part.is_function else part.text for part in parts)
    return "\n".join((*rest, *groups.added)) + "\n"


def _body(kernel: _Kernel, attributes: str) -> str:
    """The recorded kernel as a function to inline. By-value structs come by address: the kernel's own copy serves."""
    parameters = ", ".join(_without_byval(parameter) for parameter in kernel.parameters)
    return f'define internal void @"{BODY}.{kernel.symbol}"({parameters}) {attributes} {{\n{kernel.body}'


def _without_byval(parameter: str) -> str:
    start = parameter.find("byval(")
    if start < 0:
        return parameter
    return parameter[:start] + parameter[closing(parameter, start + len("byval")) + 2 :]


def _wrapper(kernel: _Kernel, configuration: Configuration, facts: UnitFacts) -> str:
    constants = _constants(configuration, facts)
    parameters, arguments = [], []
    for number, (text, known) in enumerate(zip(kernel.parameters, facts.parameters, strict=True)):
        kind, name = leading_type(text), f"%{number}"
        attributes = _pointer_attributes(known.name, configuration, facts) if known.kind == "pointer" else ""
        parameters.append(f"{_unnamed(text)} {attributes}{name}")
        arguments.append(
            f"{kind} {_literal(kind, constants[known.name])}" if known.name in constants else f"{kind} {name}"
        )
    call = f'  call void @"{BODY}.{kernel.symbol}"({", ".join(arguments)})'
    head = f"define {kernel.head}@{_quoted(kernel.symbol)}({', '.join(parameters)}) {kernel.tail.lstrip()}"
    return "\n".join((re.sub(r" !\w+ !\d+", "", head), call, "  ret void", "}"))


def _quoted(symbol: str) -> str:
    return symbol if re.fullmatch(r"[\w$.-]+", symbol) else f'"{symbol}"'


def _unnamed(parameter: str) -> str:
    return re.sub(r'\s*%(?:"[^"]*"|[\w$.-]+)$', "", parameter)


def _constants(configuration: Configuration, facts: UnitFacts) -> dict[str, bytes]:
    known = dict(facts.scalars)
    unknown = [name for name in configuration.specialize.arguments if name not in known]
    if unknown:
        raise BuildError(f"there is no scalar parameter {unknown[0]!r} to specialize; name one of {sorted(known)}")
    return {name: known[name] for name in configuration.specialize.arguments}


def _pointer_attributes(name: str, configuration: Configuration, facts: UnitFacts) -> str:
    special, alignments = configuration.specialize, dict(facts.alignments)
    return "".join(_attributes(special.noalias and facts.disjoint, alignments.get(name, 1) if special.align else 1))


def _attributes(noalias: bool, align: int) -> Iterator[str]:
    if noalias:
        yield "noalias "
    if align > 1:
        yield f"align {align} "


def _literal(kind: str, value: bytes) -> str:
    """A scalar argument's bytes as a constant of an LLVM type."""
    integer = int.from_bytes(value, "little")
    if kind == "i1":
        return "true" if integer & 1 else "false"
    if re.fullmatch(r"i\d+", kind):
        return str(int.from_bytes(value, "little", signed=True))
    if kind == "half":
        return f"0xH{integer:04X}"
    if kind == "bfloat":
        return f"0xR{integer:04X}"
    if kind == "float":
        return f"0x{_bits_as_double(value):016X}"
    if kind == "double":
        return f"0x{integer:016X}"
    raise BuildError(f"a parameter of LLVM type {kind} cannot be made a constant; leave it out of the specialization")


def _bits_as_double(value: bytes) -> int:
    """LLVM writes a float constant as the double of the same value; payloads of NaN move up by 29 bits."""
    bits = int.from_bytes(value, "little")
    sign, exponent, mantissa = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return sign << 63 | 0x7FF << 52 | mantissa << 29
    (number,) = struct.unpack("<f", value)
    return int.from_bytes(struct.pack("<d", number), "little")


# -- attributes -----------------------------------------------------------------------------------------------------


class _AttributeGroups:
    """The module's attribute groups, and the ones added to it (``attributes #9 = { ... }``)."""

    def __init__(self, ir: str) -> None:
        self._texts = dict(re.findall(r"^attributes (#\d+) = \{(.*)\}$", ir, re.MULTILINE))
        self._next = 1 + max((int(number[1:]) for number in re.findall(r"#\d+", ir)), default=-1)
        self.added: list[str] = []

    def edited(self, tail: str, *, drop: tuple[str, ...] = (), add: tuple[str, ...] = ()) -> str:
        """A new group: the one named in ``tail`` without the attributes in ``drop`` and with those in ``add``."""
        named = re.search(r"#\d+", tail)
        kept = [a for a in split_attributes(self._texts.get(named[0], "") if named else "") if _key(a) not in drop]
        number = f"#{self._next}"
        self._next += 1
        self.added.append(f"attributes {number} = {{ {' '.join((*kept, *add))} }}")
        return number


def split_attributes(text: str) -> list[str]:
    return re.findall(r'"[^"]*"(?:="[^"]*")?|[\w-]+(?:\([^)]*\))?(?:=\S+)?', text)


def _key(attribute: str) -> str:
    return attribute.split("=")[0].strip('"')


def bound(ir: str, symbol: str, configuration: Configuration, facts: UnitFacts) -> str:
    """The module with the kernel's launch bounds and register cap as NVPTX attributes; the source's give way.

    BuildError where a minimum of blocks is asked for without a bound on threads.
    """
    attributes = dict(_bounds(configuration, facts))
    if not attributes:
        return ir
    groups = _AttributeGroups(ir)
    parts = items(ir)
    kernel = _found(parts, symbol)
    named = re.search(r"#\d+", kernel.tail)
    replaced = set(_BOUND_ATTRIBUTES[:2]) if configuration.bound_threads != "none" else set[str]()
    added = tuple(f'"{name}"="{value}"' for name, value in attributes.items())
    group = groups.edited(kernel.tail, drop=(*replaced, *attributes), add=added)
    tail = kernel.tail.replace(named[0], group, 1) if named else f" {group}{kernel.tail}"
    head = f"define {kernel.head}@{_quoted(symbol)}({', '.join(kernel.parameters)}){tail}"
    if "nvvm.minctasm" in attributes and not {"nvvm.maxntid", "nvvm.reqntid"} & {
        _key(a) for a in split_attributes(groups.added[-1])
    }:
        raise BuildError(
            "a minimum of blocks per processor needs a bound on threads; set bound_threads to max or exact"
        )
    texts = (f"{head}\n{kernel.body}" if part.name == symbol and part.is_function else part.text for part in parts)
    return "\n".join((*texts, *groups.added)) + "\n"


def _bounds(configuration: Configuration, facts: UnitFacts) -> Iterator[tuple[str, str]]:
    dims = ",".join(str(n) for n in facts.launch.block)
    if configuration.bound_threads == "max":
        yield "nvvm.maxntid", dims
    elif configuration.bound_threads == "exact":
        yield "nvvm.reqntid", dims
    if configuration.min_blocks is not None:
        yield "nvvm.minctasm", str(configuration.min_blocks)
    if configuration.max_registers is not None:
        yield "nvvm.maxnreg", str(configuration.max_registers)
