"""Kernels as code for AMD GPUs: what is counted of them, and what is refused by name. None of it runs anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from r3bench.errors import Unsupported
from r3bench.model import Configuration, LaunchConfig, Target, facts_of
from r3bench.toolchain import AMD_GPUS, BuildRequest, Built, Compiler, UnitFacts, amdgpu, codegen, ocml

HEAD = 'extern "C" __global__ void k(double* to, int n)'
TILE = """
struct Weights { double of[3]; int count; };
__constant__ double scale[2];
__device__ double pick(const Weights& w, int i) { return w.of[i % w.count]; }
extern "C" __global__ void __launch_bounds__(128) k(double* to, int n, Weights w) {
    __shared__ double tile[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? sqrt(to[i]) * pick(w, i) * scale[i & 1] : 0.0;
    __syncthreads();
    if (i < n) atomicAdd(&to[gridDim.x], tile[blockDim.x - 1 - threadIdx.x]);
}
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(1, cache=tmp_path_factory.mktemp("cache")) as opened:
        yield opened


def build(compiler: Compiler, text: str, arch: str = "gfx90a") -> Built:
    request = BuildRequest(
        files=(("k.cu", text),),
        main="k.cu",
        flags=(),
        symbol="k",
        target=Target(device="hip", arch=arch),
        configuration=Configuration(),
        facts=UnitFacts(launch=LaunchConfig(grid=(4, 1, 1), block=(128, 1, 1)), parameters=()),
    )
    return compiler.submit(request).result(60)


@pytest.mark.parametrize("arch", AMD_GPUS)
def test_registers_memory_and_instructions_are_counted(compiler: Compiler, arch: str) -> None:
    built = build(compiler, TILE, arch)
    facts, assembly = facts_of(built.binary.facts), built.binary.image.decode()
    assert f"amdgcn-amd-amdhsa--{arch}" in assembly
    assert facts["shared_bytes"] == 128 * 8
    assert facts["scratch_bytes"] == facts["vgpr_spills"] == facts["sgpr_spills"] == 0
    assert 8 < facts["vgprs"] < 64
    assert 8 < facts["sgprs"] < 64
    kinds = {name: count for name, count in facts.items() if name.startswith("code_")}
    assert sum(kinds.values()) == facts["instructions"]
    assert all(kinds[f"code_{name}"] for name in ("shared", "memory", "scalar_memory", "vector", "scalar"))
    assert "s_barrier" in assembly
    assert ".max_flat_workgroup_size: 128" in assembly  # its launch bounds
    assert "hidden_group_size_x" in assembly  # blockDim
    assert "hidden_block_count_x" in assembly  # gridDim


def test_what_does_not_fit_into_registers_is_scratch(compiler: Compiler) -> None:
    local = HEAD + "{ double a[40]; for (int i = 0; i < 40; i++) a[i * n % 40] = to[i]; to[n] = a[n % 40]; }"
    facts = facts_of(build(compiler, local).binary.facts)
    assert facts["scratch_bytes"] >= 40 * 8
    assert facts["code_scratch"] > 0


def test_constant_tables_and_unused_indices_leave_nothing(compiler: Compiler) -> None:
    table = HEAD + "{ const double known[4] = {1, 2, 3, 5}; if (threadIdx.y == 0) to[n] = known[n & 3]; }"
    assert facts_of(build(compiler, table).binary.facts)["scratch_bytes"] == 0


def test_what_the_kernel_declares_itself_is_declared_once(compiler: Compiler) -> None:
    table = "struct T { double of[16]; }; __constant__ T held; " + HEAD
    copied = table + "{ T own = held; own.of[n & 15] += 1; to[n] = own.of[threadIdx.x & 15]; }"
    assert facts_of(build(compiler, copied).binary.facts)["instructions"] > 0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("to[n] = __shfl_xor_sync(~0u, n, 1);", r"k: llvm\.nvvm\.shfl\.sync\.bfly\.i32 has no equal"),
        ("to[n] = threadIdx.x % warpSize + __ballot_sync(~0u, n);", r"llvm\.nvvm\.\S+ has no equal"),
        ('asm("mov.u32 %0, 1;" : "=r"(n)); to[n] = 1;', "PTX in its source has no equal"),
        ("to[n] = __syncthreads_or(n);", r"llvm\.nvvm\.barrier\.cta\.red\.or\S* has no equal"),
        ("to[n] = clock64();", r"llvm\.nvvm\.\S*clock64 has no equal"),
        ('printf("%d", n);', "vprintf has no equal"),
        ("double s, c; sincospi(to[n], &s, &c); to[0] = s + c;", "__nv_sincospi has no equal"),
    ],
)
def test_what_has_no_equal_is_refused_by_name(compiler: Compiler, body: str, says: str) -> None:
    with pytest.raises(Unsupported, match=says):
        build(compiler, f"{HEAD} {{ {body} }}")


