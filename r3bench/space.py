"""The search space of structured knobs, as data.

A :class:`Knob` is a name with its values, the default first; a :class:`Space` is the knobs one replay unit has on one
target. A point of the space is a plain dictionary ``{knob name: value}``, and :meth:`Space.decode` makes the
configuration and launch of it. Every point is legal by construction: where two settings exclude each other they share
one knob. The default point is the default pipeline with the recorded launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from random import Random
from typing import Literal

from r3bench.model import (
    Allocation,
    Capture,
    Configuration,
    Dim3,
    LaunchConfig,
    LaunchRule,
    Parameter,
    Pointer,
    ReplayUnit,
    Specialization,
    Target,
)

Value = bool | int | str

# -- what is known of a unit ----------------------------------------------------------------------------------------


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


# -- the knobs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Knob:
    """One choice; ``values[0]`` is the default. ``ordered`` says that neighbours in ``values`` are alike."""

    name: str
    values: tuple[Value, ...]
    ordered: bool = False

    @property
    def default(self) -> Value:
        return self.values[0]


EXTRA_PASSES = (
    "simplify_cfg",
    "sroa",
    "instruction_combine",
    "aggressive_instcombine",
    "reassociate",
    "new_gvn",
    "jump_threading",
    "loop_rotate",
    "loop_unroll",
    "loop_strength_reduce",
    "sinking",
    "dead_store_elimination",
)
"""Extra passes, each off, before or after the base pipeline; their order is a knob of its own."""

_ORDERS = 8


def _orders() -> tuple[tuple[str, ...], ...]:
    """As listed, reversed, and some fixed shuffles: the same in every process and version of Python's hash."""
    random = Random(2025)
    shuffles = [tuple(random.sample(EXTRA_PASSES, len(EXTRA_PASSES))) for _ in range(_ORDERS - 2)]
    return (EXTRA_PASSES, EXTRA_PASSES[::-1], *shuffles)


ORDERS = _orders()
"""The orders in which extra passes may run; the knob ``order`` is an index into this."""

TUNING: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "cpu": {
        "loop_unrolling": (True, False),
        "loop_vectorization": (True, False),
        "slp_vectorization": (True, False),
        "loop_interleaving": (True, False),
    },
    "cuda": {
        "loop_unrolling": (True, False),
        "inlining_threshold": ("default", 25, 75, 500, 2000),
    },
}
"""Options of the base pipeline per device; ``default`` leaves one out."""

OPTIONS: Mapping[str, tuple[Value, ...]] = {
    "unroll-threshold": ("default", "50", "600", "2000"),
    "unroll-runtime": ("default", "true", "false"),
    "unroll-count": ("default", "2", "4", "8"),
    "phi-node-folding-threshold": ("default", "1", "8"),
}
"""LLVM's own options; ``default`` leaves one out."""

_BOUNDS: tuple[tuple[str, Literal["none", "max", "exact"], int | None, int | None], ...] = (
    ("none", "none", None, None),
    ("max", "max", None, None),
    ("exact", "exact", None, None),
    *((f"{bound} blocks={n}", bound, n, None) for bound in ("max", "exact") for n in (2, 3, 4, 6, 8)),
    *((f"registers={n}", "none", None, n) for n in (32, 40, 48, 64, 96, 128, 168, 255)),
)
_THREADS_PER_SM = 2048


def _bounds(threads: int) -> tuple[Value, ...]:
    """Launch bounds and register caps that a block of ``threads`` can have at all."""
    return tuple(name for name, _, blocks, _ in _BOUNDS if (blocks or 1) * threads <= _THREADS_PER_SM)


def block_name(block: Dim3) -> str:
    return "x".join(str(n) for n in block)


