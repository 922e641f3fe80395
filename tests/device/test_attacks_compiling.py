"""Sources that attack the machine they are compiled on, or whose code would reach beyond a kernel; each is refused by
the layer that its test names.

The layers are tried one by one: what a later one must hold back is written so that the earlier ones never see it. That
none of them is refused without its layer is in test_layers.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from r3bench import frontend, sealing
from r3bench.errors import BuildError, Unsupported
from r3bench.frontend import clang
from r3bench.model import Binary, Configuration, LaunchConfig
from r3bench.remix import BuildRequest, UnitFacts
from r3bench.toolchain import Compiler
from tests.device.lowered import lowered

pytestmark = pytest.mark.skipif(bool(sealing.missing()), reason=sealing.state())
SECRET = "r3bench-secret-7d1f"


# -- the compiler's seal: source that reaches for files ---------------------------------------------------------------

FILES = {
    "include, absolute": '#include "{secret}"',
    "include, relative": '#include "{relative}"',
    "include in angle brackets": "#include <{secret}>",
    "include through a macro": '#define F "{secret}"\n#include F',
    "include_next": '#include_next "{secret}"',
    "import": '#import "{secret}"',
    "embed": '__device__ const char stolen[] = {{\n#embed "{secret}"\n}};',
    "has_include": '#if !__has_include("{secret}")\n#error out of reach\n#endif',
    "line directive, for a diagnostic that quotes": '#line 1 "{secret}"\nint x = "quote me";',
    "dependency of a pragma": '#pragma GCC dependency "{secret}"\n#error out of reach',
    "environment of the process": '#include "/proc/self/environ"',
    "memory map of the process": '#include "/proc/self/maps"',
    "a device": '#include "/dev/urandom"',
    "the project's own files": f'#include "{Path(frontend.__file__)}"',
    "module": "#pragma clang module import std",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_compiler_seal(text: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text(f"int {SECRET.replace('-', '_')}; // {SECRET}\n")
    source = text.format(secret=secret, relative=os.path.relpath(secret, "/tmp/r3-xxxxxxxx"))
    with pytest.raises(BuildError) as caught:
        frontend.compile_ir({"k.cu": source + "\n__global__ void k() {}\n"}, "k.cu")
    told = str(caught.value) + "".join(map(str, caught.value.diagnostics))
    assert SECRET not in told
    assert SECRET.replace("-", "_") not in told


def test_compiler_has_read_all_of_its_standard_input() -> None:
    kernel = "\n__global__ void k() {}\n"
    assert frontend.compile_ir({"k.cu": f'#include "/dev/stdin"{kernel}'}, "k.cu") == frontend.compile_ir(
        {"k.cu": kernel}, "k.cu"
    )


# -- the compiler's limits: source that never ends --------------------------------------------------------------------

DOUBLED = "".join(f"#define A{n} A{n - 1} A{n - 1}\n" for n in range(1, 41))
BOMBS = {
    "templates without end": (
        "template <int n> struct T { static const int v = T<n + 1>::v; }; int x = T<0>::v;",
        "recursive template instantiation",
    ),
    "templates, 2 to the 64th": (
        "template <int n, long k> struct T { static const long v = T<n - 1, 2 * k>::v + T<n - 1, 2 * k + 1>::v; };\n"
        "template <long k> struct T<0, k> { static const long v = k; };\nlong x = T<60, 0>::v;",
        "took longer",
    ),
    "macros, 2 to the 40th": (f"#define A0 1,\n{DOUBLED}int x[] = {{ A40 }};", "took longer|signal|status|wrote more"),
    "constant evaluation without end": (
        "constexpr int f() { for (;;) {} return 0; }\nconstexpr int x = f();",
        "never produces a constant",
    ),
    "recursion in constant evaluation": (
        "constexpr int f(int n) { return f(n + 1); }\nconstexpr int x = f(0);",
        "constant expression",
    ),
    "a file that includes itself, twice": ('#include "k.cu"\n#include "k.cu"', "nested too deeply"),
    "brackets without end": ("int x = " + "(" * 100_000 + "1" + ")" * 100_000 + ";", "nesting level exceeded"),
    "an array larger than memory": (
        "__global__ void f() { char x[1ull << 62]; x[threadIdx.x] = 1; }",
        "array is too large",
    ),
}


@pytest.mark.parametrize(("text", "message"), BOMBS.values(), ids=BOMBS.keys())
def test_compiler_limits(text: str, message: str) -> None:
    seconds = 2.0 if "took longer" in message else 60.0
    with pytest.raises(BuildError, match=message):
        frontend.compile_ir({"k.cu": text + "\n__global__ void k() {}\n"}, "k.cu", timeout_s=seconds)


def test_compiler_limits_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(clang.LIMITS, "fsize", 1 << 20)
    numbers = ",".join(map(str, range(300_000)))
    with pytest.raises(BuildError, match="wrote more than 1 MiB"):
        frontend.compile_ir({"k.cu": f"__device__ int x[] = {{{numbers}}};\n__global__ void k() {{}}"}, "k.cu")


# -- the optimizer's limits -------------------------------------------------------------------------------------------

UNROLLED = """__global__ void k(float* x) {
  float s = x[0];
#pragma unroll
  for (int i = 0; i < 4000; i++)
#pragma unroll
    for (int j = 0; j < 4000; j++) s = s * x[i * j] + x[i ^ j];
  x[0] = s;
}"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(1, timeout_s=60.0, cache=tmp_path_factory.mktemp("cache"), memory_bytes=1 << 30) as opened:
        yield opened


