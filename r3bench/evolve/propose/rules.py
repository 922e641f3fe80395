"""The rules as a proposer: no model, nothing to pay, the same answers for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random

from r3bench.errors import Exhausted
from r3bench.evolve.opened import definitions
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.reply import Reply
from r3bench.evolve.rules import Proposal, proposals


class RuleProposer:
    """Each prompt for one parent is answered with another rule, or chain of rules, in an order that the seed gives."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, prompt: Prompt) -> Reply:
        """Exhausted for a repair, and where no rule changes the parent."""
        found = _proposals(prompt.parent.files, prompt.brief.main, prompt.brief.name, prompt.brief.disjoint)
        if prompt.turn or prompt.asked >= len(found):
            raise Exhausted(f"the rules have nothing more to say on {prompt.parent.id}")
        order = Random(f"{self._seed} {prompt.kernel} {prompt.parent.id}").sample(range(len(found)), len(found))
        chosen = found[order[prompt.asked]]
        return Reply(text=answer(prompt, chosen), origin=f"rules:{chosen.rule}", model="rules")

    def close(self) -> None:
        pass


@lru_cache(maxsize=64)
def _proposals(files: tuple[tuple[str, str], ...], main: str, name: str, disjoint: bool) -> Sequence[Proposal]:
    texts = dict(files)
    context = [text for path, text in texts.items() if path != main]
    return tuple(proposals(texts[main], name, disjoint=disjoint, context=context))


def answer(prompt: Prompt, proposal: Proposal) -> str:
    """A proposal in the form in which a model would answer: what it changes, in full."""
    before = {text for text, _ in definitions(dict(prompt.parent.files)[prompt.brief.main])}
    code = "\n\n".join(text for text, _ in definitions(proposal.text) if text not in before)
    return f"CHANGE: {proposal.description}\n```cuda\n{code}\n```\n"
