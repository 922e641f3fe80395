"""The report: one document, honest renderings."""

from __future__ import annotations

import errno
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import jsonschema
import pytest

from r3bench import report
from r3bench.errors import FileError, LedgerError
from r3bench.ledger import Arm, Ledger, Promotion, SourceResult
from r3bench.report.terminal import row
from r3bench.report.words import as_sentence, speedup, words
from r3bench.stats import Decision, identical
from tests.search.fake_server import comparison
from tests.unit.demo import GUARD, IMPROVED, PLAIN, contest, refusal
from tests.unit.grounds import keep


def test_configurations_are_named_and_how_to_use_them_once(tmp_path: Path) -> None:
    tuned = [replace(IMPROVED, kernel=f"demo/{name}", after=None) for name in "ab"]
    report.write_application("demo", tuned, tmp_path)
    assert "run --with" not in str(list(report.below(report.document("demo", tuned), tmp_path / "demo", tmp_path)))
    (tmp_path / "demo" / "ledger").mkdir()
    lines = list(report.below(report.document("demo", tuned), tmp_path / "demo", tmp_path))
    assert lines == [
        "report: demo/report.md",
        "configuration: demo/a.json",
        "configuration: demo/b.json",
        "(r3bench run --with demo -- ./app runs a CUDA application with all that was found)",
    ]


def test_a_gain_by_patch_and_configuration_together_is_told_with_its_use(tmp_path: Path) -> None:
    alone = Arm(name="patch", comparison=replace(contest(0.95), decision=Decision.UNCLEAR))
    together = replace(IMPROVED, kernel="demo/c", arms=(IMPROVED.arms[1], alone))
    report.write_application("demo", [together], tmp_path)
    (tmp_path / "demo" / "ledger").mkdir()
    lines = list(report.below(report.document("demo", [together]), tmp_path / "demo", tmp_path))
    assert lines == [
        "report: demo/report.md",
        "configuration: demo/c.json, with c.patch",
        "(r3bench run --with demo -- ./app runs a CUDA application with all that was found)",
        "left out: demo/c.patch gains only with its configuration, c.json",
    ]
    told = "t gains only with its configuration, c.json"
    assert told in (tmp_path / "demo" / "c.patch").read_text()
    for text in (report.markdown, report.html):
        assert told in text(report.document("demo", [together]))
        assert "gains only" not in text(report.document("demo", [IMPROVED]))


def test_long_text_is_cut_between_words() -> None:
    text = report.markdown(report.document("demo", [replace(PLAIN, detail="word " * 100)]))
    assert "word…" in text
    assert "..." not in text


def test_a_baseline_is_that_of_a_contest_or_said_to_be_of_the_ranking() -> None:
    slower = replace(contest(1.01), decision=Decision.SAME)
    held = replace(PLAIN, kernel="demo/held", arms=(Arm(name="patch", comparison=slower),))
    document = report.document("demo", [PLAIN, held])
    text = report.markdown(document)
    assert "| plain | no gain | - | - | ranked 12.3 us | 42 |" in text
    assert "| held | no gain | 1.01x (1.00 to 1.02) | - | 12.3 us | 42 |" in text
    assert "ranked 12.3 us a launch" in text
    assert report.table(document).count("ranked") == 1
    told = "ranked: a quick time within the search, no claim; speedups are those of contests"
    assert [told in report.noted(results) for results in ([PLAIN, held], [held])] == [True, False]
    page = report.html(document)
    assert "held 12.3 us to" not in page.split("logarithmic. ")[0]
    assert "plain 12.3 us to" not in page, "no point of a chart of contests"


def test_numbers_that_rank_and_contests_are_told_apart() -> None:
    document = report.document("demo", [IMPROVED])
    text, page = report.markdown(document), report.html(document)
    assert "- contest, patch: faster, 1.25x" in text
    assert ">Contest, patch<" in page
    assert "| source | trials | matched | default, ranked | best, ranked |" in text
    assert ">best, ranked<" in page
    for told in (text, page):
        assert "Compare ranked numbers with each other, never with those of a contest." in told
        for word in ("toolchain", "own compiler", "parts of a gain"):
            assert re.search(rf"(- \*?|>|; \*?){word}\*?: ", told), f"{word} is explained"


