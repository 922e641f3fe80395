"""What kernels may not contain is refused by name, whatever disguise it comes in."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from r3bench import frontend
from r3bench.errors import BuildError, Unsupported
from r3bench.lowering import Lowered, lower
from r3bench.toolchain import codegen
from r3bench.toolchain.build import optimize_lightly

llvm.initialize_all_targets()
DATA_LAYOUT = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"


def through(ir: str, symbol: str = "k") -> Lowered:
    return lower(ir, symbol, triple=codegen.host_triple(), data_layout=DATA_LAYOUT, optimize=optimize_lightly)


def from_source(text: str) -> Lowered:
    return through(frontend.compile_ir({"k.cu": text}, "k.cu"))


SOURCES = {
    "PTX assembly": 'extern "C" __global__ void k(int* p) { asm volatile("mov.u32 %0, %%smid;" : "=r"(*p)); }',
    "inttoptr": 'extern "C" __global__ void k(long a) { *(int*)a = 1; }',
    "inttoptr, in a constant": 'extern "C" __global__ void k() { *(int*)4096 = 1; }',
    "indirect call": 'typedef void (*F)(int*); extern "C" __global__ void k(F* f, int* p) { (*f)(p); }',
    "takes the address": """__device__ void f(int* p) { *p = 1; }
        extern "C" __global__ void k(void (**out)(int*)) { *out = f; }""",
    "indirect call, virtual function": """struct A { virtual __device__ void f(int* p); };
        extern "C" __global__ void k(A* a, int* p) { a->f(p); }""",
    "system": """extern "C" __device__ int system(const char*);
        extern "C" __global__ void k(const char* p) { system(p); }""",
    "system, by another name": """__device__ int harmless(const char*) __asm__("system");
        extern "C" __global__ void k(const char* p) { harmless(p); }""",
    "llvm.returnaddress": 'extern "C" __global__ void k(void** p) { *p = __builtin_return_address(0); }',
    "elsewhere": 'extern __device__ int elsewhere; extern "C" __global__ void k(int* p) { *p = elsewhere; }',
    "calls itself": """__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
        extern "C" __global__ void k(int* p) { *p = f(*p); }""",
    "without a constant size": """extern "C" __global__ void k(int* p, int n) {
        int* a = (int*)__builtin_alloca(4 * n); for (int i = 0; i < n; ++i) a[i] = p[n - i]; __syncthreads();
        for (int i = 0; i < n; ++i) p[i] = a[i]; }""",
    "initial value holds an address": """__device__ int a[4]; __device__ int* q = a + 2;
        extern "C" __global__ void k() { *q = 1; }""",
    "r3_slot.x": """__device__ int x __asm__("r3_slot.x"); extern "C" __global__ void k() { x = 1; }""",
    "llvm.nvvm.isspacep.global": 'extern "C" __global__ void k(int* p) { *p = __isGlobal(p); }',
}


@pytest.mark.parametrize("name", SOURCES)
def test_source_is_refused_by_name(name: str) -> None:
    with pytest.raises(BuildError) as error:
        from_source(SOURCES[name])
    assert name.split(",")[0] in str(error.value)
    assert "\n" not in str(error.value)


HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
MODULES = {
    "a constructor of a global variable": """
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @f, ptr null }]
define void @f() {
  ret void
}
define ptx_kernel void @k() {
  ret void
}""",
    "inttoptr": """
define ptx_kernel void @k() {
  store i32 1, ptr getelementptr (i8, ptr inttoptr (i64 4096 to ptr), i64 8)
  ret void
}""",
    "inttoptr, in a variable": """
@v = addrspace(1) externally_initialized global ptr inttoptr (i64 4096 to ptr)
define ptx_kernel void @k() {
  store i32 1, ptr addrspacecast (ptr addrspace(1) @v to ptr)
  ret void
}""",
    "PTX assembly": """
module asm "nop"
define ptx_kernel void @k() {
  ret void
}""",
    "inttoptr, called": """
define ptx_kernel void @k() {
  call void inttoptr (i64 4096 to ptr)()
  ret void
}""",
    "indirect call": """
define ptx_kernel void @k(ptr %f) {
  call void %f()
  ret void
}""",
    "k uses a": """
@a = alias void (), ptr @f
define void @f() {
  ret void
}
define ptx_kernel void @k() {
  call void @a()
  ret void
}""",
    "section": """
@v = addrspace(1) externally_initialized global i32 1, section ".init_array"
define ptx_kernel void @k() {
  store i32 1, ptr addrspacecast (ptr addrspace(1) @v to ptr)
  ret void
}""",
    "personality": """
declare void @p()
define ptx_kernel void @k() personality ptr @p {
  ret void
}""",
    "the instruction indirectbr": """
define ptx_kernel void @k(ptr %p) {
  indirectbr ptr %p, [label %a]
a:
  ret void
}""",
    "blockaddress": """
define ptx_kernel void @k(ptr %p) {
  store ptr blockaddress(@k, %a), ptr %p
  br label %a
a:
  ret void
}""",
    "operand bundles": """
declare float @llvm.sqrt.f32(float)
define ptx_kernel void @k(ptr %p) {
  %a = call float @llvm.sqrt.f32(float 1.0) [ "deopt"(ptr %p) ]
  ret void
}""",
}


@pytest.mark.parametrize("name", MODULES)
def test_module_is_refused_by_name(name: str) -> None:
    with pytest.raises(Unsupported) as error:
        through(HEAD + MODULES[name])
    assert name.split(",")[0] in str(error.value)


def test_what_a_kernel_does_not_reach_does_not_matter() -> None:
    text = """extern "C" __device__ int system(const char*);
        extern "C" __global__ void other(const char* p) { system(p); }
        extern "C" __global__ void k(int* p) { *p = 1; }"""
    assert "r3_run_block" in from_source(text).ir


def test_a_missing_kernel_is_named() -> None:
    with pytest.raises(BuildError, match="no kernel absent"):
        through(HEAD + "define ptx_kernel void @k() {\n  ret void\n}", "absent")
