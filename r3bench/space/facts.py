"""What is known of a unit: the values that a specialization compiles in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from r3bench.model import Allocation, Configuration, LaunchConfig, Parameter, Pointer, ReplayUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFacts:
    """What a compiler may assume in one replay unit: the values that a specialization compiles in.

    ``scalars`` holds the bytes of each scalar parameter by name; ``disjoint`` says that no two pointer arguments, and
    no pointer inside memory, lead to the same allocation; ``alignments`` gives bytes per pointer parameter.
    """

    launch: LaunchConfig
    scalars: tuple[tuple[str, bytes], ...] = ()
    disjoint: bool = False
    alignments: tuple[tuple[str, int], ...] = ()
    parameters: tuple[Parameter, ...] = ()

    def used_by(self, configuration: Configuration) -> UnitFacts:
        """Only the facts that this configuration compiles in, so that units that share them share their binary."""
        special = configuration.specialize
        block = special.block or configuration.bound_threads != "none"
        named = bool(special.arguments) or special.noalias or special.align
        return UnitFacts(
            launch=LaunchConfig(
                grid=self.launch.grid if special.grid else (1, 1, 1),
                block=self.launch.block if block else (1, 1, 1),
            ),
            scalars=tuple(pair for pair in self.scalars if pair[0] in special.arguments),
            disjoint=self.disjoint and special.noalias,
            alignments=self.alignments if special.align else (),
            parameters=self.parameters if named else (),
        )


def unit_facts(parameters: Sequence[Parameter], unit: ReplayUnit, launch: LaunchConfig) -> UnitFacts:
    """The facts of a unit under a launch, from its argument bytes and pointer table."""
    scalars = tuple((p.name, unit.arguments[p.offset : p.offset + p.size]) for p in parameters if p.kind == "scalar")
    return UnitFacts(
        launch=launch,
        scalars=scalars,
        disjoint=_disjoint(unit),
        alignments=_alignments(parameters, unit),
        parameters=tuple(parameters),
    )


def _disjoint(unit: ReplayUnit) -> bool:
    """Whether each allocation is reached by one pointer argument at most, and by nothing else.

    A pointer to a module's variable counts as shared: the kernel may name that variable, too.
    """
    reached = [pointer.allocation for pointer in unit.pointers if pointer.holder == ""]
    elsewhere = {pointer.allocation for pointer in unit.pointers if pointer.holder != ""}
    elsewhere |= {variable.symbol for variable in unit.globals}
    return len(set(reached)) == len(reached) and not elsewhere & set(reached)


def _alignments(parameters: Sequence[Parameter], unit: ReplayUnit) -> tuple[tuple[str, int], ...]:
    named = {allocation.name: allocation for allocation in unit.allocations}
    at = {pointer.offset: pointer for pointer in unit.pointers if pointer.holder == ""}
    return tuple(
        (p.name, _alignment(named[at[p.offset].allocation], at[p.offset]))
        for p in parameters
        if p.kind == "pointer" and p.offset in at and at[p.offset].allocation in named
    )


def _alignment(allocation: Allocation, pointer: Pointer) -> int:
    """The largest power of two that divides the address, as far as replay keeps the allocation's alignment."""
    bits = allocation.align | pointer.displacement
    return bits & -bits