def test_the_document_is_strict_json_with_every_number(tmp_path: Path) -> None:
    endless = replace(IMPROVED, kernel="demo/e", arms=(Arm(name="patch", comparison=refusal()),))
    report.write_application("demo", [PLAIN, IMPROVED, endless], tmp_path)
    text = (tmp_path / "demo" / "report.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["format"] == report.FORMAT
    assert [k["kernel"] for k in found["kernels"]] == ["demo/k", "demo/e", "demo/plain"], "largest gain first"
    first = found["kernels"][0]
    assert first["arms"]["patch"]["speedup"] == 1.25
    assert first["arms"]["patch and configuration"]["confidence"] == 0.99
    assert first["configuration"]["launch"] == {"block": [64, 1, 1]}
    assert first["patch_file"] == "k.patch"
    assert "+__global__ void k(float* __restrict__ a) {" in first["diff"]
    assert found["kernels"][2]["patch_file"] is None
    assert found["device"] == "cpu"
    assert found["conditions"] == {"load": "0.1"}


def test_the_configuration_says_what_it_belongs_to(tmp_path: Path) -> None:
    report.write_application("demo", [IMPROVED], tmp_path)
    found = json.loads((tmp_path / "demo" / "k.json").read_text())
    assert found["configuration"] == {"pipeline": "O2"}
    assert found["launch"] == {"block": [64, 1, 1]}
    assert (found["kernel"], found["device"], found["target"], found["needs_patch"]) == (
        "demo/k", "cpu", "znver4", True,
    )  # fmt: skip


def test_markdown_escapes_what_comes_from_elsewhere() -> None:
    text = report.markdown(report.document("demo", [IMPROVED, PLAIN]))
    assert "# demo: 1 of 2 kernels improved" in text
    assert "<script>" not in text
    assert r"a\[0\] \| \<script\>\`x\`" in text
    assert "| hoist | 1 | 1 | 12.3 us | same code as recorded source |" in text
    assert "CPU times (znver4); they say nothing about a GPU" in text
    assert "(`r3bench apply k.patch` in this folder)" in text
    assert "2 of 2 held-out launches matched" in text


def test_the_untouched_source_and_the_columns_have_plain_names() -> None:
    tried = (*IMPROVED.promotions, rejected("recorded", "slower", Decision.SLOWER))
    result = replace(IMPROVED, promotions=tried, rules=(("hoist", "loop invariants are computed once"),))
    text = report.markdown(report.document("demo", [result]))
    assert "| recorded source | 10 | 9 | 12.3 us | 9 us |" in text
    assert "- candidate recorded source: slower" in text
    assert "| baseline | evaluations |" in text
    assert "- rule *hoist*: loop invariants are computed once" in text
    tree = report.markdown(report.document("demo", [replace(result, baseline="working tree, default pipeline")]))
    assert "| working tree | 10 | 9 | 12.3 us | 9 us |" in tree


def rejected(rule: str, reason: str, decision: Decision | None = None) -> Promotion:
    return Promotion(rule=rule, promoted=False, reason=reason, held_out=2, units=2, decision=decision)


def test_a_text_that_promotion_refused_is_marked_where_its_time_stands() -> None:
    sources = [
        SourceResult(rule=rule, description="", trials=2, matched=2, default_ns=9e3, best_ns=8e3) for rule in "abcd"
    ]
    tried = (
        rejected("a", "held out, unit 1: mismatch"),
        rejected("b", "refused: the candidate gave fault", Decision.REFUSED),
        rejected("c", "held out, unit 1: mismatch"),  # under one configuration, not under the next
        rejected("c", "within 5% of the baseline", Decision.SAME),
    )
    document = report.document("demo", [replace(PLAIN, sources=tuple(sources), promotions=tried)])
    for text, before, after in ((report.markdown(document), " | ", " |"), (report.html(document), ">", "<")):
        assert text.count(f"{before}8 us, refused{after}") == 2, text
        assert text.count(f"{before}8 us{after}") == 2


def test_a_configuration_is_told_in_words_with_its_use(tmp_path: Path) -> None:
    result = replace(IMPROVED, settings=("block 128x1x1 instead of 32x8x1", "slp vectorization off"))
    text = report.markdown(report.document("demo", [result]))
    assert "- configuration `k.json`: block 128x1x1 instead of 32x8x1; slp vectorization off" in text
    assert "By hand: change the block's shape" in text
    report.write_application("demo", [result], tmp_path)
    assert json.loads((tmp_path / "demo" / "k.json").read_text())["settings"] == list(result.settings)
    assert "By hand" not in report.markdown(report.document("demo", [PLAIN]))


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        (("7.8",), "The machine was busy (load 7.8 on 2 cores, r3bench's own included): intervals"),
        (("7.8", "9.1"), "load 7.8 on 2 cores"),
        (("1.9",), ""),
        (("0.3", "3.0"), ""),
        ((), ""),
    ],
)
def test_a_busy_machine_is_told(loads: tuple[str, ...], expected: str) -> None:
    kernels = [replace(PLAIN, conditions=(("cores", "2"), ("load", load))) for load in loads]
    document = report.document("demo", kernels or [replace(PLAIN, conditions=())])
    text = report.markdown(document)
    assert expected in text
    assert bool(expected) is ("busy" in text)
    assert bool(expected) is any("busy" in line for line in report.noted(kernels))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"other_processes": "0", "throttle": "none"}, ""),
        ({}, ""),
        (
            {"other_processes": "2", "throttle": "none"},
            "the GPU was disturbed (2 other processes on it): run again when",
        ),
        ({"throttle": "power cap"}, "the GPU was disturbed (slowed down by power cap): run again when it is not"),
        ({"other_processes": "1", "throttle": "power cap"}, "(1 other process on it; slowed down by power cap)"),
    ],
)
def test_a_disturbed_gpu_is_told(conditions: dict[str, str], expected: str) -> None:
    found = report.busy_line([replace(PLAIN, conditions=tuple(conditions.items()))])
    assert expected in found
    assert bool(expected) is bool(found)


