"""Whatever a model's server does, the search counts it by name and goes on, or ends in a sentence that says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from r3bench import report
from r3bench.evolve import Limits, Settings, evolve
from r3bench.evolve.propose import open_proposers
from r3bench.ledger import KernelResult, Ledger
from tests.search.fake_server import TEXT, Behaviour, FakeServer, capture, tree
from tests.search.model_server import ModelServer, Response, failed, nobody, said, serving

KEY = "sk-very-secret-0123456789"
SETTINGS = Settings(trials=1, iterations=8, race=False, islands=1, stale=1, proposing=1)


def search(folder: Path, who: str, settings: Settings = SETTINGS, *, patience_s: float = 60.0) -> KernelResult:
    proposer = open_proposers(who, patience_s=patience_s)
    try:
        with Ledger.open(folder / "ledger.jsonl") as ledger:
            device = FakeServer(lambda variant, unit: Behaviour(ns=1000.0))
            (result,) = evolve([capture()], device, settings, ledger, proposer, working=tree())
        return result
    finally:
        proposer.close()


def code(number: int) -> str:
    return f"CHANGE: {number}\n```cuda\n{TEXT.replace('k < 4', f'k < 4 && n != -{number}')}```\n"


def told(folder: Path) -> str:
    """The report of a search."""
    report.write([folder / "ledger.jsonl"], folder / "reports")
    return (folder / "reports" / "demo" / "report.md").read_text()


def reasons(result: KernelResult) -> dict[str, int]:
    return {failures.status: failures.count for failures in result.failures}


GOOD = "```cuda\n" + TEXT.replace("k < 4", "k < 5") + "```\n"
# Each way in which a model and its server can be of no use: what they answer at first, what that is counted as, and how
# the search ends: on its own after all its steps ("on"), or with a sentence. Afterwards they are as they should be.
SOON, NEVER = ("retry-after", "0.01"), ("retry-after", "86400")  # never: patience ends before
AGAIN = {"nothing changed": 6}  # a good answer that is given for ever: half of the parents have it already
BAD: dict[str, tuple[list[Response], dict[str, int], str]] = {
    "no key": ([failed(401, "You didn't provide an API key")], {"no key": 1}, "OPENAI_API_KEY holds it: set it"),
    "wrong key": ([failed(401, "Incorrect API key provided")], {"wrong key": 1}, "OPENAI_API_KEY holds it: check it"),
    "rate limit": ([failed(429, "slow down", SOON)] * 3 + [said(GOOD)], AGAIN, "on"),
    "rate limit for ever": ([failed(429, "quota used up", NEVER)], {"rate limit": 3}, "takes no more requests now"),
    "empty": ([said("")], {"empty": 16}, "on"),
    "no code block": ([said("I would rather talk about it.")], {"no code block": 16}, "on"),
    "unfinished": ([said("```cuda\n" + TEXT)], {"unfinished": 16}, "on"),
    "prose around code": ([said(f"Sure!\n\n1. The loop:\n{GOOD}\nLet me know.")], AGAIN, "on"),
    "wrong kernel": ([said(GOOD.replace("smooth", "rough"))], {"wrong kernel": 16}, "on"),
    "changed signature": ([said(GOOD.replace("int n)", "int n, int m)"))], {"changed signature": 16}, "on"),
    "includes files": ([said(GOOD.replace("cuda\n", "cuda\n#include <cstdio>\n"))], {"includes a file": 16}, "on"),
    "prints": ([said(GOOD.replace("if (i", 'printf("%d", i);\n    if (i'))], {"prints": 16}, "on"),
    "200 kB of text": ([said("x" * 200_000)], {"too large": 16}, "on"),
    "not UTF-8": ([Response(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}')], {"not UTF-8": 3}, "not UTF-8"),
    "the same for ever": ([said(GOOD)], AGAIN, "on"),
    "stops in the middle": ([Response(b'{"choices": [{"mess')], {"bad answer": 3}, "sent no JSON"),
    "server error": ([failed(503, "overloaded", NEVER)], {"server error": 3}, "failed (503: overloaded)"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_of_no_use_is_counted_and_named_and_the_search_goes_on_or_is_resumed(
    name: str, tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses, counted, ending = BAD[name]
    if name == "wrong key":
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.in_turn(*responses)
    result = search(tmp_path, f"openai:{server.url}#m")
    assert reasons(result) == counted
    assert ending in (result.stopped or "on")
    page = told(tmp_path)
    assert all(f"| {reason} | {count} |" in page for reason, count in counted.items())
    assert KEY not in page + (tmp_path / "ledger.jsonl").read_text()
    assert (len(result.sources) > 1) == (counted == AGAIN)
    if result.stopped:
        server.answer = lambda request: said(code(len(server.requests)))
        resumed = search(tmp_path, f"openai:{server.url}#m")
        assert (resumed.stopped, resumed.steps) == ("", 8)
    else:
        assert result.steps == 8


def test_useless_answers_do_not_keep_others_from_being_tried(tmp_path: Path, server: ModelServer) -> None:
    useless = [responses[0] for responses, _, ending in BAD.values() if ending == "on" and responses[0].status == 200]
    server.in_turn(*(one for one in useless for _ in range(2)), said(code(9)))
    result = search(tmp_path, f"openai:{server.url}#m", replace(SETTINGS, iterations=len(useless) + 4))
    assert result.stopped == ""
    assert "9" in [source.description for source in result.sources]


def test_bytes_that_are_no_text_are_counted_and_the_search_goes_on(tmp_path: Path, server: ModelServer) -> None:
    broken = Response(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}')
    server.in_turn(broken, broken, *(said(code(n)) for n in range(1, 9)))
    result = search(tmp_path, f"openai:{server.url}#m")
    assert reasons(result) == {"not UTF-8": 1}
    assert (result.stopped, len(result.sources)) == ("", 8)


def test_a_model_that_says_the_same_for_ever(tmp_path: Path, server: ModelServer) -> None:
    server.answer = lambda request: said(code(1))
    result = search(tmp_path, f"openai:{server.url}#m")
    assert result.steps == 8
    assert len([s for s in result.sources if s.same_as is None]) == 2


def test_a_budget_of_nothing_asks_nobody(tmp_path: Path, server: ModelServer) -> None:
    server.in_turn(said(code(1)))
    for unit in ("seconds", "evaluations", "tokens", "dollars", "GPU minutes"):
        folder, limits = tmp_path / unit, Limits(**{unit.lower().replace(" ", "_"): 0})
        result = search(folder, f"openai:{server.url}#m", replace(SETTINGS, limits=limits))
        assert result.stopped == f"the budget of 0 {unit} was used up"
        assert result.stopped in told(folder)
        assert server.requests == []
        resumed = search(folder, f"openai:{server.url}#m", replace(SETTINGS, iterations=1))
        assert (resumed.stopped, resumed.steps, len(server.requests)) == ("", 1, 1)
        server.requests.clear()


@pytest.mark.parametrize("status", [401, 500])
def test_no_ledger_and_no_report_holds_a_key(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.in_turn(said(f"the key is {KEY}\n" + code(1)), failed(status, f"Incorrect API key provided: {KEY}", NEVER))
    result = search(tmp_path, f"openai:{server.url}#m")
    assert server.keys[0] == f"Bearer {KEY}"
    assert reasons(result) == {"wrong key": 1} if status == 401 else {"server error": 3}
    assert result.stopped
    told(tmp_path)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_a_search_goes_on_where_a_server_that_was_down_had_stopped_it(tmp_path: Path) -> None:
    with nobody() as url:
        stopped = search(tmp_path, f"openai:{url}#m")
    assert stopped.stopped.endswith("is the server up? (3 tries)")
    assert reasons(stopped) == {"unreachable": 1}
    assert "| unreachable | 1 |" in told(tmp_path)
    with serving() as up:
        up.in_turn(*(said(code(n)) for n in range(1, 9)))
        resumed = search(tmp_path, f"openai:{up.url}#m")
    assert (resumed.stopped, len(resumed.sources), reasons(resumed)) == ("", 9, {})


def test_a_search_stops_for_answers_in_files_and_finds_them_later(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    settings = replace(SETTINGS, iterations=1)
    first = search(tmp_path, f"files:{folder}", settings, patience_s=0.0)
    assert first.stopped.endswith("write it and resume the search")
    (question,) = folder.glob("*.prompt.md")
    question.with_name(question.name.replace(".prompt.", ".answer.")).write_text(code(1))
    resumed = search(tmp_path, f"files:{folder}", settings, patience_s=0.0)
    assert (resumed.stopped, len(resumed.sources)) == ("", 2)
