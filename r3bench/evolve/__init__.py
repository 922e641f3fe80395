"""The search: source rewrites by rule outside, Bayesian optimization of the configuration inside, then promotion.

Cheap measurements rank candidates and claim nothing. What ranks best is verified on the held-out units and stands
against the baseline in a full contest; only what is faster by the interval is promoted. The order in which outcomes
are told to the tuners does not depend on the order in which they arrive, so a seed and a ledger give the same search.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from r3bench import remix, store
from r3bench.errors import CandidateFailure, CaptureError
from r3bench.evolve.described import described
from r3bench.evolve.evaluate import Evaluator, Pending, Server, nanoseconds
from r3bench.evolve.neighbours import changed_kernels
from r3bench.evolve.promote import Court, Finalist, Verdicts, claims, promote
from r3bench.evolve.rules import SENTENCES
from r3bench.evolve.sources import RECORDED, Source, is_recorded, make_sources
from r3bench.evolve.tuning import Ask
from r3bench.ledger import FORMAT, Arm, KernelResult, Ledger, encode
from r3bench.model import Capture, Configuration, Outcome, Status, Variant
from r3bench.replay import image_loads
from r3bench.space import Space
from r3bench.syntax import plain_name

__all__ = ["Settings", "evolve"]

FINALISTS = 6  # timed again beside the baseline before any contest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long and how hard to search.

    Each source gets ``trials`` tuning trials as far as ``seconds`` (for the tuning of one kernel) last; then, while
    less than half of them are used, the better half of the sources ``more`` each. ``in_flight`` evaluations are out at
    once. Up to ``contests`` candidates stand against the baseline, with this ``gate``; ``kernels`` is how many the
    session searches: they share its error budget.
    """

    trials: int = 10
    more: int = 10
    seconds: float = 20.0
    in_flight: int = 4
    contests: int = 3
    gate: float = 0.05
    kernels: int = 1
    seed: int = 0


def evolve(
    captures: Sequence[Capture],
    server: Server,
    settings: Settings,
    ledger: Ledger,
    progress: Callable[[str], None] = lambda line: None,
    *,
    working: Callable[[Capture], Variant | None] = lambda capture: None,
    neighbours: Sequence[Capture] = (),
) -> list[KernelResult]:
    """Search each capture's kernel, one after the other, and write what is found into the ledger.

    ``working`` gives the working tree's source of a kernel, from which the search starts and to which its patch
    applies; without it (None) the stored source is used. ``neighbours`` are further captures on which an edit of shared
    functions is checked. ``progress`` gets one line now and then. An interrupt (ctrl-C) ends the search: the results so
    far are returned, the last one marked as interrupted. A capture or source that cannot be used ends one kernel,
    DeviceUnavailable and LedgerError the run.
    """
    ledger.append("run", format=FORMAT, seed=settings.seed, settings=encode(settings), target=encode(server.target))
    results: list[KernelResult] = []
    for capture in captures:
        others = [c for c in {c.path: c for c in (*captures, *neighbours)}.values() if _shares_file(c, capture)]
        search = _Search(capture, server, settings, ledger, progress, working, others)
        results.append(search.run())
        ledger.append("result", result=encode(results[-1]))
        if results[-1].status == "interrupted":
            break
    return results


def _shares_file(other: Capture, capture: Capture) -> bool:
    same = other.source is not None and capture.source is not None
    return (
        same
        and other.symbol != capture.symbol
        and (other.source.root, other.source.main) == (capture.source.root, capture.source.main)  # type: ignore[union-attr]
    )


