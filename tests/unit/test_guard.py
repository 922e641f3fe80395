"""Rulings on one kernel, on a fake device; the document of a run and its exit status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from replay_case import MAIN, FakeCompiler, capture, programs

from r3bench import report
from r3bench.guard import Gate, Guarded, Ruling, Terms, deleted_stores, judge
from r3bench.guard.documents import COULD_NOT, OTHER, SLOWER, WRONG, About, document, exit_status, fails, row
from r3bench.guard.rulings import rule
from r3bench.model import Capture, Status, Verdict
from r3bench.server import ReplayServer
from r3bench.stats import Comparison, Decision, confirmed, refused
from r3bench.testing import FakeDevice
from r3bench.worktree import Folder


class Trees:
    """A base and a head folder around one capture; a text's first word is the fake program that it is."""

    def __init__(self, folder: Path, server: ReplayServer) -> None:
        self.base, self.head, self.server = folder / "base", folder / "head", server
        self.base.mkdir()
        self.head.mkdir()
        self.capture: Capture = capture(self.head)

    def judge(self, base: str | None, head: str | None, **gate: float) -> Guarded:
        for tree, text in ((self.base, base), (self.head, head)):
            if text is not None:
                (tree / MAIN).write_text(text)
        return judge(self.capture, Gate(**gate), Terms(Folder(self.base, "main"), Folder(self.head), self.server))


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    def device() -> FakeDevice:
        return FakeDevice(programs(), noise=0.01, seed=1, name="guarded")

    with ReplayServer(device, compiler=FakeCompiler()) as opened:
        yield opened


@pytest.fixture
def trees(tmp_path: Path, server: ReplayServer) -> Trees:
    return Trees(tmp_path, server)


@pytest.mark.parametrize(
    ("base", "head", "ruling", "says"),
    [
        ("add", "add", Ruling.IDENTICAL, "the same source"),
        ("add", "add#", Ruling.IDENTICAL, "the same machine code"),
        ("add", "add#other code", Ruling.SAME, "from 10 blocks"),
        ("add", "slow#add", Ruling.SLOWER, "x slower (1.2"),
        ("slow#add", "add", Ruling.FASTER, "x faster (1.2"),
        ("add", "wrong#add", Ruling.WRONG, "unit 0: mismatch"),
        ("add", "crash#add", Ruling.WRONG, "unit 0: fault"),
        ("add", "syntax error#add", Ruling.WRONG, "unit 0: build-failed"),
        ("add", "texture#add", Ruling.WRONG, "unit 0: unsupported"),
        ("texture#add", "texture#add ", Ruling.INVALID, "unit 0: unsupported"),
        ("wrong#add", "add", Ruling.CHANGED, "main does not give the recorded result, head does: unit 0: mismatch"),
        (None, "add", Ruling.NEW, "all 2 units match"),
        ("nothing", "add", Ruling.NEW, "main does not define it"),
        ("add", None, Ruling.DELETED, "main defines it, working tree no longer does; looked for in "),
        ("add", "nothing", Ruling.DELETED, "no longer does; looked for in kernels.cu"),
        (None, None, Ruling.INVALID, "neither working tree nor main defines it; looked for in "),
    ],
)
def test_every_ruling(trees: Trees, base: str | None, head: str | None, ruling: Ruling, says: str) -> None:
    found = trees.judge(base, head)
    assert (found.ruling, found.kernel) == (ruling, "app/add")
    assert says in found.detail
    assert (found.comparison is not None) == (found.detail != "the same source" and ruling in TIMED)


TIMED = (Ruling.IDENTICAL, Ruling.SAME, Ruling.SLOWER, Ruling.FASTER)

SIGNATURE = '{name}#\nextern "C" __global__ void add({parameters}) {{}}'


