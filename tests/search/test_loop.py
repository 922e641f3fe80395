"""The loop around the archive: order, budgets, proposers that fail, ablations, several kernels at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer

import pytest

from r3bench.errors import Exhausted, ModelError
from r3bench.evolve import MODES, Limits, Settings, evolve
from r3bench.evolve.exploring import BEST, FIRST
from r3bench.evolve.program import Program
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose import Proposer, Reply, open_proposers
from r3bench.ledger import KernelResult, Ledger, Record, read
from r3bench.model import Capture, Outcome, Status, Variant
from r3bench.nouns import decode
from tests.search.fake_server import TEXT, Behaviour, FakeServer, capture, tree

SETTINGS = Settings(trials=2, iterations=12, race=False, islands=2, migrate=4)


@dataclass
class Scripted:
    """Answers by a function of the prompt: a text for the kernel, or an error."""

    answer: Callable[[Prompt], str | ModelError]
    cost: float | None = 0.01
    prompts: list[Prompt] | None = None

    def propose(self, prompt: Prompt) -> Reply:
        if self.prompts is not None:
            self.prompts.append(prompt)
        text = self.answer(prompt)
        if isinstance(text, ModelError):
            raise text
        answer = f"CHANGE: try {prompt.step}\n```cuda\n{text}```\n"
        return Reply(
            text=answer, origin="test:model", model="model", tokens=100, answer_tokens=10, cost=self.cost, seconds=1.0
        )

    def close(self) -> None:
        pass


def numbered(prompt: Prompt) -> str:
    """The parent with one more constant in it: a new text each time, faster with the step."""
    body = dict(prompt.parent.files)["kernels.cu"]
    return body.replace("if (i >= n)", f"const int c{prompt.step} = {prompt.step}; if (i >= n)")


def by_constants(variant: Variant, unit: int) -> Behaviour:
    text = dict(variant.files or (("kernels.cu", TEXT),))["kernels.cu"]
    return Behaviour(ns=1000.0 / (1 + 0.1 * text.count("const int c")))


def search(
    folder: Path,
    proposer: Proposer,
    settings: Settings = SETTINGS,
    *,
    server: FakeServer | None = None,
    captures: list[Capture] | None = None,
) -> list[KernelResult]:
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        return evolve(
            captures or [capture()], server or FakeServer(by_constants), settings, ledger, proposer, working=tree()
        )


def records(folder: Path, kind: str) -> list[Record]:
    return [record for record in read(folder / "ledger.jsonl")[0] if record["kind"] == kind]


def programs(folder: Path) -> list[Program]:
    return [decode(Program, record["program"]) for record in records(folder, "program")]


class Slow(FakeServer):
    """Outcomes come from other threads, after a while and in any order."""

    delays: Iterator[float]

    def submit(
        self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank", **how: object
    ) -> Future[Outcome]:  # fmt: skip
        done, later = super().submit(capture, variant, unit, timing), Future[Outcome]()
        Timer(next(self.delays), lambda: later.set_result(done.result())).start()
        return later


def slow(seed: int) -> Slow:
    server = Slow(by_constants)
    chance = random.Random(seed)
    server.delays = iter(lambda: chance.uniform(0, 0.02), None)
    return server


@pytest.mark.parametrize("settings", [SETTINGS, replace(SETTINGS, race=True, trials=8, iterations=24)])
def test_the_archive_does_not_depend_on_what_ends_first(tmp_path: Path, settings: Settings) -> None:
    found, tuned = [], []
    for seed in range(2):
        (result,) = search(tmp_path / str(seed), Scripted(numbered), settings, server=slow(seed))
        found.append(programs(tmp_path / str(seed)))
        tuned.append(result.sources)
    assert found[0] == found[1]
    assert tuned[0] == tuned[1]
    assert len(found[0]) == settings.iterations + 1
    assert max(p.speedup or 0 for p in found[0]) > 1.25


def test_recorded_answers_give_the_same_archive(tmp_path: Path) -> None:
    search(tmp_path / "asked", Scripted(numbered))
    search(tmp_path / "recorded", open_proposers(f"recorded:{tmp_path / 'asked' / 'ledger.jsonl'}"))
    assert programs(tmp_path / "recorded") == programs(tmp_path / "asked")


def test_a_resumed_search_asks_nobody_again_and_writes_nothing_twice(tmp_path: Path) -> None:
    search(tmp_path, Scripted(numbered), replace(SETTINGS, iterations=6))
    before = programs(tmp_path)
    prompts: list[Prompt] = []
    (result,) = search(tmp_path, Scripted(numbered, prompts=prompts))
    assert sorted(prompt.step for prompt in prompts) == list(range(7, 13))
    assert programs(tmp_path)[: len(before)] == before
    assert [p.id for p in programs(tmp_path)] == [f"p{n}" for n in range(13)]
    assert result.spent.replies == 12


def test_what_the_device_tells_is_asked_once_and_stands_in_every_prompt(tmp_path: Path) -> None:
    told, server = replace(SETTINGS, profile=True), slow(0)
    for iterations in (2, 4):
        prompts: list[Prompt] = []
        search(tmp_path, Scripted(numbered, prompts=prompts), replace(told, iterations=iterations), server=server)
        assert all("- memory bandwidth, writing: 12 GB/s\n" in prompt.static for prompt in prompts)
    assert server.profiled == 1
    search(tmp_path / "untold", Scripted(numbered), replace(SETTINGS, iterations=2), server=server)
    assert server.profiled == 1


def test_no_child_lags_further_behind_its_parent_than_staleness_allows(tmp_path: Path) -> None:
    lags = {}
    for stale in (1, 2):
        settings = replace(SETTINGS, stale=stale, islands=1, iterations=20)
        search(tmp_path / str(stale), Scripted(numbered), settings, server=slow(0))
        lags[stale] = max(p.lag for p in programs(tmp_path / str(stale)))
        assert max(r["under_way"] for r in records(tmp_path / str(stale), "iteration")) < stale
    assert lags == {1: 0, 2: 1}


def test_the_best_of_the_islands_migrate_and_it_is_on_record(tmp_path: Path) -> None:
    search(tmp_path, Scripted(numbered))
    moves = [move for record in records(tmp_path, "migration") for move in record["moves"]]
    assert moves
    assert all(one != other for _, one, other in moves)


# -- answers of no use ------------------------------------------------------------------------------------------------


def test_what_fails_is_repaired_once_with_the_reason(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        text = dict(variant.files or (("kernels.cu", TEXT),))["kernels.cu"]
        return Behaviour(status=Status.MISMATCH, detail="out[3] differs") if "wrong" in text else Behaviour()

    def answer(prompt: Prompt) -> str:
        return (
            numbered(prompt) if prompt.turn else numbered(prompt).replace("const int", "const int wrong = 1; const int")
        )

    prompts: list[Prompt] = []
    search(tmp_path, Scripted(answer, prompts=prompts), replace(SETTINGS, iterations=1), server=FakeServer(model))
    assert [prompt.turn for prompt in prompts] == [0, 1]
    assert "mismatch: out[3] differs" in prompts[1].text
    (child,) = [p for p in programs(tmp_path) if p.step == 1]
    assert (child.status, child.repaired) == ("matched", True)


def test_answers_without_code_are_counted_and_the_search_goes_on(tmp_path: Path) -> None:
    def answer(prompt: Prompt) -> str:
        return "" if prompt.step % 2 else numbered(prompt)

    class Prose(Scripted):
        def propose(self, prompt: Prompt) -> Reply:
            reply = super().propose(prompt)
            return replace(reply, text="I would rather not.") if prompt.step % 2 else reply

    (result,) = search(tmp_path, Prose(answer))
    fates = [(p.step % 2, p.status) for p in programs(tmp_path) if p.step]
    assert set(fates) == {(1, "refused"), (0, "matched")}
    assert all("no code block" in p.detail for p in programs(tmp_path) if p.status == "refused")
    assert result.stopped == ""


def test_the_same_answer_for_ever_is_a_duplicate_and_costs_no_evaluation(tmp_path: Path) -> None:
    same = TEXT.replace("k < 4", "k < 2 + 2")
    (result,) = search(tmp_path, Scripted(lambda prompt: same), replace(SETTINGS, stale=1, islands=1))
    copies = [p for p in programs(tmp_path) if p.step > 1]
    assert {p.status for p in copies} == {"duplicate", "refused"}
    assert {p.detail for p in copies if p.status == "duplicate"} == {"the same text as p1"}
    assert {p.detail.split(":")[0] for p in copies if p.status == "refused"} == {"nothing changed"}
    assert sum(s.trials for s in result.sources) == 4


def test_equal_code_of_another_text_is_tuned_once(tmp_path: Path) -> None:
    server = FakeServer(lambda variant, unit: replace(by_constants(variant, unit), module="one module"))
    search(tmp_path, Scripted(numbered), server=server)
    assert {p.status for p in programs(tmp_path) if p.step} == {"duplicate"}
    assert {p.detail for p in programs(tmp_path) if p.step} == {"the same code as p0"}


def test_three_calls_without_an_answer_end_the_search_with_its_sentence(tmp_path: Path) -> None:
    failing = Scripted(lambda prompt: ModelError("unreachable", "no server at http://localhost:1; start it"))
    (result,) = search(tmp_path, failing)
    assert result.stopped == "no server at http://localhost:1; start it"
    assert 3 <= result.spent.failed <= 6
    assert result.status == "not improved"
    assert all(p.status == "refused" for p in programs(tmp_path) if p.step)


def test_an_error_that_is_final_ends_the_search_at_once(tmp_path: Path) -> None:
    failing = Scripted(lambda prompt: ModelError("no key", "set OPENAI_API_KEY", fatal=True))
    (result,) = search(tmp_path, failing, replace(SETTINGS, stale=1, islands=1))
    assert (result.stopped, result.steps) == ("set OPENAI_API_KEY", 0)


def test_a_proposer_with_nothing_more_to_say_ends_the_search(tmp_path: Path) -> None:
    (result,) = search(tmp_path, Scripted(lambda prompt: Exhausted("no more")), replace(SETTINGS, iterations=100))
    assert result.stopped == "no more"
    assert result.steps == 0
    assert result.spent.failed == 0


# -- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(seconds=0), "0 seconds"),
        (Limits(evaluations=9), "9 evaluations"),
        (Limits(tokens=300), "300 tokens"),
        (Limits(dollars=0.025), "0.025 dollars"),
    ],
)
def test_each_budget_ends_the_search_and_says_so(tmp_path: Path, limits: Limits, said: str) -> None:
    (result,) = search(tmp_path, Scripted(numbered), replace(SETTINGS, limits=limits, iterations=50))
    assert result.stopped == f"the budget of {said} was used up"
    assert len(programs(tmp_path)) < 12
    more = search(tmp_path, Scripted(numbered))
    assert more[0].stopped == ""
    assert {p.id for p in programs(tmp_path)} == {f"p{n}" for n in range(13)}


def test_minutes_on_a_gpu_are_those_of_loading_checking_and_timing(tmp_path: Path) -> None:
    class Gpu(FakeServer):
        def submit(
            self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank", **how: object
        ) -> Future[Outcome]:
            done: Future[Outcome] = Future()
            outcome = super().submit(capture, variant, unit, timing).result()
            stages = (("optimize", 500.0), ("verify", 10.0), ("time", 20.0))
            done.set_result(replace(outcome, stages=stages))
            return done

    server = Gpu(by_constants, target=replace(FakeServer(by_constants).target, device="cuda", arch="sm_90"))
    (result,) = search(tmp_path, Scripted(numbered), replace(SETTINGS, limits=Limits(gpu_minutes=3)), server=server)
    assert result.stopped == "the budget of 3 GPU minutes was used up"
    assert dict(result.stages)["optimize"] >= 6 * 500.0


RACE = replace(SETTINGS, race=True, trials=30, iterations=100, limits=Limits(evaluations=100))


def test_where_texts_gain_nothing_most_evaluations_are_for_configurations_of_the_best(tmp_path: Path) -> None:
    def slower(variant: Variant, unit: int) -> Behaviour:
        options = variant.configuration.options if variant.configuration else ()
        return Behaviour(ns=1e6 / by_constants(variant, unit).ns / (1 + len(options)))

    (result,) = search(tmp_path, Scripted(numbered), RACE, server=FakeServer(slower))
    trials = [source.trials for source in result.sources]
    assert trials[0] > 30, "those that a budget has left go beyond what each text gets"
    assert sum(sorted(trials)[-BEST:]) > 60
    assert len(trials) > 13, "a fifth is for texts whatever they gain"
    assert result.stopped == "the budget of 100 evaluations was used up"


def test_a_text_that_had_more_trials_is_no_better_elite_for_it(tmp_path: Path) -> None:
    def tuned(variant: Variant, unit: int) -> Behaviour:
        options = variant.configuration.options if variant.configuration else ()
        return Behaviour(ns=by_constants(variant, unit).ns / (1 + len(options)))

    (result,) = search(tmp_path, Scripted(numbered), RACE, server=FakeServer(tuned))
    first, recorded = programs(tmp_path)[0], result.sources[0]
    assert (first.trials, first.ns) == (FIRST, recorded.default_ns)
    assert recorded.best_ns is not None
    assert recorded.best_ns < first.ns


def test_where_texts_gain_most_evaluations_are_for_texts(tmp_path: Path) -> None:
    (result,) = search(tmp_path, Scripted(numbered), RACE)
    assert programs(tmp_path)[0].trials == FIRST == 10
    assert len(result.sources) > 30
    assert sum(source.trials > 2 for source in result.sources) >= 3


def test_without_a_budget_no_text_gets_more_trials_than_asked_for(tmp_path: Path) -> None:
    settings = replace(SETTINGS, race=True, trials=5, iterations=20)
    (result,) = search(tmp_path, Scripted(numbered), settings)
    trials = sorted(source.trials for source in result.sources)
    assert trials[-BEST:] == [5, 5, 5]
    assert trials[0] == 1


def test_what_is_left_when_nobody_has_more_to_say_is_for_configurations(tmp_path: Path) -> None:
    few = Scripted(lambda prompt: numbered(prompt) if prompt.step <= 3 else Exhausted("no more"))
    (result,) = search(tmp_path, few, replace(RACE, limits=Limits(evaluations=60)))
    assert result.stopped == "no more"
    assert sum(source.trials for source in result.sources) == 60


# -- ablations --------------------------------------------------------------------------------------------------------


def test_without_sources_only_the_configuration_is_tuned(tmp_path: Path) -> None:
    (result,) = search(tmp_path, Scripted(numbered), replace(SETTINGS, search="bo", trials=20))
    assert [(s.rule, s.trials) for s in result.sources] == [("recorded", 20)]
    assert (result.search, result.spent.replies) == ("bo", 0)


def test_best_of_n_makes_every_text_from_the_first(tmp_path: Path) -> None:
    prompts: list[Prompt] = []
    search(tmp_path, Scripted(numbered, prompts=prompts), replace(SETTINGS, search="best-of-n"))
    assert {p.parent for p in programs(tmp_path) if p.step} == {"p0"}
    assert {prompt.shown for prompt in prompts} == {()}, "the first text is part of what is said once"


def test_every_mode_is_told_in_words() -> None:
    assert all(mode.words for mode in MODES.values())
    assert MODES["llm"].trials == 1


# -- several kernels --------------------------------------------------------------------------------------------------


def test_the_kernel_that_promises_most_goes_first(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        return by_constants(variant, unit)

    heavy, light = capture(symbol="smooth"), capture(TEXT.replace("smooth", "light"), symbol="light")
    heavy = replace(heavy, units=tuple(replace(unit, occurrence=999) for unit in heavy.units))
    server: FakeServer = FakeServer(model)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        results = evolve(
            [light, heavy], server, replace(SETTINGS, proposing=1, in_flight=1, limits=Limits(evaluations=30)), ledger,
            Scripted(numbered), working=lambda c: tree(TEXT.replace("smooth", c.symbol))(c),
        )  # fmt: skip
    steps = {result.kernel: result.steps for result in results}
    assert steps["demo/smooth"] > 2 * steps["demo/light"]


def test_a_winner_is_taken_apart(tmp_path: Path) -> None:
    (result,) = search(tmp_path, Scripted(numbered))
    assert result.status == "improved"
    factors = {share.name: share.factor for share in result.split}
    assert list(factors) == ["source", "passes", "specialization", "launch"]
    assert factors["source"] == pytest.approx(
        by_constants(Variant(), 0).ns / min(s.best_ns or 1e9 for s in result.sources)
    )
    assert factors["passes"] == pytest.approx(1.0)
