"""A configuration in words."""

from __future__ import annotations

from r3bench.evolve.described import described
from r3bench.model import Configuration, LaunchRule, Specialization, Variant


def test_the_default_needs_no_words() -> None:
    assert described(Variant(configuration=Configuration()), (32, 8, 1)) == ()
    assert described(Variant(), (32, 8, 1)) == ()


def test_only_what_differs_is_told() -> None:
    configuration = Configuration(
        tuning=(("slp_vectorization", False),), specialize=Specialization(arguments=("n", "nx"))
    )
    found = described(Variant(configuration=configuration, launch=LaunchRule(block=(128, 1, 1))), (32, 8, 1))
    assert found == (
        "block 128x1x1 instead of 32x8x1",
        "n, nx compiled in as constants",
        "slp vectorization off",
    )


def test_every_setting_has_words() -> None:
    configuration = Configuration(
        pipeline="O2",
        before=("sroa",),
        after=("new_gvn", "sinking"),
        tuning=(("inlining_threshold", 5),),
        options=(("unroll-count", "4"),),
        specialize=Specialization(arguments=("n",), block=True, grid=True, noalias=True, align=True),
        bound_threads="max",
        min_blocks=2,
        max_registers=64,
        assembler=(("opt-level", "2"),),
    )
    assert described(Variant(configuration=configuration), (1, 1, 1)) == (
        "n compiled in as a constant",
        "the block's size compiled in",
        "the grid's size compiled in",
        "pointers taken not to overlap",
        "pointers taken to be aligned as recorded",
        "launch bounds: at most the block's threads, 2 blocks per multiprocessor",
        "at most 64 registers per thread",
        "-O2 instead of -O3",
        "inlining threshold 5",
        "extra passes before the pipeline: sroa",
        "extra passes after it: new_gvn, sinking",
        "LLVM options -unroll-count=4",
        "ptxas options --opt-level=2",
    )


def test_the_work_of_a_thread_is_told_where_it_is_more() -> None:
    launch = LaunchRule(block=(128, 1, 1), per_thread=(4, 1, 1))
    assert described(Variant(launch=launch), (128, 1, 1)) == ("a thread for 4x1x1 recorded ones",)
