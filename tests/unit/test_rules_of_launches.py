"""The rules that change who does what: grids, windows, tiles, selections, widths; and what they leave alone."""

from __future__ import annotations

import re

import pytest

from r3bench import frontend, rules
from r3bench.rules import RULES, proposals
from r3bench.rules.subject import Subject

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
ROW = "int k = blockIdx.y * blockDim.y + threadIdx.y;"
SIGNATURE = "double* a, const double* b, double x, int n, int m, long wide"


def subject(body: str, signature: str = SIGNATURE) -> Subject:
    return Subject(
        text=f'extern "C" __global__ void k({signature}) {{\n    {body}\n}}\n',
        kernel="k",
        disjoint=True,
        small=True,
        block=(32, 4, 1),
        values=(("n", 40), ("m", 8)),
    )


def rewritten(rule: str, body: str) -> str:
    """The kernel's body after one rule, checked to compile; the brackets left out."""
    before = subject(body)
    text = RULES[rule].rewrite(before)
    if text != before.text:
        assert frontend.kernels(frontend.compile_ir({"k.cu": text}, "k.cu")) == ("k",)
    return "\n".join(line.removeprefix("    ") for line in text.splitlines()[1:-1])


def unchanged(rule: str, body: str) -> bool:
    return rewritten(rule, body) == body.replace("\n    ", "\n")


def test_there_are_rules_enough_and_the_listing_says_where_each_is() -> None:
    assert len(RULES) >= 12
    listed = re.findall(r"^    ([\w, ]+?) +(\w+)\.py$", rules.__doc__ or "", re.MULTILINE)
    assert {name: file for names, file in listed for name in names.split(", ")} == {
        name: getattr(rule.rewrite, "func", rule.rewrite).__module__.rpartition(".")[2] for name, rule in RULES.items()
    }


# -- the grid ---------------------------------------------------------------------------------------------------------


def test_a_grid_stride_loop() -> None:
    body = f"{INDEX}\n    if (i >= n) return;\n    a[i] = b[i];"
    assert rewritten("stride", body) == (
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {\n"
        "    if (i >= n) continue;\n    a[i] = b[i];\n}"
    )


def test_coarsening_leaves_neighbours_neighbours_and_rows_go_together() -> None:
    body = f"const {INDEX}\n    {ROW}\n    if (i < n && k < (m - 1)) {{\n        a[k * n + i] = b[k * n + i];\n    }}"
    assert rewritten("coarsen2", body).startswith(
        "#pragma unroll\nfor (int part = 0; part < 2; part++) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x + part * (int)(blockDim.x * gridDim.x);\n    int k = "
    )
    assert "    int k = ((blockIdx.y * blockDim.y + threadIdx.y) * 4 + row);\n" in rewritten("rows4", body)
    assert "const int i = blockIdx.x" in rewritten("rows4", body)


@pytest.mark.parametrize(
    "body",
    [
        f"{INDEX}\n    a[i] = b[i];",
        f"{INDEX}\n    a[i] = 0;\n    if (i >= n) return;\n    a[i] = b[i];",
        f"{INDEX}\n    double y = b[i];\n    if (i >= n) return;\n    a[i] = y;",
        f"{INDEX}\n    if (i >= b[0]) return;\n    a[i] = b[i];",
        f"{INDEX}\n    if (i >= n && m > 3) return;\n    a[i] = b[i];",
        f"{INDEX}\n    if (i >= n) return;\n    __syncthreads();\n    a[i] = b[i];",
        f"__shared__ double s[32];\n    {INDEX}\n    if (i >= n) return;\n    a[i] = s[0];",
        f"{INDEX}\n    if (i >= n) return;\n    a[i] = b[threadIdx.x];",
        f"{INDEX}\n    if (i >= n) return;\n    for (int j = i; j < n; j += gridDim.x) a[j] = 0;",
        f"{INDEX}\n    if (i >= n) return;\n    for (int j = 0; j < 3; j++) if (b[j] > 0) return;\n    a[i] = 0;",
        f"double s = 0;\n    {INDEX}\n    if (i >= n) return;\n    s += b[i];\n    a[i] = s;",
        f"{INDEX}\n    if (i >= n) return;\n    x += 1;\n    a[i] = x;",
        f"{INDEX}\n    if (i >= n) return;\n    i += 1;\n    a[i] = 0;",
        f"{INDEX}\n    n = n / 2;\n    if (i >= n) return;\n    a[i] = 0;",
        "int i = threadIdx.x;\n    if (i >= n) return;\n    a[i] = b[i];",
    ],
)
@pytest.mark.parametrize("rule", ["stride", "coarsen2"])
def test_kernels_whose_threads_cannot_do_more(rule: str, body: str) -> None:
    assert unchanged(rule, body)


# -- windows ----------------------------------------------------------------------------------------------------------


def test_what_rounds_read_in_common_slides_through_registers() -> None:
    body = "for (int j = 1; j < n; j++) {\n        a[j] = b[j - 1] + b[j] + b[j - 1];\n    }"
    assert rewritten("reuse", body) == (
        "double b_window = 0, b_window1 = 0;\n"
        "for (int j = 1; j < n; j++) {\n"
        "    if (j == 1) { b_window = b[j - 1]; }\n"
        "    b_window1 = b[j];\n"
        "    a[j] = b_window + b_window1 + b_window;\n"
        "    b_window = b_window1;\n"
        "}"
    )


def test_a_window_over_the_rows_of_a_thread() -> None:
    body = (
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m) return;\n    a[k * n + i] = b[k * n + i] - b[(k + 1) * n + i];"
    )
    found = RULES["reuse"].rewrite(subject(body).edited(RULES["rows2"].rewrite(subject(body))))
    assert "if (row == 0) { b_window = b[k * n + i]; }" in found
    assert "a[k * n + i] = b_window - b_window1;" in found
    frontend.compile_ir({"k.cu": found}, "k.cu")


