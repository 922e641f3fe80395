"""A small search's results and a guard's document, for the tests of what is drawn from them."""

from __future__ import annotations

import json
from dataclasses import replace

from r3bench.ledger import Arm, Failures, KernelResult, Promotion, SourceResult
from r3bench.model import Status, Verdict
from r3bench.nouns import encode
from r3bench.stats import Comparison, Decision, refused
from tests.search.fake_server import comparison


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


LINES = [f"line {n}\n" for n in range(60)]


def edited(kernel: str, *changed: int, gain: float = 1.5) -> KernelResult:
    """A result whose patch, without a configuration, changes these lines of a file of 60."""
    after = "".join(f"{kernel} {n}\n" if n in changed else line for n, line in enumerate(LINES))
    alone = replace(IMPROVED, arms=(Arm(name="patch", comparison=contest(gain)),), configuration=None)
    return replace(alone, kernel=f"demo/{kernel}", source="k.cu", before="".join(LINES), after=after)


def refusal() -> Comparison:
    return refused(0.05, "candidate", Verdict(status=Status.MISMATCH, detail="a differs"))


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
