"""Of kernels that nobody asked for no code is made, and nothing else changes by it."""

from __future__ import annotations

import re

import pytest

from r3bench import frontend
from r3bench.errors import BuildError
from r3bench.frontend import alone

KEPT = 'extern "C" __global__ void kept(float* y) {\n  y[0] = 1;\n}\n'
OTHER = "extern \"C\" __global__ void other(float* y) {\n  if (y[0] > 0) { y[1] = 2; } // }\n  y[0] = '{';\n}\n"


def inline(text: str) -> str:
    return text.replace("__global__", "__device__ inline")


@pytest.mark.parametrize(
    "other",
    [
        OTHER,
        OTHER.replace("void other", "void __launch_bounds__(64) other"),
        OTHER.replace("__global__ void", "__global__ __launch_bounds__(64, 2) void"),
        OTHER.replace('extern "C"', "static"),
        f"namespace n {{\n{OTHER}}}\n",
        'extern "C" __global__ void other(float* y);\n' + OTHER,
        "template <typename T> __global__ void other(T* y) { *y = 0; }\n",
        OTHER.replace("y[0] = ", "__shared__ float s[2]; __syncthreads(); y[0] = s[threadIdx.x] + "),
        OTHER.replace("y[0] = ", "\n#define MORE 1\n y[0] = "),
    ],
)
def test_other_kernels_are_read_and_left_out(other: str) -> None:
    for text, expected in ((KEPT + other, KEPT + inline(other)), (other + KEPT, inline(other) + KEPT)):
        assert alone.with_one_kernel(text, "kept") == expected
        assert frontend.kernels(frontend.compile_ir({"k.cu": expected}, "k.cu")) == ("kept",)


@pytest.mark.parametrize(
    "other",
    [
        "void host() { kept<<<1, 1>>>(nullptr); }\n" + OTHER,
        OTHER.replace("'{'", 'R"(})"[0]'),
        OTHER.replace(" {\n", " __attribute__((unused)) {\n", 1),
        '#define KERNEL extern "C" __global__\nKERNEL void other(float* y) { y[0] = 2; }\n',
        "__device__ void other(float* y) { y[0] = 2; } // a __global__ function\n",
    ],
)
def test_what_is_out_of_the_ordinary_stays(other: str) -> None:
    assert alone.with_one_kernel(other + KEPT, "kept") == other + KEPT


def test_all_stays_where_the_kernel_is_not_found() -> None:
    assert alone.with_one_kernel(KEPT + OTHER, "third") == KEPT + OTHER


def test_a_mangled_kernel_and_its_overloads_are_kept() -> None:
    plain = (KEPT + KEPT.replace("float", "int") + OTHER).replace('extern "C" ', "")
    at = plain.index("__global__ void other")
    assert alone.with_one_kernel(plain, "_Z4keptPf") == plain[:at] + inline(plain[at:])


def test_the_kernel_is_compiled_to_the_same() -> None:
    files = {"k.cu": OTHER + KEPT}
    whole, part = (frontend.compile_ir(files, "k.cu", kernel=kernel) for kernel in ("", "kept"))
    assert (frontend.kernels(whole), frontend.kernels(part)) == (("other", "kept"), ("kept",))
    body = re.compile(r"^define [^\n]*@kept.*?^}", re.DOTALL | re.MULTILINE)
    assert body.findall(whole) == body.findall(part) != []


@pytest.mark.parametrize(
    "other",
    [
        "struct S { int n; };\n__global__ void other(const __grid_constant__ S s) {}\n",
        "template <typename T> __global__ void other(T* y) { *y = 0; }\ntemplate __global__ void other(float* y);\n",
    ],
)
def test_what_only_a_kernel_may_have_is_compiled_as_it_is(other: str) -> None:
    whole, part = (frontend.compile_ir({"k.cu": other + KEPT}, "k.cu", kernel=kernel) for kernel in ("", "kept"))
    assert part == whole


@pytest.mark.parametrize("wrong", ["nothing", "kept(y)"])
def test_errors_are_those_of_the_whole_source(wrong: str) -> None:
    files = {"k.cu": OTHER.replace("'{'", wrong) + KEPT}
    said = []
    for kernel in ("kept", ""):
        with pytest.raises(BuildError) as raised:
            frontend.compile_ir(files, "k.cu", kernel=kernel)
        said.append(raised.value.diagnostics)
    assert said[0] == said[1]
    assert said[0][0].line == 3
