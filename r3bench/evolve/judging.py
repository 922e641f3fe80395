"""From a child to a program: what it is compared with, its merits, its place in the archive and in the ledger."""

from __future__ import annotations

from typing import Any

from r3bench.evolve.archive import Archive
from r3bench.evolve.children import Child
from r3bench.evolve.features import Code, cell
from r3bench.evolve.novelty import Novelty
from r3bench.evolve.program import Program
from r3bench.evolve.settings import Settings
from r3bench.evolve.sources import Source
from r3bench.evolve.start import Kernel, Start
from r3bench.model import facts_of
from r3bench.nouns import encode

ALIKE = 2  # trials that every text has before it is judged, if it stands well


class Judge:
    """Judges the texts of one kernel in the order in which their parents were drawn.

    ``sources`` holds every text that was tried, by id, ``trials`` counts their configurations, and ``defaults`` are the
    times of those that are no copies under the default configuration.
    """

    def __init__(self, kernel: Kernel, settings: Settings) -> None:
        self.sources: dict[str, Source] = {}
        self.novelty = Novelty()
        self.trials = 0
        self.defaults: list[float] = []
        self._kernel, self._settings = kernel, settings

    def first(self, source: Source, start: Start) -> Program:
        """The program that the archive begins with."""
        self.sources[source.id] = source
        program = Program(id=source.id, files=source.files, **self._merits(source, start))
        self._keep(source, program)
        return program

    def judge(self, child: Child, start: Start, archive: Archive) -> Program:
        """Give a child its place. It may equal one that was judged while it was under way."""
        self._compare(child)
        program = archive.add(self._program(child, start), child.draw)
        self._keep(child.source, program)
        return program

    def _compare(self, child: Child) -> None:
        if child.source is not None and child.status == "matched":
            if twin := self.novelty.same_text(child.source):
                child.is_copy_of(twin, "text")
            elif twin := self.novelty.same_code(child.source):
                child.is_copy_of(twin, "code")

    def _program(self, child: Child, start: Start) -> Program:
        assert child.status is not None
        source = child.source
        return Program(
            id=f"p{child.draw.step}",
            files=source.files if source is not None else (),
            launch=source.launch if source is not None else None,
            parent=child.draw.parent.id,
            origin=child.origin,
            description=child.description,
            status=child.status,
            detail=child.detail,
            step=child.draw.step,
            repaired=child.repaired,
            **(self._merits(source, start) if source is not None and child.status == "matched" else {}),
        )

    def _merits(self, source: Source, start: Start) -> dict[str, Any]:
        """What a program that matched is judged by: where texts race, that one which had more trials is no better."""
        assert source.best is not None
        outcomes = source.outcomes[:ALIKE] if self._settings.race else source.outcomes
        ns = min((ns for _, _, ns in outcomes if ns is not None), default=source.best[1])
        codes = [Code(files=s.files, facts=facts_of(s.outcomes[0][1].facts)) for s in (source, self.sources["p0"])]
        return {
            "ns": ns,
            "speedup": start.ns / ns,
            "default_ns": source.default_ns,
            "trials": len(source.outcomes),
            "cell": cell(self._settings.axes, *codes),
        }

    def _keep(self, source: Source | None, program: Program) -> None:
        if source is not None:
            self.sources[source.id] = source
        if source is not None and program.status != "duplicate":  # how far that got depends on what ended first
            self.trials += len(source.outcomes)
            self.novelty.add(source)
            self.defaults += [source.default_ns] if source.default_ns is not None else []
        about = {"kernel": self._kernel.capture.name, "step": program.step, "rule": source.rule if source else ""}
        self._kernel.ledger.once("program", **about, program=encode(program))
