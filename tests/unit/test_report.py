"""The report: one document, honest renderings, patches that git applies."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from r3bench import cli, report
from r3bench.errors import LedgerError
from r3bench.ledger import Arm, Failures, KernelResult, Ledger, Promotion, SourceResult
from r3bench.model import Status, Verdict
from r3bench.nouns import encode
from r3bench.report import guards
from r3bench.stats import Comparison, Decision, identical, refused
from tests.search.fake_server import comparison
from tests.unit.grounds import keep


def contest(speedup: float) -> Comparison:
    """A contest against a baseline of 12.3 us."""
    return comparison(speedup, baseline_ns=12345.0)


BEFORE = "// é\n__global__ void k(float* a) {\n    a[0] = 1;\n}\n"
AFTER = BEFORE.replace("float* a", "float* __restrict__ a")
CONFIGURATION = json.dumps({"configuration": {"pipeline": "O2"}, "launch": {"block": [64, 1, 1]}})
IMPROVED = KernelResult(
    kernel="demo/k",
    capture="captures/demo/k.zarr",
    content_hash="h",
    status="improved",
    detail="faster by the interval",
    device="cpu",
    target="znver4",
    baseline="recorded source, default pipeline",
    baseline_ns=12345.0,
    seed=1,
    evaluations=42,
    seconds=3.0,
    source="kernels/demo/k.cu",
    before=BEFORE,
    after=AFTER,
    rule="restrict",
    description="const and __restrict__",
    configuration=CONFIGURATION,
    arms=(
        Arm(name="patch", comparison=contest(1.25)),
        Arm(name="patch and configuration", comparison=contest(1.75)),
    ),
    sources=(
        SourceResult(rule="recorded", description="", trials=10, matched=9, default_ns=12345.0, best_ns=9000.0),
        SourceResult(rule="hoist", description="", trials=1, matched=1, default_ns=12345.0, same_as="recorded"),
    ),
    failures=(Failures(source="unroll", status="mismatch", count=3, detail="a[0] | <script>`x`"),),
    promotions=(
        Promotion(
            rule="restrict",
            promoted=True,
            reason="faster by the interval",
            held_out=2,
            units=2,
            decision=Decision.FASTER,
        ),
    ),
    conditions=(("load", "0.1"),),
)
PLAIN = replace(
    IMPROVED,
    kernel="demo/plain",
    status="not improved",
    detail="within 5% of the baseline",
    after=None,
    promotions=(),
    rule=None,
    description="",
    configuration=None,
    arms=(),
)


def repository(folder: Path, result: KernelResult, text: str | None = None) -> Path:
    """A git repository that holds the kernel's file as it was."""
    subprocess.run(["git", "init", "-q", folder], check=True)
    file = folder / result.source
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes((result.before if text is None else text).encode())
    return file


def apply(folder: Path, patch: Path, *options: str) -> int:
    return subprocess.run(["git", "-C", folder, "apply", *options, patch], check=False).returncode


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        ("kernels/demo/k.cu", BEFORE, AFTER),
        ("k.cu", "a\nb\n", "a\nc\n"),
        ("kernels/with space/k.cu", BEFORE, AFTER),
        ('kernels/é "quoted"/k.cu', BEFORE, AFTER),
        ("k.cu", "one\ntwo", "one\ntwo\nthree"),
        ("k.cu", "one\r\ntwo\r\n", "one\r\nthree\r\n"),
        ("k.cu", "one\x0c\u2028two\nthree\n", "one\x0c\u2028two\nfour\n"),
        ("k.cu", "".join(f"{n}\n" for n in range(99)), "".join(f"{n if n % 40 else 'x'}\n" for n in range(99))),
    ],
)
def test_git_applies_the_patch(tmp_path: Path, source: str, before: str, after: str) -> None:
    result = replace(IMPROVED, source=source, before=before, after=after)
    report.write_application("demo", [result], tmp_path / "reports")
    file = repository(tmp_path / "tree", result)
    patch = tmp_path / "reports" / "demo" / "k.patch"
    assert apply(tmp_path / "tree", patch, "--check") == 0
    assert apply(tmp_path / "tree", patch) == 0
    assert file.read_bytes() == after.encode()
    assert apply(tmp_path / "tree", patch, "--check") != 0, "it is applied already"