def built(compiler: Compiler, text: str, symbol: str = "_Z1kPf") -> Binary:
    launch = LaunchConfig(grid=(1, 1, 1), block=(32, 1, 1))
    request = BuildRequest(
        files=(("k.cu", text),),
        main="k.cu",
        flags=(),
        symbol=symbol,
        target=compiler.host,
        configuration=Configuration(),
        facts=UnitFacts(launch=launch, parameters=()),
    )
    return compiler.submit(request).result().binary


def test_optimizer_limits(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_timeout_s", 3.0)
    with pytest.raises(BuildError, match=r"took longer|ended the compiler"):
        built(compiler, UNROLLED)
    monkeypatch.undo()
    assert built(compiler, "__global__ void k(float* x) { x[0] = 1; }").image


# -- the allow-list: source and IR that would reach beyond the kernel -------------------------------------------------

REFUSED = "which the CPU device does not support"
KERNEL = "__global__ void k(float* x) {{ {} }}"
SOURCES = {
    "inline assembly": KERNEL.format('asm volatile("exit;");'),
    "assembly that includes a file": KERNEL.format('asm volatile(".incbin \\"/etc/passwd\\"");'),
    "an external function": 'extern "C" __device__ int system(const char*);\n' + KERNEL.format('x[0] = system("id");'),
    "a pointer from an integer": KERNEL.format("*(volatile int*)(long)(0x7f0000000000 + threadIdx.x) = 1;"),
    "a function pointer from memory": KERNEL.format("(*(void (**)())x)();"),
    "a function pointer from an integer": KERNEL.format("((void (*)(int))0x400000)(1);"),
    "a virtual function": "struct S { __device__ virtual void f(); };\n" + KERNEL.format("((S*)x)->f();"),
    "malloc": KERNEL.format("x[0] = *(float*)malloc(4);"),
    "the address of the code": KERNEL.format("x[0] = *(float*)&&here; here:;"),
}


@pytest.mark.parametrize("text", SOURCES.values(), ids=SOURCES.keys())
def test_allow_list_on_source(text: str, compiler: Compiler) -> None:
    with pytest.raises(Unsupported, match=REFUSED):
        built(compiler, text)


IR = """target triple = "nvptx64-nvidia-cuda"
{outside}
define ptx_kernel void @k(ptr %x) {header}{{
{body}
  ret void
}}"""
BODIES = {
    "asm": '  call void asm sideeffect "syscall", ""()',
    "inttoptr": "  %p = inttoptr i64 4096 to ptr\n  store i32 1, ptr %p",
    "constant inttoptr": "  store i32 1, ptr inttoptr (i64 4096 to ptr)",
    "indirect call": "  %f = load ptr, ptr %x\n  call void %f()",
    "external call": "  %r = call i32 @system(ptr %x)",
    "call through a bad name": '  call void @"memcpy\\00x"()',
    "read_register": "  %r = call i64 @llvm.read_register.i64(metadata !0)",
    "write_register": "  call void @llvm.write_register.i64(metadata !0, i64 0)",
    "returnaddress": "  %r = call ptr @llvm.returnaddress(i32 0)",
    "frameaddress": "  %r = call ptr @llvm.frameaddress.p0(i32 0)",
    "thread pointer": "  %r = call ptr @llvm.thread.pointer()",
    "time stamp": "  %r = call i64 @llvm.readcyclecounter()",
    "stack restore": "  call void @llvm.stackrestore.p0(ptr %x)",
    "trampoline": "  call void @llvm.init.trampoline(ptr %x, ptr %x, ptr %x)",
    "longjmp": "  call void @llvm.eh.sjlj.longjmp(ptr %x)",
    "clear cache": "  call void @llvm.clear_cache(ptr %x, ptr %x)",
    "x86 instruction": "  call void @llvm.x86.wrfsbase.64(i64 0)",
    "va_arg": "  %r = va_arg ptr %x, i64",
}
DECLARED = """declare i32 @system(ptr)
declare void @"memcpy\\00x"()
declare i64 @llvm.read_register.i64(metadata)
declare void @llvm.write_register.i64(metadata, i64)
declare ptr @llvm.returnaddress(i32)
declare ptr @llvm.frameaddress.p0(i32)
declare ptr @llvm.thread.pointer()
declare i64 @llvm.readcyclecounter()
declare void @llvm.stackrestore.p0(ptr)
declare void @llvm.init.trampoline(ptr, ptr, ptr)
declare void @llvm.eh.sjlj.longjmp(ptr)
declare void @llvm.clear_cache(ptr, ptr)
declare void @llvm.x86.wrfsbase.64(i64)
!0 = !{!"rsp"}"""
OUTSIDE = {
    "module assembly": 'module asm ".incbin \\"/etc/passwd\\""',
    "constructor": "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
    "[{ i32, ptr, ptr } { i32 1, ptr @k, ptr null }]",
    "section": '@s = global i32 1, section ".init_array"',
    "alias": "@t = global i32 1\n@s = alias i32, ptr @t",
    "thread_local": "@s = thread_local global i32 1",
    "extern_weak": "@s = extern_weak global i32",
}


def test_allow_list_lets_kernels_through() -> None:
    assert "@r3_run_block" in lowered(IR.format(outside=DECLARED, header="", body="  store i32 1, ptr %x"), "k").ir


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_allow_list_on_ir(body: str) -> None:
    with pytest.raises(Unsupported, match=REFUSED):
        lowered(IR.format(outside=DECLARED, header="", body=body), "k")


@pytest.mark.parametrize("outside", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_allow_list_outside_the_kernel(outside: str) -> None:
    body = "  %v = load i32, ptr @s\n  store i32 %v, ptr %x" if "@s" in outside else "  store i32 1, ptr %x"
    with pytest.raises(Unsupported, match=REFUSED):
        lowered(IR.format(outside=outside, header="", body=body), "k")


def test_allow_list_on_headers() -> None:
    with pytest.raises(Unsupported, match=REFUSED):
        lowered(IR.format(outside="", header='section ".init" ', body=""), "k")
