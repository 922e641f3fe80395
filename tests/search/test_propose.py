"""Who proposes: how they are named, the rules, and several at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from r3bench.errors import Exhausted, ModelError
from r3bench.evolve.archive import Draw
from r3bench.evolve.edits import revised
from r3bench.evolve.prompt import Prompt, Prompter
from r3bench.evolve.propose import Proposer, check_proposers, open_proposers
from r3bench.evolve.propose.apart import Apart
from r3bench.rules import ALL
from tests.search.asking import BRIEF, FIRST, prompts, trouble
from tests.search.model_server import ModelServer, failed


def test_one_or_several_proposers_with_weights() -> None:
    assert check_proposers("rules") == [(1, "rules", "")]
    assert check_proposers("rules,3*openai:http://a:1/v1?x=1,2#m,files:a,b") == [
        (1, "rules", ""),
        (3, "openai", "http://a:1/v1?x=1,2#m"),
        (1, "files", "a,b"),
    ]
    assert check_proposers("2*litellm:ollama/qwen3:8b , rules") == [
        (2, "litellm", "ollama/qwen3:8b"),
        (1, "rules", ""),
    ]


@pytest.mark.parametrize("spec", ["", "gpt", "rules:x", "openai", "0*rules", "openai:localhost", "-1*rules"])
def test_what_names_no_proposer(spec: str) -> None:
    with pytest.raises(ModelError) as caught:
        open_proposers(spec)
    assert caught.value.reason == "unknown proposer"
    assert caught.value.fatal


def replies(proposer: Proposer, asked: list[Prompt]) -> list[str]:
    return [proposer.propose(prompt).origin for prompt in asked]


def test_the_rules_answer_like_a_model_and_never_the_same_twice() -> None:
    proposer, found = open_proposers("rules", seed=3), set()
    for prompt in prompts(5):
        reply = proposer.propose(prompt)
        revision = revised(reply.text, dict(FIRST.files), "kernels.cu", "smooth")
        assert revision.description
        found.add(revision.files)
    assert len(found) == 5


def test_the_rules_come_to_an_end_and_repair_nothing() -> None:
    proposer, asked = open_proposers("rules"), prompts(200)
    with pytest.raises(Exhausted, match=r"^the rules have nothing more to say$"):
        replies(proposer, asked)
    with pytest.raises(Exhausted):
        proposer.propose(asked[0].repaired("x", "y"))


def test_rules_whose_process_is_killed_answer_the_next_question() -> None:
    apart = Apart()
    first = apart.ask(BRIEF.subject, ALL, 0)
    assert apart._process is not None
    apart._process.kill()
    with pytest.raises(ModelError, match=r"the process of the rules ended \(-9\)"):
        apart.ask(BRIEF.subject, ALL, 1)
    assert apart.ask(BRIEF.subject, ALL, 0) == first
    apart.close()
    with pytest.raises(ModelError, match="the rules were stopped"):
        apart.ask(BRIEF.subject, ALL, 0)


def test_the_process_of_the_rules_ends_with_whoever_asks() -> None:
    assert subprocess.run([sys.executable, "-m", "r3bench.rules"], input=b"", timeout=60, check=False).returncode == 0


def test_equal_seeds_give_equal_rules() -> None:
    first, second, third = (replies(open_proposers("rules", seed=s), prompts(5)) for s in (1, 1, 2))
    assert first == second != third


def test_a_team_shares_the_work_by_weight_and_a_seed_repeats_it(server: ModelServer) -> None:
    proposer = open_proposers(f"rules,3*openai:{server.url}#m", seed=1)
    asked = [Prompter(BRIEF).build(Draw(step=n, parent=FIRST)) for n in range(1, 101)]
    origins = replies(proposer, asked)
    assert 60 <= sum(origin == "openai:m" for origin in origins) <= 90
    assert replies(proposer, asked[::-1])[::-1] == origins
    proposer.close()


def test_a_team_goes_on_without_the_one_that_is_lost(server: ModelServer) -> None:
    server.answer = lambda request: failed(401, "no")
    proposer = open_proposers(f"rules,openai:{server.url}#m")
    origins = replies(proposer, [Prompter(BRIEF).build(Draw(step=n, parent=FIRST)) for n in range(1, 11)])
    assert all(origin.startswith("rules:") for origin in origins)
    assert len(server.requests) == 1
    proposer.close()


def test_a_team_of_which_nobody_is_left(server: ModelServer) -> None:
    server.answer = lambda request: failed(401, "no")
    error = trouble(f"openai:{server.url}#a,openai:{server.url}#b")
    assert error.fatal
    assert str(error).count("refuses the key") == 2
