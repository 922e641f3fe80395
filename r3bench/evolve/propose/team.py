"""Several proposers with weights: whose turn it is depends on the seed and the step alone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from threading import Lock

from r3bench.errors import ModelError
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.files import FileProposer
from r3bench.evolve.propose.reply import Proposer, Reply


class Team:
    """Asks one of its members; one that cannot be used any more is left out from then on."""

    def __init__(self, members: Sequence[tuple[int, Proposer]], seed: int) -> None:
        self._members, self._seed = list(members), seed
        self._lost: dict[int, ModelError] = {}
        self._lock = Lock()

    def propose(self, prompt: Prompt) -> Reply:
        """The reply of the member whose turn it is, or of the next where that one is lost; a repair is asked of the
        member whose answer it repairs. ModelError, fatal, once all are lost."""
        order = self._order(prompt)
        for number in order:
            try:
                return self._members[number][1].propose(prompt)
            except ModelError as error:
                if not error.fatal:
                    raise
                with self._lock:
                    self._lost[number] = error
        raise ModelError("nobody left", "; ".join(str(e) for _, e in sorted(self._lost.items())), fatal=True)

    def close(self) -> None:
        for member in self.members:
            member.close()

    @property
    def members(self) -> tuple[Proposer, ...]:
        return tuple(member for _, member in self._members)

    def _order(self, prompt: Prompt) -> list[int]:
        """The members that are left, the one whose turn it is first."""
        random, left = Random(f"{self._seed} {prompt.kernel} {prompt.step}"), list(range(len(self._members)))
        order = []
        while left:
            number = random.choices(left, weights=[self._members[n][0] for n in left])[0]
            left.remove(number)
            order.append(number)
        with self._lock:
            return [number for number in order if number not in self._lost]


def asks_people(proposer: Proposer) -> bool:
    """Whether somebody answers files, or one member of a team does."""
    members = proposer.members if isinstance(proposer, Team) else (proposer,)
    return any(isinstance(member, FileProposer) for member in members)
