"""Proposers: what they answer, and what each kind of trouble with a model's server comes to. Nothing leaves here."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from threading import Timer
from types import ModuleType
from typing import Any, ClassVar

import httpx
import pytest

from r3bench.errors import Exhausted, ModelError
from r3bench.evolve.archive import Draw
from r3bench.evolve.brief import brief
from r3bench.evolve.budget import Budget
from r3bench.evolve.edits import revised
from r3bench.evolve.program import Program
from r3bench.evolve.prompt import Prompt, Prompter
from r3bench.evolve.propose import Proposer, Reply, check_proposers, open_proposers
from r3bench.evolve.propose.apart import Apart
from r3bench.evolve.propose.keys import hidden
from r3bench.evolve.propose.team import asks_people
from r3bench.evolve.settings import Limits
from r3bench.ledger import Ledger
from r3bench.nouns import encode
from r3bench.rules import ALL
from tests.search.fake_server import FAKE, TEXT, capture
from tests.search.model_server import ModelServer, Response, failed, nobody, said

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


# -- naming proposers -------------------------------------------------------------------------------------------------


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


# -- a server ---------------------------------------------------------------------------------------------------------


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


# -- trouble ----------------------------------------------------------------------------------------------------------


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


# -- a recorded run ---------------------------------------------------------------------------------------------------


def recorded(path: Path, *replies: dict[str, object]) -> str:
    with Ledger.open(path) as ledger:
        for step, reply in enumerate(replies, 1):
            ledger.append("reply", kernel="demo/smooth", **({"step": step, "turn": 0} | reply))
    return f"recorded:{path}"


def test_recorded_answers_come_back_as_they_were(tmp_path: Path) -> None:
    first = Reply(text="one", origin="openai:m", model="m", tokens=5, cached_tokens=3, cost=0.25, seconds=1.5)
    repair = encode(Reply(text="two", origin="openai:m")) | {"step": 1, "turn": 1}
    spec = recorded(tmp_path / "l.jsonl", encode(first), repair, {"trouble": {"reason": "rate limit", "text": "slow"}})
    prompt, _, third = prompts(3)
    assert ask(spec, prompt=prompt) == first
    assert ask(spec, prompt=prompt.repaired("one", "no")).text == "two"
    with pytest.raises(ModelError, match="slow") as caught:
        ask(spec, prompt=third)
    assert caught.value.reason == "rate limit"


def test_recorded_answers_come_to_an_end(tmp_path: Path) -> None:
    spec = recorded(tmp_path / "l.jsonl", {"step": 2, **encode(Reply(text="x", origin="m"))})
    one, _, three = prompts(3)
    with pytest.raises(Exhausted):
        ask(spec, prompt=one)
    with pytest.raises(ModelError, match="holds answers to 2 steps of demo/smooth") as caught:
        ask(spec, prompt=three)
    assert caught.value.fatal


def test_a_record_that_is_missing_or_holds_no_answer(tmp_path: Path) -> None:
    assert trouble(f"recorded:{tmp_path / 'none.jsonl'}").reason == "not recorded"
    with Ledger.open(tmp_path / "l.jsonl") as ledger:
        ledger.append("note", text="x")
    assert "holds no answers" in str(trouble(f"recorded:{tmp_path / 'l.jsonl'}"))


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-5", "1e999", "1" + "0" * 400, '"7"', "[]", "{}", "true", "null"])
def test_what_a_server_counts_oddly_is_not_known(server: ModelServer, odd: str) -> None:
    choice = '"choices": [{"message": {"content": "yes"}}]'
    details = f'{{"cached_tokens": {odd}}}'
    counts = f'"prompt_tokens": {odd}, "completion_tokens": {odd}, "cost": {odd}, "prompt_tokens_details": {details}'
    for usage in (f"{{{counts}}}", f'{{"prompt_tokens_details": {odd}}}', odd):
        server.answer = lambda request, usage=usage: Response(f'{{{choice}, "usage": {usage}}}'.encode())  # type: ignore[misc]
        reply = ask(f"openai:{server.url}#m")
        assert (reply.tokens, reply.cached_tokens, reply.answer_tokens, reply.cost) == (0, 0, 0, None)


# -- files ------------------------------------------------------------------------------------------------------------


def answer_files(folder: Path, data: bytes, *, after_s: float) -> Timer:
    def write() -> None:
        for question in folder.glob("*.prompt.md"):
            question.with_name(question.name.replace(".prompt.", ".answer.")).write_bytes(data)

    timer = Timer(after_s, write)
    timer.start()
    return timer


def test_a_prompt_waits_in_a_file_for_its_answer(tmp_path: Path) -> None:
    answer_files(tmp_path, b"by hand", after_s=0.2)
    prompt = prompts()[0]
    reply = ask(f"files:{tmp_path}", prompt=prompt)
    assert (reply.text, reply.origin) == ("by hand", "files")
    (question,) = tmp_path.glob("*.prompt.md")
    assert question.name == f"demo_smooth-0001-{prompt.sha256[:8]}.prompt.md"
    assert question.read_text() == prompt.text


def test_a_search_stops_and_finds_its_answer_later(tmp_path: Path) -> None:
    error = trouble(f"files:{tmp_path}", patience_s=0.0)
    assert (error.reason, error.fatal) == ("no answer yet", True)
    assert "write it and resume the search" in str(error)
    answer_files(tmp_path, b"late \xff", after_s=0.0).join()
    assert ask(f"files:{tmp_path}", patience_s=0.0).text == "late \N{REPLACEMENT CHARACTER}"


def test_one_prompt_gets_one_answer(tmp_path: Path) -> None:
    prompt = prompts()[0]
    answer_files(tmp_path, b"once", after_s=0.2)
    assert ask(f"files:{tmp_path}", prompt=prompt).text == "once"
    with pytest.raises(Exhausted, match=r"smooth-0001-\w+.prompt.md asks the same as step 4: one prompt, one answer"):
        ask(f"files:{tmp_path}", prompt=replace(prompt, step=4))
    assert len(list(tmp_path.glob("*.prompt.md"))) == 1


def test_an_earlier_step_that_asks_the_same_takes_the_answer(tmp_path: Path) -> None:
    prompt = prompts()[0]
    answer_files(tmp_path, b"mine", after_s=0.2)
    assert ask(f"files:{tmp_path}", prompt=replace(prompt, step=4)).text == "mine"
    assert ask(f"files:{tmp_path}", prompt=prompt).text == "mine"
    assert {path.name[:16] for path in tmp_path.iterdir()} == {"demo_smooth-0001"}


def test_an_answer_that_is_a_folder(tmp_path: Path) -> None:
    trouble(f"files:{tmp_path}", patience_s=0.0)
    (question,) = tmp_path.glob("*.prompt.md")
    question.with_name(question.name.replace(".prompt.", ".answer.")).mkdir()
    error = trouble(f"files:{tmp_path}")
    assert (error.reason, error.fatal) == ("bad answer", False)
    assert "cannot be read (Is a directory); write a file" in str(error)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be made"):
        open_proposers(f"files:{tmp_path / 'file'}")


# -- rules and teams --------------------------------------------------------------------------------------------------


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
    with pytest.raises(Exhausted, match="nothing more to say on p0"):
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


def test_the_time_of_people_is_not_that_of_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("r3bench.evolve.budget.monotonic", lambda: now)
    budgets = [
        Budget(Limits(seconds=40.0), people=asks_people(open_proposers(spec)))
        for spec in ("rules", f"files:{tmp_path}", f"rules,2*files:{tmp_path}")
    ]
    now = 98.0
    assert [budget.seconds for budget in budgets] == [98.0, 0.0, 0.0]
    for budget in budgets[1:]:
        with budget.evaluating():
            now += 4.0
            with budget.evaluating():
                now += 1.0
        now += 10.0
    assert [budget.seconds for budget in budgets] == [128.0, 5.0, 5.0]
    assert [bool(budget.used_up) for budget in budgets] == [True, False, False]


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


# -- LiteLLM ----------------------------------------------------------------------------------------------------------


def test_litellm_is_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    error = trouble("litellm:anthropic/claude")
    assert error.reason == "not installed"
    assert "pip install r3bench[llm]" in str(error)


class Refusal(Exception):
    """LiteLLM's errors are OpenAI's, with a status."""

    status_code = 500


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package like LiteLLM in what is used of it; ``litellm.completion`` is for a test to set."""
    openai, found = ModuleType("openai"), ModuleType("litellm")
    openai.OpenAIError = Refusal  # type: ignore[attr-defined]
    found.validate_environment = lambda model: {"missing_keys": []}  # type: ignore[attr-defined]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "openai", openai)
    monkeypatch.setitem(sys.modules, "litellm", found)
    return found


