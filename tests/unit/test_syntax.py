"""Reading CUDA C++: which kernels a text defines, what their parameters say, edits by byte range."""

from __future__ import annotations

from random import Random

import pytest

from r3bench import syntax
from r3bench.errors import BuildError
from r3bench.syntax import Edit

TEXT = """\
#include <cuda_runtime.h>
// __global__ void commented(int n) {}
__device__ float twice(float x) { return 2 * x; }

extern "C" __global__ void __launch_bounds__(256, 2)
scale(const float *x, float* __restrict__ y, double *const z, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(factor) * x[i];
}

namespace deep {
template <typename T> __global__ void fill(T* to, volatile int* flag, int (&table)[4], T **rows) { to[0] = T(); }
}
__global__ void declared(int n);
"""


def test_kernels_are_the_global_functions_that_have_a_body() -> None:
    assert syntax.kernels(TEXT) == ("scale", "fill")
    assert [f.name for f in syntax.functions(TEXT)] == ["twice", "scale", "fill"]
    assert syntax.kernels("") == ()


def test_a_kernel_has_its_span_and_its_parameters() -> None:
    kernel = syntax.find_kernel(TEXT, "scale")
    assert kernel.span == (5, 10)
    assert not kernel.broken
    x, y, z, factor, n = kernel.parameters
    assert (x.name, x.type, x.pointer, x.const, x.restrict) == ("x", "float", True, True, False)
    assert (y.name, y.pointer, y.const, y.restrict) == ("y", True, False, True)
    assert (z.name, z.type, z.const) == ("z", "double", False), "the pointer is const, not what it points to"
    assert (factor.name, factor.type, factor.pointer) == ("factor", "float", False)
    assert n.text == "int n"
    assert TEXT.encode()[x.start : x.end] == b"const float *x"
    assert TEXT.encode()[x.name_at :].startswith(b"x, float*")


def test_volatile_references_and_pointers_to_pointers_are_told_apart() -> None:
    to, flag, table, rows = syntax.find_kernel(TEXT, "fill").parameters
    assert to.pointer
    assert flag.pointer
    assert flag.volatile
    assert table.reference
    assert not table.pointer
    assert not rows.pointer, "a pointer to a pointer is nothing that restrict could be added to"


def test_a_kernel_is_found_in_the_main_file_or_in_what_it_includes() -> None:
    files = {"a.cuh": TEXT, "main.cu": '#include "a.cuh"\n'}
    assert syntax.file_of(files, "main.cu", "fill") == "a.cuh"
    assert syntax.file_of(files | {"main.cu": TEXT}, "main.cu", "fill") == "main.cu"
    with pytest.raises(BuildError, match=r"main\.cu, with the files that it includes, does not define the kernel gone"):
        syntax.file_of(files, "main.cu", "gone")
    assert (syntax.span_of(TEXT, "fill"), syntax.span_of(TEXT, "gone")) == ((13, 13), (1, 15))


