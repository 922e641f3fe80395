"""What each source rewrite does, and what it must leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from r3bench import frontend, rules, syntax
from r3bench.errors import BuildError
from r3bench.rules import RULES, Subject, proposals, relied_on

HERE = Path(__file__).resolve().parent
SIGNATURE = "float* a, float* b, int* c, float x, double y, int n"


def kernel(body: str, signature: str = SIGNATURE) -> str:
    return f'extern "C" __global__ void k({signature}) {{\n    int i = threadIdx.x;\n    {body}\n}}\n'


def rewritten(rule: str, body: str, *, disjoint: bool = True, before: str = "", signature: str = SIGNATURE) -> str:
    """The kernel's body after one rule, its first line and the brackets left out."""
    subject = Subject(text=before + kernel(body, signature), kernel="k", disjoint=disjoint)
    text = RULES[rule].rewrite(subject).removeprefix(before)
    return "\n".join(line.removeprefix("    ") for line in text.splitlines()[2:-1])


def unchanged(rule: str, body: str, **options: bool | str) -> bool:
    return rewritten(rule, body, **options) == body.replace("\n    ", "\n")  # type: ignore[arg-type]


# -- const and __restrict__ -------------------------------------------------------------------------------------------


def signature(body: str, *, disjoint: bool = True, text: str = "") -> str:
    subject = Subject(text=text or kernel(body, "float* a, float* b"), kernel="k", disjoint=disjoint)
    found = rules.restrict(subject)
    head = found[found.index("void k(") + 7 :]
    return head[: head.index(")")]


def test_restrict_only_where_arguments_are_disjoint() -> None:
    assert signature("a[i] = b[i];") == "float* __restrict__ a, const float* __restrict__ b"
    assert signature("a[i] = b[i];", disjoint=False) == "float* a, float* b", "b may be a"


@pytest.mark.parametrize(
    "body",
    [
        "b[0] = a[i];",
        "b[0] += 1.0f; a[i] = b[0];",
        "*b = a[i];",
        "float* q = b + 1; *q = a[i];",
        "float* q = b; a[i] = *q;",
        "atomicAdd(&b[i], a[i]);",
        "atomicAdd(b + i, a[i]);",
        "unknown(b); a[i] = 0;",
        "b++; a[i] = *b;",
    ],
)
def test_no_const_on_what_is_written_or_leaves(body: str) -> None:
    assert "const" not in signature(body).split(",")[1]


def test_const_through_a_pointer_to_const() -> None:
    assert "const float* __restrict__ b" in signature("const float* q = b + 1; a[i] = *q + __ldg(&b[2]) + __ldg(b);")


def test_no_const_where_it_would_change_a_symbol_or_contradict_a_prototype() -> None:
    plain = "__global__ void k(float* a, float* b) { a[0] = b[0]; }\n"
    assert "const" not in signature("", text=plain), "a C++ symbol spells its parameter types"
    prototype = 'extern "C" __global__ void k(float* a, float* b);\n'
    assert "const" not in signature("", text=prototype + 'extern "C" ' + plain)


def test_volatile_pointers_are_left_alone() -> None:
    assert signature("", text='extern "C" __global__ void k(volatile float* a) { float v = a[0]; }') == (
        "volatile float* a"
    )


# -- caching of loads -------------------------------------------------------------------------------------------------


def test_a_repeated_load_is_kept_in_a_register() -> None:
    assert rewritten("cache", "a[i] = b[i] * b[i] + b[n - 1];") == (
        "const float b_value = b[i];\na[i] = b_value * b_value + b[n - 1];"
    )


def test_a_load_is_shared_across_statements_and_branches() -> None:
    assert rewritten("cache", "a[i] = b[i];\n    if (n > 3) c[i] = (int)b[i];") == (
        "const float b_value = b[i];\na[i] = b_value;\nif (n > 3) c[i] = (int)b_value;"
    )


