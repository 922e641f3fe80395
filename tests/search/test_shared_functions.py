"""Edits of functions that other kernels of the file call."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from r3bench.model import Capture, Outcome, Status, Variant
from tests.search.fake_server import Behaviour, FakeServer, capture, tree
from tests.search.searching import by_text, search, text_of


def test_an_edit_of_a_shared_function_must_suit_the_other_kernels_of_the_file(tmp_path: Path) -> None:
    other = capture(symbol="other")

    class Server(FakeServer):
        def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
            if capture.symbol == "other" and "inverse" in text_of(variant):
                self.model, own = (lambda v, u: Behaviour(status=Status.MISMATCH, detail="x differs")), self.model
                found = super().submit(capture, variant, unit, timing)
                self.model = own
                return found
            return super().submit(capture, variant, unit, timing)

    (result,) = search(tmp_path, Server(by_text(inverse_width=1.5, out_sum=1.2)), neighbours=[other])
    assert result.after is None or "inverse" not in result.after
    assert result.promotions[0].reason == "it changes other, too: mismatch: x differs"


def test_an_edit_is_not_to_blame_for_a_neighbour_that_fails_anyway(tmp_path: Path) -> None:
    class Server(FakeServer):
        def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
            if capture.symbol == "other":
                broken = FakeServer(lambda v, u: Behaviour(status=Status.UNSUPPORTED, detail="grid sync"))
                return broken.submit(capture, variant, unit, timing)
            return super().submit(capture, variant, unit, timing)

    (result,) = search(tmp_path, Server(by_text(inverse_width=1.5)), neighbours=[capture(symbol="other")])
    assert result.after is not None


SHARED = """\
__device__ float scaled(float x, float width) { return x / 3.0f + x / width + x / width; }
extern "C" __global__ void smooth(const float* in, float* out, float width, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = scaled(in[i], width);
}
extern "C" __global__ void other(float* out, float width) { out[threadIdx.x] = scaled(1.0f, width); }
extern "C" __global__ void alone(float* out) { out[threadIdx.x] = 1.0f; }
"""


def without_division(variant: Variant, unit: int) -> Behaviour:
    text = text_of(variant)
    return Behaviour(ns=500.0 if "scaled" in text and "x / 3.0f" not in text else 1000.0)


def test_kernels_that_share_an_edited_function_are_named_and_checked_on_all_launches(tmp_path: Path) -> None:
    server = FakeServer(without_division)
    neighbours = [capture(SHARED, symbol=symbol) for symbol in ("other", "alone")]
    (result,) = search(
        tmp_path, server, captures=[capture(SHARED)], working=tree(SHARED), neighbours=neighbours
    )  # fmt: skip
    assert result.after is not None
    assert result.also_changes == ("other",)
    assert result.also_checked == ("other",)
    checked = {(name, unit) for name, _, unit, timing in server.submitted if timing == "none"}
    assert {("demo/other", 0), ("demo/other", 1), ("demo/other", 2), ("demo/alone", 0)} <= checked
    assert ("demo/alone", 1) not in checked


def test_a_changed_kernel_without_a_recorded_launch_is_named_all_the_same(tmp_path: Path) -> None:
    server = FakeServer(without_division)
    (result,) = search(tmp_path, server, captures=[capture(SHARED)], working=tree(SHARED))
    assert (result.also_changes, result.also_checked) == (("other",), ())
