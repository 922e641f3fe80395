"""A model's server of ours: what is asked of it, and what each kind of trouble with it comes to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from threading import Timer

import pytest

from r3bench.errors import ModelError
from r3bench.evolve.propose import open_proposers
from r3bench.evolve.propose.keys import hidden
from tests.search.asking import KEY, ask, prompts, trouble
from tests.search.model_server import ModelServer, Response, failed, nobody, said


def test_a_server_is_asked_as_a_chat_and_its_tokens_are_counted(server: ModelServer) -> None:
    server.answer = lambda request: said("an answer", prompt=900, cached=640, answer=7)
    prompt = prompts()[0]
    reply = ask(f"openai:{server.url}", prompt=prompt)
    assert (reply.text, reply.origin, reply.model) == ("an answer", "openai:tiny", "tiny-1")
    assert (reply.tokens, reply.cached_tokens, reply.answer_tokens, reply.cost) == (900, 640, 7, None)
    (request,) = server.requests
    assert request["model"] == "tiny"
    assert "".join(m["content"] for m in request["messages"]) == prompt.static + prompt.question
    assert server.keys == [""]


def test_the_model_and_the_key_are_those_given(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert ask(f"openai:http://127.0.0.1:{server.port}#big").origin == "openai:big"
    assert server.requests[0]["model"] == "big"
    assert server.keys == [f"Bearer {KEY}"]


def test_a_server_without_a_model(server: ModelServer) -> None:
    server.models = ()
    assert trouble(f"openai:{server.url}").reason == "unknown model"


def test_one_proposer_serves_several_threads(server: ModelServer) -> None:
    server.answer = lambda request: said(request["messages"][1]["content"][-30:])
    proposer = open_proposers(f"openai:{server.url}")
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(proposer.propose, prompts(12)))
    proposer.close()
    assert {reply.text[-20:] for reply in replies} == {"Improve program p0.\n"}
    assert len(server.requests) == 12


def test_no_key(server: ModelServer) -> None:
    server.answer = lambda request: failed(401, "You didn't provide an API key.")
    error = trouble(f"openai:{server.url}#m")
    assert (error.reason, error.fatal) == ("no key", True)
    assert str(error) == f"{server.url} refuses the key (status 401); OPENAI_API_KEY holds it: set it"
    assert len(server.requests) == 1


def test_a_wrong_key_is_never_repeated(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answer = lambda request: failed(401, f"Incorrect API key provided: {KEY}.")
    error = trouble(f"openai:{server.url}#m")
    assert (error.reason, error.fatal) == ("wrong key", True)


def test_an_unknown_model(server: ModelServer) -> None:
    server.answer = lambda request: failed(404, "The model `m` does not exist")
    error = trouble(f"openai:{server.url}#m")
    assert (error.reason, error.fatal) == ("unknown model", True)
    assert "The model `m` does not exist" in str(error)


def test_a_server_that_is_not_there() -> None:
    with nobody() as url:
        error = trouble(f"openai:{url}#m")
    assert (error.reason, error.fatal) == ("unreachable", True)
    assert str(error).endswith("is the server up? (3 tries)")


def test_a_server_that_hangs_up(server: ModelServer) -> None:
    server.answer = lambda request: Response(b"{}", headers=(("Content-Length", "9"),))
    assert trouble(f"openai:{server.url}#m").reason in ("unreachable", "bad answer")


@pytest.mark.parametrize("as_date", [False, True])
def test_a_rate_limit_is_waited_for_as_long_as_the_server_says(server: ModelServer, as_date: bool) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    asked = format_datetime(later, usegmt=True) if as_date else "2"
    server.in_turn(failed(429, "slow down", ("Retry-After", asked)), said("now"))
    assert ask(f"openai:{server.url}#m").text == "now"
    assert datetime.now(UTC) >= later


def test_a_rate_limit_that_outlasts_patience(server: ModelServer) -> None:
    server.answer = lambda request: failed(429, "come back tomorrow", ("Retry-After", "86400"))
    error = trouble(f"openai:{server.url}#m")
    assert (error.reason, error.fatal) == ("rate limit", False)
    assert "come back tomorrow" in str(error)
    assert len(server.requests) == 1


def test_a_server_error_is_tried_again(server: ModelServer) -> None:
    server.in_turn(failed(500, "oops"), Response(b"<html>bad gateway", 502), said("better"))
    assert ask(f"openai:{server.url}#m").text == "better"
    assert len(server.requests) == 3


def test_a_server_that_always_fails(server: ModelServer) -> None:
    server.in_turn(failed(500, "oops"), failed(500, "oops", ("Retry-After", "86400")))
    error = trouble(f"openai:{server.url}#m")
    assert (error.reason, error.fatal) == ("server error", False)
    assert str(error).endswith("(2 tries)")


def test_a_request_that_is_refused_is_not_repeated(server: ModelServer) -> None:
    server.answer = lambda request: failed(400, "maximum context length is 4096 tokens")
    error = trouble(f"openai:{server.url}#m")
    assert (error.reason, error.fatal) == ("refused request", False)
    assert "maximum context length" in str(error)
    assert len(server.requests) == 1


def test_an_answer_that_takes_too_long(server: ModelServer) -> None:
    server.answer = lambda request: Response(said("late").body, hangs=True)
    assert trouble(f"openai:{server.url}#m", patience_s=0.2).reason == "time-out"


def test_closing_ends_what_is_waited_for(server: ModelServer) -> None:
    server.answer = lambda request: failed(503, "busy", ("Retry-After", "60"))
    proposer = open_proposers(f"openai:{server.url}#m", patience_s=300)
    Timer(0.1, proposer.close).start()
    with pytest.raises(ModelError) as caught:
        proposer.propose(prompts()[0])
    assert (caught.value.reason, caught.value.fatal) == ("stopped", True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"not json", "bad answer"),
        (b"[]", "bad answer"),
        (b'{"choices": []}', "bad answer"),
        (b'{"choices": [{"message": "x"}]}', "bad answer"),
        (b'{"choices": [{"message": {"content": "\xff\xfe"}}]}', "not UTF-8"),
        (b" " * 5_000_000, "bad answer"),
    ],
)
def test_responses_that_hold_no_answer(server: ModelServer, body: bytes, reason: str) -> None:
    server.answer = lambda request: Response(body)
    assert trouble(f"openai:{server.url}#m").reason == reason
    assert len(server.requests) == 2


@pytest.mark.parametrize("text", ["", "x" * 200_000, "no code here"])
def test_useless_answers_are_answers(server: ModelServer, text: str) -> None:
    server.answer = lambda request: said(text)
    assert ask(f"openai:{server.url}#m").text == text


def test_an_answer_without_content_or_usage_is_empty(server: ModelServer) -> None:
    server.answer = lambda request: Response(b'{"choices": [{"message": {"content": null}}]}')
    reply = ask(f"openai:{server.url}#m")
    assert (reply.text, reply.tokens, reply.model) == ("", 0, "m")


def test_no_text_that_leaves_a_proposer_holds_a_key(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", "abcdef123456")
    server.answer = lambda request: said("the key is abcdef123456, or sk-proj-1234567890")
    assert ask(f"openai:{server.url}#m").text == "the key is ***, or ***"
    assert hidden("http://me:word@host/v1") == "http://***host/v1"
    assert hidden("openai:http://me:word@host/v1?api_key=QUERY&x=1#m") == "openai:http://***host/v1?***#m"
    assert hidden("x = y ?1 : z;") == "x = y ?1 : z;"
    assert "word" not in str(trouble("openai:http://me:word@127.0.0.1:9/v1#m"))


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-5", "1e999", "1" + "0" * 400, '"7"', "[]", "{}", "true", "null"])
def test_what_a_server_counts_oddly_is_not_known(server: ModelServer, odd: str) -> None:
    choice = '"choices": [{"message": {"content": "yes"}}]'
    details = f'{{"cached_tokens": {odd}}}'
    counts = f'"prompt_tokens": {odd}, "completion_tokens": {odd}, "cost": {odd}, "prompt_tokens_details": {details}'
    for usage in (f"{{{counts}}}", f'{{"prompt_tokens_details": {odd}}}', odd):
        server.answer = lambda request, usage=usage: Response(f'{{{choice}, "usage": {usage}}}'.encode())  # type: ignore[misc]
        reply = ask(f"openai:{server.url}#m")
        assert (reply.tokens, reply.cached_tokens, reply.answer_tokens, reply.cost) == (0, 0, 0, None)
