"""The report: one document, honest renderings, patches that git applies."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from r3bench import report
from r3bench.errors import LedgerError
from r3bench.ledger import Arm, Failures, KernelResult, Ledger, Promotion, SourceResult, encode
from r3bench.model import Status, Verdict
from r3bench.stats import Decision, identical, refused
from tests.search.fake_server import comparison

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
        Arm(name="patch", comparison=comparison(1.25)),
        Arm(name="patch and configuration", comparison=comparison(1.75)),
    ),
    sources=(
        SourceResult(rule="recorded", description="", trials=10, matched=9, default_ns=12345.0, best_ns=9000.0),
        SourceResult(rule="hoist", description="", trials=1, matched=1, default_ns=12345.0, same_as="recorded"),
    ),
    failures=(Failures(source="unroll", status="mismatch", count=3, detail="a[0] | <script>`x`"),),
    promotions=(Promotion(rule="restrict", promoted=True, reason="faster by the interval", held_out=2, units=2),),
    conditions=(("load", "0.1"),),
)
PLAIN = replace(
    IMPROVED,
    kernel="demo/plain",
    status="not improved",
    detail="within 5% of the baseline",
    after=None,
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
    patch = report.patch(wicked, "demo") or ""
    head = patch[: patch.index("\ndiff --git a/kernels/demo/k.cu")]
    assert not any(line.startswith(("diff", "---", "+++", "@@")) for line in head.splitlines())
    assert "patch: faster, 1.25x (1.24 to 1.26)" in head
    assert "patch and configuration: faster, 1.75x (1.73 to 1.77)" in head
    assert "recorded source, default pipeline, 12.3 us a launch" in head
    assert "CPU times" in head
    assert "nothing about a GPU" in head
    assert "2 held-out launches" in head
    assert "k.json" in head


def test_no_source_change_no_patch() -> None:
    assert report.patch(PLAIN, "demo") is None
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


def refusal() -> report.Comparison:
    return refused(0.05, "candidate", Verdict(status=Status.MISMATCH, detail="a differs"))


def test_an_older_patch_of_a_kernel_goes_with_its_gain(tmp_path: Path) -> None:
    report.write_application("demo", [IMPROVED], tmp_path)
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == ["k.json", "k.patch", "report.json", "report.md"]
    report.write_application("demo", [replace(PLAIN, kernel="demo/k")], tmp_path)
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == ["report.json", "report.md"]


def test_the_configuration_says_what_it_belongs_to(tmp_path: Path) -> None:
    report.write_application("demo", [IMPROVED], tmp_path)
    found = json.loads((tmp_path / "demo" / "k.json").read_text())
    assert found["configuration"] == {"pipeline": "O2"}
    assert found["launch"] == {"block": [64, 1, 1]}
    assert (found["kernel"], found["device"], found["target"], found["needs_patch"]) == (
        "demo/k", "cpu", "znver4", True,
    )  # fmt: skip


def test_markdown_escapes_what_comes_from_elsewhere() -> None:
    text = report.markdown([IMPROVED, PLAIN], "demo")
    assert "# demo: 1 of 2 kernels improved" in text
    assert "<script>" not in text
    assert r"a\[0\] \| \<script\>\`x\`" in text
    assert "| hoist | - | - | 12.3 us | same code as recorded |" in text
    assert "CPU times (znver4); they say nothing about a GPU" in text
    assert "git apply reports/demo/k.patch" in text
    assert "2 of 2 held-out launches match" in text


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    long = replace(IMPROVED, kernel="demo/" + "a_very_long_kernel_name_" * 4)
    text = report.table([PLAIN, IMPROVED, long], width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "no gain" in " ".join(text.split())


def test_the_table_names_both_gains_and_starts_with_the_largest() -> None:
    lines = report.table([PLAIN, IMPROVED], 80).splitlines()
    assert lines[2].split()[0] == "k"
    assert "1.25x (1.24 to 1.26)" in lines[2]
    assert "1.75x (1.73 to 1.77)" in lines[2]


def test_the_table_tells_applications_apart() -> None:
    text = report.table([IMPROVED, replace(IMPROVED, kernel="second/k", status="failed", arms=())])
    assert "demo/k" in text
    assert "second/k" in text
    assert "failed" in text


def test_every_decision_has_its_words() -> None:
    for arm in (comparison(1.5), comparison(0.5), comparison(1.0), identical(0.05, "b"), refusal()):
        result = replace(IMPROVED, arms=(Arm(name="patch", comparison=arm),))
        assert arm.decision.value in report.markdown([result], "demo"), arm.decision
        report.table([result])
    assert {Decision.UNCLEAR, Decision.UNSTABLE} <= set(Decision)


def test_a_kernel_whose_name_is_no_file_name_gets_one() -> None:
    odd = replace(IMPROVED, kernel="demo/_ZN3abcIfEEv(float*) / x")
    assert "/" not in report.file_name(odd)
    assert report.file_name(odd) != report.file_name(replace(odd, kernel="demo/_ZN3abcIfEEv(float*) | x"))
    assert report.file_name(replace(odd, kernel="demo/report")) != "report"


def test_a_ledger_becomes_a_folder_for_each_application(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        for result in (IMPROVED, PLAIN, replace(PLAIN, kernel="second/k", device="cuda", target="sm_90")):
            ledger.append("result", result=encode(result))
    path.write_bytes(path.read_bytes() + b"torn")
    files = report.write(path, tmp_path / "reports")
    assert {p.parent.name for p in files} == {"demo", "second"}
    assert all(p.is_file() for p in files)
    found = json.loads((tmp_path / "reports" / "demo" / "report.json").read_text())
    assert found["damaged_ledger_lines"] == 1
    assert "Times were taken on cuda (sm_90)." in (tmp_path / "reports" / "second" / "report.md").read_text()


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


def test_a_missing_ledger_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"gone\.jsonl cannot be read"):
        report.write(tmp_path / "gone.jsonl", tmp_path)