def test_the_patch_carries_its_evidence_and_nothing_breaks_out_of_it() -> None:
    wicked = replace(IMPROVED, description="x\ndiff --git a/etc b/etc\n--- a/etc\n+++ b/etc\n@@ -1 +1 @@\n-a\n+b")
    patch = report.patch(wicked) or ""
    head = patch[: patch.index("\ndiff --git a/kernels/demo/k.cu")]
    assert not any(line.startswith(("diff", "---", "+++", "@@")) for line in head.splitlines())
    assert "our compiler, default configuration: faster, 1.25x (1.24 to 1.26)" in head
    assert "our compiler, with the configuration found: faster, 1.75x (1.73 to 1.77)" in head
    assert "your own compiler, on the patched source: not measured: the times here are those of a CPU" in head
    assert "recorded source, default pipeline, 12.3 us a launch" in head
    assert "CPU times" in head
    assert "nothing about a GPU" in head
    assert "2 held-out launches" in head
    assert "k.json" in head


LINES = [f"line {n}\n" for n in range(60)]


def edited(kernel: str, *changed: int, gain: float = 1.5) -> KernelResult:
    """A result whose patch changes these lines of a file of 60."""
    after = "".join(f"{kernel} {n}\n" if n in changed else line for n, line in enumerate(LINES))
    arms = (Arm(name="patch", comparison=contest(gain)),)
    return replace(IMPROVED, kernel=f"demo/{kernel}", source="k.cu", before="".join(LINES), after=after, arms=arms)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((10,), (40,), False),
        ((10,), (10,), True),
        ((10,), (12,), True),
        ((10, 50), (30, 51), True),
        ((10,), (15,), False),
        ((), (10,), False),
    ],
)
def test_patches_of_one_region_overlap(first: tuple[int, ...], second: tuple[int, ...], expected: bool) -> None:
    one, other = edited("a", *first), edited("b", *second)
    assert report.overlap(one, other) is report.overlap(other, one) is expected
    assert not report.overlap(one, replace(other, source="another.cu"))
    assert report.overlap(one, replace(other, before="x\n")), "patches of different texts"


def test_the_patches_that_are_offered_apply_one_after_the_other(tmp_path: Path) -> None:
    results = [edited("x", 3, 20, gain=1.2), edited("z", 3, 30, gain=1.9), edited("far", 50, gain=1.1), PLAIN]
    offered = report.applicable(report.document("demo", results)["kernels"])
    assert offered == ["z.patch", "far.patch"], "largest gain first; x changes line 3 as z does"
    report.write_application("demo", results, tmp_path / "reports")
    file = repository(tmp_path / "tree", results[1])
    for name in ("z", "far"):
        assert apply(tmp_path / "tree", tmp_path / "reports" / "demo" / f"{name}.patch") == 0
    assert apply(tmp_path / "tree", tmp_path / "reports" / "demo" / "x.patch", "--check") != 0
    assert "far 50\n" in file.read_text()
    assert "z 3\n" in file.read_text()


def test_a_patch_that_gains_only_with_its_configuration_is_not_offered_alone() -> None:
    slow = edited("slow", 10)
    both = Arm(name="patch and configuration", comparison=contest(1.7))
    alone = Arm(name="patch", comparison=replace(contest(0.95), decision=Decision.UNCLEAR))
    slow = replace(slow, arms=(both, alone))
    fast = edited("fast", 30)
    entries = {e["kernel"]: e for e in report.document("demo", [slow, fast, edited("other", 30)])["kernels"]}
    assert report.applicable([entries["demo/slow"], entries["demo/fast"]]) == ["fast.patch"]
    gains = "gains only with its configuration, slow.json"
    assert report.left_out(entries["demo/slow"], ["fast.patch"]) == gains
    assert "overlaps with fast.patch" in report.left_out(entries["demo/other"], ["fast.patch"])