def _knobs(facts: UnitFacts, target: Target, blocks: Sequence[Dim3]) -> Iterable[Knob]:
    yield Knob("pipeline", ("O3", "O2", "O1"), ordered=True)
    for name in EXTRA_PASSES:
        yield Knob(f"pass.{name}", ("off", "before", "after"))
    yield Knob("order", tuple(range(len(ORDERS))))
    for name, values in TUNING.get(target.device, {}).items():
        yield Knob(f"tuning.{name}", values)
    for name, values in OPTIONS.items():
        yield Knob(f"option.{name}", values)
    yield from _specialization_knobs(facts)
    if target.device == "cuda":
        yield Knob("bounds", _bounds(max(prod(block) for block in blocks)))
    if len(blocks) > 1:
        yield Knob("block", tuple(block_name(block) for block in blocks))


def _specialization_knobs(facts: UnitFacts) -> Iterable[Knob]:
    choices = tuple(_argument_choices(facts.parameters))
    if len(choices) > 1:
        yield Knob("specialize.arguments", choices)
    yield Knob("specialize.block", (False, True))
    yield Knob("specialize.grid", (False, True))
    if facts.disjoint and len(facts.alignments) > 1:
        yield Knob("specialize.noalias", (False, True))
    if facts.alignments:
        yield Knob("specialize.align", (False, True))


def _argument_choices(parameters: Sequence[Parameter]) -> Iterable[str]:
    yield "none"
    whole, every = _arguments("integers", parameters), _arguments("all", parameters)
    if whole and whole != every:
        yield "integers"
    if every:
        yield "all"


def _arguments(choice: Value, parameters: Sequence[Parameter]) -> tuple[str, ...]:
    if choice == "none":
        return ()
    scalars = [p for p in parameters if p.kind == "scalar"]
    return tuple(p.name for p in scalars if choice == "all" or "int" in (p.dtype or "") or p.dtype == "bool")