def test_how_busy_the_device_was_and_who_waited_is_told() -> None:
    stages = (("emit", 9.0), ("load", 5.0), ("queue build", 25.0), ("queue device", 4.0))
    kernels = [replace(PLAIN, stages=stages, searched=10.0), replace(PLAIN, stages=stages[:2], searched=8.0)]
    waited = "of the search; on average 2.5 evaluations waited to be built and 0.4 for the device"
    assert report.work_line(kernels) == f"the device was at work 100% {waited}"
    assert report.work_line([PLAIN]) == ""
    document = report.document("demo", kernels[:1])
    assert f"at work 50% {waited}." in report.markdown(document)
    assert f"at work 50% {waited}." in report.html(document)


def test_a_unit_that_was_relocated_is_told() -> None:
    kernels = [replace(PLAIN, conditions=(("relocated", "by the table of pointers"),))]
    sentence = f"the memory of {PLAIN.kernel} was relocated by the table of pointers"
    assert report.busy_line(kernels) == sentence
    assert sentence[1:] in report.markdown(report.document("demo", kernels))


def test_a_claim_that_was_not_confirmed_is_unstable() -> None:
    tried = Promotion(rule="hoist", promoted=False, reason="no", held_out=2, units=2, decision=Decision.UNSTABLE)
    assert "unstable" in report.table(report.document("demo", [replace(PLAIN, promotions=(tried,))]))
    refused = replace(tried, decision=None)
    assert "unstable" in report.table(report.document("demo", [replace(PLAIN, promotions=(refused, tried))]))
    same = replace(tried, decision=Decision.SAME)
    assert "no gain" in report.table(report.document("demo", [replace(PLAIN, promotions=(same, tried))]))
    arm = Arm(name="patch", comparison=replace(contest(1.25), decision=Decision.UNSTABLE))
    assert "1.25x" not in report.table(report.document("demo", [replace(IMPROVED, arms=(arm,))])), (
        "a number that was not confirmed"
    )


def test_the_report_holds_no_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    store = str(tmp_path / "tree" / "captures" / "k.zarr")
    result = replace(PLAIN, capture=store, detail=f"{store} is damaged")
    monkeypatch.chdir(tmp_path / "tree")
    report.write_application("demo", [result], tmp_path / "reports")
    text = (tmp_path / "reports" / "demo" / "report.json").read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["kernels"][0]["capture"] == "captures/k.zarr"
    assert json.loads(text)["kernels"][0]["detail"] == "captures/k.zarr is damaged"
    elsewhere = replace(PLAIN, capture="/nowhere/at/all/k.zarr")
    assert report.document("demo", [elsewhere])["kernels"][0]["capture"] == "k.zarr"
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    assert report.document("demo", [result])["kernels"][0]["capture"] == "captures/k.zarr", "relative to its repository"


