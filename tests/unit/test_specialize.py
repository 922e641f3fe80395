"""Facts of a unit in a kernel's IR: text in, text out, checked as text. What LLVM makes of it: test_toolchain.py."""

from __future__ import annotations

import re
import struct

import pytest

from r3bench.errors import BuildError
from r3bench.model import Configuration, LaunchConfig, Parameter, Specialization
from r3bench.space import UnitFacts
from r3bench.toolchain.irtext import isolate, items
from r3bench.toolchain.specialize import bound, specialize

IR = """\
; ModuleID = 'k.cu'
target triple = "nvptx64-nvidia-cuda"

%struct.P = type { [4 x float], i32 }

@table = dso_local addrspace(4) externally_initialized global [4 x float] zeroinitializer, align 4
@unused = dso_local addrspace(1) externally_initialized global i32 0, align 4
@llvm.used = appending global [1 x ptr] [ptr @other], section "llvm.metadata"

; Function Attrs: convergent
define dso_local float @helper(float noundef %x) #0 {
  ret float %x
}

define dso_local ptx_kernel void @other() #1 {
  ret void
}

define weak_odr dso_local ptx_kernel void @k(ptr noundef %y, i32 noundef %n, float noundef %a, i1 noundef zeroext %on, \
ptr noundef byval(%struct.P) align 4 %p) #1 {
entry:
  %0 = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %1 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %2 = call float @helper(float %a)
  %3 = load float, ptr addrspace(4) @table
  ret void
}

declare noundef range(i32 1, 1025) i32 @llvm.nvvm.read.ptx.sreg.ntid.x() #2

declare noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x() #2

attributes #0 = { convergent mustprogress nounwind "target-cpu"="sm_90" }
attributes #1 = { convergent noinline norecurse "nvvm.maxntid"="1024" "target-cpu"="sm_90" }
attributes #2 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
"""


def parameter(name: str, kind: str) -> Parameter:
    return Parameter(name=name, offset=0, size=8, kind=kind)  # type: ignore[arg-type]


FACTS = UnitFacts(
    launch=LaunchConfig(grid=(9, 1, 1), block=(128, 2, 1)),
    scalars=(("n", struct.pack("<i", -5)), ("a", struct.pack("<f", 0.1)), ("on", b"\x01")),
    disjoint=True,
    alignments=(("y", 64),),
    parameters=(
        parameter("y", "pointer"),
        parameter("n", "scalar"),
        parameter("a", "scalar"),
        parameter("on", "scalar"),
        parameter("p", "struct"),
    ),
)


def specialized(facts: UnitFacts = FACTS, **switches: object) -> str:
    configuration = Configuration(specialize=Specialization(**switches))  # type: ignore[arg-type]
    return specialize(IR, "k", configuration, facts)


def line(ir: str, start: str) -> str:
    return next(text for text in ir.splitlines() if text.startswith(start))


# -- one kernel of a module -----------------------------------------------------------------------------------------


def test_isolation_keeps_the_kernel_and_what_it_reaches() -> None:
    kept = isolate(IR, "k")
    assert {item.name for item in items(kept) if item.name} == {
        "k",
        "helper",
        "table",
        "llvm.nvvm.read.ptx.sreg.ntid.x",
        "llvm.nvvm.read.ptx.sreg.tid.x",
    }
    assert "define internal float @helper(float noundef %x) #0 {" in kept
    assert "%struct.P = type" in kept


def test_isolation_keeps_constructors_for_those_who_refuse_them() -> None:
    ir = (
        IR + "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @other }]\n"
    )
    assert "@llvm.global_ctors" in isolate(ir, "k")


def test_isolation_of_a_kernel_that_is_not_there() -> None:
    with pytest.raises(KeyError):
        isolate(IR, "missing")


# -- specialization -------------------------------------------------------------------------------------------------


def test_nothing_asked_for_changes_nothing() -> None:
    assert specialized() == IR


def test_the_block_becomes_constants_and_bounds_the_thread_index() -> None:
    ir = specialized(block=True)
    assert "define internal i32 @r3.ntid.x() alwaysinline {\n  ret i32 128\n}" in ir
    assert "%0 = call i32 @r3.ntid.x()" in ir
    assert "declare noundef range(i32 0, 128) i32 @llvm.nvvm.read.ptx.sreg.tid.x()" in ir
    assert "sreg.ntid" not in ir