NAMESPACES = """\
__global__ void step(int* a) { a[0] = 0; }
namespace one { __global__ void step(int* a) { a[0] = 1; } }
namespace two { namespace three {
__global__ void step(int* a) { a[0] = 2; }
} }
namespace two::four { __global__ void step(int* a) { a[0] = 3; } }
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [("step", 1), ("one::step", 2), ("two::three::step", 4), ("two::four::step", 6), ("gone::step", 1)],
)
def test_of_several_kernels_with_one_name_the_one_in_its_namespaces_is_found(name: str, line: int) -> None:
    assert syntax.span_of(NAMESPACES, name) == (line, line)
    one, other = (f"namespace {space} {{\n__global__ void step(int* a) {{}}\n}}\n" for space in ("one", "gone"))
    files = {"m.cu": "", "a.cuh": NAMESPACES.replace("namespace one", "namespace five"), "b.cuh": one, "c.cuh": other}
    assert syntax.file_of(files, "m.cu", name) == {"one::step": "b.cuh", "gone::step": "c.cuh"}.get(name, "a.cuh")


def test_a_missing_kernel_is_the_candidates_fault_and_named() -> None:
    with pytest.raises(BuildError, match=r"k\.cu does not define the kernel gone \(it defines: scale, fill\)"):
        syntax.find_kernel(TEXT, "gone", file="k.cu")
    with pytest.raises(BuildError, match="declared"):
        syntax.find_kernel(TEXT, "declared")
    with pytest.raises(BuildError, match="none"):
        syntax.find_kernel("int x;", "scale")


def test_a_kernel_is_found_where_the_rest_of_the_file_is_broken() -> None:
    broken = 'class {{{ ))) "unended\n template<<\n' + TEXT.replace("#include <cuda_runtime.h>", "é ]] <<< }")
    kernel = syntax.find_kernel(broken, "scale")
    assert broken.encode()[kernel.node.start_byte : kernel.node.end_byte].decode().endswith("x[i];\n}")
    assert broken.splitlines()[kernel.span[1] - 1] == "}"
    assert [p.name for p in kernel.parameters] == ["x", "y", "z", "factor", "n"]


def test_an_error_in_the_body_is_marked() -> None:
    assert syntax.find_kernel("__global__ void k(int n) { int = ; }", "k").broken


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("scale", "scale"),
        ("scale(float const*, int)", "scale"),
        ("void deep::fill<float>(float*)", "fill"),
        ("void (anonymous namespace)::outer::run<std::vector<int>, 3>(int)", "run"),
        ("", ""),
    ],
)
def test_the_plain_name_of_a_demangled_one(demangled: str, name: str) -> None:
    assert syntax.plain_name(demangled) == name


def test_edits_are_made_at_once_by_byte() -> None:
    text = "aé-bcd"
    assert syntax.apply(text, [Edit(4, 5, "X"), Edit(0, 1, "")]) == "é-Xcd"
    assert syntax.apply(text, [Edit(4, 4, "1"), Edit(4, 4, "2"), Edit(4, 5, "B")]) == "aé-12Bcd"
    assert syntax.apply(text, []) == text


@pytest.mark.parametrize("edits", [[Edit(0, 3, ""), Edit(2, 4, "")], [Edit(3, 2, "")], [Edit(5, 99, "")]])
def test_edits_that_overlap_or_leave_the_text_are_refused(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="overlaps another or lies outside"):
        syntax.apply("abcdef", edits)


PIECES = (
    "const int c = 1;\n",
    "\n}\n",
    "{",
    ")",
    "a < b > c",
    "float v = (x);",
    "// c\n",
    "/* \n\n",
    "é",
    "if (i) b = c;\n",
    "",
)


def nodes(text: str, like: str = "") -> list[tuple[object, ...]]:
    root = syntax.parse(text, like)
    return [(n.type, n.start_byte, n.end_byte, n.start_point, n.end_point, n.has_error) for n in syntax.walk(root)]


@pytest.mark.parametrize("seed", range(40))
def test_what_a_text_is_parsed_beside_changes_nothing(seed: int) -> None:
    random = Random(seed)
    like = changed = f"{TEXT}// {seed}\n"
    for _ in range(random.choice((1, 1, 3))):
        at = random.randrange(len(changed) + 1)
        changed = changed[:at] + random.choice(PIECES) + changed[at + random.choice((0, 0, 1, 30)) :]
    beside = nodes(changed, like)
    syntax._recent.clear()
    assert beside == nodes(changed)


def test_a_text_that_is_forgotten_meanwhile_may_be_parsed_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = nodes(f"{TEXT}// two\n", TEXT)
    syntax._recent.clear()
    monkeypatch.setattr(syntax, "_RECENT", 0)  # as where another thread parses many
    assert beside == nodes(f"{TEXT}// two\n", TEXT)