@pytest.mark.parametrize("width", [60, 70, 80, 100, 200])
def test_the_table_fits_the_terminal_and_keeps_every_interval(width: int) -> None:
    long = replace(IMPROVED, kernel="demo/" + "a_very_long_kernel_name_" * 4)
    text = report.table(report.document("demo", [PLAIN, IMPROVED, long]), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "no gain" in " ".join(text.split())
    assert text.count("1.25x") == text.count("1.75x") == 2
    for bounds in (("1.24", "1.26"), ("1.73", "1.77")):
        assert [text.count(bound) for bound in bounds] == [2, 2]


def test_at_80_columns_a_kernel_is_one_line_with_its_intervals() -> None:
    named = replace(IMPROVED, kernel="demo/horizontal_diffusion")
    lines = report.table(report.document("demo", [named]), 80).splitlines()
    assert lines[2].split()[:6] == ["horizontal_diffusion", "improved", "1.25x", "(1.24-1.26)", "1.75x", "(1.73-1.77)"]


def test_the_table_names_both_gains_and_starts_with_the_largest() -> None:
    lines = report.table(report.document("demo", [PLAIN, IMPROVED]), 80).splitlines()
    assert lines[2].split()[0] == "k"
    assert "1.25x (1.24 to 1.26)" in lines[2]
    assert "1.75x (1.73 to 1.77)" in lines[2], "there is room"


def test_searches_that_change_no_source_have_no_column_of_patches() -> None:
    gain = Arm(name="configuration", comparison=contest(1.75))
    tuned = replace(IMPROVED, search="bo", after=None, arms=(gain,), steps=0)
    for results, there in (([tuned], False), ([tuned, PLAIN], True)):
        document = report.document("demo", results)
        assert ("patch alone" in report.table(document)) is there
        assert ("| kernel | result | patch alone |" in report.markdown(document)) is there
        assert (">patch alone<" in report.html(document)) is there
    (cells,) = [line.split("  ") for line in report.table(report.document("demo", [tuned])).splitlines()[2:]]
    assert [cell.strip() for cell in cells if cell] == ["k", "improved", "1.75x (1.73 to 1.77)", "12.3 us"]
    assert "- Search bo: the text as it is was tuned." in report.markdown(report.document("demo", [tuned]))


def test_a_kernel_that_does_not_replay_is_in_the_table() -> None:
    bad = replace(IMPROVED, kernel="demo/bad", status="failed", arms=())
    text = report.table(report.document("demo", [IMPROVED, bad]))
    assert [line.split()[:2] for line in text.splitlines()[2:]] == [["k", "improved"], ["bad", "failed"]]


def test_every_decision_has_its_words() -> None:
    for arm in (contest(1.5), contest(0.5), contest(1.0), identical(0.05, "b"), refusal()):
        result = replace(IMPROVED, arms=(Arm(name="patch", comparison=arm),))
        assert arm.decision.value in report.markdown(report.document("demo", [result])), arm.decision
        report.table(report.document("demo", [result]))
    assert {Decision.UNCLEAR, Decision.UNSTABLE} <= set(Decision)


def test_what_is_no_claim_names_the_gate_and_a_narrow_interval_is_no_point() -> None:
    same = words(comparison(1.0, gate=0.03))
    assert "; the gate is 3%, the smallest effect that could have been seen 1%" in same
    assert "gate" not in words(comparison(1.5))
    narrow = replace(comparison(0.99), low=0.987, high=0.993)
    assert speedup(narrow) == "0.990x (0.987 to 0.993)"


def test_a_kernel_whose_name_is_no_file_name_gets_one() -> None:
    odd = replace(IMPROVED, kernel="demo/_ZN3abcIfEEv(float*) / x")
    assert "/" not in report.file_name(odd.kernel)
    assert report.file_name(odd.kernel) != report.file_name("demo/_ZN3abcIfEEv(float*) | x")
    assert report.file_name("demo/report") != "report"


def test_an_instantiation_is_named_as_people_write_it_and_its_files_differ_from_others() -> None:
    symbols = ("_ZN2ns5scaleIfLi4EEEvPT_", "_ZN2ns5scaleIdLi4EEEvPT_")
    results = [replace(IMPROVED, kernel=f"demo/{symbol}") for symbol in symbols]
    document = report.document("demo", results)
    for page in (report.table(document), report.markdown(document), report.html(document)):
        told = unescape(page).replace("\\", "")
        assert [f"ns::scale<{kind}, 4>" in told for kind in ("float", "double")] == [True, True]
        assert symbols[0] not in told
    names = [report.file_name(result.kernel) for result in results]
    assert [name.rpartition("-")[0] for name in names] == ["ns__scale_float__4_", "ns__scale_double__4_"]
    assert len({*names, report.file_name("demo/_ZN2ns5scaleIfLi4EEEvPT0_")}) == 3


def test_a_ledger_becomes_a_folder_for_each_application(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        for result in (IMPROVED, PLAIN, replace(PLAIN, kernel="second/k", device="cuda", target="sm_90")):
            keep(ledger, result)
    path.write_bytes(path.read_bytes() + b"torn")
    files = report.write([path], tmp_path / "reports")
    assert {p.parent.name for p in files} == {"demo", "second"}
    assert all(p.is_file() for p in files)
    found = json.loads((tmp_path / "reports" / "demo" / "report.json").read_text())
    assert found["damaged_ledger_lines"] == 1
    text = (tmp_path / "reports" / "second" / "report.md").read_text()
    assert r"Times were taken on cuda (sm\_90)." in text


def test_a_failed_write_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report.write_application("demo", [IMPROVED], tmp_path)
    old = (tmp_path / "demo" / "report.json").read_text()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(FileError, match="no space"):
        report.write_application("demo", [PLAIN], tmp_path)
    assert (tmp_path / "demo" / "report.json").read_text() == old
    assert not [p for p in (tmp_path / "demo").iterdir() if p.name.startswith(".")], "no temporary file is left"


SCHEMA = json.loads((Path(report.__file__).parent / "schema.json").read_text())


def test_documents_follow_the_schema(tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    arms = (Arm(name="patch", comparison=refusal()), Arm(name="toolchain", comparison=identical(0.05, "b")))
    for found in (report.document("demo", [IMPROVED, PLAIN, replace(PLAIN, arms=arms)]), GUARD):
        report.write_document(found, tmp_path)
        written_document = json.loads((tmp_path / "report.json").read_text())
        jsonschema.validate(written_document, SCHEMA)
        assert report.load(tmp_path / "report.json") == written_document
    with pytest.raises(jsonschema.ValidationError, match="guard"):
        jsonschema.validate({key: value for key, value in GUARD.items() if key != "guard"}, SCHEMA)


def test_a_report_of_which_a_field_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for whole in (report.document("demo", [IMPROVED]), GUARD):
        plain = json.loads(json.dumps(whole))
        for key in plain:
            for value in (None, 5, [1], {"x": [1]}):
                if type(value) is not type(plain[key]):
                    path.write_text(json.dumps({**plain, key: value}))
                    with pytest.raises(LedgerError, match=r"damaged|no report|newer"):
                        report.load(path)
    kernels = [{**dict(json.loads(json.dumps(report.document("demo", [IMPROVED])))["kernels"][0]), "baseline_ns": -1}]
    path.write_text(json.dumps({**report.document("demo", [IMPROVED]), "kernels": kernels}))
    with pytest.raises(LedgerError, match=r"kernels\[0\].baseline_ns: -1 is less than the minimum of 0"):
        report.load(path)


def test_what_is_no_report_is_one_sentence(tmp_path: Path) -> None:
    damaged = (
        ("{", "cannot be read"),
        ("[]", "no report"),
        ('{"kind": "guard", "format": 99}', "update"),
        ('{"kind": "guard", "format": 2}', "is damaged"),
        ('{"kind": "search", "format": 2, "kernels": [{"arms": {}}]}', "is damaged"),
        ('{"kind": "search", "format": 2, "kernels": [7]}', "is damaged"),
    )
    for text, expected in damaged:
        (tmp_path / "report.json").write_text(text)
        with pytest.raises(LedgerError, match=expected):
            report.load(tmp_path / "report.json")


def test_a_missing_ledger_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"gone\.jsonl cannot be read"):
        report.write([tmp_path / "gone.jsonl"], tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("the machine was busy", "The machine was busy."),
        ("other: it failed", "Other: it failed."),
        ("kernels/a.cu does not compile", "kernels/a.cu does not compile."),
        ("halo_x does not replay", "halo_x does not replay."),
        ("k.cu is gone", "k.cu is gone."),
        ("1.2x slower", "1.2x slower."),
    ],
)
def test_a_sentence_begins_with_a_capital_where_it_begins_with_a_word(text: str, sentence: str) -> None:
    assert as_sentence(text) == sentence


def test_an_interrupted_search_without_contests_tells_its_best_ranked_time() -> None:
    cut = replace(IMPROVED, status="interrupted", arms=(), after=None, configuration=None, promotions=())
    assert row(cut) == ["k", "interrupted", "-", "ranked 9 us", "ranked 12.3 us"]
    assert row(replace(cut, sources=())) == ["k", "interrupted", "-", "-", "ranked 12.3 us"]
    assert row(replace(cut, arms=IMPROVED.arms))[3].startswith("1.75x"), "contests say more"
    assert row(replace(cut, status="not improved"))[3] == "-"
    document = report.document("demo", [cut])
    assert "| k | interrupted | - | ranked 9 us |" in report.markdown(document)
    assert "ranked 9 us" in report.html(document)
    assert "ranked 9 us" in report.table(document)