# -- points and what they mean --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Space:
    """The knobs of one unit on one target, and what their values mean."""

    knobs: tuple[Knob, ...]
    parameters: tuple[Parameter, ...]
    blocks: tuple[Dim3, ...]

    @classmethod
    def for_unit(cls, capture: Capture, unit: ReplayUnit, target: Target, legal_blocks: Sequence[Dim3] = ()) -> Space:
        """The space of a unit. ``legal_blocks`` are block shapes it may run with; the recorded one always is."""
        recorded = unit.launch.block
        blocks = (recorded, *(block for block in legal_blocks if block != recorded))
        facts = unit_facts(capture.parameters, unit, unit.launch)
        return cls(tuple(_knobs(facts, target, blocks)), capture.parameters, blocks)

    @property
    def default(self) -> dict[str, Value]:
        """The default pipeline with the recorded launch."""
        return {knob.name: knob.default for knob in self.knobs}

    def knob(self, name: str) -> Knob:
        for knob in self.knobs:
            if knob.name == name:
                return knob
        raise KeyError(name)

    def decode(self, point: Mapping[str, Value]) -> tuple[Configuration, LaunchRule | None]:
        """What a point means; knobs left out have their default. ValueError for a knob or value that is not here."""
        values = self.default | self._checked(point)
        order = ORDERS[int(values["order"])]
        bound, min_blocks, registers = _bound(values.get("bounds", "none"))
        configuration = Configuration(
            pipeline=_pipeline(values["pipeline"]),
            before=tuple(name for name in order if values[f"pass.{name}"] == "before"),
            after=tuple(name for name in order if values[f"pass.{name}"] == "after"),
            tuning=tuple(_tuning(self._chosen("tuning.", values))),
            options=tuple((name, str(value)) for name, value in self._chosen("option.", values)),
            specialize=self._specialization(values),
            bound_threads=bound,
            min_blocks=min_blocks,
            max_registers=registers,
        )
        return configuration, self._launch(values)

    def encode(self, configuration: Configuration, launch: LaunchRule | None = None) -> dict[str, Value]:
        """A point that means this configuration and launch; ValueError where the space has none."""
        point = self.default
        point["pipeline"] = configuration.pipeline
        point |= {f"pass.{name}": "before" for name in configuration.before}
        point |= {f"pass.{name}": "after" for name in configuration.after}
        point["order"] = _order(configuration)
        point |= {f"tuning.{name}": value for name, value in configuration.tuning}
        point |= {f"option.{name}": value for name, value in configuration.options}
        point |= self._specialization_values(configuration.specialize)
        point |= _bounds_value(configuration)
        if launch is not None and launch.block != self.blocks[0]:
            point["block"] = block_name(launch.block)
        point = self._checked(point)
        if _sorted(self.decode(point)[0]) != _sorted(configuration):
            raise ValueError("this configuration lies outside the search space")
        return point

    def _checked(self, point: Mapping[str, Value]) -> dict[str, Value]:
        legal = {knob.name: knob.values for knob in self.knobs}
        for name, value in point.items():
            if name not in legal:
                raise ValueError(f"the search space has no knob {name!r}")
            if value not in legal[name]:
                raise ValueError(f"knob {name!r} has no value {value!r}")
        return dict(point)

    def _chosen(self, prefix: str, values: Mapping[str, Value]) -> Iterable[tuple[str, Value]]:
        """The settings of one family that differ from their default."""
        for knob in self.knobs:
            if knob.name.startswith(prefix) and values[knob.name] != knob.default:
                yield knob.name.removeprefix(prefix), values[knob.name]

    def _specialization(self, values: Mapping[str, Value]) -> Specialization:
        return Specialization(
            arguments=_arguments(values.get("specialize.arguments", "none"), self.parameters),
            block=bool(values["specialize.block"]),
            grid=bool(values["specialize.grid"]),
            noalias=bool(values.get("specialize.noalias", False)),
            align=bool(values.get("specialize.align", False)),
        )

    def _specialization_values(self, special: Specialization) -> dict[str, Value]:
        values: dict[str, Value] = {
            f"specialize.{name}": True for name in ("block", "grid", "noalias", "align") if getattr(special, name)
        }
        if special.arguments:
            choices = ("all", "integers")
            fitting = [c for c in choices if _arguments(c, self.parameters) == special.arguments]
            values["specialize.arguments"] = fitting[0] if fitting else "+".join(special.arguments)
        return values

    def _launch(self, values: Mapping[str, Value]) -> LaunchRule | None:
        chosen = values.get("block")
        if chosen is None or chosen == block_name(self.blocks[0]):
            return None
        return LaunchRule(block=next(block for block in self.blocks if block_name(block) == chosen))


def _pipeline(value: Value) -> Literal["O1", "O2", "O3"]:
    return "O1" if value == "O1" else "O2" if value == "O2" else "O3"


def _tuning(chosen: Iterable[tuple[str, Value]]) -> Iterable[tuple[str, int | bool]]:
    for name, value in chosen:
        assert not isinstance(value, str), f"{name} has no number"
        yield name, value


def _bound(name: Value) -> tuple[Literal["none", "max", "exact"], int | None, int | None]:
    return next((bound, blocks, registers) for key, bound, blocks, registers in _BOUNDS if key == name)


def _bounds_value(configuration: Configuration) -> dict[str, Value]:
    wanted = (configuration.bound_threads, configuration.min_blocks, configuration.max_registers)
    if wanted == ("none", None, None):
        return {}
    for name, *bound in _BOUNDS:
        if tuple(bound) == wanted:
            return {"bounds": name}
    raise ValueError("these launch bounds lie outside the search space")


def _order(configuration: Configuration) -> int:
    """The first of ORDERS in which this configuration's extra passes run as it says."""
    for number, order in enumerate(ORDERS):
        kept = [
            tuple(name for name in order if name in chosen) for chosen in (configuration.before, configuration.after)
        ]
        if kept == [configuration.before, configuration.after]:
            return number
    raise ValueError("the search space does not have these extra passes in this order")


def _sorted(configuration: Configuration) -> Configuration:
    """The same configuration with settings whose order has no meaning in a fixed order."""
    return replace(
        configuration, tuning=tuple(sorted(configuration.tuning)), options=tuple(sorted(configuration.options))
    )
