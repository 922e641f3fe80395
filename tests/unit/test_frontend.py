"""CUDA C++ to IR: every feature of the prelude compiles, and every error is the user's, at the user's place."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from r3bench import frontend
from r3bench.errors import BuildError, Diagnostic, Unsupported
from r3bench.frontend import compile_ir, kernels, parameters, readable_name
from r3bench.model import Parameter

SCALE = "__global__ void scale(float* x, float a, int n) { int i = threadIdx.x; if (i < n) x[i] = a * x[i]; }"


def compiled(text: str, **options: object) -> str:
    return compile_ir({"k.cu": text}, "k.cu", **options)  # type: ignore[arg-type]


def body(statements: str, head: str = "") -> str:
    """A kernel with an array of every common type and the given statements."""
    arrays = (
        "float* f, double* d, int* i, unsigned* u, long long* l, unsigned long long* ul, short* s, unsigned char* c"
    )
    return f"{head}\n__global__ void k({arrays}) {{ int t = threadIdx.x; {statements} }}"


_TEXT = (Path(__file__).parent / "prelude_features.cu").read_text()
_ARRAYS, *_SECTIONS = _TEXT.split("//// ")
FEATURES = {name: _ARRAYS + text for name, text in (section.split("\n", 1) for section in _SECTIONS)}
SHUFFLES = (
    "int",
    "unsigned",
    "long",
    "unsigned long",
    "long long",
    "unsigned long long",
    "float",
    "double",
    "half",
    "half2",
)
FEATURES |= {
    f"shuffle {kind}": f"""#include <cuda_fp16.h>
__global__ void k({kind}* x) {{
  {kind} v = x[threadIdx.x];
  x[0] = __shfl_sync(~0u, v, 3);
  x[1] = __shfl_up_sync(~0u, v, 1);
  x[2] = __shfl_down_sync(~0u, v, 1, 16);
  x[3] = __shfl_xor_sync(~0u, v, 4);
}}"""
    for kind in SHUFFLES
}
FEATURES |= {
    f"atomics {kind}{scope}": f"""__global__ void k({kind}* x, {kind} v) {{
  x[1] = atomicAdd{scope}(x, v) + atomicSub{scope}(x, 1) + atomicMin{scope}(x, v) + atomicMax{scope}(x, v);
  x[2] = atomicAnd{scope}(x, v) + atomicOr{scope}(x, v) + atomicXor{scope}(x, v) + atomicExch{scope}(x, v);
  x[3] = atomicCAS{scope}(x, v, 2);
}}"""
    for kind in ("int", "unsigned", "long long", "unsigned long long")
    for scope in ("", "_block", "_system")
}
MATH1 = """acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx
erfinv exp exp10 exp2 expm1 fabs floor j0 j1 lgamma log log10 log1p log2 logb nearbyint normcdf normcdfinv rcbrt rint
round rsqrt sin sinh sinpi sqrt tan tanh tgamma trunc y0 y1"""
MATH2 = "atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder rhypot"
FEATURES |= {
    "math of one": body(
        "".join(f"f[t] = {n}f(f[t]) + {n}(f[0]); d[t] = {n}(d[t]) + std::{n}(3);" for n in MATH1.split())
    ),
    "math of two": body(
        "".join(f"f[t] = {n}f(f[t], 1) + {n}(f[0], f[1]); d[t] = {n}(d[t], f[1]);" for n in MATH2.split())
    ),
}

# Code generation aborts the whole process when it fails, so it runs in one of its own.
_TO_PTX = """
import json, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets(); llvm.initialize_all_asmprinters()
machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu="sm_90", features="+ptx78", opt=1)
out = {}
for name, ir in json.load(sys.stdin).items():
    print(name, file=sys.stderr)
    module = llvm.parse_assembly(ir)
    module.verify()
    out[name] = machine.emit_assembly(module)
