"""The search space: defaults, what points mean, and which facts of a unit a configuration compiles in."""

from __future__ import annotations

import random
import struct

import pytest

from r3bench.model import (
    Allocation,
    Capture,
    Configuration,
    Global,
    LaunchConfig,
    LaunchRule,
    Parameter,
    Pointer,
    ReplayUnit,
    Specialization,
    Target,
)
from r3bench.space import EXTRA_PASSES, Knob, Space, unit_facts

CUDA, CPU = Target(device="cuda", arch="sm_90"), Target(device="cpu", arch="znver3")
PARAMETERS = (
    Parameter(name="n", offset=0, size=4, kind="scalar", dtype="int32"),
    Parameter(name="a", offset=4, size=4, kind="scalar", dtype="float32"),
    Parameter(name="x", offset=8, size=8, kind="pointer", dtype="float32", const=True),
    Parameter(name="y", offset=16, size=8, kind="pointer", dtype="float32"),
)
LAUNCH = LaunchConfig(grid=(8, 1, 1), block=(128, 1, 1))


def capture(parameters: tuple[Parameter, ...] = PARAMETERS) -> Capture:
    return Capture(
        path="x.zarr", application="app", symbol="k", demangled="k", parameters=parameters, source=None, units=()
    )


def unit(pointers: tuple[Pointer, ...] | None = None, variables: tuple[Global, ...] = ()) -> ReplayUnit:
    return ReplayUnit(
        index=0,
        launch=LAUNCH,
        arguments=struct.pack("<ifQQ", 1000, 2.5, 0, 0),
        pointers=pointers or (Pointer(offset=8, allocation="x"), Pointer(offset=16, allocation="y", displacement=48)),
        allocations=(Allocation(name="x", address=0, nbytes=4000), Allocation(name="y", address=4096, nbytes=4048)),
        globals=variables,
    )


def space(target: Target = CUDA, blocks: tuple[tuple[int, int, int], ...] = ((128, 1, 1), (64, 1, 1))) -> Space:
    return Space.for_unit(capture(), unit(), target, blocks, fast_math=True)


def test_the_default_point_is_the_default_pipeline_with_the_recorded_launch() -> None:
    assert space().decode(space().default) == (Configuration(), None)
    assert space().decode({}) == (Configuration(), None)
    assert space().encode(Configuration()) == space().default


def test_a_point_means_what_its_knobs_say() -> None:
    point = {
        "pipeline": "O2",
        "pass.sroa": "before",
        "pass.sinking": "after",
        "pass.reassociate": "both",
        "tuning.loop_unrolling": False,
        "option.unroll": "threshold=50",
        "specialize.arguments": "integers",
        "specialize.block": True,
        "bounds": "exact blocks=2",
        "fast_math": True,
        "block": "64x1x1",
    }
    configuration, launch = space().decode(point)
    assert configuration == Configuration(
        pipeline="O2",
        before=("sroa", "reassociate"),
        after=("reassociate", "sinking"),
        tuning=(("loop_unrolling", False),),
        options=(("unroll-threshold", "50"),),
        specialize=Specialization(arguments=("n",), block=True),
        bound_threads="exact",
        min_blocks=2,
        fast_math=True,
    )
    assert launch == LaunchRule(block=(64, 1, 1))


def test_fast_math_is_a_knob_only_where_it_is_allowed() -> None:
    names = {knob.name for knob in Space.for_unit(capture(), unit(), CUDA).knobs}
    assert "fast_math" not in names
    assert {knob.name for knob in space().knobs} - names == {"fast_math", "block"}


def test_every_order_of_the_extra_passes_is_a_point() -> None:
    every = {f"pass.{name}": "before" for name in EXTRA_PASSES}
    assert space().decode(every)[0].before == EXTRA_PASSES
    choose = random.Random(1)
    for _ in range(100):
        order = tuple(choose.sample(EXTRA_PASSES, choose.randint(0, len(EXTRA_PASSES))))
        meant = Configuration(before=order, after=order[::2])
        assert space().decode(space().encode(meant)) == (meant, None)


def test_passes_before_and_after_share_one_order() -> None:
    with pytest.raises(ValueError, match="in this order"):
        space().encode(Configuration(before=("sroa", "sinking"), after=("sinking", "sroa")))


def test_only_the_rank_of_a_pass_that_runs_matters() -> None:
    here = space()
    point = here.default | {"pass.sroa": "after"}
    idle = {knob.name for knob in here.knobs if not here.matters(knob, point)}
    assert idle == {f"rank.{name}" for name in EXTRA_PASSES if name != "sroa"}


