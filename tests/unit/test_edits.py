"""From answers to files: what is taken, what is refused and by which name."""

from __future__ import annotations

import pytest

from r3bench.errors import BadReply
from r3bench.evolve.edits import replaced, revised
from r3bench.evolve.opened import opened, shown, surroundings
from r3bench.model import LaunchConfig, LaunchRule

HEADER = """\
#pragma once
constexpr int N = 4;

// Twice a value.
__device__ float twice(float x) { return 2 * x; }
"""
MAIN = """\
#include "math.h"

__device__ float shift(float x) {
    return x + 1;
}

__device__ float unused(float x) { return x; }

extern "C" __global__ void other(float* a) { a[0] = shift(1); }

// Scales an array.
extern "C" __global__ void scale(float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        a[i] = twice(shift(b[i]));
    }
}
"""
FILES = {"kernels.cu": MAIN, "math.h": HEADER}
KERNEL = MAIN[MAIN.index("// Scales") :].rstrip("\n")
BETTER = KERNEL.replace("int i =", "const int i =")


def answer(code: str, prose: str = "CHANGE: the index is const.") -> str:
    return f"{prose}\n\n```cuda\n{code}\n```\n"


def made(text: str) -> dict[str, str]:
    return dict(revised(text, FILES, "kernels.cu", "scale").files)


def reason(text: str) -> str:
    with pytest.raises(BadReply) as caught:
        revised(text, FILES, "kernels.cu", "scale")
    return caught.value.reason


# -- what is open -----------------------------------------------------------------------------------------------------


def test_the_kernel_and_what_it_reaches_in_every_file_is_open() -> None:
    items = opened(FILES, "kernels.cu", "scale")
    assert [(item.path, item.name) for item in items] == [
        ("math.h", "twice"), ("kernels.cu", "shift"), ("kernels.cu", "scale"),
    ]  # fmt: skip
    text = shown(items)
    assert text.startswith("// file: math.h\n// Twice a value.\n__device__ float twice")
    assert text.endswith(KERNEL + "\n")


def test_the_surroundings_show_declarations_and_no_other_body() -> None:
    text = surroundings(FILES, "kernels.cu", "scale")
    assert "constexpr int N = 4;" in text
    assert "/* open: scale */" in text
    assert "void other(float* a) { ... }" in text
    assert "unused(float x) { ... }" in text
    assert "twice(shift" not in text


def test_a_comment_of_several_paragraphs_asks_the_compiler_nothing() -> None:
    remark = "/* once more:\n\n#include is never needed, nor __FILE__ */\n"
    assert remark in made(answer(BETTER.replace("    if (i < n)", f"    {remark}    if (i < n)")))["kernels.cu"]


# -- answers that are taken -------------------------------------------------------------------------------------------


def test_a_full_rewrite_changes_the_kernel_and_nothing_else() -> None:
    assert made(answer(BETTER)) == FILES | {"kernels.cu": MAIN.replace(KERNEL, BETTER)}


def test_an_answer_in_several_files_goes_where_its_functions_are() -> None:
    both = "// file: math.h\n__device__ float twice(float x) { return x + x; }\n\n// file: kernels.cu\n" + BETTER
    files = made(answer(both))
    assert files["math.h"].endswith("__device__ float twice(float x) { return x + x; }\n")
    assert files["kernels.cu"] == MAIN.replace(KERNEL, BETTER)


HALVES = {name: f"namespace {name} {{\n__device__ static float f(float x) {{\n    return x / {name[1:]};\n}}\n}}\n"
          for name in ("n2", "n3")}  # fmt: skip
TWINS = {
    **{f"{name}.cuh": text for name, text in HALVES.items()},
    "k.cu": '#include "n2.cuh"\n#include "n3.cuh"\n__global__ void k(float* a) { a[0] = n2::f(1) + n3::f(2); }\n',
}
KEPT, TIMES = ("__device__ static float f(float x) {\n    return x " + end + ";\n}" for end in ("/ 2", "* 3"))


