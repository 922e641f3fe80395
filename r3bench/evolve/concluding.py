"""From what a kernel's search found to its result: finalists, promotion, and the winner's gain taken apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from time import monotonic
from typing import Literal

from r3bench.errors import BuildError, CandidateFailure, CaptureError
from r3bench.evolve.described import described
from r3bench.evolve.exploring import Exploration
from r3bench.evolve.finalists import finalists
from r3bench.evolve.neighbours import Unit
from r3bench.evolve.own import own_compiler
from r3bench.evolve.promote import Court, Verdicts, claims, promote
from r3bench.evolve.slim import slim
from r3bench.evolve.sources import RECORDED, Files, Source
from r3bench.evolve.split import split
from r3bench.evolve.start import Start, read_texts
from r3bench.ledger import Arm, FileChange, KernelResult, Share, adds_up
from r3bench.model import Configuration, Variant
from r3bench.nouns import encode
from r3bench.rules import RULES, relied_on
from r3bench.syntax import file_of, plain_name, scoped_name
from r3bench.worktree import place_of

Ending = Literal["improved", "not improved", "failed", "interrupted"]


class Conclusion:
    """One kernel's result; what was decided is in its attributes, so that it can be interrupted anywhere."""

    def __init__(self, exploration: Exploration) -> None:
        self.found = exploration
        self.settings = exploration.settings
        self.evaluator = exploration.evaluator
        self.capture = exploration.kernel.capture
        self.verdicts = Verdicts()
        self.arms: list[Arm] = []
        self.split: tuple[Share, ...] = ()
        self.missing = ""  # what else was to be measured of a winner, and why it could not be
        self.began = monotonic()

    def conclude(self, *, interrupted: bool = False) -> KernelResult:
        """Promote what is faster, and say how it all ended."""
        found, stage = self.found, "before promotion"
        try:
            if found.start is not None and not found.trouble and not interrupted:
                self._promote(found.start)
        except (CaptureError, CandidateFailure) as error:
            if self.verdicts.winner is None:
                found.trouble = str(error)
            self.missing = f"; how its gain is made up could not be measured: {error}"
        except KeyboardInterrupt:
            interrupted, stage = True, "during promotion"
        if found.trouble:
            return self._result("failed", found.trouble)
        if interrupted:
            return self._result("interrupted", f"stopped after {self.evaluator.evaluations} evaluations, {stage}")
        return self._result("improved" if self.verdicts.winner else "not improved", self._reason() + self.missing)

    # -- promotion --

    def _promote(self, start: Start) -> None:
        recorded = self.found.sources.get("p0")
        if recorded is None:
            return
        image = start.name == "recorded image"
        court = Court(
            evaluator=self.evaluator,
            baseline=start.baseline,
            gate=self.settings.gate,
            kernels=self.settings.kernels * (claims(self.settings.contests) + 2 * image),
            contests=self.settings.contests,
            neighbours=self._neighbours,
            original=start.texts,
        )
        self.found.run.progress(f"{self.found.name}: the best of {self.evaluator.evaluations} evaluations are verified")
        promote(court, finalists(start, self.found.sources, self.evaluator), recorded, self.verdicts)
        if image:
            ours = Variant(files=recorded.files, configuration=Configuration())
            toolchain = self.evaluator.compare(start.baseline, ours, court.gate, court.kernels)
            self.arms.append(Arm(name="toolchain", comparison=toolchain))
            self._try_own_compiler(court)
        if (winner := self.verdicts.winner) is not None:
            self.verdicts.winner = winner = replace(winner, variant=slim(self.evaluator, winner.variant))
            self._take_apart(split(self.evaluator, start, recorded.files, winner.variant))

    def _take_apart(self, shares: tuple[Share, ...]) -> None:
        """Keep how the gain is made up where that comes to what is claimed: ranking times may be too noisy for it."""
        if adds_up(shares, self.verdicts.arms[0].comparison):
            self.split = shares
        else:
            whole = prod(share.factor or 1.0 for share in shares)
            self.missing = (
                f"; how its gain is made up is not shown, for by ranking times its parts come to {whole:.2f}x"
            )

    def _try_own_compiler(self, court: Court) -> None:
        """The promoted source as the application's own compiler builds it: what its users will have."""
        edited = self._edited()
        built = own_compiler(self.capture, edited.files, self.evaluator.target) if edited is not None else None
        if built is not None:
            comparison = self.evaluator.compare(court.baseline, built, court.gate, court.kernels)
            self.arms.append(Arm(name="own compiler", comparison=comparison))

    # -- the result --

    def _reason(self) -> str:
        """Why the winner is one, or why the best that was contested is none."""
        tried = self.verdicts.promotions
        if not tried and sum(source.result().trials for source in self.found.sources.values()) <= 1:
            return "nothing but the baseline was tried before the search ended"
        if not tried:
            return "nothing ranked ahead of the baseline when the best were timed again"
        if self.verdicts.winner is not None:
            return next(promotion.reason for promotion in tried if promotion.promoted)
        return next((promotion for promotion in tried if promotion.decision is not None), tried[0]).reason

    def _result(self, status: Ending, detail: str) -> KernelResult:
        found, start, winner, edited = self.found, self.found.start, self.verdicts.winner, self._edited()
        before = start.texts if start is not None else {}
        after = {**before, **dict(edited.files)} if edited is not None else before
        file = self._file(before)
        reached = self._reached(before, file, edited.files) if edited is not None else ()
        arms = (*self.verdicts.arms, *self.arms)
        ranked_ns = start.ns if start is not None else None
        return KernelResult(
            kernel=self.capture.name,
            capture=self.capture.path,
            content_hash=self.capture.content_hash,
            status=status,
            detail=detail,
            device=self.evaluator.target.device,
            target=self.evaluator.target.arch,
            baseline=start.name if start is not None else "",
            baseline_ns=next((a.comparison.baseline_ns for a in arms if a.comparison.baseline_ns), ranked_ns),
            seed=self.settings.seed,
            evaluations=self.evaluator.evaluations,
            seconds=round(found.seconds + monotonic() - self.began, 3),
            source=self._place(file),
            before=before.get(file, ""),
            after=after[file] if edited is not None else None,
            others=tuple(
                FileChange(path=self._place(path), before=text, after=after[path])
                for path, text in before.items()
                if path != file and text != after[path]
            ),
            rule=edited.rule if edited is not None else None,
            description=edited.description if edited is not None else "",
            relies_on=relied_on(edited.rule) if edited is not None else (),
            configuration=_settings_of(winner.variant) if winner is not None else None,
            arms=arms,
            sources=tuple(s.result() for s in found.sources.values()),
            failures=(*self.evaluator.failures, *found.asking.failures),
            promotions=tuple(self.verdicts.promotions),
            conditions=self._conditions(arms),
            settings=described(winner.variant, self.capture.units[0].launch.block) if winner is not None else (),
            also_changes=reached,
            also_checked=tuple(name for name in reached if name in self._neighbours_that_match()),
            rules=tuple((name, rule.sentence) for name, rule in RULES.items() if name in self._rules_used()),
            search=self.settings.search,
            stopped=found.stopped,
            steps=found.steps,
            split=self.split,
            stages=tuple((stage, round(seconds, 3)) for stage, seconds in sorted(found.stages.items())),
            searched=round(found.seconds, 3),
            spent=found.asking.spent,
        )

    def _conditions(self, arms: Sequence[Arm]) -> tuple[tuple[str, str], ...]:
        """How the machine was before the search: this run of it where that held a contest, or there was none."""
        said = dict(self.found.start.conditions) if self.found.start is not None else {}
        if not arms or any(arm.comparison in self.evaluator.contests for arm in arms):
            said |= {name: value for name, value in (self.evaluator.now or {}).items() if name in said}
        return tuple(said.items())

    def _edited(self) -> Source | None:
        """The source of the promoted candidate where it is not the text as it was."""
        winner = self.verdicts.winner
        return winner.source if winner is not None and winner.source.rule != RECORDED else None

    def _file(self, texts: Mapping[str, str]) -> str:
        """The file that defines the kernel; the main one where none does, or no text is known."""
        main = self.capture.source.main if self.capture.source is not None else ""
        try:
            return file_of(texts, main, scoped_name(self.capture.demangled)) if texts else main
        except BuildError:
            return main

    def _place(self, file: str) -> str:
        """A file's path relative to the repository; empty where the kernel has no source."""
        return place_of(self.capture.source, file) if self.capture.source is not None else ""

    @cached_property
    def _neighbours(self) -> tuple[Unit, ...]:
        """The other kernels that share files with this one, with their texts as they were, where those can be read."""
        return tuple(self._beside())

    def _beside(self) -> Iterator[Unit]:
        for capture in self.found.kernel.neighbours:
            try:
                yield Unit(capture, read_texts(replace(self.found.kernel, capture=capture))[0])
            except CaptureError:
                continue  # which is told where that kernel is searched itself

    def _reached(self, before: Mapping[str, str], file: str, files: Files) -> tuple[str, ...]:
        """The kernels besides this one that an edit reaches."""
        own, name = Unit(self.capture, before), plain_name(self.capture.demangled)
        changes = own.changes(files)
        reached = (each for unit in (own, *self._neighbours) for each in unit.reached(changes))
        return tuple(dict.fromkeys(other for place, other in reached if (place, other) != (own.place(file), name)))

    def _neighbours_that_match(self) -> set[str]:
        promoted = [p for p in self.verdicts.promotions if p.promoted]
        return {name for promotion in promoted for name in promotion.neighbours}

    def _rules_used(self) -> set[str]:
        return {name for source in self.found.sources.values() for name in source.rule.split("+")}


def _settings_of(variant: Variant) -> str | None:
    """Configuration and launch of a variant as JSON; None where both are the default."""
    if variant.configuration in (None, Configuration()) and variant.launch is None:
        return None
    return json.dumps(
        {"configuration": encode(variant.configuration or Configuration()), "launch": encode(variant.launch)}
    )
