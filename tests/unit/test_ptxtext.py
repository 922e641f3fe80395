"""What is read from PTX text: versions, kernels, and the blocks that a kernel may have."""

from __future__ import annotations

import pytest

from r3bench import ptxtext

INDEX = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;"
WHOLE = f"{INDEX} mad.lo.s32 %r4, %r1, %r2, %r3; mul.wide.s32 %rd1, %r4, 4;"


def text(body: str, directives: str = "") -> str:
    lines = body.replace("; ", ";\n\t")
    head = ".version 8.3\n.target sm_90\n.visible .entry k(\n\t.param .u64 p\n)"
    return f"{head}\n{directives}\n{{\n\t{lines}\n\tret;\n}}\n"


@pytest.mark.parametrize(
    "body",
    [
        WHOLE,
        WHOLE.replace("%r1, %r2, %r3", "%r2, %r1, %r3"),
        f"{INDEX} mul.wide.u32 %rd1, %r1, %r2; cvt.u64.u32 %rd2, %r3; add.s64 %rd3, %rd2, %rd1;",
        f"{INDEX} mul.lo.s32 %r5, %r1, %r2; add.s32 %r6, %r5, %r3; // %laneid",
        WHOLE + WHOLE.replace(".x", ".y").replace("%r", "%r1"),
        "mov.u32 %r1, 5;",
    ],
)
def test_any_block_will_do(body: str) -> None:
    assert ptxtext.block_limit(text(body), "k") == 1024


@pytest.mark.parametrize(
    "body",
    [
        WHOLE + " mov.u32 %r7, %nctaid.x;",
        WHOLE + " mov.u32 %r7, %laneid;",
        WHOLE + " bar.sync 0;",
        WHOLE + " shfl.sync.bfly.b32 %r8, %r9, 1, 31, -1;",
        WHOLE + " call.uni (retval0), f, (param0);",
        WHOLE + " add.s32 %r9, %r3, 1;",  # threadIdx.x alone
        WHOLE.replace("%ctaid.x", "%ctaid.y"),
        WHOLE + " @%p1 mov.u32 %r3, %tid.x; mov.u32 %r3, 7;",
        f"{INDEX} mad.lo.s32 %r4, %r1, %r2, %r2;",
        ".shared .align 4 .b8 tile[64]; " + WHOLE,
    ],
)
def test_only_the_recorded_block_will_do(body: str) -> None:
    assert ptxtext.block_limit(text(body), "k") == 0


def test_bounds_of_a_kernel_hold() -> None:
    assert ptxtext.block_limit(text(WHOLE, ".maxntid 16, 8, 1"), "k") == 128
    assert ptxtext.block_limit(text(WHOLE, ".reqntid 256"), "k") == 0
    assert ptxtext.block_limit(text(WHOLE), "another") == 0


def test_what_is_no_ptx_has_no_version() -> None:
    assert ptxtext.version(text(WHOLE)) == 83
    assert ptxtext.version("//\n// by a compiler\n/* .version 1.0 */\n \t" + text(WHOLE)) == 83
    assert ptxtext.version("define void @k() { ret void }") is None
    assert ptxtext.version('define void @k() {\n  call void asm "\n.version 8.3\n", ""()\n}') is None
    assert ptxtext.defines(text(WHOLE), "k")
    assert not ptxtext.defines(f"// .entry k() {{\n}}\n{text(WHOLE)}", "l")
