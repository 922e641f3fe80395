"""LiteLLM itself, where it is installed, against a server of ours: what it raises and counts is what we read of it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import pytest

from r3bench.errors import ModelError
from r3bench.evolve.propose import patience
from r3bench.evolve.propose.litellm import LiteLLMProposer
from r3bench.evolve.propose.reply import Reply
from tests.search.model_server import ModelServer, Response, failed, nobody, said

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="LiteLLM is not installed: pip install r3bench[llm]"
)
KEY = "sk-very-secret-0123456789"


@dataclass
class Question:
    """As much of a prompt as is asked."""

    def messages(self, *, marked: bool = False) -> list[dict[str, str]]:
        return [{"role": "user", "content": "faster"}]


def ask(url: str, monkeypatch: pytest.MonkeyPatch, model: str = "gpt-4o-mini", patience_s: float = 60.0) -> Reply:
    monkeypatch.setenv("OPENAI_API_BASE", url)
    proposer = LiteLLMProposer(f"openai/{model}", patience_s)
    try:
        return proposer.propose(Question())  # type: ignore[arg-type]
    finally:
        proposer.close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_text_tokens_cached_tokens_and_cost_are_read(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.in_turn(failed(429, "slow down"), said("yes", prompt=1000, cached=640, answer=100))
    reply = ask(server.url, monkeypatch)
    assert (reply.text, reply.tokens, reply.cached_tokens, reply.answer_tokens) == ("yes", 1000, 640, 100)
    assert reply.cost is not None
    assert 0 < reply.cost < 0.01
    assert ask(server.url, monkeypatch, model="of-no-known-price").cost is None


@pytest.mark.parametrize(
    ("response", "reason", "fatal"),
    [
        (failed(401, f"Incorrect API key provided: {KEY}"), "wrong key", True),
        (failed(403, f"the key {KEY} may not do that"), "wrong key", True),
        (failed(404, "no such model"), "unknown model", True),
        (failed(400, "bad request"), "refused request", False),
        (failed(402, "pay first"), "refused request", False),
        (failed(413, "too long"), "refused request", False),
        (failed(429, "quota used up"), "rate limit", False),
        (failed(500, "broken"), "server error", False),
        (failed(503, "overloaded"), "server error", False),
        (Response(b'{"choices": [{"mess'), "server error", False),
        (Response(b'{"choices": [{"message": {"content": "\xff"}}]}'), "server error", False),
        (Response(b'{"choices": [], "model": "m"}'), "bad answer", False),
        (Response(said("slow").body, hangs=True), "time-out", False),
    ],
)
def test_what_goes_wrong_has_its_name(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, response: Response, reason: str, fatal: bool
) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 3600.0)  # what fails once has failed
    server.in_turn(response)
    with pytest.raises(ModelError) as caught:
        ask(server.url, monkeypatch, patience_s=0.5 if response.hangs else 60.0)
    assert (caught.value.reason, caught.value.fatal) == (reason, fatal)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [429, 503])
def test_it_waits_as_long_as_the_server_says(server: ModelServer, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 3600.0)
    server.in_turn(failed(status, "slow down", ("retry-after", "0.01")), said("yes"))
    assert ask(server.url, monkeypatch).text == "yes"


@pytest.mark.parametrize("content", ['""', "null"])
def test_an_answer_without_text_is_an_empty_one(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    server.in_turn(Response(f'{{"choices": [{{"message": {{"content": {content}}}}}]}}'.encode()))
    reply = ask(server.url, monkeypatch)
    assert (reply.text, reply.tokens, reply.cached_tokens) == ("", 0, 0)


def test_no_key_and_no_server(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with nobody() as url, pytest.raises(ModelError) as caught:
        ask(url, monkeypatch)
    assert caught.value.reason == "unreachable"
    monkeypatch.delenv("OPENAI_API_KEY")
    server.in_turn(failed(401, "You didn't provide an API key"))
    with pytest.raises(ModelError) as caught:
        ask(server.url, monkeypatch)
    assert (caught.value.reason, caught.value.fatal) == ("no key", True)
