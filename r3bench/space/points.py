"""Points of the space: a dictionary of knob values, and the configuration and launch it means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from r3bench.model import (
    Capture,
    Configuration,
    Dim3,
    LaunchRule,
    Parameter,
    Pipeline,
    ReplayUnit,
    Specialization,
    Target,
)
from r3bench.space import passes
from r3bench.space.facts import unit_facts
from r3bench.space.knob import Knob, Value
from r3bench.space.knobs import BOUNDS, OPTIONS, Options, block_name, knobs_of, named_arguments


@dataclass(frozen=True, slots=True)
class Space:
    """The knobs of one unit on one target, and what their values mean."""

    device: str
    knobs: tuple[Knob, ...]
    parameters: tuple[Parameter, ...]
    blocks: tuple[Dim3, ...]

    @classmethod
    def for_unit(
        cls,
        capture: Capture,
        unit: ReplayUnit,
        target: Target,
        legal_blocks: Sequence[Dim3] = (),
        launch: LaunchRule | None = None,
        *,
        fast_math: bool = False,
        slots: int = 0,
    ) -> Space:
        """The space of a unit.

        ``legal_blocks`` are block shapes it may run with; that of ``launch`` (None: the recorded one) always is, and
        comes first. ``fast_math`` lets the search change results within the tolerance for speed; so many ``slots`` for
        passes take the place of the extra passes.
        """
        chosen = launch.apply(unit.launch) if launch is not None else unit.launch
        blocks = (chosen.block, *(block for block in legal_blocks if block != chosen.block))
        language = capture.source.language if capture.source else "cuda"
        facts = unit_facts(capture.parameters, unit, chosen)
        knobs = knobs_of(facts, target, blocks, language, fast_math=fast_math, slots=slots)
        return cls(target.device, tuple(knobs), capture.parameters, blocks)

    @property
    def default(self) -> dict[str, Value]:
        """The default pipeline with the recorded launch."""
        return {knob.name: knob.default for knob in self.knobs}

    def knob(self, name: str) -> Knob:
        for knob in self.knobs:
            if knob.name == name:
                return knob
        raise KeyError(name)

    def matters(self, knob: Knob, point: Mapping[str, Value]) -> bool:
        """Whether this knob's value changes what a point means."""
        return passes.matters(knob, point)

    def decode(self, point: Mapping[str, Value]) -> tuple[Configuration, LaunchRule | None]:
        """What a point means; knobs left out have their default. ValueError for a knob or value that is not here."""
        values = self.default | self._checked(point)
        before, after = passes.decoded(values)
        bound, min_blocks, registers = _bound(values.get("bounds", "none"))
        configuration = Configuration(
            pipeline=_pipeline(values.get("pipeline", "O3")),
            before=before,
            after=after,
            tuning=tuple(_tuning(self._chosen("tuning.", values))),
            options=self._options(values),
            specialize=self._specialization(values),
            bound_threads=bound,
            min_blocks=min_blocks,
            max_registers=registers,
            assembler=tuple((name, str(value)) for name, value in self._chosen("assembler.", values)),
            fast_math=bool(values.get("fast_math", False)),
        )
        return configuration, self._launch(values)

    def encode(self, configuration: Configuration, launch: LaunchRule | None = None) -> dict[str, Value]:
        """A point that means this configuration and launch; ValueError where the space has none."""
        point = self.default
        point["pipeline"] = configuration.pipeline
        slots = sum(name.startswith("slot.") for name in point)
        point |= passes.encoded(configuration.before, configuration.after, slots)
        point |= {f"tuning.{name}": value for name, value in configuration.tuning}
        point |= self._option_values(configuration.options)
        point |= self._specialization_values(configuration.specialize)
        point |= _bounds_value(configuration)
        point |= {f"assembler.{name}": value for name, value in configuration.assembler}
        point |= {"fast_math": True} if configuration.fast_math else {}
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

    def _options(self, values: Mapping[str, Value]) -> Options:
        settings = OPTIONS.get(self.device, {})
        chosen = self._chosen("option.", values)
        return tuple(option for name, value in chosen for option in settings[name][str(value)])

    def _option_values(self, options: Options) -> dict[str, Value]:
        """The value of each option knob whose options are all among these; the default's (none) always are."""
        return {
            f"option.{name}": [value for value, wanted in settings.items() if set(wanted) <= set(options)][-1]
            for name, settings in OPTIONS.get(self.device, {}).items()
        }

    def _specialization(self, values: Mapping[str, Value]) -> Specialization:
        return Specialization(
            arguments=named_arguments(values.get("specialize.arguments", "none"), self.parameters),
            block=bool(values.get("specialize.block", False)),
            grid=bool(values.get("specialize.grid", False)),
            noalias=bool(values.get("specialize.noalias", False)),
            align=bool(values.get("specialize.align", False)),
        )

    def _specialization_values(self, special: Specialization) -> dict[str, Value]:
        values: dict[str, Value] = {
            f"specialize.{name}": True for name in ("block", "grid", "noalias", "align") if getattr(special, name)
        }
        if special.arguments:
            choices = ("all", "integers")
            fitting = [c for c in choices if named_arguments(c, self.parameters) == special.arguments]
            values["specialize.arguments"] = fitting[0] if fitting else "+".join(special.arguments)
        return values

    def _launch(self, values: Mapping[str, Value]) -> LaunchRule | None:
        chosen = values.get("block")
        if chosen is None or chosen == block_name(self.blocks[0]):
            return None
        return LaunchRule(block=next(block for block in self.blocks if block_name(block) == chosen))


def _pipeline(value: Value) -> Pipeline:
    return next(level for level in get_args(Pipeline) if level == value)


def _tuning(chosen: Iterable[tuple[str, Value]]) -> Iterable[tuple[str, int | bool]]:
    for name, value in chosen:
        assert not isinstance(value, str), f"{name} has no number"
        yield name, value


def _bound(name: Value) -> tuple[Literal["none", "max", "exact"], int | None, int | None]:
    return next((bound, blocks, registers) for key, bound, blocks, registers in BOUNDS if key == name)


def _bounds_value(configuration: Configuration) -> dict[str, Value]:
    wanted = (configuration.bound_threads, configuration.min_blocks, configuration.max_registers)
    if wanted == ("none", None, None):
        return {}
    for name, *bound in BOUNDS:
        if tuple(bound) == wanted:
            return {"bounds": name}
    raise ValueError("these launch bounds lie outside the search space")


def _sorted(configuration: Configuration) -> Configuration:
    """The same configuration with settings whose order has no meaning in a fixed order."""
    return replace(
        configuration,
        tuning=tuple(sorted(configuration.tuning)),
        options=tuple(sorted(configuration.options)),
        assembler=tuple(sorted(configuration.assembler)),
    )