def test_other_parameters_ask_for_a_new_recording(trees: Trees) -> None:
    before = SIGNATURE.format(name="add", parameters="double* x, const double* y")
    after = SIGNATURE.format(name="wrong", parameters="double* x, const double* y, int n")
    found = trees.judge(before, after)
    assert found.ruling is Ruling.CHANGED
    assert found.place == ("kernels.cu", 2)
    assert found.detail == "its parameters were (double*, double*) and are (double*, double*, int): record it again"
    recorded = SIGNATURE.format(name="add", parameters="double* x, int n")
    assert "the base cannot run on this capture" in trees.judge(before, recorded).detail


def test_another_spelling_of_a_type_is_judged_by_its_results(trees: Trees) -> None:
    before = SIGNATURE.format(name="add", parameters="double* x, int n")
    for spelled in ("real_t* x, int n", "double* x, unsigned n"):
        found = trees.judge(before, SIGNATURE.format(name="wrong", parameters=spelled))
        assert found.ruling is Ruling.WRONG
        assert "unit 0: mismatch" in found.detail
        assert "its parameters were (double*, int) and are (" in found.detail
        assert trees.judge(before, SIGNATURE.format(name="slow", parameters=spelled)).ruling is Ruling.SLOWER


def test_another_signature_of_a_mangled_name_is_another_kernel(trees: Trees) -> None:
    trees.capture = replace(trees.capture, symbol="_Z3addPdi")
    before = SIGNATURE.format(name="add", parameters="double* x, int n")
    found = trees.judge(before, SIGNATURE.format(name="syntax error", parameters="float* x, int n"))
    assert found.ruling is Ruling.CHANGED
    assert found.detail == "its parameters were (double*, int) and are (float*, int): record it again"
    assert (
        trees.judge(before, SIGNATURE.format(name="syntax error", parameters="double* x, int n")).ruling is Ruling.WRONG
    )


def test_restrict_and_const_and_names_are_no_other_parameters(trees: Trees) -> None:
    before = SIGNATURE.format(name="add", parameters="double* x, double* y")
    after = SIGNATURE.format(name="add", parameters="double* __restrict__ a, const double *b")
    assert trees.judge(before, after).ruling is Ruling.SAME


def test_the_absolute_part_of_a_gate_takes_a_claim_away(trees: Trees) -> None:
    assert trees.judge("add", "slow#add", absolute_ns=20_000).ruling is Ruling.SLOWER
    found = trees.judge("add", "slow#add", absolute_ns=60_000)  # it is 30 us slower
    assert found.ruling is Ruling.SAME
    assert "not more than 60000 ns a launch" in found.detail


def test_code_for_a_gpu_is_counted_on_both_sides(trees: Trees) -> None:
    static = dict(trees.judge("add", "slow#add").static)
    assert set(static) == {"sm_90", "gfx90a", "gfx942", "gfx1100"}
    assert all(set(sides) == {"base", "head"} for sides in static.values())
    missing = trees.judge("texture#add", "texture#add other").missing
    said = "kernels.cu reads a texture, which the fake device has not."
    # The same of several GPUs, and of both sides, is said once.
    assert missing == tuple(f"no code for {of} GPUs from base and head: {said}" for of in ("NVIDIA", "AMD"))


def test_a_header_that_only_the_base_still_has_is_not_the_captures(trees: Trees) -> None:
    trees.capture = capture(trees.head / "more", headers=("sizes.h",))
    for tree in (trees.base, trees.head):
        (tree / "sizes.h").write_text("// 3")
    text = 'add#\n#include "sizes.h"\n'
    assert trees.judge(text, text).ruling is Ruling.IDENTICAL
    (trees.head / "sizes.h").unlink()
    found = trees.judge(text, text)
    assert (found.ruling, found.detail) == (
        Ruling.WRONG, "working tree has no sizes.h any more, which its sources include"
    )  # fmt: skip
    (trees.base / "sizes.h").unlink()
    found = trees.judge(text, text)
    assert found.ruling is Ruling.IDENTICAL
    assert found.notes == ("working tree has no sizes.h, which its sources include: the capture's was built",)


