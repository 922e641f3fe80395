"""The texts a search tunes: the one it begins with, and what the rules make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from r3bench.errors import BuildError
from r3bench.evolve.rules import proposals
from r3bench.evolve.tuning import Ask, Tuner
from r3bench.ledger import SourceResult
from r3bench.model import Capture, Outcome, Variant, content_id
from r3bench.space import Space, unit_facts
from r3bench.syntax import plain_name

RECORDED = "recorded"
"""The rule's name of the text that a search begins with."""


@dataclass(slots=True, eq=False)
class Source:
    """One text with its tuner and what has come of it; ``outcomes`` in the order in which they were told."""

    rule: str
    description: str
    files: tuple[tuple[str, str], ...]
    space: Space
    tuner: Tuner
    outcomes: list[tuple[Ask, Outcome, float | None]] = field(default_factory=list)
    same_as: str | None = None

    def variant(self, ask: Ask) -> Variant:
        """What an ask of this source's tuner means."""
        configuration, launch = self.space.decode(ask.point)
        return Variant(files=self.files, configuration=configuration, launch=launch)

    @property
    def default_ns(self) -> float | None:
        return self.outcomes[0][2] if self.outcomes else None

    @property
    def best(self) -> tuple[Ask, float] | None:
        """The fastest ask that matched, and its nanoseconds."""
        timed = [(ask, ns) for ask, _, ns in self.outcomes if ns is not None]
        return min(timed, key=lambda pair: pair[1], default=None)

    def result(self) -> SourceResult:
        return SourceResult(
            rule=self.rule,
            description=self.description,
            trials=len(self.outcomes),
            matched=sum(ns is not None for _, _, ns in self.outcomes),
            default_ns=self.default_ns,
            best_ns=self.best[1] if self.best else None,
            same_as=self.same_as,
        )


def make_sources(capture: Capture, texts: Mapping[str, str], space: Space, seed: int) -> tuple[list[Source], str]:
    """The recorded text and every proposal, each with a tuner; and a sentence where the rules could not read it.

    Equal seeds give equal tuners, whatever else is searched before.
    """
    assert capture.source is not None
    main = capture.source.main
    made = [(RECORDED, "the text as it is", dict(texts))]
    note = ""
    try:
        context = [text for path, text in texts.items() if path != main]
        found = proposals(texts[main], plain_name(capture.demangled), disjoint=is_disjoint(capture), context=context)
        made += [(p.rule, p.description, {**texts, main: p.text}) for p in found]
    except BuildError as error:
        note = str(error)
    return [_source(rule, text, files, space, seed, capture) for rule, text, files in made], note


def _source(rule: str, description: str, files: Mapping[str, str], space: Space, seed: int, capture: Capture) -> Source:
    own = int(content_id(capture.name, rule, seed)[:8], 16)
    return Source(rule, description, tuple(sorted(files.items())), space, Tuner(space, own))


def is_disjoint(capture: Capture) -> bool:
    """Whether in every recorded launch each pointer argument leads to memory of its own."""
    return all(unit_facts(capture.parameters, unit, unit.launch).disjoint for unit in capture.units)


def is_recorded(capture: Capture, files: Mapping[str, str]) -> bool:
    """Whether texts are those that were recorded."""
    assert capture.source is not None
    recorded = dict(capture.source.files)
    return {path: sha256(text.encode()).hexdigest() for path, text in files.items()} == recorded
