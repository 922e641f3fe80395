"""Builds through compile workers: right code, right errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench.errors import BuildError, Unsupported
from r3bench.model import Configuration, Specialization, Target, facts_of
from r3bench.toolchain import BuildRequest, Compiler, assembler, libdevice
from tests.unit.build_case import CUDA, OF_ITS_OWN, SAXPY, build, request


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(2, cache=tmp_path_factory.mktemp("cache"), assemble=False) as made:
        yield made


def ptx(compiler: Compiler, text: str = SAXPY, symbol: str = "saxpy", **configuration: object) -> str:
    return build(compiler, text, symbol, configuration=Configuration(**configuration)).binary.image.decode()  # type: ignore[arg-type]


# -- PTX ------------------------------------------------------------------------------------------------------------


def test_source_becomes_ptx_with_facts_and_stages(compiler: Compiler) -> None:
    built = build(compiler, OF_ITS_OWN)
    text = built.binary.image.decode()
    assert (built.binary.format, built.binary.symbol, built.binary.target) == ("ptx", "saxpy", CUDA)
    assert ".version 8.3\n.target sm_90" in text
    assert ".visible .entry saxpy(" in text
    assert "fma.rn.f32" in text
    assert [stage for stage, _ in built.stages] == ["frontend", "specialize", "optimize", "emit"]
    facts = facts_of(built.binary.facts)
    assert facts["ir_instructions"] == sum(count for name, count in facts.items() if name.startswith("op_"))
    assert facts["ptx_version"] == 83


def test_only_the_kernel_asked_for_is_built(compiler: Compiler) -> None:
    text = SAXPY + 'extern "C" __global__ void other(float* y) { y[0] = 1; }'
    assert "other" not in ptx(compiler, text)
    assert "saxpy" not in ptx(compiler, text, "other")


def test_specialization_folds_values_and_keeps_structs_in_place(compiler: Compiler) -> None:
    text = ptx(
        compiler,
        specialize=Specialization(arguments=("n", "a"), block=True, grid=True, noalias=True, align=True),
    )
    assert "%ntid" not in text
    assert "999" in text
    assert "0f40200000" in text
    assert "ld.global.nc" in text
    assert ".local" not in text
    assert ".ptr .align 256 saxpy_param_2" in text
    assert ".param .align 4 .b8 saxpy_param_4[20]" in text


@pytest.mark.parametrize("switches", [{"arguments": ("n",)}, {"noalias": True}, {"align": True}, {"block": True}])
def test_each_specialization_changes_the_module(compiler: Compiler, switches: dict[str, object]) -> None:
    special = Specialization(**switches)  # type: ignore[arg-type]
    assert build(compiler, configuration=Configuration(specialize=special)).module != build(compiler).module


def test_a_struct_that_the_kernel_changes_is_still_its_own_copy(compiler: Compiler) -> None:
    text = SAXPY.replace("if (i < n)", "p.w[n & 3] += i; if (i < n)")
    assert "st.local" in ptx(compiler, text)
    special = ptx(compiler, text, specialize=Specialization(arguments=("a",)))
    assert "st.local" in special
    assert "st.param" not in special


def test_a_fixed_grid_folds_the_loop_over_the_grid(compiler: Compiler) -> None:
    text = 'extern "C" __global__ void k(int* y) { y[blockIdx.x] = gridDim.x; }'
    facts_free = Configuration(specialize=Specialization(grid=True))
    built = build(compiler, text, "k", configuration=facts_free).binary.image.decode()
    assert "%nctaid" not in built
    assert re.search(r"st\.global\.b32\s+\[%rd\d+\], 7;", built)


def test_bounds_and_register_caps_reach_the_ptx(compiler: Compiler) -> None:
    assert ".maxntid 128, 1, 1" in ptx(compiler, bound_threads="max")
    exact = ptx(compiler, bound_threads="exact", min_blocks=2)
    assert ".reqntid 128, 1, 1" in exact
    assert ".minnctapersm 2" in exact
    assert ".maxnreg 64" in ptx(compiler, max_registers=64)


def test_launch_bounds_of_the_source_give_way(compiler: Compiler) -> None:
    text = SAXPY.replace("void saxpy", "void __launch_bounds__(512) saxpy")
    assert ".maxntid 512" in ptx(compiler, text)
    exact = ptx(compiler, text, bound_threads="exact")
    assert ".reqntid 128, 1, 1" in exact
    assert ".maxntid" not in exact


def test_variables_stay_visible_and_are_listed(compiler: Compiler) -> None:
    text = """__constant__ float table[8]; __device__ int counter; __device__ int unused; static __device__ int hidden;
    extern "C" __global__ void k(float* y) {
        static __device__ int launches; __shared__ float held[32]; const float known[2] = {1, 3};
        atomicAdd(&counter, 1); held[threadIdx.x] = hidden++ + launches++; __syncthreads();
        y[threadIdx.x] = table[threadIdx.x & 7] + held[31 - threadIdx.x] + known[threadIdx.x & 1];
    }"""
    built = build(compiler, text, "k")
    found = {(variable.symbol, variable.nbytes, variable.constant) for variable in built.globals}
    # In one that is static, whose name is gone, a kernel could count its launches.
    assert found == {("table", 32, True), ("counter", 4, False), ("a static one", 4, False)}
    assert len(built.globals) == 4
    assert ".visible .const .align 4 .b8 table[32]" in built.binary.image.decode()


def test_static_shared_memory_is_counted(compiler: Compiler) -> None:
    text = """extern "C" __global__ void k(float* y) { __shared__ float s[40]; __shared__ double d[2];
    s[threadIdx.x] = d[threadIdx.x] = y[threadIdx.x]; __syncthreads(); y[threadIdx.x] = s[39 - threadIdx.x] + d[0]; }"""
    assert facts_of(build(compiler, text, "k").binary.facts)["shared_bytes"] == 176


# -- host code ------------------------------------------------------------------------------------------------------


def test_source_becomes_an_object_for_this_processor(compiler: Compiler) -> None:
    built = build(compiler, OF_ITS_OWN, target=compiler.host)
    assert built.binary.format == "object"
    assert built.binary.image.startswith(b"\x7fELF")
    assert b"r3_run_block" in built.binary.image
    assert [stage for stage, _ in built.stages] == ["frontend", "specialize", "lower", "optimize", "emit"]
    facts = facts_of(built.binary.facts)
    assert 0 < facts["code_bytes"] < len(built.binary.image)


def test_one_front_end_call_serves_both_devices(compiler: Compiler) -> None:
    text = SAXPY + "// for both"
    first, second = build(compiler, text), build(compiler, text, target=compiler.host)
    assert dict(second.stages)["frontend"] < 0.1 * dict(first.stages)["frontend"]


@pytest.mark.parametrize("switches", [{"arguments": ("n",)}, {"noalias": True}, {"block": True}])
def test_specialization_reaches_host_code(compiler: Compiler, switches: dict[str, object]) -> None:
    special = Configuration(specialize=Specialization(**switches))  # type: ignore[arg-type]
    changed = build(compiler, target=compiler.host, configuration=special)
    assert changed.module != build(compiler, target=compiler.host).module


# -- device mathematics ---------------------------------------------------------------------------------------------

SQRT = 'extern "C" __global__ void k(float* y) { y[0] = sqrtf(y[0]) + expf(y[1]); }'


@pytest.mark.skipif(libdevice.find() is None, reason="NVIDIA's libdevice is not here; install r3bench[cuda]")
def test_libdevice_is_linked_and_square_roots_round_correctly(compiler: Compiler) -> None:
    text = ptx(compiler, SQRT, "k")
    assert "sqrt.rn.f32" in text
    assert "ex2.approx" in text
    assert "__nv_" not in text


def test_without_libdevice_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libdevice, "find", lambda: None)
    with pytest.raises(BuildError, match=r"__nv_expf needs NVIDIA's libdevice.*r3bench\[cuda\]"):
        libdevice.link(None, "declare float @__nv_expf(float)", None)


# -- errors ---------------------------------------------------------------------------------------------------------


def test_a_compile_error_names_the_users_line(compiler: Compiler) -> None:
    with pytest.raises(BuildError, match=r"k\.cu:1:\d+") as caught:
        build(compiler, 'extern "C" __global__ void k(int* y) { y[0] = missing; }', "k")
    assert (caught.value.diagnostics[0].file, caught.value.diagnostics[0].line) == ("k.cu", 1)


def test_a_missing_kernel_names_those_that_are_there(compiler: Compiler) -> None:
    with pytest.raises(BuildError, match=r"no kernel axpy \(kernels: saxpy\)"):
        build(compiler, symbol="axpy")


def test_a_call_without_definition_is_unsupported(compiler: Compiler) -> None:
    text = 'extern "C" __device__ void f(int*); extern "C" __global__ void k(int* y) { f(y); }'
    with pytest.raises(Unsupported, match="calls f,"):
        build(compiler, text, "k")


@pytest.mark.parametrize(
    ("configuration", "named"),
    [
        (Configuration(before=("no_such",)), "no pass 'no_such'"),
        (Configuration(tuning=(("no_such", 1),)), "no tuning option 'no_such'"),
        (Configuration(options=(("load", "x.so"),)), "no LLVM option 'load'"),
        (Configuration(min_blocks=2), "bound_threads"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(
    compiler: Compiler, configuration: Configuration, named: str
) -> None:
    with pytest.raises(BuildError, match=named):
        build(compiler, configuration=configuration)


# -- ways to build --------------------------------------------------------------------------------------------------


def test_fast_math_is_a_flag_that_changes_code(compiler: Compiler) -> None:
    asked = request('extern "C" __global__ void k(float* y) { y[0] = y[1] / y[2] + sqrtf(y[3]); }', "k")
    exact, fast = (compiler.submit(replace(asked, flags=flags)).result(60) for flags in ((), ("-use_fast_math",)))
    assert [b".approx" in built.binary.image for built in (exact, fast)] == [False, True]


@pytest.mark.parametrize("target", [CUDA, None], ids=["cuda", "cpu"])
def test_a_padded_build_is_the_same_code_moved(compiler: Compiler, target: Target | None) -> None:
    asked = request(target=target or compiler.host)
    plain, padded = (compiler.submit(replace(asked, padded=which)).result(60) for which in (False, True))
    assert plain.binary.image != padded.binary.image
    assert plain.module != padded.module
    kept, longer = (set(built.binary.image.split(b"\n")) for built in (plain, padded))
    counts = [facts_of(built.binary.facts) for built in (plain, padded)]
    if target is CUDA:
        assert not kept - longer
        assert b"membar.sys" in padded.binary.image
        assert counts[0]["ptx_instructions"] == counts[1]["ptx_instructions"]
    else:
        assert 0 < counts[1]["code_bytes"] - counts[0]["code_bytes"] < 400


@pytest.mark.skipif(assembler.find() is None, reason="there is no ptxas on this machine")
def test_machine_code_is_made_where_ptxas_is(tmp_path: Path) -> None:
    with Compiler(1, cache=tmp_path) as compiler:
        built = build(compiler)
        assert (built.binary.format, built.binary.image[:4]) == ("cubin", b"\x7fELF")
        assert facts_of(built.binary.facts)["registers"] > 0
        assert "assemble" in dict(built.stages)
        quick = build(compiler, configuration=Configuration(assembler=(("opt-level", "0"),)))
        assert quick.module == built.module
        assert quick.binary.image != built.binary.image
        with pytest.raises(BuildError, match="opt-level"):
            build(compiler, configuration=Configuration(assembler=(("opt-level", "x"),)))


def test_options_go_with_ptx_that_the_driver_is_to_compile(compiler: Compiler) -> None:
    plain, quick = (
        build(compiler, configuration=Configuration(assembler=options)).binary
        for options in ((), (("opt-level", "0"),))
    )
    assert (quick.image, quick.options) == (plain.image, (("opt-level", "0"),))
    assert quick.sha256 != plain.sha256
    with pytest.raises(BuildError, match="no option def-store-cache=wt; choose from opt-level"):
        build(compiler, configuration=Configuration(assembler=(("def-store-cache", "wt"),)))


# -- what a compiler made of a source that is not known --------------------------------------------------------------

PTX = """.version 8.3
.target sm_90
.address_size 64
.visible .entry k(
	.param .u64 p
)
{
	ret;
}
"""
LLVM = """target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr %p) {
  store float 1.0, ptr %p
  ret void
}
"""


def as_given(text: str, main: str, **changed: Any) -> BuildRequest:
    return replace(request("", "k"), files=((main, text),), main=main, **changed)


def test_ptx_text_is_assembled_and_nothing_else(tmp_path: Path) -> None:
    with Compiler(cache=tmp_path, assemble=False) as compiler:
        built = compiler.submit(as_given(PTX, "k.ptx")).result()
        assert (built.binary.image, built.binary.format, built.binary.symbol) == (PTX.encode(), "ptx", "k")
        tuned = Configuration(pipeline="O1")
        with pytest.raises(BuildError, match="only PTX text was recorded, which no pass"):
            compiler.submit(as_given(PTX, "k.ptx", configuration=tuned)).result()
        with pytest.raises(Unsupported, match="runs on an NVIDIA GPU only"):
            compiler.submit(as_given(PTX, "k.ptx", target=compiler.host)).result()


def test_llvm_ir_is_built_as_if_a_source_had_been_compiled(tmp_path: Path) -> None:
    with Compiler(cache=tmp_path, assemble=False) as compiler:
        built = compiler.submit(as_given(LLVM, "k.ll")).result()
        assert ".entry k(" in built.binary.image.decode()
        with pytest.raises(BuildError, match="LLVM refused"):
            compiler.submit(as_given(LLVM.replace("float 1.0", "float nothing"), "k.ll")).result()


# -- several translation units ---------------------------------------------------------------------------------------

PARTS = {
    "main.cu": "__device__ float bent(float);\nextern __device__ float offset;\n"
    'extern "C" __global__ void k(float* at) { at[threadIdx.x] = bent(at[threadIdx.x]) + offset; }\n',
    "bent.cu": "__device__ float offset = 0.25f;\n__device__ float bent(float x) { return x * FACTOR; }\n",
}


def of_parts(*linked: tuple[str, tuple[str, ...]], **changed: Any) -> BuildRequest:
    return replace(request("", "k"), files=tuple(sorted(PARTS.items())), main="main.cu", linked=linked, **changed)


def test_units_are_compiled_by_their_own_flags_and_linked(tmp_path: Path) -> None:
    with Compiler(cache=tmp_path, assemble=False) as compiler:
        built = compiler.submit(of_parts(("bent.cu", ("-DFACTOR=3.0f",)))).result()
        text = built.binary.image.decode()
        assert "0f40400000" in text  # 3.0f: the function was inlined
        assert "call" not in text
        assert [variable.symbol for variable in built.globals] == ["offset"]
        host = compiler.submit(of_parts(("bent.cu", ("-DFACTOR=3.0f",)), target=compiler.host)).result()
        assert host.binary.format == "object"


def test_units_that_do_not_go_together(tmp_path: Path) -> None:
    with Compiler(cache=tmp_path, assemble=False) as compiler:
        with pytest.raises(Unsupported, match="kernel k calls _Z4bentf, which the source does not define"):
            compiler.submit(of_parts()).result()
        with pytest.raises(BuildError, match="do not link"):
            compiler.submit(of_parts(("main.cu", ()))).result()
