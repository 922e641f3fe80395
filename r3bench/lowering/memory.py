"""Variables of a kernel: shared memory becomes offsets into a block's frame, device variables are reached by slots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from r3bench.errors import Unsupported
from r3bench.lowering import allow
from r3bench.lowering.ir import GLOBAL, QUOTED, Module, leading_type
from r3bench.lowering.layout import round_up, shape_and_dtype, size_and_align
from r3bench.model import Global

SHARED = "@r3.shared"
SHARED_ALIGN = 128
_DEFINITION = re.compile(r"(?:addrspace\((\d+)\) )?(externally_initialized )?\b(global|constant) ")
_RESERVED = re.compile(r"r3_|r3\.|llvm\.|mem(cpy|move|set|cmp)$|__(trunc|extend)\w+2$")


@dataclass(slots=True)
class Variables:
    """``offsets`` places shared variables, ``slots`` names pointers to device variables.

    ``shared_bytes`` of static variables lie before ``dynamic_offset``; ``empty`` is the id of empty metadata.
    """

    offsets: dict[str, int] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    definitions: list[str] = field(default_factory=list)
    globals: list[Global] = field(default_factory=list)
    shared_bytes: int = 0
    dynamic_offset: int = 0
    empty: int = 0


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    space: int
    constant: bool
    initialized: bool
    external: bool
    type: str
    initializer: str
    align: int


def place_variables(module: Module, reached: Sequence[str], kernel: str) -> Variables:
    """Offsets of static shared variables one after the other, dynamic ones behind them; slots for device variables."""
    found = Variables(empty=_next_metadata(module))
    read = [_read(name, module, kernel) for name in reached if name in module.globals]
    for variable in read:
        if variable.space == 3 and not variable.external:
            _place_shared(found, variable, module)
    dynamic = round_up(found.shared_bytes, SHARED_ALIGN)
    for variable in read:
        if variable.space == 3 and variable.external:
            found.offsets[variable.name] = dynamic
    found.dynamic_offset = dynamic
    for variable in read:
        if variable.space != 3:
            _define(found, variable, module, kernel)
    found.definitions.append(f"!{found.empty} = !{{}}")
    return found


def _next_metadata(module: Module) -> int:
    numbers = [int(match[1]) for line in module.metadata if (match := re.match(r"!(\d+) =", line))]
    return max(numbers, default=-1) + 1


def _read(name: str, module: Module, kernel: str) -> _Variable:
    text = module.globals[name]
    allow.check_global(name, text, kernel)
    match = _DEFINITION.search(text)
    if match is None:
        raise Unsupported(f"{kernel} uses the variable {name}, whose definition the CPU device cannot read")
    rest = text[match.end() :]
    kind = leading_type(rest)
    tail = rest[len(kind) :]
    align = re.search(r", align (\d+)", tail)
    initializer = re.split(r", (?:align|section|comdat|!)", tail)[0].strip()
    return _Variable(
        name=name,
        space=int(match[1] or 0),
        constant=match[3] == "constant",
        initialized=bool(match[2]),
        external=not initializer,
        type=kind,
        initializer=initializer,
        align=int(align[1]) if align else size_and_align(kind, module.types)[1],
    )


def _place_shared(found: Variables, variable: _Variable, module: Module) -> None:
    if variable.initializer not in ("undef", "poison"):
        raise Unsupported(f"the shared variable {variable.name} has an initial value, which CUDA does not allow")
    offset = round_up(found.shared_bytes, variable.align)
    found.offsets[variable.name] = offset
    found.shared_bytes = offset + size_and_align(variable.type, module.types)[0]


def _define(found: Variables, variable: _Variable, module: Module, kernel: str) -> None:
    name = variable.name
    if variable.external:
        found.definitions.append(f"{name} = external global {variable.type}")
        return
    initializer = _plain_initializer(variable, found, kernel)
    align = f"align {variable.align}"
    if variable.constant and not variable.initialized:
        found.definitions.append(f"{name} = private unnamed_addr constant {variable.type} {initializer}, {align}")
        return
    symbol = name[1:].strip('"')
    if _RESERVED.match(symbol):
        raise Unsupported(f"{kernel} uses a variable named {symbol}, a name the CPU device keeps for itself; rename it")
    slot = f'@"r3_slot.{symbol}"' if name.startswith('@"') else f"@r3_slot.{symbol}"
    found.slots[name] = slot
    found.definitions.append(f"{name} = global {variable.type} {initializer}, {align}")
    found.definitions.append(f"{slot} = global ptr {name}, align 8")
    shape, dtype = shape_and_dtype(variable.type)
    nbytes = size_and_align(variable.type, module.types)[0]
    found.globals.append(Global(symbol=symbol, nbytes=nbytes, dtype=dtype, shape=shape, constant=variable.space == 4))


def _plain_initializer(variable: _Variable, found: Variables, kernel: str) -> str:
    """The initializer without address spaces. One that holds a device variable's address cannot follow its slot."""
    if GLOBAL.search(QUOTED.sub('""', variable.initializer)):
        raise Unsupported(
            f"{kernel} uses {variable.name[1:]}, whose initial value holds an address; assign it in the kernel instead"
        )
    return variable.initializer
