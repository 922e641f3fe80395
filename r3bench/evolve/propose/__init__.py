"""Who proposes new source: a language model, the rules, a recorded run, or whoever answers files in a folder.

All are asked in one way, :meth:`Proposer.propose`, from several threads at once. A text says which one to use, or
several with weights (:func:`open_proposers`)::

    rules                                   source rewrites by rule, no model
    openai:http://localhost:8000/v1#qwen    any server that speaks OpenAI's protocol; its first model without #
    litellm:anthropic/claude-sonnet-4-5     any provider that LiteLLM knows
    recorded:reports/app/ledger/k.jsonl     the answers of an earlier run, without asking anyone
    files:prompts                           prompts as files in a folder, answers read from files beside them
    rules,3*openai:http://localhost:8000/v1 three of four prompts go to the model

A key comes from the environment (``OPENAI_API_KEY`` or the provider's own) and is in no reply, error, file or report.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from r3bench.errors import ModelError
from r3bench.evolve.propose.files import FileProposer
from r3bench.evolve.propose.keys import hidden
from r3bench.evolve.propose.litellm import LiteLLMProposer
from r3bench.evolve.propose.openai import OpenAIProposer
from r3bench.evolve.propose.recorded import RecordedProposer
from r3bench.evolve.propose.reply import Proposer, Reply
from r3bench.evolve.propose.rules import RuleProposer
from r3bench.evolve.propose.team import Team

__all__ = ["PATIENCE", "Proposer", "Reply", "check_proposers", "open_proposers"]

PATIENCE = 300.0
KINDS = ("rules", "openai", "litellm", "recorded", "files")
_SEPARATOR = re.compile(rf"\s*,\s*(?=(?:\d+\*)?(?:{'|'.join(KINDS)})(?:[:,\s]|$))")
_ONE = re.compile(rf"(?:(?P<weight>\d+)\*)?(?P<kind>{'|'.join(KINDS)})(?::(?P<where>.+))?", re.DOTALL)


def check_proposers(text: str) -> list[tuple[int, str, str]]:
    """Weight, kind and place of each proposer that a text names; ModelError says what it may be."""
    found = []
    for part in _SEPARATOR.split(text.strip()):
        match = _ONE.fullmatch(part.strip())
        if match is None or (match["kind"] == "rules") != (match["where"] is None) or match["weight"] == "0":
            kinds = "rules, openai:URL, litellm:MODEL, recorded:FILE, files:FOLDER"
            raise ModelError(
                "unknown proposer",
                f"a proposer is one of {kinds}, with N* in front for a weight, and not {hidden(part.strip())!r}",
                fatal=True,
            )
        found.append((int(match["weight"] or 1), match["kind"], match["where"] or ""))
    return found


def open_proposers(
    text: str, *, seed: int = 0, patience_s: float = PATIENCE, waiting: Callable[[Path], None] = lambda folder: None
) -> Proposer:
    """The proposer that a text names; ``patience_s`` is how long one answer may take, tries and pauses included.
    ``waiting`` is called once with a folder in which prompts begin to wait for answers.

    ModelError where it cannot be used at all: a package or file that is missing, a text that names nothing.
    """
    members = [(weight, _open(kind, where, seed, patience_s, waiting)) for weight, kind, where in check_proposers(text)]
    return Team(members, seed) if len(members) > 1 else members[0][1]


def _open(kind: str, where: str, seed: int, patience_s: float, waiting: Callable[[Path], None]) -> Proposer:
    if kind == "openai":
        return OpenAIProposer(where, patience_s)
    if kind == "litellm":
        return LiteLLMProposer(where, patience_s)
    if kind == "recorded":
        return RecordedProposer(where)
    return FileProposer(where, patience_s, waiting) if kind == "files" else RuleProposer(seed)
