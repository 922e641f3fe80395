"""The rules as a proposer: no model, nothing to pay, the same answers for the same seed.

They work in processes beside the search (apart.py): as many as leave most of the machine to builds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from zlib import crc32

from r3bench.errors import Exhausted
from r3bench.evolve.opened import definitions
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.apart import Apart
from r3bench.evolve.propose.reply import Reply
from r3bench.model import LaunchRule
from r3bench.rules import ALL, Chain, Proposal
from r3bench.rules.subject import Subject


class RuleProposer:
    """Each prompt for one parent is answered with another rule, or chain of rules, in an order that the seed gives."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._apart = [Apart() for _ in range(max(1, len(os.sched_getaffinity(0)) // 4))]

    def propose(self, prompt: Prompt) -> Reply:
        """Exhausted for a repair, and where no rule changes the parent."""
        chosen = self._chosen(prompt) if not prompt.turn else None
        if chosen is None:
            raise Exhausted("the rules have nothing more to say")
        return Reply(text=answer(prompt, chosen), origin=f"rules:{chosen.rule}", model="rules")

    def close(self) -> None:
        for each in self._apart:
            each.close()

    def _chosen(self, prompt: Prompt) -> Proposal | None:
        """What one process says of a parent: it remembers what the rules made of it before."""
        one = crc32(f"{prompt.kernel} {prompt.parent.id}".encode()) % len(self._apart)
        return self._apart[one].ask(_subject(prompt), self._order(prompt), prompt.asked)

    def _order(self, prompt: Prompt) -> list[Chain]:
        """By chance, but for the first text: there the longest chain comes first, for searches that are short."""
        order = Random(f"{self._seed} {prompt.kernel} {prompt.parent.id}").sample(ALL, len(ALL))
        if prompt.parent.parent is None:
            order.sort(key=max(ALL, key=len).__ne__)
        return order


def _subject(prompt: Prompt) -> Subject:
    """The parent's text as the rules take it."""
    files, first, launch = dict(prompt.parent.files), prompt.brief.subject, prompt.parent.launch
    return replace(
        first,
        text=files.pop(prompt.brief.file),
        context=tuple(files.values()),
        block=launch.block if launch is not None else first.block,
    )


def answer(prompt: Prompt, proposal: Proposal) -> str:
    """A proposal in the form in which a model would answer: what it changes, in full."""
    before = {text for text, _ in definitions(dict(prompt.parent.files)[prompt.brief.file])}
    code = "\n\n".join(text for text, _ in definitions(proposal.text) if text not in before)
    return f"CHANGE: {proposal.description}\n{_launch(prompt, proposal)}```cuda\n{code}\n```\n"


def _launch(prompt: Prompt, proposal: Proposal) -> str:
    """The line that asks for another launch than the parent's."""
    block, before = prompt.brief.subject.block, prompt.parent.launch or LaunchRule(block=(1, 1, 1))
    if proposal.per_thread == (1, 1, 1) or block is None:
        return ""
    block = before.block if prompt.parent.launch is not None else block
    work = tuple(a * b for a, b in zip(before.per_thread, proposal.per_thread, strict=True))
    return f"LAUNCH: block={_shape(block)} per_thread={_shape(work)}\n"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(str(n) for n in shape)
