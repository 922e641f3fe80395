"""One text on its way through the inner search: its space, its tuner, and what has come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from r3bench import remix
from r3bench.evolve.settings import Settings
from r3bench.evolve.tuning import Ask, Point, Tuner
from r3bench.ledger import SourceResult
from r3bench.model import Capture, LaunchRule, Outcome, Status, Target, Variant, content_id
from r3bench.space import Space, unit_facts

RECORDED = "recorded"
"""The rule's name of the text that a search begins with."""

Files = tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class Source:
    """One text with its tuner and what has come of it; ``outcomes`` in the order in which they were told, of as many as
    were ``asked`` for.

    ``step`` is the one that brought it, 0 for the text as it is; ``rule`` says who made it of what, joined by ``+``,
    ``description`` what was changed since the text as it is. ``launch`` is the rule that it needs, None for the
    recorded launch. ``same_as`` names an earlier source that gave the same code, in whose place this is not tuned;
    ``used_up`` says that its tuner knows nothing more to try.
    """

    step: int
    rule: str
    description: str
    files: Files
    launch: LaunchRule | None
    space: Space
    tuner: Tuner
    outcomes: list[tuple[Ask, Outcome, float | None]] = field(default_factory=list)
    asked: int = 0
    same_as: str | None = None
    used_up: bool = False

    def variant(self, ask: Ask) -> Variant:
        """What an ask of this source's tuner means."""
        configuration, launch = ask.meaning
        if self.launch is not None:
            launch = replace(self.launch, block=launch.block) if launch is not None else self.launch
        return Variant(files=self.files, configuration=configuration, launch=launch)

    @property
    def id(self) -> str:
        """The id of its program."""
        return f"p{self.step}"

    @property
    def default_ns(self) -> float | None:
        return self.outcomes[0][2] if self.outcomes else None

    @property
    def best(self) -> tuple[Ask, float] | None:
        """The fastest ask that matched, and its nanoseconds."""
        timed = [(ask, ns) for ask, _, ns in self.outcomes if ns is not None]
        return min(timed, key=lambda pair: pair[1], default=None)

    @property
    def best_point(self) -> Point | None:
        return self.best[0].point if self.best is not None else None

    def suggest(self, point: Point) -> None:
        """Try early what was best for another text, as far as this text's space has it."""
        legal = {knob.name: knob.values for knob in self.space.knobs}
        self.tuner.suggest({name: value for name, value in point.items() if value in legal.get(name, ())})

    def result(self) -> SourceResult:
        return SourceResult(
            rule=self.rule,
            description=self.description,
            trials=len(self.outcomes),
            matched=sum(outcome.verdict.status is Status.MATCH for _, outcome, _ in self.outcomes),
            default_ns=self.default_ns,
            best_ns=self.best[1] if self.best else None,
            same_as=self.same_as,
        )


def make_source(
    capture: Capture, target: Target, settings: Settings, *, step: int, rule: str, description: str, files: Files,
    launch: LaunchRule | None = None,
) -> Source:  # fmt: skip
    """A source with the block shapes that its own text may have. Equal seeds and texts give equal tuners."""
    unit, own = capture.units[0], int(content_id(capture.name, files, launch, settings.seed)[:8], 16)
    chosen = launch.block if launch is not None else unit.launch.block
    blocks = remix.legal_blocks(capture, unit, dict(files)) if chosen == unit.launch.block else ()
    fast_math, slots = settings.fast_math, settings.slots
    space = Space.for_unit(capture, unit, target, blocks, launch, fast_math=fast_math, slots=slots)
    return Source(step, rule, description, files, launch, space, Tuner(space, own))


def is_disjoint(capture: Capture) -> bool:
    """Whether in every recorded launch each pointer argument leads to memory of its own."""
    return all(unit_facts(capture.parameters, unit, unit.launch).disjoint for unit in capture.units)


def is_recorded(capture: Capture, files: Mapping[str, str]) -> bool:
    """Whether texts are those that were recorded."""
    assert capture.source is not None
    recorded = dict(capture.source.files)
    return {path: sha256(text.encode()).hexdigest() for path, text in files.items()} == recorded