# -- mathematics ----------------------------------------------------------------------------------------------------

LIBRARY = """
@__oclc_ISA_version = external addrspace(4) constant i32, align 4
@table = linkonce_odr hidden addrspace(4) constant [2 x double] [double 1.0, double 3.0]
define linkonce_odr hidden double @__ocml_pow_f64(double %x, double %y) {
  %v = load i32, ptr addrspace(4) @__oclc_ISA_version
  %s = uitofp i32 %v to double
  %e = load double, ptr addrspace(4) getelementptr (double, ptr addrspace(4) @table, i32 1)
  %m = fmul double %s, %e
  ret double %m
}
"""
CALLS = "declare double @__ocml_pow_f64(double, double)\ndefine double @f(double %x) {\n" + (
    "  %r = call double @__ocml_pow_f64(double %x, double %x)\n  ret double %r\n}\n"
)


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[llvm.ModuleRef, llvm.ContextRef]:
    path = tmp_path / "ocml.bc"
    path.write_bytes(llvm.parse_assembly(LIBRARY, llvm.create_context()).as_bitcode())
    monkeypatch.setattr(ocml, "find", lambda: path)
    return codegen.parsed(CALLS)


@pytest.mark.parametrize(("arch", "version"), [("gfx90a", 9010), ("gfx942", 9402), ("gfx1100", 11000)])
def test_the_device_library_is_linked_for_its_processor(
    linked: tuple[llvm.ModuleRef, llvm.ContextRef], arch: str, version: int
) -> None:
    module, context = linked
    ocml.link(module, CALLS, context, arch)
    module.verify()
    assert f"@__oclc_ISA_version = internal addrspace(4) constant i32 {version}" in str(module)
    assert "define linkonce_odr hidden double @__ocml_pow_f64" in str(module)


def test_what_the_library_lacks_is_named(linked: tuple[llvm.ModuleRef, llvm.ContextRef]) -> None:
    with pytest.raises(Unsupported, match=r"ocml\.bc has no __ocml_sin_f64; use a newer ROCm"):
        ocml.link(linked[0], "declare double @__ocml_sin_f64(double)", linked[1], "gfx90a")


def test_without_the_library_the_message_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocml, "find", lambda: None)
    with pytest.raises(Unsupported, match=r"__ocml_pow_f64 is in AMD's device library .* not here; set ROCM_PATH"):
        ocml.link(llvm.parse_assembly("", llvm.create_context()), CALLS, llvm.create_context(), "gfx90a")


@pytest.mark.skipif(ocml.find() is None, reason="AMD's device library is not here")
def test_mathematics_of_the_device_library_leave_no_call(compiler: Compiler) -> None:
    assembly = build(compiler, HEAD + "{ to[n] = pow(to[0], to[1]) + sin(to[2]); }").binary.image.decode()
    assert "__ocml" not in assembly
    assert "s_swappc" not in assembly


def test_counts_are_those_of_the_metadata() -> None:
    assembly = (
        "\tv_add_f64 v[0:1], v[2:3], v[4:5]\n\tv_mfma_f64_4x4x4f64 v0\n\tds_read_b64 v0\n\ts_endpgm\n"
        "\t.section\t.rodata\n  - .agpr_count:     4\n    .vgpr_count:     7\n    .vgpr_spill_count: 2\n"
    )
    found = dict(amdgpu.counts(assembly))
    assert (found["agprs"], found["vgprs"], found["vgpr_spills"], found["instructions"]) == (4, 7, 2, 4)
    assert (found["code_vector"], found["code_matrix"], found["code_shared"], found["code_scalar"]) == (1, 1, 1, 1)