def test_an_invariant_load_leaves_a_loop_that_surely_runs() -> None:
    assert rewritten("cache", "for (int j = 0; j < 4; j++) a[j] += b[i];") == (
        "const float b_value = b[i];\nfor (int j = 0; j < 4; j++) a[j] += b_value;"
    )


@pytest.mark.parametrize(
    "body",
    [
        "for (int j = 0; j < n; j++) a[j] += b[i];",  # perhaps no round at all: the load may be out of bounds
        "for (int j = 0; j < 4; j++) { if (j == n) break; a[j] += b[i]; }",
        "a[i] = b[i]; b[i] = 2.0f; a[i] += b[i];",
        "a[i] = b[i]; b[c[i]] = 2.0f; a[i] += b[i];",
        "a[i] = b[i]; i++; a[i] = b[i];",
        "a[i] = b[i]; { int i = 3; a[i] = b[i]; }",
        "a[i] = n > 0 ? b[i] : 0.0f; if (n > 1) a[i] = b[i];",  # neither is surely evaluated
        "if (n > 0) a[i] = b[i]; if (n > 1) a[i + 1] = b[i];",
        "a[i] = b[i]; atomicAdd(&b[i], 1.0f); a[i] += b[i];",
        "b[0] = 1; a[i] = b[i]; __syncthreads(); a[i] += b[i];",
        "a[i] = b[i]; unknown(); a[i] += b[i];",
        "a[i] = b[i]; unknown(&i); a[i] += b[i];",
        "goto end; end: a[i] = b[i] + b[i];",
        "auto f = [&]() { return b[i] + b[i]; }; a[i] = f();",
    ],
)
def test_loads_are_not_shared_across_what_may_write(body: str) -> None:
    assert unchanged("cache", body)


def test_without_disjointness_a_store_ends_a_cached_value() -> None:
    body = "a[i] = b[i]; c[i] = (int)b[i];"
    assert unchanged("cache", body, disjoint=False)
    assert not unchanged(
        "cache", body, disjoint=False, signature=SIGNATURE.replace("float* b", "float* __restrict__ b")
    )


def test_a_barrier_does_not_matter_to_what_nobody_writes() -> None:
    assert "b_value" in rewritten("cache", "a[i] = b[i]; __syncthreads(); a[i] += b[i];")


def test_shared_memory_is_reloaded_behind_a_barrier_and_kept_before_it() -> None:
    store = "__shared__ float s[32]; s[i] = x;\n    __syncthreads();\n    "
    assert "s_value + s_value" in rewritten("cache", store + "a[i] = s[0] + s[0];")
    assert unchanged("cache", store + "a[i] = s[0]; s[i] = 1; __syncthreads(); a[i] += s[0];")


def test_reading_helpers_are_calls_that_load() -> None:
    helper = "__device__ float mean(const float* q, int s) { return (q[0] + q[s]) / 2; }\n"
    body = "a[i] = mean(&b[i], 2) + b[i]; c[i] = (int)b[i];"
    assert "b_value" in rewritten("cache", body, before=helper)
    writing = "__device__ float mean(float* q, int s) { q[0] = 1; return q[s]; }\n"
    assert unchanged("cache", body, before=writing)


def test_macros_are_looked_into() -> None:
    assert "b_value" in rewritten("cache", "a[i] = b[AT(i)] + b[AT(i)];", before="#define AT(j) ((j) * n + 1)\n")
    assert unchanged("cache", "a[i] = b[AT(i)]; n++; a[i] += b[AT(i)];", before="#define AT(j) ((j) * n + 1)\n")
    assert unchanged("cache", "a[i] = b[AT(i)] + b[AT(i)];", before="#define AT(j) (counter[j]++)\n")


def test_macros_that_write_end_what_they_write() -> None:
    assert unchanged("cache", "a[i] = b[i]; NEXT; a[i] += b[i];", before="#define NEXT i += 1\n")
    assert unchanged("cache", "a[i] = b[i]; PUT(3); a[i] += b[i];", before="#define PUT(v) b[i] = (v)\n")
    assert "b_value" in rewritten("cache", "a[i] = b[i]; (void)NEXT; a[i] += b[i];", before="#define NEXT (i + 1)\n")