def test_scalars_become_constants_in_the_call_of_the_body() -> None:
    call = line(specialized(arguments=("n", "a", "on")), "  call void")
    assert call == '  call void @"r3.body.k"(ptr %0, i32 -5, float 0x3FB99999A0000000, i1 true, ptr %4)'


def test_the_wrapper_keeps_every_parameter_and_the_body_loses_what_forbids_inlining() -> None:
    ir = specialized(arguments=("n",))
    wrapper = line(ir, "define weak_odr")
    assert wrapper == (
        "define weak_odr dso_local ptx_kernel void @k(ptr noundef %0, i32 noundef %1, float noundef %2, "
        "i1 noundef zeroext %3, ptr noundef byval(%struct.P) align 4 %4) #1 {"
    )
    body = line(ir, 'define internal void @"r3.body.k"')
    assert "byval" not in body
    assert "ptx_kernel" not in body
    group = re.search(r"#\d+", body)
    assert group
    assert line(ir, f"attributes {group[0]} =").split(" = ")[1] == (
        '{ convergent norecurse "nvvm.maxntid"="1024" "target-cpu"="sm_90" alwaysinline }'
    )


def test_pointer_facts_are_attributes_of_the_kernels_parameters() -> None:
    assert "ptr noundef noalias align 64 %0" in specialized(noalias=True, align=True)


def test_pointers_that_may_overlap_stay_without_noalias() -> None:
    overlapping = UnitFacts(launch=FACTS.launch, alignments=FACTS.alignments, parameters=FACTS.parameters)
    assert "noalias" not in specialized(overlapping, noalias=True)


@pytest.mark.parametrize(
    ("kind", "value", "literal"),
    [
        ("i64", struct.pack("<q", 2**40), "1099511627776"),
        ("float", struct.pack("<f", float("inf")), "0x7FF0000000000000"),
        ("float", struct.pack("<I", 0x7FC00001), "0x7FF8000020000000"),
        ("float", struct.pack("<f", -0.0), "0x8000000000000000"),
        ("double", struct.pack("<d", 0.1), "0x3FB999999999999A"),
        ("half", struct.pack("<e", 1.5), "0xH3E00"),
        ("bfloat", b"\xc0\x3f", "0xR3FC0"),
    ],
)
def test_constants_keep_every_bit(kind: str, value: bytes, literal: str) -> None:
    ir = IR.replace("float noundef %a", f"{kind} noundef %a")
    facts = UnitFacts(launch=FACTS.launch, scalars=(("a", value),), parameters=FACTS.parameters)
    text = specialize(ir, "k", Configuration(specialize=Specialization(arguments=("a",))), facts)
    assert f"{kind} {literal}, " in line(text, "  call void")


def test_a_name_that_is_no_scalar_is_refused() -> None:
    with pytest.raises(BuildError, match="no scalar parameter 'y'"):
        specialized(arguments=("y",))


def test_a_changed_signature_is_refused() -> None:
    facts = UnitFacts(launch=FACTS.launch, scalars=FACTS.scalars, parameters=FACTS.parameters[:-1])
    with pytest.raises(BuildError, match="has 5 parameters where 4 were recorded"):
        specialized(facts, arguments=("n",))


# -- launch bounds --------------------------------------------------------------------------------------------------


def bounded(**bounds: object) -> str:
    ir = bound(IR, "k", Configuration(**bounds), FACTS)  # type: ignore[arg-type]
    group = re.search(r"#\d+", line(ir, "define weak_odr"))
    assert group
    return line(ir, f"attributes {group[0]} =")


def test_bounds_take_the_place_of_the_sources() -> None:
    assert '"nvvm.maxntid"="128,2,1"' in bounded(bound_threads="max")
    exact = bounded(bound_threads="exact", min_blocks=2)
    assert '"nvvm.reqntid"="128,2,1" "nvvm.minctasm"="2"' in exact
    assert "maxntid" not in exact


def test_a_register_cap_leaves_the_sources_bounds() -> None:
    assert '"nvvm.maxntid"="1024"' in bounded(max_registers=64)
    assert '"nvvm.maxnreg"="64"' in bounded(max_registers=64)


def test_other_kernels_keep_their_attributes() -> None:
    assert line(bound(IR, "k", Configuration(max_registers=64), FACTS), "define dso_local ptx_kernel").endswith("#1 {")


def test_a_minimum_of_blocks_needs_a_bound_on_threads() -> None:
    ir = IR.replace('"nvvm.maxntid"="1024" ', "")
    with pytest.raises(BuildError, match="bound_threads"):
        bound(ir, "k", Configuration(min_blocks=2), FACTS)