@pytest.mark.parametrize(
    "body",
    [
        "for (int j = 0; j < n; j++) { a[j] = b[j] + b[j + 2]; }",
        "for (int j = 0; j < n; j++) { a[j] = a[j + 1] + a[j]; }",
        "for (int j = 0; j < n; j += 2) { a[j] = b[j] + b[j + 1]; }",
        "for (int j = 0; j < n; j++) { if (x > 0) a[j] = b[j] + b[j + 1]; }",
        "for (int j = 0; j < n; j++) { if (j % 2) continue; a[j] = b[j] + b[j + 1]; }",
        "for (int j = 0; j < n; j++) { a[j] = b[j] + b[j + 1]; if (a[j] > x) break; }",
        "for (int j = 0; j < n; j++) { a[j] = b[j * j] + b[j * j + 1]; }",
        "for (int j = 0; j < n; j++) { a[j] = b[0] + b[1]; }",
        "for (int j = 0; j < n; j++) { m = m * 2; a[j] = b[j + m] + b[j + m + 1]; }",
    ],
)
def test_loops_without_a_window(body: str) -> None:
    assert unchanged("reuse", body)


# -- tiles ------------------------------------------------------------------------------------------------------------

STAR = "a[k * n + i] = b[k * n + i] + b[k * n + i - 1] + b[k * n + i + 1] + b[(k - 1) * n + i] + b[(k + 1) * n + i];"


def test_a_star_is_loaded_once_by_all_threads() -> None:
    body = f"{INDEX}\n    {ROW}\n    if (i < 1 || k < 1 || i >= n - 1 || k >= m - 1) return;\n    {STAR}"
    found = rewritten("tile", body)
    assert "__shared__ double b_tile[6][34];" in found
    assert "const bool b_fits = blockDim.x == 32 && blockDim.y == 4;" in found
    assert "(b_fits ? b_tile[threadIdx.y][threadIdx.x + 1] : b[(k - 1) * n + i])" in found
    assert found.index("__syncthreads();") < found.index("return;")


@pytest.mark.parametrize(
    "body",
    [
        f"{INDEX}\n    if (i >= n) return;\n    {ROW}\n    if (k >= m) return;\n    {STAR}",
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m) return;\n    if (x > 1) return;\n    {STAR}",
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m || i == 3) return;\n    {STAR}",
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m) return;\n    if (i > 0) {{ {STAR} }}\n    a[0] = 0;",
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m) return;\n    a[k * n + i] = b[k * n + i] + b[k * n + i + 1];",
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m) return;\n    "
        + STAR.replace("b[(k + 1) * n + i]", "b[(k + 1) * n]"),
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m) return;\n    " + STAR.replace("b[", "a["),
        f"{INDEX}\n    {ROW}\n    double y = b[k * n + i];\n    if (i >= n || k >= m) return;\n    {STAR} a[0] = y;",
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m) return;\n    __syncthreads();\n    {STAR}",
    ],
)
def test_what_is_no_star_that_every_thread_reads(body: str) -> None:
    assert unchanged("tile", body)


