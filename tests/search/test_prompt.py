"""Prompts: what is in them, that a program stays byte for byte the same, and that order never changes what is shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3bench.evolve.archive import Draw
from r3bench.evolve.brief import LONG, Brief, brief
from r3bench.evolve.program import Program
from r3bench.evolve.prompt import Prompter, token_count
from tests.search.fake_server import FAKE, TEXT, capture

BRIEF = brief(capture(), {"kernels.cu": TEXT}, FAKE, baseline_ns=123_456.0, ranges={"in": (-1.0, 2.5)})


def program(number: int, *, speedup: float | None = 1.0, parent: int = 0, detail: str = "") -> Program:
    return Program(
        id=f"p{number}",
        files=(("kernels.cu", TEXT.replace("k < 4", f"k < {4 + number}")),),
        parent=f"p{parent}" if number else None,
        description=f"change {number}" if number else "",
        speedup=speedup,
        status="failed" if speedup is None else "matched",
        detail=detail,
    )


PROGRAMS = [program(n, speedup=1.0 + n / 10) for n in range(12)]


def test_the_static_part_says_what_is_known_of_target_and_launch() -> None:
    for line in (
        "Make the GPU kernel `smooth` faster.",
        "CHANGE: <one sentence>",
        "- the recorded kernel takes 120 us",
        "- grid 8 x 1 x 1, block 128 x 1 x 1, 0 bytes of shared memory",
        "- in: uint8[4096 bytes], aligned to 256 bytes, values from -1 to 2.5, only read",
        "- out: uint8[4096 bytes], aligned to 256 bytes, written",
        "- n: int32 = 0 in every recorded launch",
        "- no two pointer arguments lead to the same memory, in any recorded launch",
        "/* open: smooth */",
    ):
        assert line in BRIEF.static
    assert BRIEF.static.count("out[i] += in[i]") == 1
    assert BRIEF.static.endswith("}\n```\n\n")


def test_the_static_part_says_what_was_measured_where_that_is_known() -> None:
    told = {"memory bandwidth, writing": "3300 GB/s", "hits in L2, %": "41.2"}
    static = brief(capture(), {"kernels.cu": TEXT}, FAKE, profile=told).static
    assert "# Measured there\n\n- memory bandwidth, writing: 3300 GB/s\n- hits in L2, %: 41.2\n" in static
    assert "Measured there" not in BRIEF.static


def test_the_static_part_names_what_may_overlap() -> None:
    static = brief(capture(disjoint=False), {"kernels.cu": TEXT}, FAKE).static
    assert "pointer arguments may lead to the same memory" in static


def test_a_long_kernel_is_edited_not_rewritten() -> None:
    long = TEXT.replace("    for", "    i += 0;\n" * LONG + "    for")
    assert "<<<<<<< SEARCH" in brief(capture(long), {"kernels.cu": long}, FAKE).static
    assert "<<<<<<< SEARCH" not in BRIEF.static


def test_a_gpu_is_described_by_its_compute_capability() -> None:
    static = brief(capture(), {"kernels.cu": TEXT}, replace(FAKE, device="cuda", arch="sm_90")).static
    assert "228 KiB shared memory per multiprocessor, at most 227 KiB per block" in static


def test_each_program_is_shown_once_and_the_parent_named_after_them() -> None:
    draw = Draw(step=1, parent=PROGRAMS[3], others=(PROGRAMS[5], PROGRAMS[3], PROGRAMS[1], PROGRAMS[5]))
    prompt = Prompter(BRIEF).build(draw)
    assert sorted(prompt.shown) == ["p1", "p3", "p5"]
    assert prompt.text.startswith(BRIEF.static + "# Program ")
    assert prompt.tail.endswith("Improve program p3.\n")
    assert prompt.tail.index("p5: 1.50x") < prompt.tail.index("p3: 1.30x") < prompt.tail.index("p1: 1.10x")


def test_the_line_of_descent_and_the_failures_are_told() -> None:
    grandchild = program(2, speedup=1.4, parent=1)
    failed = program(7, speedup=None, detail="k.cu:3:1: use of\n undeclared   x")
    draw = Draw(step=1, parent=grandchild, line=(PROGRAMS[0], PROGRAMS[1]), failures=(failed,))
    tail = Prompter(BRIEF).build(draw).tail
    assert "- p1 of p0: change 1 (1.10x, from 1.00x)\n- p2 of p1: change 2 (1.40x, from 1.10x)\n" in tail
    assert "- change 7, made of p0: failed, because k.cu:3:1: use of undeclared x\n" in tail


def test_a_repair_keeps_the_question_and_adds_answer_and_trouble() -> None:
    prompt = Prompter(BRIEF).build(Draw(step=4, parent=PROGRAMS[0]))
    again = prompt.repaired("my answer", "error: no")
    assert (prompt.turn, again.turn, again.step) == (0, 1, 4)
    assert again.text.startswith(prompt.text)
    assert [m["role"] for m in again.messages()] == ["system", "user", "assistant", "user"]
    assert again.messages()[3]["content"].startswith("error: no\n\nPut this right.")
    assert again.sha256 != prompt.sha256


def test_marks_stand_where_the_known_beginning_ends_and_change_no_byte() -> None:
    prompter = Prompter(BRIEF)
    prompter.build(Draw(step=1, parent=PROGRAMS[3], others=(PROGRAMS[1],)))
    prompt = prompter.build(Draw(step=2, parent=PROGRAMS[3], others=(PROGRAMS[1], PROGRAMS[2])))
    assert (prompt.known, prompt.shown) == (2, ("p3", "p1", "p2"))
    parts = [part for message in prompt.messages(marked=True) for part in message["content"]]
    assert "".join(part["text"] for part in parts) == prompt.static + prompt.question
    assert [("cache_control" in part) for part in parts] == [True, True, True, False]
    assert "cache_control" not in json.dumps(prompt.messages())


def test_what_does_not_fit_is_left_out_in_the_order_of_the_draw() -> None:
    draw = Draw(step=1, parent=PROGRAMS[1], others=tuple(PROGRAMS[2:]))
    whole = Prompter(BRIEF).build(draw)
    budget = whole.tokens - token_count(whole.programs[0][1])
    cut = Prompter(BRIEF, budget=budget).build(draw)
    assert cut.tokens <= budget
    assert {"p1", "p2"} <= set(cut.shown) < set(whole.shown)
    assert "p11" not in cut.shown


@pytest.mark.parametrize("budget", [1, token_count(BRIEF.static) + 50])
def test_the_parent_is_shown_whatever_the_budget(budget: int) -> None:
    draw = Draw(step=1, parent=PROGRAMS[1], others=tuple(PROGRAMS[2:]))
    assert Prompter(BRIEF, budget=budget).build(draw).shown == ("p1",)


def test_the_first_program_is_in_the_static_part_and_not_shown_again() -> None:
    prompt = Prompter(BRIEF).build(Draw(step=1, parent=PROGRAMS[0], others=(PROGRAMS[1],)))
    assert prompt.shown == ("p1",)
    assert prompt.tail.endswith("- p0: 1.00x\n\nImprove program p0.\n")


def test_a_program_is_shown_by_what_it_changes_and_adds() -> None:
    helper = "constexpr int FOUR = 4;\n\n__device__ int four() { return FOUR; }"
    files = (("kernels.cu", f"{helper}\n\n" + TEXT.replace("< 4", "< four()")), ("k.h", "#define UNCHANGED 1\n"))
    texts = {"kernels.cu": TEXT, "k.h": "#define UNCHANGED 1\n"}
    prompter = Prompter(brief(capture(), texts, FAKE))
    prompt = prompter.build(Draw(step=1, parent=Program(id="p1", files=files, parent="p0", speedup=1.0)))
    ((_, text),) = prompt.programs
    assert text == "# Program p1\n\n```cuda\n" + f"{helper}\n\n" + TEXT.replace("< 4", "< four()") + "```\n\n"


DRAWS = st.lists(
    st.lists(st.sampled_from(PROGRAMS), min_size=1, max_size=8, unique_by=lambda p: p.id), min_size=1, max_size=20
)


@given(DRAWS, st.integers(400, 4000))
def test_the_order_changes_neither_what_is_drawn_nor_a_byte_of_it(draws: list[list[Program]], budget: int) -> None:
    """What was shown before decides the order alone: a prompter without a past shows the same programs."""
    old, texts = Prompter(BRIEF, budget=budget), dict[str, str]()
    earlier: list[tuple[str, ...]] = []
    for step, (parent, *others) in enumerate(draws, 1):
        draw = Draw(step=step, parent=parent, others=tuple(others))
        prompt, fresh = old.build(draw), Prompter(BRIEF, budget=budget).build(draw)
        assert set(prompt.shown) == set(fresh.shown) == {p.id for p in old.chosen(draw)} - {"p0"}
        assert len(set(prompt.shown)) == len(prompt.shown)
        assert prompt.tail == fresh.tail
        for name, text in prompt.programs:
            assert texts.setdefault(name, text) == text
        assert prompt.known == max((_common(order, set(prompt.shown)) for order in earlier), default=0)
        earlier.append(prompt.shown)


def _common(order: tuple[str, ...], shown: set[str]) -> int:
    return next((n for n, name in enumerate(order) if name not in shown), len(order))


def test_equal_searches_make_equal_prompts() -> None:
    def texts(about: Brief) -> list[str]:
        prompter = Prompter(about)
        return [
            prompter.build(Draw(step=n, parent=PROGRAMS[n], others=tuple(PROGRAMS[:n]))).sha256 for n in range(1, 9)
        ]

    assert texts(BRIEF) == texts(
        brief(capture(), {"kernels.cu": TEXT}, FAKE, baseline_ns=124_000.0, ranges={"in": (-1.0, 2.5)})
    )
