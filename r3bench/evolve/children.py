"""One step of the outer search: a question, an answer, a text, its trials, and one repair where it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from r3bench.errors import BadReply, Exhausted, ModelError
from r3bench.evolve.archive import Draw
from r3bench.evolve.asking import Asking
from r3bench.evolve.edits import revised
from r3bench.evolve.inner import Evaluate, Standing, goes_on, tune
from r3bench.evolve.novelty import Novelty
from r3bench.evolve.pools import Place, Pool, Rank
from r3bench.evolve.program import Fate
from r3bench.evolve.prompt import Prompt, Prompter
from r3bench.evolve.propose.reply import Reply
from r3bench.evolve.settings import Settings
from r3bench.evolve.sources import RECORDED, Source
from r3bench.evolve.start import say
from r3bench.evolve.tuning import Point


@dataclass(slots=True, eq=False)
class Child:
    """What one step has come to so far. When it was drawn, ``judged`` was the last step that had been judged, and
    ``point`` the parent's best configuration.

    ``status`` stays None where there is nothing to judge: no answer came (``error`` says why) or the budget was used up
    before. ``seconds`` is what its answers took.
    """

    draw: Draw
    parent: Source
    judged: int
    point: Point | None = None
    origin: str = ""
    answer: str = ""
    description: str = ""
    source: Source | None = None
    status: Fate | None = None
    detail: str = ""
    repaired: bool = False
    seconds: float = 0.0
    error: ModelError | None = None

    def comes_to(self, status: Fate, detail: str = "") -> None:
        self.status, self.detail = status, detail

    def is_copy_of(self, twin: Source, what: str) -> None:
        assert self.source is not None
        self.source.same_as = twin.rule
        self.comes_to("duplicate", f"the same {what} as {twin.id}")


@dataclass(slots=True, kw_only=True)
class Steps:
    """Takes the steps of one kernel's search. ``make`` gives a text its space and tuner."""

    prompts: Prompter
    asking: Asking
    make: Callable[..., Source]
    novelty: Novelty
    evaluate: Evaluate
    enough: Callable[[], bool]
    places: Pool
    settings: Settings

    async def take(self, child: Child, standing: Standing | None, place: Place, rank: Rank) -> None:
        """From the question to the last trial: one more than the first where texts race and it stands well in
        ``standing``. ``place`` is held for the first answer, and left when it is there."""
        prompt = self.prompts.build(child.draw)
        trouble = await self._attempt(child, prompt, place)
        if trouble and child.error is None and not self.enough():
            child.repaired = True
            await self._attempt(child, prompt.repaired(child.answer, trouble), await self.places.enter(rank))
        if child.status == "matched" and child.source is not None:
            if child.point is not None:
                child.source.suggest(child.point)
            trials = self.settings.trials if standing is None else 1 + goes_on(child.source, standing)
            await self._tune(child.source, min(trials, self.settings.trials), self.settings.in_flight)

    async def _attempt(self, child: Child, prompt: Prompt, place: Place) -> str:
        """An answer, and its text under the default configuration; what is to be put right, empty where nothing is."""
        try:
            reply = await self._reply(prompt, place)
            child.origin, child.answer, child.seconds = reply.origin, reply.text, child.seconds + reply.seconds
            child.source = self._source(child, reply)
        except ModelError as error:
            if not prompt.turn:
                self._unanswered(child, error)
            return ""
        except BadReply as bad:
            self.asking.failed(child.origin, bad.reason, str(bad))
            child.comes_to("refused", f"{bad.reason}: {bad}")
        else:
            await self._try(child, child.source)
        return child.detail if child.status in ("refused", "failed") else ""

    async def _reply(self, prompt: Prompt, place: Place) -> Reply:
        with place:
            return await self.asking.ask(prompt)

    @staticmethod
    def _unanswered(child: Child, error: ModelError) -> None:
        child.error = error
        if not isinstance(error, Exhausted):
            child.comes_to("refused", f"{error.reason}: {error}")

    async def _try(self, child: Child, source: Source) -> None:
        if twin := self.novelty.same_text(source, child.judged):
            child.is_copy_of(twin, "text")
            return
        await self._tune(source, 1, 1)
        if not source.outcomes:
            child.status = None
        elif source.best is None:
            child.comes_to("failed", say(source.outcomes[0][1]))
        elif twin := self.novelty.same_code(source, child.judged):
            child.is_copy_of(twin, "code")
        else:
            child.comes_to("matched")

    async def _tune(self, source: Source, trials: int, in_flight: int) -> None:
        await tune(source, trials, self.evaluate, in_flight=in_flight, enough=self.enough)

    def _source(self, child: Child, reply: Reply) -> Source:
        """The text that an answer makes of its parent's; BadReply where it makes none."""
        parent, brief = child.parent, self.prompts.brief
        revision = revised(reply.text, dict(parent.files), brief.file, brief.name, parent.launch)
        child.description = revision.description
        return self.make(
            step=child.draw.step,
            rule=_rule(child),
            description="; ".join(filter(None, (parent.description, revision.description))),
            files=revision.files,
            launch=revision.launch,
        )


def _rule(child: Child) -> str:
    """The line of a text's makers: rules by name, a model's programs by id."""
    maker, _, rule = child.origin.partition(":")
    own = rule if maker == "rules" else f"p{child.draw.step}"
    return own if child.parent.rule == RECORDED else f"{child.parent.rule}+{own}"
