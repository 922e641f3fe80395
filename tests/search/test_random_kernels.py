"""Random kernels compute the same before and after the rewriting rules, on the CPU device."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from r3bench.devices import Device
from r3bench.rules import RULES, Subject, proposals
from r3bench.toolchain import Compiler
from tests.device.run_kernel import Runner
from tests.search.random_kernels import LENGTH, THREADS, Kernel

EXACT = ("restrict", "accumulate", "cache", "hoist")


def run(compiler: Compiler, device: Device, text: str) -> list[NDArray[np.float64]]:
    random = np.random.default_rng(0)
    arrays = [random.uniform(0.5, 4.0, LENGTH) for _ in range(3)]
    return Runner(compiler, device, text)("k", (4,), (THREADS,), *arrays, 1.75, 2.5, 37, 11)


@pytest.mark.parametrize("seed", [1, 8, 17, 26])
def test_exact_rules_change_no_bit(compiler: Compiler, device: Device, seed: int) -> None:
    text = Kernel(seed).text()
    subject = Subject(text=text, kernel="k", disjoint=True)
    for name in EXACT:
        subject = subject.edited(RULES[name].rewrite(subject))
    assert subject.text != text
    before, after = run(compiler, device, text), run(compiler, device, subject.text)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new, old)
    assert not np.array_equal(before[0], before[2])


def test_every_rule_together_changes_roundings_only(compiler: Compiler, device: Device) -> None:
    text = Kernel(3).text()
    changed = max(proposals(Subject(text=text, kernel="k", disjoint=True)), key=lambda p: p.rule.count("+"))
    assert {"exponential", "power"} <= set(changed.rule.split("+"))
    for old, new in zip(run(compiler, device, text), run(compiler, device, changed.text), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-9)
