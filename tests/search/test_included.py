"""Kernels that the main file includes, as the applications of many users have them, and functions in further files."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from r3bench import report
from r3bench.cli.run import variant_of
from r3bench.evolve.propose import Proposer, open_proposers
from r3bench.ledger import FileChange, KernelResult
from r3bench.model import Capture, Status, Variant
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


# Another translation unit, recorded below another folder, that includes one of these files.
SECOND = {
    "demo/share.cuh": SHARE,
    "more/second.cu": """\
#include "../demo/share.cuh"
extern "C" __global__ void relax(const float* in, float* out, float width) { out[0] = share(in[0], width); }
extern "C" __global__ void idle(float* out, float width) { out[0] = share(0.5f, width); }
extern "C" __global__ void alone(float* out) { out[0] = 1.0f; }
""",
}


def elsewhere(symbol: str) -> Capture:
    found = capture(symbol=symbol)
    assert found.source is not None
    files = tuple((name, "0" * 64) for name in SECOND)
    return replace(found, source=replace(found.source, root="kernels", main="more/second.cu", files=files))


def working(of: Capture) -> Variant:
    assert of.source is not None
    return Variant(files=tuple((SECOND if of.source.main == "more/second.cu" else FILES).items()))


def by_divisions(variant: Variant, unit: int) -> Behaviour:
    """One that is hoisted, and one that is less exact, gain something."""
    text = "".join(dict(variant.files or FILES.items()).values())
    return Behaviour(ns=1000.0 / (2.0 if "inverse_width" in text else 1.0) / (1.5 if "__fdividef" in text else 1.0))


def search(
    folder: Path,
    proposer: Proposer,
    steps: int = 24,
    *,
    server: FakeServer | None = None,
    neighbours: Sequence[Capture] = (included("other"),),
) -> KernelResult:
    (result,) = searched(
        folder, server or FakeServer(by_divisions), replace(QUICK, iterations=steps), captures=[included()],
        proposer=proposer, working=working, neighbours=[*neighbours],
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


def test_kernels_of_other_main_files_that_include_what_is_changed_are_named_and_checked(tmp_path: Path) -> None:
    server = FakeServer(by_divisions)
    result = search(
        tmp_path, Scripted(shared_once), 1, server=server, neighbours=[elsewhere("relax"), elsewhere("alone")]
    )
    assert result.status == "improved"
    assert (result.also_changes, result.also_checked) == (("other", "relax", "idle"), ("relax",))
    edited = SECOND | {"demo/share.cuh": shared_once(None)}
    checked = {(name, unit): dict(variant.files or ()) for name, variant, unit, _ in server.submitted}
    assert [checked.get(("demo/relax", unit)) for unit in range(3)] == [edited] * 3
    assert checked.get(("demo/alone", 0)) == edited
    assert ("demo/alone", 1) not in checked, "the change does not reach it"
    (tmp_path / "none").mkdir()
    kernel = KERNELS[KERNELS.index("extern") : KERNELS.index('extern "C" __global__ void other')]
    own, server = kernel.replace("/ width", "* __fdividef(1.0f, width)"), FakeServer(by_divisions)
    result = search(tmp_path / "none", Scripted(lambda _: own), 1, server=server, neighbours=[elsewhere("relax")])
    assert (result.status, result.also_changes) == ("improved", ())
    assert {name for name, *_ in server.submitted} == {"demo/smooth"}, "no file of the other is changed"


def test_a_change_must_suit_the_kernels_of_other_main_files(tmp_path: Path) -> None:
    def wrong_there(variant: Variant, unit: int) -> Behaviour:
        texts = dict(variant.files or ())
        wrong = "more/second.cu" in texts and "__fdividef" in texts["demo/share.cuh"]
        return Behaviour(status=Status.MISMATCH, detail="x differs") if wrong else by_divisions(variant, unit)

    result = search(tmp_path, Scripted(shared_once), 1, server=FakeServer(wrong_there), neighbours=[elsewhere("relax")])
    assert (result.status, result.after) == ("not improved", None)
    assert result.promotions[0].reason == "it changes relax, too: mismatch: x differs"


def test_of_two_kernels_with_one_name_the_one_that_was_recorded_is_rewritten(tmp_path: Path) -> None:
    kernel = KERNELS[KERNELS.index("__global__") : KERNELS.index('extern "C" __global__ void other')]
    texts = {f"{space}.cuh": f"namespace {space} {{\n{kernel}}}\n" for space in ("first", "second")}
    texts |= {"main.cu": '#include "first.cuh"\n#include "second.cuh"\n', "share.cuh": SHARE}
    recorded = replace(included(), demangled="second::smooth(float const*, float*, float, int)")
    assert recorded.source is not None
    files = tuple((name, "0" * 64) for name in texts)

    def second_hoisted(variant: Variant, unit: int) -> Behaviour:
        return Behaviour(500.0 if "inverse" in dict(variant.files or ()).get("second.cuh", "") else 1000.0)

    (result,) = searched(
        tmp_path, FakeServer(second_hoisted), QUICK, working=lambda _: Variant(files=tuple(texts.items())),
        captures=[replace(recorded, source=replace(recorded.source, files=files))],
    )  # fmt: skip
    assert (result.status, result.source, result.before) == ("improved", "kernels/demo/second.cuh", texts["second.cuh"])
    assert (result.others, result.also_changes) == ((), ())