def test_nothing_moves_where_a_macro_hides_statements() -> None:
    guard = "#define LEAVE if (i >= n) return\n"
    assert unchanged("cache", "for (int j = 0; j < 4; j++) { LEAVE; a[j] += b[i]; }", before=guard)
    twice = "#ifdef X\n#define AT(j) (j)\n#else\n#define AT(j) (i++)\n#endif\n"
    assert unchanged("cache", "a[0] = b[AT(n)] + b[AT(n)];", before=twice)


def test_overloaded_helpers_are_unknown() -> None:
    helpers = "__device__ float at(float v) { return v; }\n__device__ float at(float* q) { q[0] = 1; return 0; }\n"
    assert unchanged("cache", "a[i] = b[i]; at(b); a[i] += b[i];", before=helpers)


def test_a_variable_hides_a_constant_of_its_name() -> None:
    body = "for (int j = 0; j < N; j++) a[i] += b[j];"
    signature = "float* a, float* b, int i, int N"
    text = "constexpr int N = 4;\n" + 'extern "C" __global__ void k(' + signature + ") {\n    " + body + "\n}\n"
    for rule in ("accumulate", "unroll"):
        assert RULES[rule].rewrite(Subject(text=text, kernel="k", disjoint=True)) == text


# -- hoisting ---------------------------------------------------------------------------------------------------------


def test_invariants_leave_loops_and_index_arithmetic_is_shared() -> None:
    assert rewritten("hoist", "for (int j = 0; j < n; j++) a[i * n + j] = x * x * 3.0f;") == (
        "const float invariant = x * x * 3.0f;\nconst int offset = i * n;\n"
        "for (int j = 0; j < n; j++) a[offset + j] = invariant;"
    )
    assert "a[offset] = b[offset]" in rewritten("hoist", "a[i * n + 1] = b[i * n + 1];")


def test_the_innermost_loop_loses_what_only_the_outer_one_changes() -> None:
    body = "for (int j = 0; j < n; j++) {\n        for (int l = 0; l < n; l++) a[j * n + l] = 1;\n    }"
    assert "    const int offset = j * n;\n    for (int l" in rewritten("hoist", body)


@pytest.mark.parametrize(
    "body",
    [
        "for (int j = 0; j < n; j++) { x += 1; a[j] = x * x; }",
        "while (n > 0) { n--; a[n] = n * 3 + 1; }",
        "for (int j = 0; j < n; j++) c[j] = n / i;",  # may divide by zero where no round is made
        "for (int j = 0; j < 3; j++) { unknown(&n); c[j] = n * 3 + 1; }",
        "switch (n) { case 1: a[i] = x * x * 2; break; default: a[i] = 0; }",
    ],
)
def test_what_changes_or_may_trap_stays(body: str) -> None:
    assert unchanged("hoist", body)


def test_a_division_that_surely_happens_may_leave_the_loop() -> None:
    assert "const int offset = n / i" in rewritten("hoist", "for (int j = 0; j < 3; j++) c[j] = n / i;")


# -- divisions and powers ---------------------------------------------------------------------------------------------


def test_division_by_a_constant() -> None:
    assert rewritten("reciprocal", "a[i] = x / 3.0f;") == "a[i] = x * (1.0f / 3.0f);"
    assert rewritten("reciprocal", "double z = y / 12;") == "double z = y * (1.0 / 12);"
    assert rewritten("reciprocal", "a[i] = x / W;", before="constexpr float W = 5.0f;\n") == "a[i] = x * (1.0f / W);"


def test_a_divisor_used_again_is_inverted_once() -> None:
    assert rewritten("reciprocal", "a[i] = b[0] / x; a[n] = b[1] / x;") == (
        "const float inverse_x = 1.0f / x;\na[i] = b[0] * inverse_x; a[n] = b[1] * inverse_x;"
    )


