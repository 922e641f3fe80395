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
from tests.search.model_server import ModelServer, Request, Response, failed, said, serving

KEY = "sk-very-secret-0123456789"
SETTINGS = Settings(trials=1, iterations=8, race=False, islands=1, stale=1, proposing=1)


def search(folder: Path, who: str, settings: Settings = SETTINGS, *, patience_s: float = 5.0) -> KernelResult:
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


def reasons(result: KernelResult) -> dict[str, int]:
    return {failures.status: failures.count for failures in result.failures}


BAD = {
    "empty": "",
    "no code block": "I would rather talk about it.",
    "unfinished": "```cuda\n" + TEXT,
    "too large": "x" * 200_000,
    "wrong kernel": "```cuda\n" + TEXT.replace("smooth", "rough") + "```\n",
    "changed signature": "```cuda\n" + TEXT.replace("int n)", "int n, int m)") + "```\n",
    "includes a file": "```cuda\n#include <cstdio>\n" + TEXT + "```\n",
    "prints": "```cuda\n" + TEXT.replace("if (i", 'printf("%d", i);\n    if (i') + "```\n",
}


def test_useless_answers_are_counted_by_name_and_the_search_goes_on(tmp_path: Path, server: ModelServer) -> None:
    texts = [*BAD.values(), code(9)]
    asked: list[int] = []

    def answer(request: Request) -> Response:
        asked.append(len(request["messages"]))
        return said(texts[sum(n == 2 for n in asked) - 1])

    server.answer = answer
    result = search(tmp_path, f"openai:{server.url}#m", replace(SETTINGS, iterations=9))
    assert reasons(result) == dict.fromkeys(BAD, 2), "each once, and once more when it was to be repaired"
    assert (result.stopped, result.steps) == ("", 9)
    assert [source.description for source in result.sources] == ["", "9"]


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
    for limits in (Limits(tokens=0), Limits(dollars=0)):
        result = search(tmp_path, f"openai:{server.url}#m", replace(SETTINGS, limits=limits))
        assert result.stopped.startswith("the budget of 0 ")
    assert server.requests == []


@pytest.mark.parametrize("status", [401, 500])
def test_no_ledger_and_no_report_holds_a_key(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.in_turn(said(f"the key is {KEY}\n" + code(1)), failed(status, f"Incorrect API key provided: {KEY}"))
    result = search(tmp_path, f"openai:{server.url}#m", patience_s=0.2)
    assert server.keys[0] == f"Bearer {KEY}"
    assert reasons(result) == {"wrong key": 1} if status == 401 else {"server error": 3}
    assert result.stopped
    report.write([tmp_path / "ledger.jsonl"], tmp_path / "reports")
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_a_search_goes_on_where_a_server_that_was_down_had_stopped_it(tmp_path: Path) -> None:
    with serving() as gone:
        url = gone.url
    stopped = search(tmp_path, f"openai:{url}#m")
    assert stopped.stopped.endswith("is the server up? (3 tries)")
    assert reasons(stopped) == {"unreachable": 1}
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