@pytest.mark.parametrize(
    ("code", "file"),
    [
        (f"// file: n3.cuh\n{TIMES}", "n3.cuh"),
        (f"// file: n2.cuh \n{TIMES}", "n2.cuh"),
        (f"{KEPT}\n\n{TIMES}", "n3.cuh"),
        (f"{KEPT.replace('2', '3')}\n\n{TIMES}", "n2.cuh"),
        (f"// file: n2.cuh\n{TIMES}\n\n// file: n3.cuh\n{KEPT.replace('2', '3')}", "n2.cuh"),
        (f"// file: k.cu\n{TIMES}", "n3.cuh"),
    ],
)
def test_one_of_several_functions_with_one_name_goes_where_it_is(code: str, file: str) -> None:
    files = dict(revised(answer(code), TWINS, "k.cu", "k").files)
    assert [path for path in TWINS if files[path] != TWINS[path]] == [file]
    assert TIMES in files[file]


def test_a_function_that_an_answer_gives_twice_is_refused() -> None:
    assert reason(answer(f"{BETTER}\n\n{BETTER.replace('const int', 'unsigned')}")) == "defined twice"
    assert made(answer(f"{KERNEL}\n\n{BETTER}")) == made(answer(BETTER)), "what was there may stand beside it"


@pytest.mark.parametrize("windows", [("math.h",), ("kernels.cu",), ("math.h", "kernels.cu")])
def test_lines_end_as_those_of_their_file(windows: tuple[str, ...]) -> None:
    twice = "__device__ float twice(float x) {\n    return x + x;\n}"
    edit = answer(
        f"__device__ float half(float x) {{ return x / 2; }}\n\n{twice}\n\nconstexpr int WIDTH = 2;\n\n{BETTER}"
    )
    files = {path: text.replace("\n", "\r\n") if path in windows else text for path, text in FILES.items()}
    made = revised(edit, files, "kernels.cu", "scale")
    wanted = dict(revised(edit, FILES, "kernels.cu", "scale").files)
    assert dict(made.files) == {
        path: text.replace("\n", "\r\n") if path in windows else text for path, text in wanted.items()
    }


def test_new_functions_and_constants_go_in_front_of_what_follows_them() -> None:
    half = "__device__ float half(float x) { return x / WIDTH; }"
    new = f"constexpr int WIDTH = 2;\n\nstruct Pair {{ float x, y; }};\n\n{half}"
    text = made(answer(f"{new}\n\n{BETTER}"))["kernels.cu"]
    assert text == MAIN.replace(KERNEL, f"{new}\n\n{BETTER}")


def test_what_an_answer_repeats_of_the_surroundings_is_left_out() -> None:
    assert made(answer(MAIN.replace(KERNEL, BETTER)))["kernels.cu"] == MAIN.replace(KERNEL, BETTER)


def test_the_last_block_with_an_open_function_counts_and_prose_does_not() -> None:
    text = f"First\n```cuda\n{KERNEL}\n```\nbut better\n~~~\n{BETTER}\n~~~\nrun it with\n```sh\nmake\n```\n"
    revision = revised(text, FILES, "kernels.cu", "scale")
    assert dict(revision.files)["kernels.cu"] == MAIN.replace(KERNEL, BETTER)
    assert revision.description == "First"


def test_restrict_const_and_launch_bounds_are_no_change_of_the_signature() -> None:
    code = KERNEL.replace("float* a, const float* b", "float* __restrict__ a, const float* __restrict__ b")
    assert (
        "__restrict__ b" in made(answer(code.replace("void scale", "void __launch_bounds__(128) scale")))["kernels.cu"]
    )


def test_a_long_description_ends_with_a_whole_word() -> None:
    revision = revised(answer(BETTER, "CHANGE: " + "constants folded " * 100), FILES, "kernels.cu", "scale")
    assert len(revision.description) <= 600
    assert set(revision.description.split()) == {"constants", "folded", "..."}


def test_a_launch_is_read_with_its_block_and_work_per_thread() -> None:
    revision = revised(
        answer(BETTER, "CHANGE: four each.\nLAUNCH: block=128x1x1 per_thread=4x1x1"), FILES, "kernels.cu", "scale"
    )
    assert revision.launch == LaunchRule(block=(128, 1, 1), per_thread=(4, 1, 1))
    assert revision.description == "four each."
    assert revision.launch.apply(LaunchConfig(grid=(10, 1, 1), block=(256, 1, 1))).grid == (5, 1, 1)


def edit(search: str, replace: str) -> str:
    return f"CHANGE: x\n```\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```\n"


