"""The search: a language model (or rules) with MAP-Elites proposes texts, TPE tunes each of them, then promotion.

The loop, for each kernel of a run, and what each part of it is::

    begin       the texts, and the baseline that everything is measured against       start.py
    draw        a parent and what is shown beside it, from the islands' elites        archive.py, features.py
    ask         a prompt, and an answer from whoever proposes                         prompt.py, propose/, asking.py
    revise      the answer makes new texts of the parent's, or is refused             edits.py
    compare     a text or a code that is known already is not tried again             novelty.py
    repair      what was refused or fails goes back once, with the reason             children.py
    tune        configurations by TPE, more of them for texts that stand well         inner.py, tuning.py
    judge       children join the archive in the order in which they were drawn       judging.py, exploring.py
    weigh       texts or trials of the best: whichever has gained more of late        returns.py
    promote     the best stand against the baseline; only then is anything claimed    finalists.py, promote.py
    conclude    the winner without settings that do nothing, its gain taken apart     slim.py, split.py, concluding.py

Kernels share two pools (pools.py), one in which answers are awaited and one in which configurations are evaluated; the
most promising kernel goes first. What all this may use up is a budget (budget.py). Cheap measurements rank and claim
nothing. Every outcome and every answer is written to the ledger at once, and a resumed search takes them from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from r3bench.evolve.budget import Budget
from r3bench.evolve.concluding import Conclusion
from r3bench.evolve.exploring import Exploration, Run
from r3bench.evolve.finalists import finalists
from r3bench.evolve.pools import Pool
from r3bench.evolve.propose.reply import Proposer
from r3bench.evolve.propose.team import asks_people
from r3bench.evolve.settings import MODES, Limits, Settings
from r3bench.evolve.start import Kernel, Working
from r3bench.ledger import FORMAT, KernelResult, Ledger
from r3bench.model import Capture, Variant
from r3bench.nouns import encode
from r3bench.server.requests import Server
from r3bench.worktree import place_of

__all__ = ["MODES", "Kernel", "Limits", "Search", "Settings", "evolve"]


class Search:
    """The search of several kernels: explored together, then concluded one by one.

    ``proposer`` is asked from several threads at once. ``progress`` gets one line now and then. ``interrupted`` is set
    once ctrl-C has ended the search. ``options`` is what the ledger keeps of the command line, by name.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        server: Server,
        proposer: Proposer,
        settings: Settings,
        progress: Callable[[str], None] = lambda line: None,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._threads = ThreadPoolExecutor(settings.proposing, thread_name_prefix="r3bench-propose")
        self.interrupted = False
        self._about = {
            "format": FORMAT,
            "seed": settings.seed,
            "settings": encode(settings),
            "options": dict(options),
            "target": encode(server.target),
        }
        run = Run(
            server=server,
            settings=settings,
            proposer=proposer,
            threads=self._threads,
            budget=Budget(settings.limits, len(kernels), people=asks_people(proposer)),
            proposing=Pool(settings.proposing),
            evaluating=Pool(settings.evaluating),
            progress=progress,
        )
        self._explorations = {kernel.capture.name: Exploration(kernel, run) for kernel in kernels}

    def explore(self) -> None:
        """Search all kernels until their steps or the budget are used up, or an interrupt (ctrl-C) ends it.

        DeviceUnavailable and LedgerError are raised; whatever concerns one kernel only ends its own search.
        """
        for ledger in dict.fromkeys(exploration.kernel.ledger for exploration in self._explorations.values()):
            ledger.append("run", **self._about)
        try:
            asyncio.run(self._explore())
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _explore(self) -> None:
        await asyncio.gather(*(exploration.explore() for exploration in self._explorations.values()))

    def best(self, capture: Capture) -> Variant | None:
        """What ranks first when the best of a kernel are timed again; None where that is the baseline. It claims
        nothing."""
        found = self._explorations[capture.name]
        first = found.start and next(finalists(found.start, found.sources, found.evaluator), None)
        return first.variant if first else None

    def conclude(self, capture: Capture) -> KernelResult:
        """Promote what was found for a kernel, and write its result. After an interrupt nothing is timed any more."""
        exploration = self._explorations[capture.name]
        result = Conclusion(exploration).conclude(interrupted=self.interrupted)
        self.interrupted |= result.status == "interrupted"
        exploration.kernel.ledger.append("result", kernel=result.kernel, result=encode(result))
        return result


def evolve(
    captures: Sequence[Capture],
    server: Server,
    settings: Settings,
    ledger: Ledger,
    proposer: Proposer,
    progress: Callable[[str], None] = lambda line: None,
    *,
    working: Working = lambda capture: None,
    neighbours: Sequence[Capture] = (),
) -> list[KernelResult]:
    """Search the kernels of some captures with one ledger; the results in the order of the captures.

    ``working`` gives the working tree's source of a kernel, from which the search starts and to which its patch
    applies; without it (None) the stored source is used. ``neighbours`` are further captures on which an edit of shared
    functions is checked.
    """
    kernels = [
        Kernel(capture=c, ledger=ledger, working=working, neighbours=neighbours_of(c, (*captures, *neighbours)))
        for c in captures
    ]
    search = Search(kernels, server, proposer, settings, progress)
    search.explore()
    return [search.conclude(capture) for capture in captures]


def neighbours_of(capture: Capture, others: Sequence[Capture]) -> list[Capture]:
    """The captures of other kernels that are compiled from some of a kernel's files."""
    return [other for other in {c.path: c for c in others}.values() if _shares_file(other, capture)]


def _shares_file(other: Capture, capture: Capture) -> bool:
    return other.symbol != capture.symbol and not _places(other).isdisjoint(_places(capture))


def _places(capture: Capture) -> set[str]:
    source = capture.source
    return {place_of(source, path) for path, _ in source.files} if source is not None else set()