class _Search:
    """The search for one kernel; what it has found is in its attributes, so that it can be interrupted anywhere."""

    def __init__(
        self,
        capture: Capture,
        server: Server,
        settings: Settings,
        ledger: Ledger,
        progress: Callable[[str], None],
        working: Callable[[Capture], Variant | None],
        neighbours: Sequence[Capture],
    ) -> None:
        self.capture = capture
        self.settings = settings
        self.progress = progress
        self.neighbours = neighbours
        self.evaluator = Evaluator(capture, server, ledger)
        self.began = monotonic()
        self.working = working
        self.baseline = Variant()
        self.baseline_name = ""
        self.baseline_ns: float | None = None
        self.sources: list[Source] = []
        self.verdicts = Verdicts()
        self.arms: list[Arm] = []
        self.texts: Mapping[str, str] = {}
        self.conditions: tuple[tuple[str, str], ...] = ()

    def run(self) -> KernelResult:
        """Everything, in order; whatever ends it, the result says how far it came."""
        try:
            trouble = self._search()
        except (CaptureError, CandidateFailure) as error:
            return self._result("failed", str(error))
        except KeyboardInterrupt:
            return self._result("interrupted", f"interrupted after {self.evaluator.evaluations} evaluations")
        if trouble:
            return self._result("failed", trouble)
        return self._result("improved" if self.verdicts.winner else "not improved", self._last_reason())

    def _search(self) -> str:
        """Empty, or why there was nothing to search."""
        trouble = self._begin()
        if trouble:
            return trouble
        self._tune(self.sources, 1)  # the default pipeline on every source: same code is tuned once
        self._drop_equal_code()
        self._tune(self.sources[:1], self.settings.trials)
        self._hand_on()
        self._tune(self.sources, self.settings.trials)
        better = sorted(self._tuned(), key=lambda s: s.best[1] if s.best else float("inf"))
        self._tune(better[: -(-len(better) // 2)], self.settings.trials + self.settings.more, until=0.5)
        self._promote()
        return ""

    # -- the baseline and the sources --

    def _begin(self) -> str:
        capture = self.capture
        if capture.source is None:
            return f"{capture.path} holds no source of {capture.symbol}; record it again with its source"
        try:
            tree = self.working(capture)
        except (OSError, UnicodeDecodeError) as error:
            return f"the source of {capture.symbol} in the working tree cannot be read ({error}); repair it"
        self.texts = store.sources(capture) if tree is None else dict(tree.files or ())
        self.baseline, self.baseline_name = self._baseline(stored=tree is None)
        outcome = self.evaluator.result(self.evaluator.submit(self.baseline, "baseline"))
        self.baseline_ns = nanoseconds(outcome)
        if outcome.measurement is None:
            return f"the baseline ({self.baseline_name}) does not replay: {_say(outcome)}"
        self.conditions = (*outcome.measurement.conditions, ("cores", str(len(os.sched_getaffinity(0)))))
        unit = capture.units[0]
        blocks = remix.legal_blocks(capture, unit, self.texts)
        space = Space.for_unit(capture, unit, self.evaluator.target, blocks)
        self.sources, note = make_sources(capture, self.texts, space, self.settings.seed)
        for source in self.sources:
            self.evaluator.note("source", rule=source.rule, description=source.description, files=dict(source.files))
        if note:
            self.evaluator.note("note", text=note)
        return ""

    def _baseline(self, *, stored: bool) -> tuple[Variant, str]:
        if not stored and not is_recorded(self.capture, self.texts):
            return Variant(files=tuple(sorted(self.texts.items()))), "working tree, default pipeline"
        loads = image_loads(self.capture, self.evaluator.target)
        return Variant(), "recorded image" if loads else "recorded source, default pipeline"

    def _drop_equal_code(self) -> None:
        """A source whose default build is another's, instruction for instruction, is not tuned a second time."""
        seen: dict[str, str] = {}
        for source in self.sources:
            module = source.outcomes[0][1].module if source.outcomes else None
            if module is not None and module in seen:
                source.same_as = seen[module]
            elif module is not None:
                seen[module] = source.rule

    def _hand_on(self) -> None:
        """What is best for the text as it is, is tried early on what was made of it."""
        best = self.sources[0].tuner.best
        for source in self.sources[1:]:
            if best is not None:
                source.tuner.suggest(best)

    def _tuned(self) -> list[Source]:
        return [source for source in self.sources if source.same_as is None]

    # -- tuning --

    def _tune(self, sources: Sequence[Source], trials: int, *, until: float = 1.0) -> None:
        """Bring each source to a number of trials, in turns; several evaluations are out, told in the order asked.

        No new trial begins when ``until`` times the seconds of one kernel are over.
        """
        waiting: deque[tuple[Source, Ask, Pending]] = deque()
        try:
            for source, ask in self._asks(sources, trials, until):
                waiting.append((source, ask, self.evaluator.submit(source.variant(ask), source.rule)))
                if len(waiting) >= self.settings.in_flight:
                    self._tell(*waiting.popleft())
            while waiting:
                self._tell(*waiting.popleft())
        finally:
            for _, _, pending in waiting:
                pending.future.cancel()

    def _asks(self, sources: Sequence[Source], trials: int, until: float) -> Iterator[tuple[Source, Ask]]:
        left = {source.rule: trials - len(source.outcomes) for source in sources if source.same_as is None}
        while any(count > 0 for count in left.values()):
            for source in sources:
                if left.get(source.rule, 0) <= 0:
                    continue
                if monotonic() - self.began > until * self.settings.seconds:
                    return
                left[source.rule] -= 1
                ask = source.tuner.ask()
                if ask is not None:
                    yield source, ask

    def _tell(self, source: Source, ask: Ask, pending: Pending) -> None:
        outcome = self.evaluator.result(pending)
        ns = nanoseconds(outcome)
        source.tuner.tell(ask, ns)
        source.outcomes.append((ask, outcome, ns))
        self._say_where()

    def _say_where(self) -> None:
        best = min((s.best[1] for s in self.sources if s.best), default=None)
        gain = f", best {self.baseline_ns / best:.2f}x" if best and self.baseline_ns else ""
        sources = f"{len(self._tuned())} sources"
        self.progress(f"{self.capture.name}: {self.evaluator.evaluations} evaluations of {sources}{gain}")

    # -- promotion --

    def _promote(self) -> None:
        recorded = self.sources[0]
        image = self.baseline_name == "recorded image"
        court = Court(
            evaluator=self.evaluator,
            baseline=self.baseline,
            gate=self.settings.gate,
            kernels=self.settings.kernels * (claims(self.settings.contests) + image),
            contests=self.settings.contests,
            neighbours=self.neighbours,
            original=self._original(),
        )
        finalists = self._finalists()
        self.progress(f"{self.capture.name}: {len(finalists)} finalists of {self.evaluator.evaluations} evaluations")
        promote(court, finalists, recorded, self.verdicts)
        if image:
            ours = Variant(files=recorded.files, configuration=Configuration())
            toolchain = self.evaluator.compare(self.baseline, ours, court.gate, court.kernels)
            self.arms.append(Arm(name="toolchain", comparison=toolchain))

    def _finalists(self) -> list[Finalist]:
        """The best of the sources, the text as it is always among them, timed again beside the baseline; fastest first.

        What does not rank ahead of the baseline is left out.
        """
        best = sorted(self._best(), key=lambda finalist: finalist.ns)
        ranked = best[:FINALISTS] + [f for f in best[FINALISTS:] if f.source.rule == RECORDED]
        again = [self.evaluator.submit(self.baseline, "baseline", again=1)]
        again += [self.evaluator.submit(f.variant, f.source.rule, again=1) for f in ranked]
        times = [nanoseconds(self.evaluator.result(pending)) for pending in again]
        limit = max(filter(None, (self.baseline_ns, times[0])), default=0.0)
        timed = [replace(f, ns=min(f.ns, ns)) for ns, f in zip(times[1:], ranked, strict=True) if ns is not None]
        return sorted((f for f in timed if f.ns < limit), key=lambda finalist: finalist.ns)

    def _best(self) -> Iterator[Finalist]:
        for source in self._tuned():
            if source.best is not None:
                yield Finalist(source=source, variant=source.variant(source.best[0]), ns=source.best[1])

    # -- the result --

    def _last_reason(self) -> str:
        if self.verdicts.promotions:
            return self.verdicts.promotions[-1].reason
        return "nothing ranked ahead of the baseline"

    def _result(self, status: str, detail: str) -> KernelResult:
        winner, source = self.verdicts.winner, self.capture.source
        edited = self._edited()
        after = dict(edited.files)[source.main] if edited is not None and source is not None else None
        changes = self._also_changes(after)
        arms = (*self.verdicts.arms, *self.arms)
        return KernelResult(
            kernel=self.capture.name,
            capture=self.capture.path,
            content_hash=self.capture.content_hash,
            status=status,  # type: ignore[arg-type]
            detail=detail,
            device=self.evaluator.target.device,
            target=self.evaluator.target.arch,
            baseline=self.baseline_name,
            baseline_ns=next((a.comparison.baseline_ns for a in arms if a.comparison.baseline_ns), self.baseline_ns),
            seed=self.settings.seed,
            evaluations=self.evaluator.evaluations,
            seconds=round(monotonic() - self.began, 3),
            source=posixpath.normpath(posixpath.join(source.root, source.main)) if source is not None else "",
            before=self._original(),
            after=after,
            rule=edited.rule if edited is not None else None,
            description=edited.description if edited is not None else "",
            configuration=_settings_of(winner.variant) if winner is not None else None,
            arms=arms,
            sources=tuple(s.result() for s in self.sources),
            failures=self.evaluator.failures,
            promotions=tuple(self.verdicts.promotions),
            conditions=self.conditions,
            settings=described(winner.variant, self.capture.units[0].launch.block) if winner is not None else (),
            also_changes=changes,
            also_checked=tuple(name for name in changes if name in self._neighbours_that_match()),
            rules=tuple((name, sentence) for name, sentence in SENTENCES.items() if name in self._rules_used()),
        )

    def _edited(self) -> Source | None:
        """The source of the promoted candidate where it is not the text as it was."""
        winner = self.verdicts.winner
        return winner.source if winner is not None and winner.source.rule != RECORDED else None

    def _original(self) -> str:
        """The main file's text that the search began with; empty where there is none."""
        return self.texts.get(self.capture.source.main, "") if self.capture.source is not None else ""

    def _also_changes(self, after: str | None) -> tuple[str, ...]:
        return changed_kernels(self._original(), after, plain_name(self.capture.demangled)) if after is not None else ()

    def _neighbours_that_match(self) -> set[str]:
        promoted = [p for p in self.verdicts.promotions if p.promoted]
        return {name for promotion in promoted for name in promotion.neighbours}

    def _rules_used(self) -> set[str]:
        return {name for source in self.sources for name in source.rule.split("+")}


def _say(outcome: Outcome) -> str:
    verdict = outcome.verdict
    status = verdict.status.value if verdict.status is not Status.MATCH else "matched but could not be timed"
    return f"{status}: {verdict.detail}" if verdict.detail else status


def _settings_of(variant: Variant) -> str | None:
    """Configuration and launch of a variant as JSON; None where both are the default."""
    if variant.configuration in (None, Configuration()) and variant.launch is None:
        return None
    return json.dumps(
        {"configuration": encode(variant.configuration or Configuration()), "launch": encode(variant.launch)}
    )