def test_search_and_replace_is_tolerant_of_white_space_and_keeps_the_indentation() -> None:
    files = made(edit("if (i<n) {\n    a[i] = twice( shift(b[i]) );\n}", "if (i < n) {\n    a[i] = shift(b[i]);\n}"))
    assert files["kernels.cu"] == MAIN.replace("a[i] = twice(shift(b[i]));", "a[i] = shift(b[i]);")


def test_several_edits_are_made_one_after_the_other() -> None:
    text = edit("return x + 1;", "return 1 + x;") + edit("return 2 * x;", "return x + x;")
    files = made(text)
    assert "return 1 + x;" in files["kernels.cu"]
    assert "__device__ float twice(float x) { return x + x; }" in files["math.h"]


def test_an_edit_that_removes_lines() -> None:
    assert replaced("a\n  b\n\n  c\nd\n", "b\nc\n", "") == "a\nd\n"


# -- answers that are refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  \n", "empty"),
        ("x" * 200_000, "too large"),
        ("I would use shared memory here.", "no code block"),
        (f"```cuda\n{BETTER}", "unfinished"),
        (answer("int x = 1;"), "no kernel"),
        (answer(BETTER.replace(" scale(", " scale2(")), "wrong kernel"),
        (answer(BETTER.replace("int n)", "long n)")), "changed signature"),
        (answer(BETTER.replace(", int n", "")), "changed signature"),
        (answer("#include <stdio.h>\n" + BETTER), "includes a file"),
        (answer(BETTER.replace("if (i < n)", 'printf("%d", i);\n    if (i < n)')), "prints"),
        (answer(BETTER.replace("if (i < n)", "#ifdef __clang__\n    if (i < n)\n#endif\n")), "asks the compiler"),
        (answer(BETTER.replace("if (i < n)", "/**/ #define dim3 int3\n    if (i < n)")), "asks the compiler"),
        (answer(BETTER.replace("if (i < n)", "%:define dim3 int3\n    if (i < n)")), "asks the compiler"),
        (answer(BETTER.replace("if (i < n)", "if (__FILE__[0] == 'k' && i < n)")), "asks the compiler"),
        (answer(BETTER.replace("if (i < n)", "if (__CUDA_ARCH__ == 900 && i < n)")), "asks the compiler"),
        (answer(BETTER.replace("if (i < n)", "if (__builtin_LINE() == 3 && i < n)")), "asks the compiler"),
        (answer(BETTER.replace("if (i < n)", '_Pragma("push_macro(\\"dim3\\")") if (i < n)')), "asks the compiler"),
        (answer("#define HALF 0.5\n" + BETTER), "asks the compiler"),
        (answer("__device__ int calls;\n" + BETTER), "keeps state"),
        (answer(BETTER.replace("if (i < n)", "static int calls;\n    if (i < n)")), "keeps state"),
        (answer("__device__ float unused(float x) { return 2 * x; }\n" + BETTER), "closed function"),
        (answer(KERNEL), "nothing changed"),
        (answer(KERNEL.replace("Scales", "Multiplies").replace("i < n", "i<n")), "nothing changed"),
        (answer(BETTER, "LAUNCH: block=2048x1x1"), "impossible launch"),
        (answer(BETTER.replace("int i", "int � i")), "not UTF-8"),
        (edit("a[i] = missing;", "a[i] = 0;"), "edit does not match"),
        (edit("}", ";}"), "edit is ambiguous"),
    ],
)  # fmt: skip
def test_refusals_by_name(text: str, expected: str) -> None:
    assert reason(text) == expected


def test_what_a_kernel_asked_before_and_unrolling_are_no_questions_to_the_compiler() -> None:
    asking = {"k.cu": "__global__ void k(int* a) {\n#ifdef BIG\n    a[0] = 2;\n#endif\n    a[1] = 1;\n}\n"}
    code = asking["k.cu"].replace("a[1] = 1;", "#pragma unroll\n    for (int i = 1; i < 2; i++) a[i] = 1;").rstrip()
    assert dict(revised(answer(code), asking, "k.cu", "k").files)["k.cu"] == code + "\n"


def test_a_kernel_that_printed_before_may_print() -> None:
    printing = {"k.cu": '__global__ void k(int* a) { printf("%d", a[0]); a[0] = 1; }\n'}
    code = '__global__ void k(int* a) { printf("%d", *a); a[0] = 1; }'
    assert dict(revised(answer(code), printing, "k.cu", "k").files)["k.cu"] == code + "\n"