def test_a_capture_that_the_base_has_differently_is_told(trees: Trees) -> None:
    store = trees.base / "add.zarr"
    store.mkdir()
    (store / "zarr.json").write_bytes((trees.head / "add.zarr/zarr.json").read_bytes())
    assert trees.judge("add", "add").notes == ()
    (store / "zarr.json").write_text("{}")
    found = trees.judge("add", "add")
    assert found.notes == ("its capture is not that of main: both sides were judged by the new one",)
    assert found.ruling is Ruling.RERECORDED
    assert "that of main cannot be read" in found.detail


def test_a_new_capture_of_the_same_results_is_no_matter(trees: Trees) -> None:
    capture(trees.base, units=3)
    assert trees.judge("add", "add#other code").ruling is Ruling.SAME


@pytest.mark.parametrize("base", ["add", "nearly", None])
def test_results_that_were_recorded_again_are_told(trees: Trees, base: str | None) -> None:
    capture(trees.base, units=3, added=1.0)
    found = trees.judge(base, "add")
    assert found.ruling is Ruling.RERECORDED
    assert found.detail.startswith("its results changed together with its capture, by that of main unit 0: mismatch")
    assert found.detail.endswith("leaving 'rerecorded' out of --r3-fail-on")


@pytest.mark.parametrize(
    ("other", "ruling"),
    [
        ({"added": 1.0}, Ruling.RERECORDED),
        ({"units": 3}, Ruling.CHANGED),  # the same results
        ({"added": 1.0, "first": 5}, Ruling.CHANGED),  # of other contents, which tell nothing
    ],
)
def test_other_results_do_not_pass_with_other_parameters(trees: Trees, other: Any, ruling: Ruling) -> None:
    capture(trees.base, **other)
    before = SIGNATURE.format(name="add", parameters="double* x, const double* y")
    after = SIGNATURE.format(name="add", parameters="double* x, const double* y, int n")
    found = trees.judge(before, after)
    assert found.ruling is ruling
    assert ("with other parameters it leaves other results than main recorded: x[0] is" in found.detail) == (
        ruling is Ruling.RERECORDED
    )
    assert ("head gives the recorded result" in found.detail) == (ruling is Ruling.CHANGED)


def test_captures_that_head_has_not_are_found(trees: Trees) -> None:
    (trees.base / "old.zarr").mkdir()
    (trees.base / "add.zarr").mkdir()
    assert deleted_stores(Folder(trees.base), Folder(trees.head), ["."]) == ["old.zarr"]


def test_a_kernel_that_cannot_be_told_is_looked_at_a_fourth_time(tmp_path: Path) -> None:
    """1 % over four looks is decided from 10 blocks on; each look takes twice as many as the one before."""
    with ReplayServer(lambda: FakeDevice(programs(), noise=0.5, seed=4), compiler=FakeCompiler()) as noisy:
        found = Trees(tmp_path, noisy).judge("add", "add#other code")
    assert found.ruling is Ruling.UNCLEAR
    assert found.comparison is not None
    assert (found.comparison.blocks, found.comparison.confidence) == (80, 1 - 0.01 / 4)


# -- contests -------------------------------------------------------------------------------------------------------


def contest(decision: Decision, low: float, high: float, **parts: Any) -> Comparison:
    return Comparison(
        decision=decision, speedup=(low * high) ** 0.5, low=low, high=high, confidence=0.99, blocks=10,
        baseline_ns=1000.0, candidate_ns=1000.0, smallest_effect=(high / low) ** 0.5 - 1, gate=0.05, **parts,
    )  # fmt: skip