# -- branches, loops, widths, constants -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if (n > 3) x = 1.0; else x = 2.0;", "x = (n > 3) ? (1.0) : (2.0);"),
        ("if (b[0] > x) a[0] = x; else a[0] = 0.0;", "a[0] = (b[0] > x) ? (x) : (0.0);"),
        ("if (n > 3) x += 1.0;", "const bool chosen = n > 3;\nx = chosen ? (x + (1.0)) : x;"),
        ("for (;;) if (n > 3) x = 1.0;", "for (;;) { const bool chosen = n > 3; x = chosen ? (1.0) : x; }"),
    ],
)
def test_branches_become_selections(body: str, expected: str) -> None:
    assert rewritten("select", body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "if (n > 3) x = b[n];",
        "if (n > 3) a[0] = x;",
        "if (m) n = n / m;",
        "if (n > 3) x = n;",
        "if (n > 3) x = 1.0; else return;",
        "if (n++ > 3) x = 1.0;",
        "if (n > 3) a[0] = x; else a[1] = x;",
        "__shared__ double held; if (n > 3) held = x;",
    ],
)
def test_branches_that_must_stay(body: str) -> None:
    assert unchanged("select", body)


def test_loops_change_places() -> None:
    body = "for (int r = 0; r < n; r++)\n        for (int c = 0; c < m; c++)\n            a[r * m + c] = b[c * n + r];"
    assert rewritten("interchange", body).splitlines()[:2] == [
        "for (int c = 0; c < m; c++)",
        "    for (int r = 0; r < n; r++)",
    ]


@pytest.mark.parametrize(
    "inner",
    [
        "for (int c = 0; c < r; c++) a[r * m + c] = 0;",
        "for (int c = 0; c < m; c++) a[r * n + c] = 0;",
        "for (int c = 0; c < m; c++) a[r * m + c] = a[r * m + c + 1];",
        "for (int c = 0; c < m; c++) x = b[c];",
        "for (int c = 0; c < m; c++) { x += b[c]; a[r * m + c] = x; }",
        "for (int c = 0; c < m; c++) { if (b[c] > x) break; a[r * m + c] = 0; }",
        "for (int c = 0; c < m; c++) a[0] = a[0] * b[c];",
    ],
)
def test_loops_that_must_stay(inner: str) -> None:
    assert unchanged("interchange", f"for (int r = 0; r < n; r++)\n        {inner}")


def test_indices_become_narrow_and_other_numbers_do_not() -> None:
    body = "size_t at = (size_t)n * m + 3;\n    for (long long j = 0; j < wide; j++) a[at + j] = x;"
    assert rewritten("index32", body) == (
        "unsigned int at = (unsigned int)n * m + 3;\nfor (int j = 0; j < wide; j++) a[at + j] = x;"
    )
    for other in (
        "unsigned long long seed = n * 6364136223846793005ull;\n    a[seed >> 60] = x;",
        "long long product = (long long)n * m;\n    a[0] = product;",
        "size_t at = n;\n    a[at - 1] = x;",
        "long long at = wide;\n    at = at * at;\n    a[at] = x;",
    ):
        assert unchanged("index32", other)


def test_narrow_indices_only_where_all_arrays_are_small() -> None:
    found = Subject(text=subject("size_t at = n;\n    a[at] = x;").text, kernel="k", small=False)
    assert RULES["index32"].rewrite(found) == found.text


def test_recorded_sizes_become_constants_in_a_copy_of_the_body() -> None:
    assert rewritten("expose", "for (int j = 0; j < n; j++)\n        a[j] = b[j];") == (
        "if (n == 40) {\n    constexpr int n = 40;\n"
        "    for (int j = 0; j < n; j++)\n        a[j] = b[j];\n    return;\n}\n"
        "for (int j = 0; j < n; j++)\n    a[j] = b[j];"
    )
    exposed = subject("").edited(RULES["expose"].rewrite(subject("a[0] = n;")))
    assert RULES["expose"].rewrite(exposed) == exposed.text


@pytest.mark.parametrize("body", ["a[0] = x;", "n++;\n    a[n] = x;", "__shared__ double s[4];\n    s[0] = n;"])
def test_sizes_that_stay_variables(body: str) -> None:
    assert unchanged("expose", body)


def test_a_chain_asks_for_the_launch_of_all_its_rules() -> None:
    body = (
        f"{INDEX}\n    {ROW}\n    if (i >= n || k >= m) return;\n    a[k * n + i] = b[k * n + i] - b[(k + 1) * n + i];"
    )
    found = {proposal.rule: proposal.per_thread for proposal in proposals(subject(body))}
    assert found["rows4+reuse"] == (1, 4, 1)
    assert found["coarsen2"] == (2, 1, 1)
    assert found["expose"] == (1, 1, 1)
