"""The seam between the search and whoever proposes: one question, one reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from r3bench.evolve.prompt import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer's ``text`` as it came, and what it took.

    ``origin`` names who answered (``rules:hoist``, ``openai:<model>``). ``tokens`` counts those of the prompt, of which
    the server had ``cached_tokens`` already; ``cost`` is in US dollars, None where it is not known.
    """

    text: str
    origin: str
    model: str = ""
    tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0


class Proposer(Protocol):
    """Answers prompts, from several threads at once."""

    def propose(self, prompt: Prompt) -> Reply:
        """An answer, however useless its text. ModelError, with a reason by name and never with a key, where there is
        none: ``fatal`` where asking again is of no use, Exhausted where another parent may help."""
        ...

    def close(self) -> None:
        """Give up what is being waited for; a call in another thread then ends with ModelError (``stopped``)."""
        ...
