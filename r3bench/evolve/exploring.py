"""The search of one kernel's texts: parents from the archive, children judged in the order in which they were drawn.

Children are proposed and evaluated several at a time, but join the archive in order. So an archive depends on the seed,
the answers and the outcomes alone, and not on which of them came first: a ledger replays the same search.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from math import log
from time import monotonic
from typing import Any

from r3bench.errors import BuildError, CandidateFailure, CaptureError, Exhausted
from r3bench.evolve.archive import Archive, Draw
from r3bench.evolve.asking import Asking
from r3bench.evolve.brief import brief, value_ranges
from r3bench.evolve.budget import Budget
from r3bench.evolve.children import Child, Steps
from r3bench.evolve.evaluate import Evaluator
from r3bench.evolve.features import AXES, Code, cell
from r3bench.evolve.inner import Standings, tune
from r3bench.evolve.novelty import Novelty
from r3bench.evolve.pools import Pace, Pool, Rank
from r3bench.evolve.program import Program
from r3bench.evolve.prompt import Prompter
from r3bench.evolve.propose.reply import Proposer
from r3bench.evolve.settings import Settings
from r3bench.evolve.sources import RECORDED, Source, make_source
from r3bench.evolve.start import Kernel, Start, begin, say
from r3bench.model import Outcome, Variant, facts_of
from r3bench.nouns import encode
from r3bench.server.requests import Server, Timing

FIRST = 10  # trials of the text as it is where sources race: as many as they get on average
LAST = 0.75  # of the budget is for texts; the rest is for configurations of the best
BEST = 3  # texts are tuned on then, as many as there are finalists
_HOPE = 0.1  # the gain (as a logarithm) that texts are expected to bring before anything is known
_UNANSWERED = 3  # calls in a row that bring no answer end a search
_EXHAUSTED = 5  # turns of every island on which the proposer has nothing to say end it


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What all kernels of a run share."""

    server: Server
    settings: Settings
    proposer: Proposer
    threads: Executor
    budget: Budget
    proposing: Pool
    evaluating: Pool
    progress: Callable[[str], None]