print(json.dumps(out))
"""


def to_ptx(irs: dict[str, str]) -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", _TO_PTX], input=json.dumps(irs), capture_output=True, text=True)
    assert done.returncode == 0, f"code generation failed after {done.stderr.splitlines()[-3:]}"
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("feature", FEATURES)
def test_feature_compiles_to_ir(feature: str) -> None:
    assert kernels(compiled(FEATURES[feature]))


def test_features_compile_to_ptx() -> None:
    chosen = [
        name for name in FEATURES if not name.startswith(("math ", "atomics")) or name in ("math exp", "math pow")
    ]
    chosen += ["atomics float", "atomics counting", "atomics int", "atomics unsigned long long_system"]
    ptx = to_ptx({name: compiled(FEATURES[name]) for name in chosen})
    assert all(".entry" in text for text in ptx.values())
    assert "bar.sync" in ptx["static shared"]
    assert "shfl.sync.bfly" in ptx["shuffle double"]
    assert "atom.global.add.f64" in ptx["atomics float"] or "atom.add.f64" in ptx["atomics float"]
    assert "fma.rn.f16" in ptx["half"]
    assert "ld.global.nc" in ptx["cache hints"]


def test_ptx_is_accepted_by_ptxas(tmp_path: Path) -> None:
    ptxas = shutil.which("ptxas")
    if not ptxas:
        pytest.skip("ptxas is not installed")
    # All in one module: starting ptxas is slow. What calls libdevice is left out: it is not linked here.
    chosen = [
        "barriers",
        "votes",
        "match",
        "reduce",
        "cache hints",
        "clocks",
        "integers",
        "assert",
        "structs",
        "vectors",
    ]
    chosen += ["shuffle half2", "atomics int_system", "atomics float", "atomics counting", "launch bounds"]
    text = "\n".join(FEATURES[name].replace("void k(", f"void k{n}(") for n, name in enumerate(chosen))
    source = tmp_path / "k.ptx"
    source.write_text(to_ptx({"all": compiled(text)})["all"])
    done = subprocess.run([ptxas, "-arch=sm_90", source, "-o", tmp_path / "k.cubin"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- what the IR is --------------------------------------------------------------------------------------------------


def test_ir_is_the_kernels_own_and_names_nothing_of_this_machine() -> None:
    ir = compiled(SCALE + body("assert(t < 3);"))
    assert "define dso_local ptx_kernel void @_Z5scalePffi(ptr noundef %x, float noundef %a, i32 noundef %n)" in ir
    assert 'target triple = "nvptx64-nvidia-cuda"' in ir
    assert str(frontend.PRELUDE) not in ir
    assert tempfile.gettempdir() not in ir
    assert "llvm.loop.unroll.disable" not in ir
    assert "frame-pointer" not in ir


def test_equal_sources_give_equal_ir() -> None:
    assert compiled(SCALE) == compiled(SCALE)


def test_exact_operations_are_intrinsics_and_others_libdevice() -> None:
    ir = compiled(body("f[t] = sqrtf(f[0]) + fmaf(f[0], f[1], f[2]) + floorf(f[3]) + expf(f[4]); d[t] = tanh(d[0]);"))
    for name in ("@llvm.sqrt.f32", "@llvm.fma.f32", "@llvm.floor.f32", "@__nv_expf", "@__nv_tanh"):
        assert name in ir
    attributes = re.search(r"declare noundef float @__nv_expf\(float noundef\) (#\d+)", ir)
    assert attributes
    assert re.search(rf"attributes {attributes[1]} = {{[^}}]*nounwind[^}}]*memory\(none\)", ir)


def test_sums_are_contracted_except_where_rounding_is_asked_for() -> None:
    assert "fadd contract float" in compiled(body("f[t] = f[0] * f[1] + f[2];"))
    plain = compiled(body("f[t] = __fadd_rn(__fmul_rn(f[0], f[1]), f[2]);"))
    assert "contract float %" not in re.sub(r"call contract", "call", plain)


def test_static_kernels_have_the_names_of_nvcc() -> None:
    ir = compiled("static __global__ void init(int* x) { x[0] = 1; }\n" + "__global__ void other(int* x) { x[0] = 2; }")
    assert sorted(kernels(ir)) == ["_Z4initPi", "_Z5otherPi"]


def test_launch_bounds_are_kept() -> None:
    ir = compiled(FEATURES["launch bounds"])
    assert '"nvvm.maxntid"="128"' in ir
    assert '"nvvm.minctasm"="4"' in ir


def test_template_kernels_are_instantiated_by_name() -> None:
    text = "namespace ns { template <class T, int N> __global__ void fill(T* x) { x[0] = N; } }"
    assert kernels(compiled(text)) == ()
    ir = compiled(text, instantiate=["ns::fill<float, 3>", "ns::fill<int, 4>"])
    assert kernels(ir) == ("_ZN2ns4fillIfLi3EEEvPT_", "_ZN2ns4fillIiLi4EEEvPT_")


# -- parameters ------------------------------------------------------------------------------------------------------


def test_parameters() -> None:
    text = """
    struct P { double a; int n; float w[3]; const float* x; };
    struct __align__(16) V { float a, b, c, d; };
    struct H { _Float16 value; };
    enum E { A, B };
    typedef float real;
    extern "C" __global__ void k(
        const real* const __restrict__ x, float*, real a, bool b, unsigned char c, P p, float4 v, V w, H* h, E e,
        void* q, const double2* d, int** pp, const long long n, __bf16* g, volatile char* s) {}
    """
    expected = [
        Parameter(name="x", offset=0, size=8, kind="pointer", dtype="float32", const=True, restrict=True),
        Parameter(name="arg1", offset=8, size=8, kind="pointer", dtype="float32"),
        Parameter(name="a", offset=16, size=4, kind="scalar", dtype="float32"),
        Parameter(name="b", offset=20, size=1, kind="scalar", dtype="bool"),
        Parameter(name="c", offset=21, size=1, kind="scalar", dtype="uint8"),
        Parameter(name="p", offset=24, size=32, kind="struct"),
        Parameter(name="v", offset=64, size=16, kind="struct"),
        Parameter(name="w", offset=80, size=16, kind="struct"),
        Parameter(name="h", offset=96, size=8, kind="pointer", dtype="float16"),
        Parameter(name="e", offset=104, size=4, kind="scalar", dtype="uint32"),
        Parameter(name="q", offset=112, size=8, kind="pointer"),
        Parameter(name="d", offset=120, size=8, kind="pointer", dtype="float64", const=True),
        Parameter(name="pp", offset=128, size=8, kind="pointer", dtype="uint64"),
        Parameter(name="n", offset=136, size=8, kind="scalar", dtype="int64"),
        Parameter(name="g", offset=144, size=8, kind="pointer", dtype="uint16"),
        Parameter(name="s", offset=152, size=8, kind="pointer", dtype="int8"),
    ]
    assert list(parameters(compiled(text, debug=True), "k")) == expected


def test_parameters_of_templates_and_readable_names() -> None:
    text = "namespace ns { template <class T> __global__ void k(T* x, T a, int n) {} }"
    ir = compiled(text, debug=True, instantiate=["ns::k<double>"])
    (symbol,) = kernels(ir)
    assert readable_name(ir, symbol) == "ns::k<double>"
    assert [(p.name, p.offset, p.dtype) for p in parameters(ir, symbol)] == [
        ("x", 0, "float64"),
        ("a", 8, "float64"),
        ("n", 16, "int32"),
    ]


def test_a_kernel_without_parameters() -> None:
    ir = compiled("__device__ int n; __global__ void k() { n = 1; }", debug=True)
    assert parameters(ir, "_Z1kv") == ()


def test_parameters_need_types_and_a_kernel() -> None:
    with pytest.raises(ValueError, match="debug=True"):
        parameters(compiled(SCALE), "_Z5scalePffi")
    with pytest.raises(KeyError):
        parameters(compiled(SCALE, debug=True), "nothing")


# -- files and flags -------------------------------------------------------------------------------------------------


def test_a_byte_order_mark_is_no_part_of_a_source() -> None:
    header = "__device__ float twice(float x) { return 2 * x; }"
    text = '#include "h.cuh"\n__global__ void k(float* x) { *x = twice(*x); }'
    plain = compile_ir({"k.cu": text, "h.cuh": header}, "k.cu")
    assert compile_ir({"k.cu": f"\ufeff{text}", "h.cuh": f"\ufeff{header}"}, "k.cu") == plain
    with pytest.raises(BuildError, match=r"^k\.cu:1:1: "):
        compiled("\ufeffnonsense;")


def test_several_files_in_folders() -> None:
    files = {
        "src/k.cu": '#include "detail/a.cuh"\n#include <b.cuh>\n__global__ void k(float* x) { x[0] = a() + b() + N; }',
        "src/detail/a.cuh": '#include "../../include/c.cuh"\n__device__ float a() { return 1; }',
        "include/b.cuh": "__device__ float b() { return 2; }",
        "include/c.cuh": "#pragma once\n",
    }
    ir = compile_ir(files, "src/k.cu", flags=["-I", "include", "-DN=40"])
    assert "4.000000e+01" in ir


@pytest.mark.parametrize(
    "flags",
    [
        [
            "-O3",
            "-arch=sm_90",
            "--expt-relaxed-constexpr",
            "-Xcompiler",
            "-fopenmp",
            "-Xptxas=-v",
            "-lineinfo",
            "-w",
            "-Wall",
        ],
        [
            "-gencode",
            "arch=compute_90,code=sm_90",
            "-rdc=true",
            "--std=c++14",
            "-m64",
            "-maxrregcount=64",
            "--extended-lambda",
        ],
        ["-std=c++20", "-U", "N", "--ftz=false", "-prec-div=true", "-isystem", "include"],
    ],
)
def test_flags_of_nvcc_are_understood(flags: list[str]) -> None:
    assert compiled(SCALE, flags=flags) == compiled(SCALE)


def test_fast_math() -> None:
    text = body("f[t] = expf(f[0]) + sin(f[1]); d[t] = exp(d[0]);")
    fast = compiled(text, flags=["--use_fast_math"])
    assert {"@__nv_fast_expf", "@__nv_fast_sinf", "@__nv_exp"} <= set(re.findall(r"@__nv_\w+", fast))
    assert re.search(r'"denormal-fp-math-f32"="preserve-sign|denormal_fpenv\(.*float: preservesign', fast)
    assert "afn" in fast
    assert "@__nv_fast" not in compiled(text)


def test_fused_multiply_add_can_be_forbidden() -> None:
    assert "contract" not in compiled(body("f[t] = f[0] * f[1] + f[2];"), flags=["-fmad=false"])


def test_definitions_reach_the_prelude() -> None:
    assert "__assertfail" not in compiled(FEATURES["assert"], flags=["-DNDEBUG"])


@pytest.mark.parametrize(
    "flags", [["-I/usr/include"], ["-I", "../.."], ["-include", "/etc/passwd"], ["-isystem", "a/../../b"], ["-I"]]
)
def test_flags_that_lead_out_of_the_source_tree_are_refused(flags: list[str]) -> None:
    with pytest.raises(BuildError, match="leads out of the source tree"):
        compiled(SCALE, flags=flags)


def test_unknown_flags_are_refused_by_name() -> None:
    with pytest.raises(BuildError, match=r"-fplugin=x\.so is not known"):
        compiled(SCALE, flags=["-fplugin=x.so"])


@pytest.mark.parametrize("path", ["/tmp/k.cu", "../k.cu", "a/../../k.cu"])
def test_source_paths_that_lead_out_of_the_tree_are_refused(path: str) -> None:
    with pytest.raises(BuildError, match="leads out of the source tree"):
        compile_ir({path: SCALE}, path)


def test_headers_of_the_host_are_not_found() -> None:
    with pytest.raises(BuildError, match=r"'linux/types\.h' file not found"):
        compiled("#include <linux/types.h>\n" + SCALE)


@pytest.mark.parametrize("name", ["__DATE__", "__TIME__", "__TIMESTAMP__"])
@pytest.mark.parametrize(
    "head",
    ["", '#pragma clang diagnostic ignored "-Weverything"', '#pragma push_macro("NAME")\n#pragma pop_macro("NAME")'],
)
def test_the_time_of_the_build_is_refused(name: str, head: str) -> None:
    with pytest.raises(BuildError, match=f"{name} is the time of the build, which no kernel may go by: take it out"):
        compiled(f"{head.replace('NAME', name)}\n__global__ void k(char* x) {{ x[0] = {name}[3]; }}")


# -- errors ----------------------------------------------------------------------------------------------------------


def failure(files: dict[str, str], main: str = "k.cu") -> BuildError:
    with pytest.raises(BuildError) as caught:
        compile_ir(files, main)
    assert tempfile.gettempdir() + "/" not in str(caught.value)
    assert str(frontend.PRELUDE) not in str(caught.value)
    return caught.value


def test_errors_have_the_line_and_column_of_the_user() -> None:
    error = failure({"k.cu": "// one\n__global__ void k(float* x) {\n  x[0] = y;\n  int a = ;\n}"})
    assert type(error) is BuildError
    assert error.diagnostics == (
        Diagnostic("k.cu", 3, 10, "use of undeclared identifier 'y'"),
        Diagnostic("k.cu", 4, 11, "expected expression"),
    )
    assert str(error) == "k.cu:3:10: use of undeclared identifier 'y' (and 1 more)"


def test_errors_in_included_files_name_them() -> None:
    error = failure({"src/k.cu": '#include "detail/a.cuh"\n' + SCALE, "src/detail/a.cuh": "\nint f = ;"}, "src/k.cu")
    assert (error.diagnostics[0].file, error.diagnostics[0].line) == ("src/detail/a.cuh", 2)


def test_errors_found_in_the_prelude_are_placed_where_it_was_called() -> None:
    error = failure(
        {"k.cu": "struct S { int a; };\n\n__global__ void k(S* x) {\n  x[0] = __shfl_sync(~0u, x[1], 0);\n}"}
    )
    assert [(d.line, d.column) for d in error.diagnostics] == [(4, 10)]
    assert "__shfl_sync moves arithmetic types only" in str(error)


def test_errors_in_instantiated_kernels_name_the_users_file() -> None:
    text = "template <class T> __global__ void k(T* x) {\n  x->none = 1;\n}"
    with pytest.raises(BuildError) as caught:
        compiled(text, instantiate=["k<float>"])
    assert caught.value.diagnostics[0].line == 2
    with pytest.raises(BuildError, match=r"k\.cu:1:1: cannot be instantiated as asked: .*'absent'"):
        compiled(text, instantiate=["absent<float>"])


def test_at_most_20_errors_are_kept() -> None:
    error = failure({"k.cu": "".join(f"int a{n} = b{n};\n" for n in range(50))})
    assert len(error.diagnostics) == 20


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (body("f[t] = tex2D<float>(0, 1, 2);"), "'tex2D' needs textures"),
        ("__global__ void k(cudaTextureObject_t t) {}", "'cudaTextureObject_t' needs textures"),
        (body("surf2Dwrite(1, 2, 3, 4);"), "'surf2Dwrite' needs surfaces"),
        ("#include <cooperative_groups.h>\n", "'cooperative_groups.h' needs cooperative groups"),
        ("#include <mma.h>\n", "'mma.h' needs tensor-core"),
        ("#include <cub/cub.cuh>\n", "'cub/cub.cuh' needs the CUB library"),
        ("#include <thrust/device_vector.h>\n", "needs the Thrust library"),
        ("#include <cuda/std/array>\n", "'cuda/std/array' needs the libcu"),
        ("#include <curand_kernel.h>\n", "needs the cuRAND library"),
        ("#include <cuda_fp8.h>\n", "'cuda_fp8.h' needs 8-bit"),
        (body("u[t] = __vadd4(u[0], u[1]);"), "'__vadd4' needs SIMD-in-a-word"),
        (body("u[t] = __shfl(u[0], 1);"), "'__shfl' needs this intrinsic"),
        ("#include <vector>\n", "<vector> is a header of the host's libraries"),
        ("#include <iostream>\n", "<iostream> is a header of the host's libraries"),
        ("#include <sys/time.h>\n", "<sys/time.h> is a header of the host's libraries"),
    ],
)
def test_what_the_prelude_lacks_is_named(text: str, what: str) -> None:
    error = failure({"k.cu": text})
    assert isinstance(error, Unsupported)
    assert what in str(error)
    assert error.diagnostics[0].file == "k.cu"


def test_the_users_own_mistakes_are_not_called_unsupported() -> None:
    assert type(failure({"k.cu": '#include "mine.cuh"\n'})) is BuildError
    assert type(failure({"k.cu": body("f[t] = undefined_name;")})) is BuildError
    assert type(failure({"k.cu": body("f[t] = min(1, 2.0f);")})) is BuildError


def test_a_compiler_that_takes_too_long_is_stopped() -> None:
    slow = "template <int N> struct A { static constexpr int v = A<N - 1>::v + A<N - 2>::v; };\n"
    with pytest.raises(BuildError, match=r"k.cu: the compiler took longer than 0\.001 s"):
        compiled(slow, timeout_s=0.001)


def test_no_source_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    compiled(SCALE)
    with pytest.raises(BuildError):
        compiled("int f( {}")
    assert list(tmp_path.iterdir()) == []


# -- the precompiled prelude -----------------------------------------------------------------------------------------


def test_the_prelude_is_parsed_once_per_dialect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ir = compiled(SCALE)
    (built,) = (tmp_path / "r3bench").iterdir()
    assert compiled(SCALE) == ir
    assert list((tmp_path / "r3bench").iterdir()) == [built]
    compiled(SCALE, flags=["-use_fast_math"])
    assert len(list((tmp_path / "r3bench").iterdir())) == 2


def test_a_damaged_precompiled_prelude_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ir = compiled(SCALE)
    (built,) = (tmp_path / "r3bench").iterdir()
    os.truncate(built, 1000)
    assert compiled(SCALE) == ir


def test_without_a_cache_the_prelude_is_parsed_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert kernels(compiled(SCALE)) == ("_Z5scalePffi",)
    assert failure({"k.cu": "int f( {}"}).diagnostics[0].line == 1


def test_the_compiler_is_named() -> None:
    assert re.fullmatch(r"clang version \d+\.\d+\.\d+", frontend.compiler_version())
    assert frontend.find_compiler().is_file()
