"""Answers of an earlier run, and answers in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from r3bench.errors import Exhausted, ModelError
from r3bench.evolve.budget import Budget
from r3bench.evolve.propose import Reply, open_proposers
from r3bench.evolve.propose.team import asks_people
from r3bench.evolve.settings import Limits
from r3bench.ledger import Ledger
from r3bench.nouns import encode
from tests.search.asking import ask, prompts, trouble


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