class Completion:
    """What LiteLLM returns."""

    _hidden_params: ClassVar = {"response_cost": 0.002}

    def model_dump(self) -> dict[str, Any]:
        usage = {"prompt_tokens": 90, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}
        return {"model": "claude-1", "choices": [{"message": {"content": "yes"}}], "usage": usage}


def test_litellm_is_asked_with_marks_where_a_provider_wants_them(litellm: ModuleType) -> None:
    asked: list[dict[str, Any]] = []

    def completion(**about: Any) -> Completion:
        asked.append(about)
        return Completion()

    litellm.completion = completion  # type: ignore[attr-defined]
    reply = ask("litellm:anthropic/claude-1")
    assert (reply.text, reply.origin, reply.model) == ("yes", "litellm:anthropic/claude-1", "claude-1")
    assert (reply.tokens, reply.cached_tokens, reply.answer_tokens, reply.cost) == (90, 64, 5, 0.002)
    ask("litellm:ollama/tiny")
    marked, plain = (json.dumps(about["messages"]) for about in asked)
    assert "cache_control" in marked
    assert "cache_control" not in plain
    assert all(about["num_retries"] == 0 and 0 < about["timeout"] <= 60.0 for about in asked)


@pytest.mark.parametrize(
    ("status", "reason", "fatal"),
    [
        (401, "wrong key", True),
        (403, "wrong key", True),
        (404, "unknown model", True),
        (400, "refused request", False),
        (402, "refused request", False),
        (429, "rate limit", False),
        (408, "time-out", False),
        (500, "server error", False),
    ],
)
def test_litellms_errors_by_name(
    litellm: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int, reason: str, fatal: bool
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    def completion(**about: Any) -> Completion:
        error = Refusal(f"no, {KEY}")
        error.status_code = status
        raise error

    litellm.completion = completion  # type: ignore[attr-defined]
    error = trouble("litellm:anthropic/claude-1", patience_s=0.1)
    assert (error.reason, error.fatal) == (reason, fatal)
    litellm.validate_environment = lambda model: {"missing_keys": ["ANTHROPIC_API_KEY"]}  # type: ignore[attr-defined]
    if reason in ("wrong key", "server error"):
        assert trouble("litellm:anthropic/claude-1", patience_s=0.1).reason == "no key"


def test_litellm_without_a_connection(litellm: ModuleType) -> None:
    def completion(**about: Any) -> Completion:
        raise Refusal("Connection error") from httpx.ConnectError("refused")

    litellm.completion = completion  # type: ignore[attr-defined]
    error = trouble("litellm:ollama/tiny")
    assert (error.reason, error.fatal) == ("unreachable", True)