def test_every_patch_that_does_not_overlap_applies_after_the_other(tmp_path: Path) -> None:
    for distance in range(1, 9):
        one, other = edited("a", 10), edited("b", 10 + distance)
        report.write_application("demo", [one, other], tmp_path / "reports")
        place = tmp_path / str(distance)
        repository(place, one)
        codes = [apply(place, tmp_path / "reports" / "demo" / f"{name}.patch") for name in "ab"]
        assert report.overlap(one, other) or codes == [0, 0], distance
        assert distance > 3 or codes[1] != 0


def test_an_overlap_is_told_everywhere(tmp_path: Path) -> None:
    results = [edited("x", 3, gain=1.2), edited("z", 3, gain=1.9)]
    report.write_application("demo", results, tmp_path)
    assert "It overlaps with z.patch: apply one, then search again." in (tmp_path / "demo" / "x.patch").read_text()
    assert "- it overlaps with x.patch: apply one, then search again" in (tmp_path / "demo" / "report.md").read_text()
    assert json.loads((tmp_path / "demo" / "report.json").read_text())["kernels"][0]["overlaps"] == ["x.patch"]
    document = report.load(tmp_path / "demo" / "report.json")
    lines = list(report.below(document, tmp_path / "demo", tmp_path))
    assert lines == [
        "report: demo/report.md",
        "git apply demo/z.patch",
        "left out: demo/x.patch overlaps with z.patch: apply one, then search again",
    ]


def test_configurations_are_named_and_how_to_use_them_once(tmp_path: Path) -> None:
    tuned = [replace(IMPROVED, kernel=f"demo/{name}", after=None) for name in "ab"]
    report.write_application("demo", tuned, tmp_path)
    lines = list(report.below(report.document("demo", tuned), tmp_path / "demo", tmp_path))
    assert lines == [
        "report: demo/report.md",
        "configuration: demo/a.json",
        "configuration: demo/b.json",
        "(r3bench run --with demo -- ./app runs a CUDA application with all that was found)",
    ]


def test_kernels_searched_from_different_texts_of_one_file_are_told() -> None:
    one, other, later = edited("a", 3), edited("b", 30), replace(edited("c", 50), before=edited("a", 3).after or "")
    assert report.mixed([one, other]) == []
    document = report.document("demo", [one, other, later])
    (line,) = document["mixed"]
    assert line.startswith("k.cu changed between searches (a, b | c): their times have different baselines")
    assert "do not combine; search again" in report.markdown(document)
    assert "do not combine; search again" in report.html(document)


def test_a_text_that_the_working_tree_no_longer_holds_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    one, other, elsewhere = edited("a", 3), edited("b", 30), replace(edited("c", 3), source="gone.cu")
    assert report.moved_on([one, other, elsewhere]) == [], "there is no such tree here"
    (tmp_path / "k.cu").write_text(one.before)
    assert report.moved_on([one, other]) == []
    (tmp_path / "k.cu").write_text(one.after or "")
    document = report.document("demo", [one, other, elsewhere, replace(one, kernel="demo/d", before=one.after or "")])
    (line,) = document["moved_on"]
    assert line.startswith(
        "k.cu was changed after it was searched for a, b: what is said of them is of its earlier text"
    )
    report.write_document(document, tmp_path / "demo")
    assert cli.main(["report", str(tmp_path / "demo")]) == 0
    for text in (capsys.readouterr().out, report.markdown(document), report.html(document)):
        assert "their patches may not apply; search again" in text


def test_other_kernels_that_a_patch_changes_are_named() -> None:
    result = replace(
        IMPROVED, also_changes=("diagnostics", "halo", "initial_state"), also_checked=("diagnostics", "initial_state")
    )
    checked = "lso changes diagnostics, initial_state: their recorded launches match, but were not timed"
    unknown = "lso changes halo: not checked, for want of a recorded launch that replays"
    patch, text = (
        report.patch(result) or "",
        report.markdown(report.document("demo", [result])).replace("\\", ""),
    )
    for line in (checked, unknown):
        assert line in patch
        assert line in text


