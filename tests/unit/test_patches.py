"""Patches: git applies them, they carry their evidence, and which of them exclude each other is told."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench import cli, report
from r3bench.ledger import Arm, FileChange, KernelResult
from r3bench.report.documents import result_of
from r3bench.report.patches import _held_out, _launch_change, gain_alone
from r3bench.stats import Decision
from tests.unit.demo import AFTER, BEFORE, IMPROVED, PLAIN, contest, edited

FILES = ["report.html", "report.json", "report.md"]


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


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ({"block": [64, 1, 1]}, "block 64x1x1, the grid so that as many threads run."),
        ({"block": [64, 4, 1], "per_thread": [1, 1, 1]}, "block 64x4x1, the grid so that as many threads run."),
        (
            {"block": [64, 4, 1], "per_thread": [1, 2, 1]},
            "block 64x4x1, the grid so that a thread runs for 1x2x1 recorded ones.",
        ),
    ],
)
def test_the_launch_beside_a_patch_has_a_thread_for_what_one_does(launch: dict[str, Any], said: str) -> None:
    found = report.patch(replace(IMPROVED, configuration=json.dumps({"configuration": {}, "launch": launch}))) or ""
    assert f"\nLaunch change, not in this patch: {said}\n" in found


def test_a_patch_says_which_launches_were_timed_and_which_only_checked() -> None:
    (promotion,) = IMPROVED.promotions
    alone = replace(IMPROVED, promotions=(replace(promotion, held_out=0, units=0),))
    timed = "\nTimed on the recorded launch of the search"
    assert f"{timed}; checked, not timed, on 2 held-out launches.\n" in (report.patch(IMPROVED) or "")
    assert f"{timed}, the only one that it was checked on.\n" in (report.patch(alone) or "")
    for text in (report.markdown(report.document("demo", [alone])), report.html(report.document("demo", [alone]))):
        assert "(no launch was held out)" in text


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
    assert report.overlap(one, replace(other, before="x\n", after="y\n")) is bool(first), "patches of different texts"


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
    slow = replace(slow, arms=(both, alone), configuration=IMPROVED.configuration)
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


def test_what_is_applied_already_is_not_offered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, near, far = edited("a", 3, gain=1.9), edited("z", 3, gain=1.5), edited("far", 50, gain=1.1)
    again = replace(near, before=one.after or "", after=(one.after or "").replace("a 3\n", "az 3\n"))
    repository(tmp_path, one)
    monkeypatch.chdir(tmp_path)

    def told(*results: KernelResult) -> list[str]:
        report.write_application("demo", results, tmp_path)
        return list(report.below(report.document("demo", results), tmp_path / "demo", tmp_path))[1:]

    overlaps = "left out: demo/z.patch overlaps with a.patch"
    assert told(one, near, far) == [
        "git apply demo/a.patch",
        "git apply demo/far.patch",
        f"{overlaps}: apply one, then search again",
    ]
    assert apply(tmp_path, tmp_path / "demo/a.patch") == 0
    applied = "left out: demo/a.patch is applied already"
    assert told(one, near, far) == [
        "git apply demo/far.patch",
        applied,
        f"{overlaps}, applied already: search again",
    ]
    assert told(one, again, far) == ["git apply demo/z.patch", "git apply demo/far.patch", applied]
    document = report.document("demo", [one, again, far])
    assert [line.partition(":")[0] for line in document["mixed"]] == ["between searches k.cu changed (z | far)"]
    assert [line.partition(":")[0] for line in document["moved_on"]] == [
        "after it was searched for far, k.cu was changed"
    ]
    for text in (report.markdown(document), report.html(document)):
        assert "t is applied already" in text
        assert "r3bench apply a.patch" not in text
        assert "overlaps" not in text
    for name in ("z", "far"):
        assert apply(tmp_path, tmp_path / f"demo/{name}.patch") == 0
    everything = [f"left out: demo/{name}.patch is applied already" for name in ("a", "z", "far")]
    assert told(one, again, far) == everything, "though z changed the line of a again"
    assert "az 3\n" in (tmp_path / "k.cu").read_text()


def test_an_overlap_is_told_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = [edited("x", 3, gain=1.2), edited("z", 3, gain=1.9)]
    report.write_application("demo", results, tmp_path)
    assert "It overlaps with z.patch: apply one, then search again." in (tmp_path / "demo" / "x.patch").read_text()
    assert "- it overlaps with x.patch: apply one, then search again" in (tmp_path / "demo" / "report.md").read_text()
    assert json.loads((tmp_path / "demo" / "report.json").read_text())["kernels"][0]["overlaps"] == ["x.patch"]
    document = report.load(tmp_path / "demo" / "report.json")
    left = "left out: demo/x.patch overlaps with z.patch: apply one, then search again"

    def lines(here: Path) -> list[str]:
        return list(report.below(document, tmp_path / "demo", here))

    nowhere = "patch: demo/z.patch (git apply it in the tree that has k.cu: there is none here)"
    assert lines(tmp_path) == ["report: demo/report.md", nowhere, left]
    (tmp_path / "k.cu").write_text(results[0].before)
    assert lines(tmp_path) == ["report: demo/report.md", "git apply demo/z.patch", left]
    (tmp_path / ".git").mkdir()
    assert lines(tmp_path) == ["report: demo/report.md", "git apply demo/z.patch", left]
    assert lines(tmp_path / "demo")[1] == f"git -C {tmp_path} apply {tmp_path}/demo/z.patch"


def test_kernels_searched_from_different_texts_of_one_file_are_told() -> None:
    one, other, later = edited("a", 3), edited("b", 30), replace(edited("c", 50), before=edited("a", 3).after or "")
    assert report.mixed([one, other]) == []
    document = report.document("demo", [one, other, later])
    (line,) = document["mixed"]
    assert line.startswith("between searches k.cu changed (b | c): their times have different baselines")
    assert "\nBetween searches k.cu changed (b" in report.markdown(document)
    assert "may not combine; search again" in report.markdown(document)
    assert "may not combine; search again" in report.html(document)


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
    assert line.startswith("after it was searched for b, k.cu was changed: what is said of them is of its earlier text")
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


UNCHANGED = replace(IMPROVED, after=IMPROVED.before)  # as where nothing but another launch was asked for


@pytest.mark.parametrize("result", [PLAIN, UNCHANGED, replace(UNCHANGED, relies_on=("no pointers overlap",))])
def test_no_source_change_no_patch(result: KernelResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report.patch(result) is None
    assert report.diff(result) is None
    repository(tmp_path, IMPROVED)
    monkeypatch.chdir(tmp_path)
    document = report.document("demo", [result])
    assert (document["kernels"][0]["applied"], document["kernels"][0]["patch_file"]) == ([], None)
    report.write_application("demo", [result], tmp_path)
    assert not list(tmp_path.glob("demo/*.patch"))
    assert all('"needs_patch": false' in place.read_text() for place in tmp_path.glob("demo/k.json"))


HEADER = FileChange(
    path="kernels/demo/gpu/größe 2.cuh", before="#pragma once\r\nint a;\r\n", after="#pragma once\r\nint b;\r\n"
)
BOTH = replace(IMPROVED, others=(HEADER,))


def test_a_patch_of_several_files_is_applied_shown_and_told_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, header = repository(tmp_path, BOTH), tmp_path / HEADER.path
    header.parent.mkdir()
    header.write_bytes(HEADER.before.encode())
    monkeypatch.chdir(tmp_path)
    report.write_application("demo", [BOTH], tmp_path)
    drawn = (tmp_path / "demo/report.html").read_text()
    assert [f"<h3>Source change in {path}</h3>" in drawn for path in (BOTH.source, HEADER.path)] == [True, True]
    document = report.document("demo", [BOTH])
    assert document["kernels"][0]["changed"] == [BOTH.source, HEADER.path]
    assert apply(tmp_path, tmp_path / "demo/k.patch") == 0
    assert (file.read_bytes(), header.read_bytes()) == (AFTER.encode(), HEADER.after.encode())
    assert report.document("demo", [BOTH])["kernels"][0]["applied"] == ["k.patch"]
    assert report.moved_on([BOTH]) == []
    for half in (file, header):
        own = half.read_bytes()
        half.write_bytes((BOTH.before if half == file else HEADER.before).encode())
        assert report.document("demo", [BOTH])["kernels"][0]["applied"] == [], "only one file has its part"
        assert [line.partition(",")[2].split(" was")[0] for line in report.moved_on([BOTH])] == [
            f" {header if half == file else file}".replace(f"{tmp_path}/", "")
        ]
        half.write_bytes(own)


def test_a_kernel_that_was_searched_in_another_text_of_a_further_file_is_told() -> None:
    later = FileChange(path=HEADER.path, before=HEADER.after, after="#pragma once\r\nint c;\r\n")
    second = replace(IMPROVED, kernel="demo/z", source="kernels/demo/z.cu", others=(later,))
    assert report.mixed([BOTH, second]) == [], "whose text has the first one's patch"
    (line,) = report.mixed([replace(BOTH, others=(replace(HEADER, after="#pragma once\r\nint d;\r\n"),)), second])
    assert line.startswith(f"between searches {HEADER.path} changed (k | z)")


def test_an_older_patch_of_a_kernel_goes_with_its_gain(tmp_path: Path) -> None:
    report.write_application("demo", [IMPROVED], tmp_path)
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == [*("k.json", "k.patch"), *FILES]
    report.write_application("demo", [replace(PLAIN, kernel="demo/k")], tmp_path)
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == FILES


def test_the_example_has_the_patches_of_its_document() -> None:
    place = Path(__file__).parents[2] / "reports/example"
    entries = [entry for entry in report.load(place / "report.json")["kernels"] if entry["patch_file"]]
    for entry in entries:
        above, _, change = (place / entry["patch_file"]).read_text().partition("diff --git ")
        assert f"diff --git {change}" == entry["diff"]
        assert {_launch_change(result_of(entry)), _held_out(result_of(entry))} <= {*above.splitlines()}
        assert ("It gains only with its configuration" in above) is (gain_alone(result_of(entry)) == 0)
    assert [entry["kernel"] for entry in entries if not gain_alone(result_of(entry))] == ["miniweather/update"]