@pytest.mark.parametrize(
    "body",
    [
        "c[i] = n / 3;",  # integers
        "a[i] = x / 4.0f;",  # exact as it is
        "a[i] = 2.0f / 3.0f;",  # the compiler folds it
        "double z = y / x;",  # a float's reciprocal has too few digits
        "a[i] = x / unknown(i);",
        "a[i] = 1.0f / x; a[n] = 1.0f / x;",
        "a[i] = b[0] / x; x = 2; a[n] = b[1] / x;",
        "float z = x + b[i]; a[i] = b[0] / z;",
    ],
)
def test_divisions_that_stay(body: str) -> None:
    assert unchanged("reciprocal", body)


def test_divisions_in_the_helpers_of_a_kernel_are_found() -> None:
    helpers = "__device__ float third(float v) {\n    return v / 3.0f;\n}\n"
    helpers += "__device__ float other(float v) { return v / 3.0f; }\n"
    subject = Subject(text=helpers + kernel("a[i] = third(x);"), kernel="k")
    text = rules.reciprocal(subject)
    assert "return v * (1.0f / 3.0f);\n}" in text
    assert "other(float v) { return v / 3.0f; }" in text, "the kernel does not call it"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = pow(y, 2.0);", "y = (y * y);"),
        ("y = pow(y, 2);", "y = (y * y);"),
        ("y = pow(y + 1.0, 3.0);", "const double base = y + 1.0;\ny = (base * base * base);"),
        ("y = n > 0 ? pow(y + 1.0, 2) : y;", "y = n > 0 ? ((y + 1.0) * (y + 1.0)) : y;"),
        ("a[i] = powf(b[i], 2.0f);", "a[i] = (b[i] * b[i]);"),
        ("y = pow(y, 0.5);", "y = sqrt(y);"),
        ("y = pow(y, -1.0);", "y = (1.0 / y);"),
        ("a[i] = x / sqrtf(b[i]);", "a[i] = x * rsqrtf(b[i]);"),
        ("y = pow(pow(y, 2.0), 2.0);", "const double base = (y * y);\ny = (base * base);"),
        ("y = pow(x, 2);", "y = pow(x, 2);"),  # float or double? not known here
        ("y = pow(y, 2.5);", "y = pow(y, 2.5);"),
        ("y = pow(unknown(y), 2.0);", "y = pow(unknown(y), 2.0);"),
    ],
)
def test_powers(body: str, expected: str) -> None:
    assert rewritten("power", body) == expected


def test_fractional_powers() -> None:
    assert rewritten("exponential", "y = pow(y, 7.0 / 5.0);") == "y = exp((7.0 / 5.0) * log(y));"
    assert rewritten("exponential", "a[i] = powf(x, 0.4f);") == "a[i] = expf((0.4f) * logf(x));"
    assert unchanged("exponential", "y = pow(y, 3.0);"), "a negative base has a power with a whole exponent"
    assert unchanged("exponential", "y = pow(y, y);")


# -- loops ------------------------------------------------------------------------------------------------------------


def test_a_sum_in_memory_moves_into_a_register() -> None:
    assert rewritten("accumulate", "for (int j = 0; j < 8; j++) a[i] += b[j];") == (
        "float a_sum = a[i];\nfor (int j = 0; j < 8; j++) a_sum += b[j];\na[i] = a_sum;"
    )


@pytest.mark.parametrize(
    "body",
    [
        "for (int j = 0; j < n; j++) a[i] += b[j];",  # perhaps no round: a[i] may not exist
        "for (int j = 0; j < 8; j++) a[j] += b[j];",
        "for (int j = 0; j < 8; j++) { a[i] += b[j]; if (b[j] > 3) return; }",
        "for (int j = 0; j < 8; j++) { a[i] += a[j]; }",
        "for (int j = 0; j < 8; j++) { a[i] += b[j]; __syncthreads(); }",
        "for (int j = 0; j < 8; j++) { a[i] += b[j]; unknown(); }",
        "for (int j = 0; j < 8; j++) if (j == n) a[i] += b[j];",
        "for (int j = 0; j < 8; j++) a[i] = b[j];",
    ],
)
def test_sums_that_must_stay_in_memory(body: str) -> None:
    assert unchanged("accumulate", body)


