"""The search of one kernel's texts: parents from the archive, children judged in the order in which they were drawn.

Children are proposed and evaluated several at a time, but join the archive in order. So an archive depends on the seed,
the answers and the outcomes alone, and not on which of them came first: a ledger replays the same search.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from math import inf, log
from time import monotonic
from typing import Any

from r3bench.errors import BuildError, CandidateFailure, CaptureError, Exhausted
from r3bench.evolve.archive import Archive, Draw
from r3bench.evolve.asking import Asking
from r3bench.evolve.brief import brief, value_ranges
from r3bench.evolve.budget import Budget
from r3bench.evolve.children import Child, Steps
from r3bench.evolve.evaluate import Evaluator
from r3bench.evolve.features import AXES
from r3bench.evolve.inner import Trial, begin, tune
from r3bench.evolve.judging import Judge
from r3bench.evolve.pools import Pace, Pool, Rank
from r3bench.evolve.program import Program
from r3bench.evolve.prompt import Prompter
from r3bench.evolve.propose.reply import Proposer
from r3bench.evolve.returns import Returns
from r3bench.evolve.settings import MODES, Settings
from r3bench.evolve.sources import RECORDED, Source, make_source
from r3bench.evolve.start import Kernel, Start, begin_with, say
from r3bench.model import Outcome, Variant
from r3bench.nouns import encode
from r3bench.server.requests import Server, Timing

FIRST = 10  # trials of the text as it is, where sources race, before any other
LAST = 0.9  # of the budget: then no more texts are drawn, and the rest is for configurations of the best
BEST = 3  # texts are tuned further
_LEAD = 3  # times as many trials as the others of them are for the best
_HOPE = 0.1  # the gain (as a logarithm) that texts are expected to bring before anything is known
_UNANSWERED = 3  # calls in a row that bring no answer end a search
_SILENT = 5  # turns of every island on which the proposer has nothing to say end the search of texts


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


@dataclass(slots=True)
class UnderWay:
    """What was begun and is not judged, oldest first, and the step that comes next."""

    step: int = 1
    trials: deque[Trial] = field(default_factory=deque)
    children: dict[Child, asyncio.Task[None]] = field(default_factory=dict)

    def cancel(self) -> None:
        for taken in self.children.values():
            taken.cancel()
        for trial in self.trials:
            trial.task.cancel()


class Exploration:
    """One kernel's search; what it has found is in its attributes, so that it can be interrupted anywhere.

    ``trouble`` says why there was nothing to search, ``stopped`` what ended the search before its last step.
    ``stages`` and ``seconds`` count what earlier runs took for the outcomes that a resumed one has from the ledger.
    """

    def __init__(self, kernel: Kernel, run: Run) -> None:
        self.kernel, self.run, self.settings = kernel, run, run.settings
        self.name = kernel.capture.name
        self.evaluator = Evaluator(kernel.capture, run.server, kernel.ledger)
        self.asking = Asking(self.name, run.proposer, run.threads, kernel.ledger, run.budget)
        self.start: Start | None = None
        self.archive: Archive | None = None
        self.stages: defaultdict[str, float] = defaultdict(float)
        self.trouble = self.stopped = ""
        self.steps, self.seconds = 0, 0.0
        self._judge = Judge(kernel, run.settings)
        self._pace, self._returns = Pace(run.settings), Returns()
        self._exhausted = ""  # why there are no more answers
        self._silent = self._unanswered = 0  # draws in a row to which nothing was said, or nobody answered

    @property
    def sources(self) -> Mapping[str, Source]:
        """Every text that was tried, by the id of its program."""
        return self._judge.sources

    async def explore(self) -> None:
        """Everything before promotion."""
        began = monotonic()
        try:
            self.start = await begin_with(self.kernel, self.evaluator)
            self.archive = await self._first(self.start)
            steps = await self._steps(self.start) if self.archive is not None and self._proposes else None
            if self.archive is not None and steps is not None:
                await self._generations(self.start, self.archive, steps)
            if lacks := self.kernel.capture.lacks:
                self.stopped = self.stopped or f"the kernel was recorded {lacks}"
        except (CaptureError, CandidateFailure) as error:
            self.trouble = str(error)
        finally:
            self.stopped = self._exhausted or self.stopped
            self.seconds = monotonic() - began + sum(self.evaluator.earlier.values())

    @property
    def _races(self) -> bool:
        """Whether texts that stand well get more trials than others."""
        return self.settings.race and self.settings.trials > 1

    @property
    def _out_at_once(self) -> int:
        """How many trials are out at once: a kernel's share of all places, from those of one text to those of all that
        are tuned. With more, TPE knows too little of those before: 32 chose 6 to 30 % worse in as many trials."""
        one, share = self.settings.in_flight, self.settings.evaluating // self.settings.kernels
        return min(BEST * one, max(one, share))

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
        trials = min(settings.trials, FIRST) if self._races and self._proposes else settings.trials
        await tune(source, trials, self._evaluate, in_flight=self._out_at_once, enough=self._over)
        self._returns.add("texts", 0, source.default_ns or inf)
        self._returns.add("trials", len(source.outcomes), source.best[1] if source.best else inf)
        if source.best is None:
            self.stopped = self.stopped or f"the text as it is does not work: {say(source.outcomes[0][1])}"
            return None
        axes = {name: AXES[name] for name in settings.axes}
        words, edges = [axis.words for axis in axes.values()], [list(axis.edges) for axis in axes.values()]
        self.kernel.ledger.once("archive", kernel=self.name, axes=list(axes), words=words, edges=edges)
        return Archive(
            self._judge.first(source, start),
            islands=settings.islands,
            population=settings.population,
            migrate=settings.migrate,
            seed=f"{self.name} {settings.seed}",
        )

    # -- the texts made from it --

    async def _generations(self, start: Start, archive: Archive, steps: Steps) -> None:
        """Begin texts, and trials of the best of them, whichever pay better; judge either kind in the order begun."""
        work = UnderWay()
        try:
            while await self._go_on(work, start, archive, steps):
                pass
        finally:
            work.cancel()

    async def _go_on(self, work: UnderWay, start: Start, archive: Archive, steps: Steps) -> bool:
        """Begin one more, or wait for the oldest of a kind; False where nothing is left to do.

        Which of these it is depends on what was judged before, never on what ends first.
        """
        draws = self._draws(work.step)
        tunes = self._races and not (draws and self._returns.next == "texts")
        source = self._to_tune() if tunes else None
        if source is not None and len(work.trials) < self._out_at_once:
            if (trial := begin(source, self._evaluate)) is not None:
                work.trials.append(trial)
        elif source is None and draws and len(work.children) < self._pace.ahead:
            await self._begin_text(work, archive, steps)
        elif work.trials and (source is not None or not draws):
            self._returns.add("trials", 1, await work.trials.popleft().told() or inf)
            self._judge.trials += 1
        elif work.children:
            child = next(iter(work.children))
            await work.children[child]
            del work.children[child]
            self._judged(child, start, archive, len(work.children))
        else:
            return False
        return True

    async def _begin_text(self, work: UnderWay, archive: Archive, steps: Steps) -> None:
        """Draw a parent as soon as there is a place to propose in, unless nothing is to be drawn any more by then."""
        place = await self.run.proposing.enter(self._rank(work.step))
        if not self._draws(work.step):
            place.leave()
            return
        child = self._drawn(work.step, archive, next((c.draw.step for c in work.children), work.step) - 1)
        standing = tuple(self._judge.defaults) if self.settings.race else None
        taken = asyncio.create_task(steps.take(child, standing, place, self._rank(work.step)))
        taken.add_done_callback(lambda _: place.leave())
        work.children[child] = taken
        work.step += 1

    def _draws(self, step: int) -> bool:
        """Whether another text is begun: neither the steps nor the answers nor the budget are used up."""
        tunes = self._races and self.run.budget.share >= LAST
        return step <= self.settings.iterations and not (self._over() or self._exhausted or tunes)

    @property
    def _ranked(self) -> list[Source]:
        """The texts that matched, the fastest of any configuration first."""
        return sorted((s for s in self.sources.values() if s.best and not s.same_as), key=_nanoseconds)

    def _to_tune(self) -> Source | None:
        """That of the best texts which is to have the next trial; what was best for the others comes first.

        Each text has as many as are asked for, and more only within a budget: it is used up.
        """
        trials = max(self.settings.trials, MODES["bo"].trials) if self.run.budget.share else self.settings.trials
        ranked = self._ranked[:BEST]
        best = [source for source in ranked if not source.used_up and source.asked < trials]
        if not best or self._over():
            return None
        source = min(best, key=lambda s: s.asked / (_LEAD if s is ranked[0] else 1))
        for other in ranked:
            if other is not source and other.best_point is not None:
                source.suggest(other.best_point)
        return source

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
            novelty=self._judge.novelty,
            evaluate=self._evaluate,
            enough=self._over,
            places=self.run.proposing,
            settings=self.settings,
        )

    def _drawn(self, step: int, archive: Archive, judged: int) -> Child:
        selects = self.settings.mode.selects
        draw = archive.draw(step) if selects else Draw(step=step, parent=archive.first)
        parent = self.sources[draw.parent.id]
        return Child(draw, parent, judged, parent.best_point)

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
        with await self.run.evaluating.enter(self._rank(source.step)), self.run.budget.evaluating():
            outcome = await self.evaluator.outcome(variant, source.rule, timing)
        self.run.budget.evaluated(outcome)
        for stage, seconds in outcome.stages:
            self.stages[stage] += seconds
        return outcome

    # -- judging --

    def _judged(self, child: Child, start: Start, archive: Archive, under_way: int) -> None:
        """Give a child its place in the archive, and say where the search stands."""
        self.steps += child.error is None
        self._listen(child, archive)
        if child.status is None:
            return
        program = self._judge.judge(child, start, archive)
        moves = archive.migrate(program.step)
        if moves:
            self.kernel.ledger.once("migration", kernel=self.name, step=program.step, moves=encode(moves))
        best = self._ranked[0]
        self.kernel.ledger.once(
            "iteration", kernel=self.name, step=program.step, trials=self._judge.trials, best=best.id,
            speedup=start.ns / _nanoseconds(best), cells=len(archive.cells), island=program.island, lag=program.lag,
            under_way=under_way,
        )  # fmt: skip
        if program.status != "duplicate":
            self._pace.learn(child.seconds, _seconds(child.source) / self.settings.evaluating)
            source = child.source
            self._returns.add("texts", len(source.outcomes) if source else 0, (source and source.default_ns) or inf)
        self.run.progress(self._where(archive, program, f"{start.ns / _nanoseconds(best):.2f}x ({best.id})"))

    def _listen(self, child: Child, archive: Archive) -> None:
        """End the search of texts where nothing more is said, and all of it where nobody answers any more."""
        error, silent = child.error, isinstance(child.error, Exhausted)
        archive.exhausted |= {child.draw.parent.id} if silent else set()
        self._silent = self._silent + 1 if silent else 0
        self._unanswered = self._unanswered + 1 if error is not None and not silent else 0
        if self._silent >= _SILENT * self.settings.islands:
            self._exhausted = self._exhausted or str(error)
        if error is not None and (error.fatal or self._unanswered >= _UNANSWERED):
            self.stopped = self.stopped or str(error)

    def _where(self, archive: Archive, program: Program, best: str) -> str:
        """One line on where the search stands."""
        spent = self.asking.spent
        cached = f", {spent.cached_tokens / spent.prompt_tokens:.0%} cached" if spent.prompt_tokens else ""
        cost = f", ${spent.dollars:.2f}" if spent.dollars else ""
        return (
            f"{self.name}: step {program.step} of {self.settings.iterations}, {self._judge.trials} evaluations, "
            f"best ranked {best}, {len(archive.cells)} cells of {len(archive.islands)} islands, "
            f"lag {program.lag}{cached}{cost}"
        )


def _speedup(program: Program) -> float:
    assert program.speedup is not None
    return program.speedup


def _seconds(source: Source | None) -> float:
    """What the evaluations of a source took in all, without their waiting, and no part of a stage twice."""
    outcomes = [outcome for _, outcome, _ in source.outcomes] if source is not None else []
    stages = (stage for outcome in outcomes for stage in outcome.stages)
    return sum(seconds for name, seconds in stages if not name.startswith("queue") and ":" not in name)


def _nanoseconds(source: Source) -> float:
    assert source.best is not None
    return source.best[1]