def test_slots_make_a_pipeline_of_any_passes_in_any_order() -> None:
    free = Space.for_unit(capture(), unit(), CPU, slots=4)
    assert not [knob.name for knob in free.knobs if knob.name.startswith(("pass.", "rank."))]
    assert free.decode(free.default) == (Configuration(), None)
    point = {"pipeline": "O0", "slot.0": "sroa", "slot.2": "lcssa", "slot.3": "sroa"}
    meant = Configuration(pipeline="O0", before=("sroa", "lcssa", "sroa"))
    assert free.decode(point) == (meant, None)
    assert free.decode(free.encode(meant)) == (meant, None)
    with pytest.raises(ValueError, match=r"knob 'slot\.4'"):
        free.encode(Configuration(before=("sroa",) * 5))


@pytest.mark.parametrize("target", [CUDA, CPU])
def test_encode_gives_a_point_that_means_the_same(target: Target) -> None:
    here, choose = space(target), random.Random(1)
    for _ in range(200):
        meaning = here.decode({knob.name: choose.choice(knob.values) for knob in here.knobs})
        assert here.decode(here.encode(*meaning)) == meaning


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(before=("sroa", "sroa")),
        Configuration(before=("no_such_pass",)),
        Configuration(options=(("unroll-threshold", "7"),)),
        Configuration(specialize=Specialization(arguments=("a",))),
        Configuration(min_blocks=3),
    ],
)
def test_encode_refuses_what_the_space_does_not_have(configuration: Configuration) -> None:
    with pytest.raises(ValueError, match=r"space|knob"):
        space().encode(configuration)


def test_decode_refuses_unknown_knobs_and_values() -> None:
    with pytest.raises(ValueError, match="no knob 'colour'"):
        space().decode({"colour": "red"})
    with pytest.raises(ValueError, match="no value 'O9'"):
        space().decode({"pipeline": "O9"})


def test_launch_bounds_exist_on_cuda_only_and_fit_the_largest_block() -> None:
    assert "bounds" not in {knob.name for knob in space(CPU).knobs}
    assert "max blocks=8" in space().knob("bounds").values
    assert "max blocks=3" not in space(blocks=((128, 1, 1), (1024, 1, 1))).knob("bounds").values


def test_either_the_block_may_change_or_the_grid_be_compiled_in() -> None:
    fixed, free = ({knob.name for knob in here.knobs} for here in (space(blocks=()), space()))
    assert "block" in free - fixed
    assert "specialize.grid" in fixed - free


def test_noalias_is_offered_only_where_pointers_are_disjoint() -> None:
    same = (Pointer(offset=8, allocation="x"), Pointer(offset=16, allocation="x", displacement=4))
    assert space().knob("specialize.noalias") == Knob("specialize.noalias", (False, True))
    with pytest.raises(KeyError):
        Space.for_unit(capture(), unit(same), CUDA).knob("specialize.noalias")


def test_facts_hold_scalars_alignment_and_disjointness() -> None:
    facts = unit_facts(PARAMETERS, unit(), LAUNCH)
    assert dict(facts.scalars) == {"n": struct.pack("<i", 1000), "a": struct.pack("<f", 2.5)}
    assert dict(facts.alignments) == {"x": 256, "y": 16}
    assert facts.disjoint


@pytest.mark.parametrize(
    ("pointers", "variables"),
    [
        ((Pointer(offset=8, allocation="x"), Pointer(offset=16, allocation="x")), ()),
        ((Pointer(offset=8, allocation="x"), Pointer(offset=0, allocation="x", holder="y")), ()),
        ((Pointer(offset=8, allocation="table"),), (Global(symbol="table", nbytes=64),)),
    ],
)
def test_shared_allocations_are_not_disjoint(pointers: tuple[Pointer, ...], variables: tuple[Global, ...]) -> None:
    assert not unit_facts(PARAMETERS, unit(pointers, variables), LAUNCH).disjoint


def test_units_that_differ_in_unused_facts_ask_for_the_same_binary() -> None:
    first = unit_facts(PARAMETERS, unit(), LAUNCH)
    second = unit_facts(PARAMETERS, unit(), LaunchConfig(grid=(9, 1, 1), block=(128, 1, 1)))
    plain, fixed = Configuration(), Configuration(specialize=Specialization(grid=True))
    assert first.used_by(plain) == second.used_by(plain)
    assert first.used_by(fixed) != second.used_by(fixed)