def test_a_sum_stays_where_another_pointer_may_see_it() -> None:
    assert unchanged("accumulate", "for (int j = 0; j < 8; j++) a[i] += b[j];", disjoint=False)


def test_constant_loops_are_unrolled_whole_and_others_by_four() -> None:
    constant, open_ended = "for (int j = 0; j < 8; j += 2) a[j] = 0;", "for (int j = 0; j < n; j++) a[j] = 0;"
    assert rewritten("unroll", constant) == "#pragma unroll\n" + constant
    assert rewritten("unroll4", open_ended) == "#pragma unroll 4\n" + open_ended
    assert unchanged("unroll", open_ended)
    assert unchanged("unroll4", constant)
    assert unchanged("unroll", f"#pragma unroll 2\n    {constant}")
    assert unchanged("unroll", "for (int j = 0; j < 8; j++) { if (a[j] > 0) j = 9; }")


def test_the_bound_of_a_loop_may_be_a_macro_or_a_constant() -> None:
    before = "#define N (2 * HALF)\nenum { HALF = 3 };\n"
    assert rewritten("unroll", "for (int j = 0; j < N; j++) a[j] = 0;", before=before).startswith("#pragma unroll")


# -- proposals --------------------------------------------------------------------------------------------------------

RICH = kernel(
    "for (int j = 0; j < 4; j++) {\n        a[i * n + 1] += b[i] / x + b[i] * (float)pow(y, 2.0);\n    }",
)


def test_every_rule_and_chain_is_proposed_once() -> None:
    found = list(proposals(Subject(text=RICH, kernel="k", disjoint=True)))
    assert len({p.text for p in found}) == len(found)
    assert RICH not in {p.text for p in found}
    single = {p.rule for p in found if "+" not in p.rule}
    assert single == {"restrict", "reciprocal", "power", "cache", "hoist", "accumulate", "unroll"}
    assert max(p.rule.count("+") for p in found) == 6


def test_every_proposal_compiles_and_keeps_the_kernels_name() -> None:
    for proposal in proposals(Subject(text=RICH, kernel="k", disjoint=True)):
        ir = frontend.compile_ir({"k.cu": proposal.text}, "k.cu")
        assert frontend.kernels(ir) == ("k",), proposal.rule


def test_the_proposals_of_a_text_without_the_kernel() -> None:
    with pytest.raises(BuildError, match="does not define the kernel gone"):
        list(proposals(Subject(text=RICH, kernel="gone")))


def test_a_broken_body_gets_no_motion() -> None:
    broken = kernel("a[i] = b[i] + b[i]; int = ;")
    assert {p.rule for p in proposals(Subject(text=broken, kernel="k", disjoint=True))} <= {"restrict"}


def test_every_kernel_of_the_thirteen_compiles_under_every_proposal() -> None:
    path = HERE.parent / "device" / "thirteen.cu"
    text = path.read_text()
    names = frontend.kernels(frontend.compile_ir({"k.cu": text}, "k.cu"))
    for name in syntax.kernels(text):
        for proposal in list(proposals(Subject(text=text, kernel=name, disjoint=True)))[-1:]:
            assert frontend.kernels(frontend.compile_ir({"k.cu": proposal.text}, "k.cu")) == names, name


def test_what_a_text_relies_on_is_said() -> None:
    assert relied_on("hoist+cache") == ()
    (said,) = relied_on("restrict+hoist")
    assert "must not overlap" in said
    assert relied_on("restrict+p7")[1:] == ("checked on the recorded launches only",)
    (threads,) = relied_on("rows2+coarsen4+hoist")
    assert threads.startswith("launches must have a thread for each element")