class Exploration:
    """One kernel's search; what it has found is in its attributes, so that it can be interrupted anywhere.

    ``trouble`` says why there was nothing to search, ``stopped`` what ended the search before its last step.
    """

    def __init__(self, kernel: Kernel, run: Run) -> None:
        self.kernel, self.run, self.settings = kernel, run, run.settings
        self.name = kernel.capture.name
        self.evaluator = Evaluator(kernel.capture, run.server, kernel.ledger)
        self.asking = Asking(self.name, run.proposer, run.threads, kernel.ledger, run.budget)
        self.start: Start | None = None
        self.archive: Archive | None = None
        self.sources: dict[str, Source] = {}
        self.stages: defaultdict[str, float] = defaultdict(float)
        self.trouble = self.stopped = ""
        self.steps, self.seconds = 0, 0.0
        self._novelty, self._standings = Novelty(), Standings()
        self._pace = Pace(self.settings)
        self._drawn_steps = self._trials = self._unanswered = self._exhausted = 0

    async def explore(self) -> None:
        """Everything before promotion."""
        began = monotonic()
        try:
            self.start = await begin(self.kernel, self.evaluator)
            self.archive = await self._first(self.start)
            steps = await self._steps(self.start) if self.archive is not None and self._proposes else None
            if self.archive is not None and steps is not None:
                await self._generations(self.start, self.archive, steps, until=LAST if self.settings.race else 1.0)
                await self._last_trials()
                await self._generations(self.start, self.archive, steps)
            if lacks := self.kernel.capture.lacks:
                self.stopped = self.stopped or f"the kernel was recorded {lacks}"
        except (CaptureError, CandidateFailure) as error:
            self.trouble = str(error)
        finally:
            self.seconds = monotonic() - began

    @property
    def _proposes(self) -> bool:
        """Whether other texts are made: that takes a source."""
        return self.settings.mode.proposes and not self.kernel.capture.lacks

    @property
    def promise(self) -> float:
        """The nanoseconds of the application's time that one more text may save: a gain like that of the texts so far,
        shared among them, in all launches that are known of."""
        if self.start is None or self.archive is None:
            return float("inf")
        launches = 1 + max(unit.occurrence for unit in self.kernel.capture.units)
        return self.start.ns * launches * (_HOPE + log(max(_speedup(self.archive.best), 1.0))) / (1 + self.steps)

    # -- the text as it is --

    async def _first(self, start: Start) -> Archive | None:
        """Tune the text that the search begins with; the archive that it founds, None where it does not work."""
        settings, files = self.settings, tuple(sorted(start.texts.items()))
        source = self._made(step=0, rule=RECORDED, description="", files=files)
        self.sources[source.id] = source
        trials = min(settings.trials, FIRST) if settings.race and self._proposes else settings.trials
        await tune(source, trials, self._evaluate, in_flight=settings.in_flight, enough=self._over)
        if source.best is None:
            self.stopped = self.stopped or f"the text as it is does not work: {say(source.outcomes[0][1])}"
            return None
        first = Program(id=source.id, files=files, **self._merits(source, start))
        axes = {name: AXES[name] for name in settings.axes}
        words, edges = [axis.words for axis in axes.values()], [list(axis.edges) for axis in axes.values()]
        self.kernel.ledger.once("archive", kernel=self.name, axes=list(axes), words=words, edges=edges)
        self._keep(source, first)
        return Archive(
            first,
            islands=settings.islands,
            population=settings.population,
            migrate=settings.migrate,
            seed=f"{self.name} {settings.seed}",
        )

    # -- the texts made from it --

    async def _generations(self, start: Start, archive: Archive, steps: Steps, until: float = 1.0) -> None:
        """Draw a parent whenever there is a place to propose in; judge the children in the order drawn.

        No more are drawn once such a share of the budget is used up.
        """
        under_way = deque[tuple[Child, asyncio.Task[None]]]()
        try:
            while self._drawn_steps < self.settings.iterations:
                step = self._drawn_steps + 1
                while len(under_way) >= self._pace.ahead:
                    await self._judge(*under_way.popleft(), start, archive, len(under_way))
                place = await self.run.proposing.enter(self._rank(step))
                if self._over() or (until < 1.0 and self.run.budget.share >= until):
                    place.leave()
                    break
                self._drawn_steps = step
                child = self._drawn(step, archive)
                standing = self._standings.now() if self.settings.race else None
                taken = asyncio.create_task(steps.take(child, standing, place, self._rank(step)))
                taken.add_done_callback(lambda _, place=place: place.leave())  # type: ignore[misc]
                under_way.append((child, taken))
            while under_way:
                await self._judge(*under_way.popleft(), start, archive, len(under_way))
        finally:
            for _, taken in under_way:
                taken.cancel()

    async def _last_trials(self) -> None:
        """Give the best texts the trials that the race has spared."""
        tuned = [source for source in self.sources.values() if source.best is not None and source.same_as is None]
        for source in sorted(tuned, key=_nanoseconds)[:BEST]:
            before = len(source.outcomes)
            await tune(
                source, self.settings.trials, self._evaluate, in_flight=self.settings.in_flight, enough=self._over
            )
            self._trials += len(source.outcomes) - before

    async def _steps(self, start: Start) -> Steps | None:
        """What takes the steps; None where the texts do not define the kernel."""
        try:
            about = brief(
                self.kernel.capture,
                start.texts,
                self.evaluator.target,
                baseline_ns=start.ns,
                conditions=start.conditions,
                ranges=value_ranges(self.kernel.capture),
                profile=await self.evaluator.profile() if self.settings.profile else {},
            )
        except BuildError as error:
            self.stopped = str(error)
            return None
        return Steps(
            prompts=Prompter(about),
            asking=self.asking,
            make=self._made,
            novelty=self._novelty,
            evaluate=self._evaluate,
            enough=self._over,
            places=self.run.proposing,
            settings=self.settings,
        )

    def _drawn(self, step: int, archive: Archive) -> Child:
        selects = self.settings.mode.selects
        draw = archive.draw(step) if selects else Draw(step=step, parent=archive.first)
        return Child(draw, self.sources[draw.parent.id])

    def _made(self, **what: Any) -> Source:
        return make_source(self.kernel.capture, self.evaluator.target, self.settings, **what)

    def _rank(self, step: int) -> Rank:
        return -self.promise, step

    def _over(self) -> bool:
        """Whether nothing new is begun any more."""
        self.stopped = self.stopped or self.run.budget.used_up
        return bool(self.stopped)

    async def _evaluate(self, variant: Variant, source: Source, races: bool) -> Outcome:
        timing: Timing = "race" if races and self.settings.race else "once"
        with await self.run.evaluating.enter(self._rank(source.step)):
            outcome = await self.evaluator.outcome(variant, source.rule, timing)
        self.run.budget.evaluated(outcome)
        for stage, seconds in outcome.stages:
            self.stages[stage] += seconds
        return outcome

    # -- judging --

    async def _judge(
        self, child: Child, taken: asyncio.Task[None], start: Start, archive: Archive, under_way: int
    ) -> None:  # fmt: skip
        """Wait for a child, give it its place in the archive, and say where the search stands."""
        await taken
        self.steps += child.error is None
        self._listen(child, archive)
        if child.status is None:
            return
        self._compare(child)
        program = archive.add(self._program(child, start), child.draw)
        self._keep(child.source, program)
        moves = archive.migrate(program.step)
        if moves:
            self.kernel.ledger.once("migration", kernel=self.name, step=program.step, moves=encode(moves))
        self.kernel.ledger.once(
            "iteration", kernel=self.name, step=program.step, trials=self._trials, best=archive.best.id,
            speedup=archive.best.speedup, cells=len(archive.cells), island=program.island, lag=program.lag,
            under_way=under_way,
        )  # fmt: skip
        if program.status != "duplicate":
            self._pace.learn(child.seconds, _seconds(child.source) / self.settings.evaluating)
        self.run.progress(self._where(archive, program))

    def _listen(self, child: Child, archive: Archive) -> None:
        """End the search where nobody answers any more."""
        error, exhausted = child.error, isinstance(child.error, Exhausted)
        archive.exhausted |= {child.draw.parent.id} if exhausted else set()
        self._exhausted = self._exhausted + 1 if exhausted else 0
        self._unanswered = self._unanswered + 1 if error is not None and not exhausted else 0
        patience = _EXHAUSTED * self.settings.islands
        if error is not None and (error.fatal or self._unanswered >= _UNANSWERED or self._exhausted >= patience):
            self.stopped = self.stopped or str(error)

    def _compare(self, child: Child) -> None:
        """A child may equal one that was judged while it was under way."""
        if child.source is not None and child.status == "matched":
            if twin := self._novelty.same_text(child.source):
                child.is_copy_of(twin, "text")
            elif twin := self._novelty.same_code(child.source):
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
        """What a program that matched is judged by."""
        assert source.best is not None
        first = self.sources["p0"]
        codes = [Code(files=s.files, facts=facts_of(s.outcomes[0][1].facts)) for s in (source, first)]
        return {
            "ns": source.best[1],
            "speedup": start.ns / source.best[1],
            "default_ns": source.default_ns,
            "trials": len(source.outcomes),
            "cell": cell(self.settings.axes, *codes),
        }

    def _keep(self, source: Source | None, program: Program) -> None:
        if source is not None:
            self.sources[source.id] = source
        if source is not None and program.status != "duplicate":  # how far that got depends on what ended first
            self._trials += len(source.outcomes)
            self._novelty.add(source)
            self._standings.add(source)
        about = {"kernel": self.name, "step": program.step, "rule": source.rule if source is not None else ""}
        self.kernel.ledger.once("program", **about, program=encode(program))

    def _where(self, archive: Archive, program: Program) -> str:
        """One line on where the search stands."""
        best, spent = archive.best, self.asking.spent
        cached = f", {spent.cached_tokens / spent.prompt_tokens:.0%} cached" if spent.prompt_tokens else ""
        cost = f", ${spent.dollars:.2f}" if spent.dollars else ""
        return (
            f"{self.name}: step {program.step} of {self.settings.iterations}, {self._trials} evaluations, "
            f"best {_speedup(best):.2f}x ({best.id}), {len(archive.cells)} cells of {len(archive.islands)} islands, "
            f"lag {program.lag}{cached}{cost}"
        )


def _speedup(program: Program) -> float:
    assert program.speedup is not None
    return program.speedup


def _seconds(source: Source | None) -> float:
    """What the evaluations of a source took in all, without their waiting."""
    outcomes = [outcome for _, outcome, _ in source.outcomes] if source is not None else []
    stages = (stage for outcome in outcomes for stage in outcome.stages)
    return sum(seconds for name, seconds in stages if not name.startswith("queue"))


def _nanoseconds(source: Source) -> float:
    assert source.best is not None
    return source.best[1]