def test_a_noisy_machine_declines_and_says_so() -> None:
    ruling, detail = rule(contest(Decision.UNCLEAR, 0.8, 1.2), Gate())
    assert ruling is Ruling.UNCLEAR
    assert detail.startswith("the machine is too noisy to tell (effects below 22.5% cannot be seen, the gate is 5.0%)")
    control = contest(Decision.SLOWER, 0.9, 0.92)
    slower, much_slower = contest(Decision.SLOWER, 0.88, 0.93), contest(Decision.SLOWER, 0.8, 0.82)
    ruling, detail = rule(confirmed(slower, slower, control), Gate())
    assert ruling is Ruling.UNCLEAR
    assert "two binaries of equal work seem 9.9% apart" in detail
    assert rule(confirmed(much_slower, much_slower, control), Gate())[0] is Ruling.SLOWER, "more than that"
    assert "crosses the gate" in rule(contest(Decision.UNCLEAR, 0.93, 0.97), Gate())[1]


def test_what_a_fresh_process_does_not_confirm_is_unclear() -> None:
    ruling, detail = rule(contest(Decision.UNSTABLE, 0.8, 0.82), Gate())
    assert ruling is Ruling.UNCLEAR
    assert "did not confirm" in detail


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        ({"throttled_blocks": "2 of 10", "throttle": "power cap"}, "throttled (power cap) in 2 of 10 blocks"),
        ({"other_processes": "0", "other_processes afterwards": "3"}, "3 other processes"),
    ],
)
def test_a_disturbed_gpu_gives_no_answer(conditions: dict[str, str], says: str) -> None:
    ruling, detail = rule(contest(Decision.SLOWER, 0.8, 0.82, conditions=tuple(conditions.items())), Gate())
    assert ruling is Ruling.INVALID
    assert says in detail
    calm = {"throttled_blocks": "0 of 10", "other_processes": "0"}
    assert rule(contest(Decision.SLOWER, 0.8, 0.82, conditions=tuple(calm.items())), Gate())[0] is Ruling.SLOWER


@pytest.mark.parametrize(("arm", "ruling"), [("candidate", Ruling.WRONG), ("baseline", Ruling.CHANGED)])
def test_a_side_that_fails_while_it_is_timed(arm: str, ruling: Ruling) -> None:
    found = rule(refused(0.05, arm, Verdict(status=Status.MISMATCH, detail="x[3]")), Gate())
    assert found[0] is ruling
    assert "mismatch: x[3]" in found[1]


def test_a_wider_absolute_gate_may_leave_it_unclear() -> None:
    slower = contest(Decision.SLOWER, 0.8, 0.9)  # 111 to 250 ns slower of 1000
    assert rule(slower, Gate(absolute_ns=100))[0] is Ruling.SLOWER
    assert rule(slower, Gate(absolute_ns=180))[0] is Ruling.UNCLEAR
    assert rule(slower, Gate(absolute_ns=260))[0] is Ruling.SAME
    assert "slower" not in rule(slower, Gate(absolute_ns=260))[1]


# -- documents ------------------------------------------------------------------------------------------------------

ABOUT = About(base=("main", "abc"), head=("working tree", None), fail_on=("slower", "wrong"), asked=True, reproduce="")


def made(*rulings: Ruling, about: About = ABOUT) -> dict[str, Any]:
    rows = []
    for number, ruling in enumerate(rulings):
        contests = {Ruling.SLOWER: (Decision.SLOWER, 0.8, 0.82), Ruling.SAME: (Decision.SAME, 0.99, 1.01)}
        compared = contest(*contests[ruling]) if ruling in contests else None
        found = Guarded(kernel=f"app/k{number}", ruling=ruling, detail="", gate=Gate(), comparison=compared)
        rows.append(row(found, "captures/k.zarr", fails(ruling, about.fail_on, "cpu", about.asked)))
    return document(rows, {"device": "cpu", "target": "x", "conditions": {}}, about)


