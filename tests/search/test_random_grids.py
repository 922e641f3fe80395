"""Random kernels of one element per thread compute the same before and after each rule, on the CPU device.

What a rule makes runs under the recorded launch and under the one it asks for.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from r3bench.devices import Device
from r3bench.model import LaunchConfig, LaunchRule
from r3bench.rules import RULES, proposals
from r3bench.rules.subject import Subject
from r3bench.toolchain import Compiler
from tests.device.run_kernel import Runner
from tests.search.random_grids import BLOCK, GRID, HALO, HEIGHT, OWN, WIDTH, Kernel

CHANGING = ("select", "interchange", "index32", "expose", "reuse", "tile", "stride", "coarsen2", "rows2")
SEEDS = range(40)
RECORDED = LaunchConfig(grid=GRID, block=BLOCK)


def subject(seed: int) -> Subject:
    values = (("n", WIDTH), ("m", HEIGHT))
    return Subject(text=Kernel(seed).text(), kernel="k", disjoint=True, small=True, block=BLOCK, values=values)


def run(compiler: Compiler, device: Device, text: str, launch: LaunchConfig = RECORDED) -> list[NDArray[np.float64]]:
    random = np.random.default_rng(0)
    sizes = (WIDTH * HEIGHT, WIDTH * HEIGHT * OWN, (WIDTH + 2 * HALO) * (HEIGHT + 2 * HALO))
    arrays = [random.uniform(0.5, 4.0, size) for size in sizes]
    return Runner(compiler, device, text)("k", launch.grid, launch.block, *arrays, 1.75, WIDTH, HEIGHT)


def seeds_of(rule: str, count: int) -> list[int]:
    """The first seeds whose kernels a rule changes."""
    changed = (seed for seed in SEEDS if RULES[rule].rewrite(subject(seed)) != subject(seed).text)
    return [seed for seed, _ in zip(changed, range(count), strict=False)]


@pytest.mark.parametrize("rule", CHANGING)
def test_a_rule_changes_no_bit_under_either_launch(compiler: Compiler, device: Device, rule: str) -> None:
    exact = rule != "interchange"
    seeds = seeds_of(rule, 3)
    assert len(seeds) == 3, "the random kernels give this rule too little to do"
    for seed in seeds:
        before = subject(seed)
        text = RULES[rule].rewrite(before)
        wanted = run(compiler, device, before.text)
        asked = LaunchRule(block=BLOCK, per_thread=RULES[rule].per_thread).apply(RECORDED)
        for launch in dict.fromkeys((RECORDED, asked)):
            for new, old in zip(run(compiler, device, text, launch), wanted, strict=True):
                np.testing.assert_allclose(
                    new, old, rtol=0.0 if exact else 1e-13, atol=0.0, err_msg=f"seed {seed}\n{text}"
                )


@pytest.mark.parametrize("seed", [0, 5])
def test_chains_compute_the_same_under_the_launch_they_ask_for(compiler: Compiler, device: Device, seed: int) -> None:
    wanted = run(compiler, device, subject(seed).text)
    for proposal in [p for p in proposals(subject(seed)) if "+" in p.rule][-3:]:
        launch = LaunchRule(block=BLOCK, per_thread=proposal.per_thread).apply(RECORDED)
        for new, old in zip(run(compiler, device, proposal.text, launch), wanted, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-12, err_msg=f"{proposal.rule}\n{proposal.text}")
