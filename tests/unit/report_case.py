"""A search's document as large as one gets, and hostile ones, for the tests and benchmarks of renderings."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from math import exp
from typing import Any

from r3bench import report
from r3bench.ledger import Arm, Failures, KernelResult, Promotion, SourceResult
from r3bench.report import Run
from r3bench.stats import Comparison, Decision, compared

HOSTILE = '"></title></script><script>alert(1)</script><img src=x onerror=alert(1)>\x00\u202e--></style>&#64;`|$'


def contest(random_: random.Random, ratio: float, blocks: int = 60) -> Comparison:
    """A claim of this speedup with its repetition, as noisy as a shared machine."""
    windows = [(1e5 / ratio * exp(random_.gauss(0, 0.05)),) for _ in range(blocks)]
    orders = tuple(random_.choice(("AB", "BA")) for _ in windows)
    conditions = (("written_bytes", str(random_.randrange(10**4, 10**7))), ("write_speed", "8.1e9"))
    found = replace(compared([(1e5,)] * blocks, windows, orders, 0.05, 0.001), conditions=conditions)
    return replace(found, repeat=found)


def kernel(number: int, iterations: int = 200) -> KernelResult:
    """A kernel after so many iterations, each with a source and a failure of its own."""
    random_ = random.Random(number)
    before = "".join(f"    double value{n} = state[{n}] * {n}.5; // {n}\n" for n in range(400))
    after = before.replace("value", "cached")
    arms = ("patch", "patch and configuration", "toolchain")
    return KernelResult(
        kernel=f"large/kernel_{number}", capture=f"captures/large/kernel_{number}.zarr", content_hash="h",
        status="improved", detail="faster by the interval", device="cpu", target="znver4",
        baseline="recorded source, default pipeline", baseline_ns=1e5, seed=0,
        evaluations=30 * iterations, seconds=900.0, source="kernels/large.cu",
        before=before, after=after, rule="p17", description="what was read twice is kept",
        arms=tuple(Arm(name=name, comparison=contest(random_, 1.1 + 0.1 * n)) for n, name in enumerate(arms)),  # type: ignore[arg-type]
        sources=tuple(
            SourceResult(rule=f"p{n}", description="", trials=30, matched=29, default_ns=1e5, best_ns=9e4 + n)
            for n in range(iterations)
        ),
        failures=tuple(
            Failures(source=f"p{n}", status="mismatch", count=1, detail="x" * 400) for n in range(iterations)
        ),
        promotions=(
            Promotion(rule="p17", promoted=True, reason="", held_out=2, units=2, decision=Decision.FASTER),
        ),
        conditions=(("processor", "AMD"), ("cores", "2")),
    )  # fmt: skip


def parts(number: int, iterations: int = 200) -> dict[str, Any]:
    """What a ledger of such a kernel holds beside its result."""
    random_ = random.Random(number)
    curve = [[30 * n, 4.0 * n, 1e5 / (1 + n / 300), f"p{n}"] for n in range(1, min(iterations, 101))]
    cells = [
        {"cell": [random_.randrange(10), random_.randrange(8)], "island": n % 4, "id": f"p{n}", "origin": "rules:hoist",
         "speedup": 0.7 + random_.random()}
        for n in range(iterations)
    ]  # fmt: skip
    rows = ["".join(random_.choice("0123456789....") for _ in range(64)) for _ in range(32)]
    picture = {"source": "p3", "buffer": "state", "count": 99, "elements": 2048, "first": [0, 1], "worst": [3, 4],
               "first_expected": "1", "first_actual": "nan", "picture": rows}  # fmt: skip
    total = {"model": "rules", "calls": iterations, "failed": 3, "tokens": 9e5, "cached_tokens": 6e5,
             "answer_tokens": 1e5, "cost": 1.25, "seconds": 600.0}  # fmt: skip
    return {
        "convergence": {"full": curve, "bo": [[n, s, ns * 1.1, p] for n, s, ns, p in curve]},
        "searches": {
            name: {"evaluations": 60, "claimed": claim, "gain_from": "source 1.1x", "building_s": 8.0, "device_s": 9.5}
            for name, claim in (("full", 1.2), ("bo", None))
        },
        "archive": {
            "axes": ["log2 of IR instructions", "distance"],
            "edges": [[float(n) for n in range(9)], [n / 10 for n in range(7)]],
            "fates": {"matched": iterations - 20, "failed": 20}, "cells": cells,
        },
        "replies": [total],
        "pictures": [picture] * 4,
    }  # fmt: skip


def large(kernels: int = 7) -> Mapping[str, Any]:
    """The document of a search of seven kernels and 200 iterations each."""
    found = [kernel(number) for number in range(kernels)]
    settings = {"search": "full", "trials": 30, "limits": {"seconds": 6300.0}, "kernels": 7}
    run = Run(
        began={(k.kernel, k.search): [{"kind": "run", "settings": settings}] for k in found},
        parts={k.kernel: parts(n) for n, k in enumerate(found)},
    )
    return report.document("large", found, run)


def poisoned(value: Any, key: str = "") -> Any:
    """A document in which every text that comes from elsewhere is hostile."""
    known = (
        "format",
        "kind",
        "created",
        "status",
        "decision",
        "picture",
        "orders",
        "verdict",
        "level",
        "patch_file",
        "search",
    )
    if key in known:
        return value
    if isinstance(value, str):
        return f"{value} {HOSTILE}"
    if isinstance(value, Mapping):
        return {name: poisoned(item, name) for name, item in value.items()}
    return [poisoned(item, key) for item in value] if isinstance(value, list) else value