@pytest.mark.parametrize(
    ("rulings", "verdict", "status"),
    [
        ((Ruling.IDENTICAL, Ruling.SAME, Ruling.FASTER, Ruling.NEW), "pass", 0),
        ((Ruling.IDENTICAL, Ruling.UNCLEAR), "declined", 0),
        ((Ruling.IDENTICAL, Ruling.SLOWER), "fail", SLOWER),
        ((Ruling.SLOWER, Ruling.WRONG), "fail", WRONG),
        ((Ruling.INVALID, Ruling.DELETED), "error", COULD_NOT),
        ((), "error", COULD_NOT),
    ],
)
def test_the_exit_status_is_that_of_the_worst(rulings: tuple[Ruling, ...], verdict: str, status: int) -> None:
    found = made(*rulings)
    assert (found["guard"]["verdict"], exit_status(found)) == (verdict, status)


def test_a_document_of_timed_kernels_is_believed_when_it_is_read(trees: Trees, tmp_path: Path) -> None:
    judged = [trees.judge("add", head) for head in ("slow#add", "add#other code", "add")]
    rows = [row(found, "captures/add.zarr", found.ruling is Ruling.SLOWER) for found in judged]
    slower = judged[0].comparison
    assert slower is not None
    assert slower.repeat is not None
    assert slower.control is not None
    whole = document(rows, {"device": "cpu", "target": "x", "conditions": {}}, ABOUT)
    report.write_document(whole, tmp_path)
    assert report.load(tmp_path / "report.json")["guard"]["verdict"] == "fail"
    kept = rows[0]["comparison"]
    for held in (kept, kept["repeat"], kept["control"]):
        assert all(len(block) == 1 for block in held["candidate_samples_ns"])


def test_rows_stand_worst_first_and_the_sentence_names_them() -> None:
    found = made(Ruling.IDENTICAL, Ruling.SLOWER, Ruling.WRONG)["guard"]
    assert [r["verdict"] for r in found["kernels"]] == ["wrong", "slower", "identical"]
    assert found["sentence"] == (
        "1 of 3 kernels is wrong: k2; 1 of 3 kernels is slower than main: k1 1.235x (1.220 to 1.250)"
    )
    assert made(Ruling.SAME, Ruling.IDENTICAL)["guard"]["sentence"] == (
        "no kernel was found slower than main by more than 5%: 1 identical, 1 same"
    )
    assert made(Ruling.UNCLEAR, Ruling.IDENTICAL)["guard"]["sentence"] == (
        "no kernel was found slower than main: 1 identical, 1 unclear"
    )


def test_what_else_is_asked_to_fail_has_a_status_of_its_own() -> None:
    about = replace(ABOUT, fail_on=("unclear",))
    assert exit_status(made(Ruling.UNCLEAR, about=about)) == OTHER
    assert exit_status(made(Ruling.SLOWER, about=about)) == 0


def test_a_cpu_that_nobody_asked_for_fails_nothing_by_its_times() -> None:
    found = made(Ruling.SLOWER, about=replace(ABOUT, asked=False))
    assert (exit_status(found), found["guard"]["verdict"]) == (0, "pass")
    assert "slower than main" in found["guard"]["sentence"]
    assert fails(Ruling.SLOWER, ("slower",), "cuda", asked=False)


def test_what_could_not_be_guarded_is_an_error_unless_something_fails() -> None:
    about = replace(ABOUT, errors=("damaged",))
    assert exit_status(made(Ruling.IDENTICAL, about=about)) == COULD_NOT
    assert exit_status(made(Ruling.SLOWER, about=about)) == SLOWER
    assert made(Ruling.IDENTICAL, about=about)["guard"]["sentence"].endswith("; 1 could not be guarded")


def test_deleted_captures_are_rows() -> None:
    found = made(Ruling.IDENTICAL, about=replace(ABOUT, deleted=("captures/app/old.zarr",)))
    assert [(r["kernel"], r["verdict"]) for r in found["guard"]["kernels"]] == [
        ("app/old", "deleted"),
        ("app/k0", "identical"),
    ]
