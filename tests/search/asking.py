"""Questions for proposers: what they answer, or what kept them from it."""

from __future__ import annotations

import pytest

from r3bench.errors import ModelError
from r3bench.evolve.archive import Draw
from r3bench.evolve.brief import brief
from r3bench.evolve.program import Program
from r3bench.evolve.prompt import Prompt, Prompter
from r3bench.evolve.propose import Reply, open_proposers
from tests.search.fake_server import FAKE, TEXT, capture

KEY = "sk-very-secret-0123456789"
BRIEF = brief(capture(), {"kernels.cu": TEXT}, FAKE)
FIRST = Program(id="p0", files=(("kernels.cu", TEXT),), speedup=1.0)


def prompts(count: int = 1) -> list[Prompt]:
    prompter = Prompter(BRIEF)
    return [prompter.build(Draw(step=n, parent=FIRST)) for n in range(1, count + 1)]


def ask(spec: str, *, patience_s: float = 60.0, prompt: Prompt | None = None) -> Reply:
    proposer = open_proposers(spec, patience_s=patience_s)
    try:
        return proposer.propose(prompt or prompts()[0])
    finally:
        proposer.close()


def trouble(spec: str, *, patience_s: float = 60.0) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(spec, patience_s=patience_s)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value