def test_the_whole_description_stands_in_the_patch() -> None:
    words = " ".join(f"word{n}" for n in range(80))
    head = (report.patch(replace(IMPROVED, description=words)) or "").split("\ndiff --git")[0]
    assert words in " ".join(head.split())
    assert max(len(line) for line in head.splitlines() if "word" in line) <= 100


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
    page = report.html(document)
    assert "held 12.3 us to" not in page.split("logarithmic. ")[0]
    assert "plain 12.3 us to" not in page, "no point of a chart of contests"


def test_no_source_change_no_patch() -> None:
    assert report.patch(PLAIN) is None
    assert report.diff(PLAIN) is None


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


def refusal() -> Comparison:
    return refused(0.05, "candidate", Verdict(status=Status.MISMATCH, detail="a differs"))


FILES = ["report.html", "report.json", "report.md"]


def test_an_older_patch_of_a_kernel_goes_with_its_gain(tmp_path: Path) -> None:
    report.write_application("demo", [IMPROVED], tmp_path)
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == [*("k.json", "k.patch"), *FILES]
    report.write_application("demo", [replace(PLAIN, kernel="demo/k")], tmp_path)
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == FILES


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
    assert bool(expected) is any("busy" in line for line in report.below(document, Path("reports"), Path()))


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


def test_a_kernel_whose_name_is_no_file_name_gets_one() -> None:
    odd = replace(IMPROVED, kernel="demo/_ZN3abcIfEEv(float*) / x")
    assert "/" not in report.file_name(odd.kernel)
    assert report.file_name(odd.kernel) != report.file_name("demo/_ZN3abcIfEEv(float*) | x")
    assert report.file_name("demo/report") != "report"


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
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space"):
        report.write_application("demo", [PLAIN], tmp_path)
    assert (tmp_path / "demo" / "report.json").read_text() == old
    assert not [p for p in (tmp_path / "demo").iterdir() if p.name.startswith(".")], "no temporary file is left"


SCHEMA = json.loads((Path(report.__file__).parent / "schema.json").read_text())
GUARDED = {
    "kernel": "demo/k", "capture": "captures/demo/k.zarr", "unit": 0, "verdict": "slower", "fails": True,
    "detail": "slower by the whole interval", "notes": ["its capture changed"], "gate": 0.05, "absolute_ns": 0.0,
    "comparison": encode(comparison(1 / 1.25)),
    "static": {
        "sm_90": {"base": {"registers": 20, "mix": {"load": 3}}, "head": {"registers": 24, "mix": {"load": 3}}},
        "gfx90a": {"base": {"vgprs": 8, "mix": {"vector": 5}}, "head": {"vgprs": 8, "mix": {"vector": 9, "shared": 1}}},
        "gfx1100": {"base": {"failed": "k: vprintf has no equal there"}, "head": {"vgprs": 8, "mix": {}}},
    },
}  # fmt: skip
GUARD = {
    "format": 2, "kind": "guard", "application": "demo", "created": "2026-01-01T00:00:00Z", "device": "cpu",
    "target": "znver4", "conditions": {"processor": "an <b>old</b> one"},
    "guard": {
        "base": {"name": "main", "commit": "0123456789abcdef"}, "head": {"name": "working tree", "commit": None},
        "verdict": "fail", "sentence": "1 of 2 kernels is slower than main: k 1.25x", "fail_on": ["slower", "wrong"],
        "device_asked": True, "errors": ["x.zarr: <script> does not build"], "seconds": 1.5,
        "reproduce": "pytest --r3-guard main captures/demo",
        "kernels": [GUARDED, {**GUARDED, "kernel": "demo/other", "verdict": "new", "comparison": None, "notes": []}],
    },
}  # fmt: skip


