"""Kernels that the main file includes, as the applications of many users have them, and functions in further files."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from r3bench import report
from r3bench.cli.run import variant_of
from r3bench.evolve.propose import Proposer, open_proposers
from r3bench.ledger import FileChange, KernelResult
from r3bench.model import Capture, Variant
from tests.search.fake_server import Behaviour, FakeServer, capture
from tests.search.searching import QUICK
from tests.search.searching import search as searched
from tests.search.test_loop import Scripted

KERNELS = """\
#include "share.cuh"

extern "C" __global__ void smooth(const float* in, float* out, float width, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < 4; k++) {
        out[i] += share(in[i], width) / width;
    }
}
extern "C" __global__ void other(float* out, float width) { out[threadIdx.x] = share(1.0f, width); }
"""
SHARE = """\
__device__ inline float share(float x, float width) {
    return x / width;
}
"""
FILES = {"kernels.cuh": KERNELS, "main.cu": '#include "kernels.cuh"\nint main() { return 0; }\n', "share.cuh": SHARE}


def included(symbol: str = "smooth") -> Capture:
    found = capture(symbol=symbol)
    assert found.source is not None
    files = tuple((name, "0" * 64) for name in FILES)
    return replace(found, source=replace(found.source, main="main.cu", files=files))


def by_divisions(variant: Variant, unit: int) -> Behaviour:
    """One that is hoisted, and one that is less exact, gain something."""
    text = "".join(dict(variant.files or FILES.items()).values())
    return Behaviour(ns=1000.0 / (2.0 if "inverse_width" in text else 1.0) / (1.5 if "__fdividef" in text else 1.0))


def search(folder: Path, proposer: Proposer, steps: int = 24) -> KernelResult:
    (result,) = searched(
        folder, FakeServer(by_divisions), replace(QUICK, iterations=steps), captures=[included()], proposer=proposer,
        working=lambda _: Variant(files=tuple(FILES.items())), neighbours=[included("other")],
    )  # fmt: skip
    return result


def shared_once(_: object) -> str:
    return SHARE.replace("x / width", "__fdividef(x, width)")


def test_rules_rewrite_a_kernel_that_the_main_file_includes(tmp_path: Path) -> None:
    result = search(tmp_path, open_proposers("rules", seed=0))
    assert (result.status, result.stopped, result.source) == ("improved", "", "kernels/demo/kernels.cuh")
    assert (result.before, result.others) == (KERNELS, ())
    assert result.after is not None
    assert "* inverse_width" in result.after
    assert (report.diff(result) or "").startswith("diff --git a/kernels/demo/kernels.cuh b/kernels/demo/kernels.cuh\n")


def test_the_patch_holds_what_was_changed_in_further_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = search(tmp_path, Scripted(shared_once), 1)
    assert (result.status, result.source, result.after) == ("improved", "kernels/demo/kernels.cuh", KERNELS)
    assert result.others == (FileChange(path="kernels/demo/share.cuh", before=SHARE, after=shared_once(None)),)
    assert (result.also_changes, result.also_checked) == (("other",), ("other",))
    tree = tmp_path / "tree"
    for name, text in FILES.items():
        (tree / "kernels/demo" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / "kernels/demo" / name).write_text(text)
    subprocess.run(["git", "init", "-q", tree], check=True)
    monkeypatch.chdir(tree)
    report.write([tmp_path / "ledger.jsonl"], tree / "reports")
    assert "<h3>Source change in kernels/demo/share.cuh</h3>" in (tree / "reports/demo/report.html").read_text()
    subprocess.run(["git", "apply", "reports/demo/smooth.patch"], check=True)
    assert (tree / "kernels/demo/share.cuh").read_text() == shared_once(None)
    assert list(report.below(report.document("demo", [result]), tree / "reports/demo", tree))[1:] == [
        "left out: reports/demo/smooth.patch is applied already"
    ]


def test_the_application_runs_with_the_files_that_were_promoted(tmp_path: Path) -> None:
    kernel = KERNELS[KERNELS.index("extern") : KERNELS.index('extern "C" __global__ void other')]
    both = shared_once(None) + kernel.replace("/ width", "* (1.0f / width)")
    found = dict(variant_of(included(), search(tmp_path, Scripted(lambda prompt: both), 1)).files or ())
    assert found.keys() == {"kernels.cuh", "share.cuh"}
    assert "* (1.0f / width)" in found["kernels.cuh"]
    assert found["share.cuh"] == shared_once(None)


def test_two_patches_that_change_one_further_file_overlap(tmp_path: Path) -> None:
    first = search(tmp_path, Scripted(shared_once), 1)
    second = replace(first, kernel="demo/other", source="kernels/demo/elsewhere.cu", before="a\n", after="b\n")
    assert report.overlap(first, second)
    assert not report.overlap(first, replace(second, others=()))
