"""NVPTX IR of a kernel to IR of the host: ``lower(ir, symbol, ...)``. Text in, text out; nothing is executed.

The steps are :mod:`~r3bench.lowering.allow` (refuse what must not run here), :mod:`~r3bench.lowering.prepare` (host
types, memory, mathematics), a light optimization by whoever calls (everything inlined into the kernel), then
:mod:`~r3bench.lowering.fields` (structs passed by value), :mod:`~r3bench.lowering.updates` and
:mod:`~r3bench.lowering.active` (what one thread of the CPU need not do), :mod:`~r3bench.lowering.strides`,
:mod:`~r3bench.lowering.few` and :mod:`~r3bench.lowering.cut` (cut where threads wait, and where it pays),
:mod:`~r3bench.lowering.uniform` (what threads share), :mod:`~r3bench.lowering.regions` (the pieces, each a loop over
threads) and :mod:`~r3bench.lowering.driver` (how they are called).

The module that comes out exports ``r3_frame_bytes`` and ``r3_run_block``::

    struct r3_launch { uint32_t grid[3], block[3], shared_bytes, order, threads; };
    uint64_t r3_frame_bytes(const struct r3_launch*);
    int32_t r3_run_block(const unsigned char *arguments, const struct r3_launch*, const uint32_t block_index[3],
                         unsigned char *frame);

Both pass a table of the kernel's pieces on to ``__r3_frame_bytes`` and ``__r3_run_block``, which whoever links the
module provides, with ``__r3_apart`` and ``__r3_left_out`` for the pieces (devices/cpu/blocks.c). ``r3_run_block``
returns 0, 1 (a barrier or collective never completed), 2 (assertion failed), 3 (trap) or 4 (a checked build: a warp
waits at two barriers). The frame may hold anything at first. Every device variable ``X`` is reached through the
exported pointer ``r3_slot.X``, whose initial value is the object's own ``X``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from r3bench.errors import BuildError, Unsupported
from r3bench.lowering import allow, checked, libdevice
from r3bench.lowering.active import merge_active
from r3bench.lowering.collectives import arrays, is_named
from r3bench.lowering.cut import cut
from r3bench.lowering.driver import write_driver
from r3bench.lowering.fields import split_fields
from r3bench.lowering.ir import Function, Module, call_arguments, callee, read_function, read_module
from r3bench.lowering.nvvm import BARRIERS, OPERATIONS
from r3bench.lowering.prepare import KERNEL, Prepared, prepare
from r3bench.lowering.quotients import hide_quotients
from r3bench.lowering.regions import write_regions
from r3bench.lowering.rows import Independence
from r3bench.lowering.signature import RANGES, Signature
from r3bench.lowering.strides import cut_strides
from r3bench.lowering.updates import plain_if_alone, without_atomics
from r3bench.model import Global


@dataclass(frozen=True, slots=True)
class Lowered:
    """A host module: its text, its device variables, the libm functions it may call; static shared memory and the
    argument block in bytes."""

    ir: str
    globals: tuple[Global, ...]
    math: tuple[str, ...]
    shared_bytes: int
    argument_bytes: int


def lower(ir: str, symbol: str, *, triple: str, data_layout: str, optimize: Callable[[str], str]) -> Lowered:
    """Lower kernel ``symbol`` of an NVPTX module to a module for ``triple``.

    ``optimize`` must inline what is marked so and build SSA form (O2 without vectorization and without unrolling that
    nobody asked for); its result goes through the real pipeline afterwards. Raises Unsupported for what the CPU device
    cannot run and BuildError for what the IR may not contain, naming it.
    """
    prepared = prepare(ir, symbol, triple=triple, data_layout=data_layout)
    module = read_module(optimize(prepared.text))
    kernel = _only_function(module, symbol)
    text = _host_module(module, kernel, prepared, triple, data_layout)
    return Lowered(
        ir=text,
        globals=tuple(prepared.variables.globals),
        math=libdevice.symbols(text),
        shared_bytes=prepared.variables.shared_bytes,
        argument_bytes=max((argument.offset + argument.size for argument in prepared.arguments), default=0),
    )


def _only_function(module: Module, symbol: str) -> Function:
    if KERNEL not in module.functions:
        raise BuildError(f"optimizing {symbol} removed its code")
    if len(module.functions) > 1:
        raise Unsupported(f"{symbol} calls a function that calls itself, which the CPU device does not support")
    for name, text in module.globals.items():
        if text.startswith("external ") and re.search(rf"{re.escape(name)}(?![-\w$.])", module.functions[KERNEL]):
            raise allow.refuse(f"the variable {name[1:]}, which is declared but not defined", symbol)
    return read_function(module.functions[KERNEL], "r3.v")


def _host_module(module: Module, kernel: Function, prepared: Prepared, triple: str, data_layout: str) -> str:
    metadata = _Independent(module.metadata)
    fields = split_fields(kernel, prepared.arguments)
    without_atomics(kernel)
    merge_active(kernel)
    cut_strides(kernel)
    plain_if_alone(kernel)
    hide_quotients(kernel)
    suspends = [(name, call_arguments(line)) for line in kernel.lines() if (name := callee(line)) in OPERATIONS]
    named = any(is_named(name, operands) for name, operands in suspends if name)
    own = arrays([name for name, _ in suspends if name], named)
    pieces = cut(kernel, module.types, own)
    arguments = [*prepared.arguments, *fields]
    kinds = ["ptr" if argument.by_value else argument.type for argument in arguments]
    names = [*(parameter.name for parameter in kernel.parameters), *(field.name for field in fields)]
    alone = [] if prepared.suspends or "ptr" in pieces.kept.values() else _alone(kernel)
    signed = Signature(list(zip(names, kinds, strict=True)), arguments, metadata.ranges, alone, not pieces.suspends)
    regions = write_regions(pieces, signed, metadata.marks)
    aligned = all(".aligned." in name for name, _ in suspends if name in BARRIERS)
    asks = checked.CHECK in module.declarations
    driver = write_driver(pieces, regions, prepared.variables.dynamic_offset, asks, asks and aligned)
    return _assembled(module, [region.text for region in regions], driver, metadata.lines, triple, data_layout)


def _alone(kernel: Function) -> list[str]:
    """Parameters that lead alone to their memory, which holds only while no pointer travels through memory."""
    return [parameter.name for parameter in kernel.parameters if re.search(r"\bnoalias\b", parameter.attributes)]


class _Independent:
    """Metadata that says: accesses of the group do not depend on each other from one pass of the loop to the next; and
    what is known of values that regions read."""

    def __init__(self, metadata: list[str]) -> None:
        numbers = [int(match[1]) for line in metadata if (match := re.match(r"!(\d+) =", line))]
        first = max(numbers, default=-1) + 1
        group, loop, short, rare, parallel, once, often, rolled, scalar = (f"!{first + n}" for n in range(9))
        self.marks = Independence(group, loop, short, rare)
        self.lines = [
            f"{group} = distinct !{{}}",
            f"{loop} = distinct !{{{loop}, {parallel}, {once}, {rolled}}}",
            f"{short} = distinct !{{{short}, {parallel}, {often}, {rolled}}}",
            f"{rare} = distinct !{{{rare}, {parallel}, {once}, {scalar}, {rolled}}}",
            f'{once} = !{{!"llvm.loop.interleave.count", i32 1}}',
            f'{often} = !{{!"llvm.loop.interleave.count", i32 4}}',
            f'{rolled} = !{{!"llvm.loop.unroll.runtime.disable"}}',
            f'{scalar} = !{{!"llvm.loop.vectorize.width", i32 1}}',
            f'{parallel} = !{{!"llvm.loop.parallel_accesses", {group}}}',
        ]
        self.ranges = {text: f"!{first + n}" for n, text in enumerate(sorted(set(RANGES.values())), 9)}
        self.lines += [f"{number} = !{{{text}}}" for text, number in self.ranges.items()]


def _assembled(
    module: Module, regions: list[str], driver: str, metadata: list[str], triple: str, data_layout: str
) -> str:
    declared = {callee(line) for line in driver.splitlines() if line.startswith("declare ")}
    parts = [
        f'target datalayout = "{data_layout}"',
        f'target triple = "{triple}"',
        *(f"{name} = type {text}" for name, text in module.types.items()),
        *(f"{name} = {text}" for name, text in module.globals.items() if not text.startswith("external ")),
        *regions,
        driver,
        *(text for name, text in module.declarations.items() if not _gone(name) and name not in declared),
        *(f"attributes {name} = {{{text}}}" for name, text in module.attributes.items()),
        *module.metadata,
        *metadata,
    ]
    return "\n".join(parts) + "\n"


def _gone(name: str) -> bool:
    return name.startswith(("@llvm.nvvm.", "@r3.")) or name == "@__assertfail"