def test_what_differs_in_the_code_for_each_gpu_is_shown() -> None:
    text = report.markdown(GUARD).replace("\\_", "_")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "| " in line]
    for row in (
        ["code for", "what", "base", "head"],
        ["sm_90", "registers", "20", "24"],
        ["gfx90a", "vector", "5", "9"],
        ["gfx90a", "shared", "-", "1"],
        ["gfx1100", "vgprs", "-", "8"],
    ):
        assert row in rows
    assert not [row for row in rows if row[:2] in (["gfx90a", "vgprs"], ["sm_90", "load"])]  # the same on both sides


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


def test_a_guard_is_shown_worst_first_with_its_evidence() -> None:
    lines = report.table(GUARD, 100).splitlines()
    assert " ".join(lines[2].split()) == "demo/k slower 1.250x slower (1.238 to 1.262) 1 us 1.25 us"
    assert max(map(len, report.table(GUARD, 50).splitlines())) <= 50
    wide = {**GUARD, "guard": {**GUARD["guard"], "kernels": [{**GUARDED, "kernel": "an_application/tendencies"}]}}
    assert report.table(wide, 70).splitlines()[2].split()[:4] == ["tendencies", "slower", "1.250x", "slower"]
    assert "(1.238 to 1.262)" in report.table(wide, 70)
    text = report.markdown(GUARD)
    assert text.startswith("<!-- r3bench: guard demo -->\n## 1 of 2 kernels is slower than main: k 1.25x\n")
    assert f"working tree against main (0123456789ab). {guards.LAUNCH} Times are CPU times" in text
    assert "pytest --r3-guard main captures/demo" in text
    assert "- its capture changed" in text
    assert r"\<script\> does not build" in text
    assert "<b>" not in text


def test_what_is_noted_of_several_kernels_of_a_guard_is_said_once_with_their_names() -> None:
    reason = "no code for AMD GPUs from base and head: it calls pow"
    kernels = [
        {**GUARDED, "kernel": f"demo/{name}", "notes": notes, "missing": [reason], "fails": False}
        for name, notes in (("one", ["its own"]), ("two", []))
    ]
    document = {**GUARD, "guard": {**GUARD["guard"], "kernels": kernels}}
    assert guards.shared_notes(kernels) == [f"demo/one, demo/two: {reason}"]
    assert [guards.own_notes(kernel, kernels) for kernel in kernels] == [["its own"], []]
    for text in (report.markdown(document), report.html(document)):
        assert text.count("it calls pow") == 1
        assert text.count("its own") == 1
        assert text.count(guards.LAUNCH) == 1
    assert report.markdown(document).index("it calls pow") < report.markdown(document).index("To reproduce:")


def test_a_guard_says_a_ratio_in_one_way() -> None:
    texts = (report.table(GUARD, 100), report.markdown(GUARD), report.html(GUARD))
    assert all("1.250x slower" in text for text in texts)
    assert not any("0.80x" in text for text in texts)


def test_what_was_not_timed_is_said_once() -> None:
    same = {**GUARDED, "verdict": "identical", "detail": "the same machine code, nothing was timed", "fails": False}
    kernels = [{**same, "comparison": encode(identical(0.05, "b"))}]
    document = {**GUARD, "guard": {**GUARD["guard"], "kernels": kernels}}
    for text in (report.markdown(document), report.html(document)):
        assert text.count("nothing was timed") == 1
        assert guards.LAUNCH not in text


def test_a_long_guard_stays_a_comment() -> None:
    long = {**GUARDED, "detail": "word " * 400, "kernel": "demo/" + "k" * 200}
    text = report.markdown({**GUARD, "guard": {**GUARD["guard"], "kernels": [long] * 90}})  # type: ignore[dict-item]
    assert len(text.encode()) <= 60_000
    assert "<summary>80 more</summary>" in text
    assert text.count("<details>") == text.count("</details>")
    assert text.endswith("The evidence of the other kernels is in report.html.\n")


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
