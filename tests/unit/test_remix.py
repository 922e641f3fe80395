"""Build requests from captures and changes, and which block shapes a kernel may run with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from r3bench.errors import CaptureError
from r3bench.model import (
    Capture,
    Configuration,
    Dim3,
    LaunchConfig,
    LaunchRule,
    Parameter,
    ReplayUnit,
    Source,
    Target,
    Variant,
)
from r3bench.remix import build_request, launch_for, legal_blocks

CPU = Target(device="cpu", arch="znver3")


def capture(demangled: str = "k", source: bool = True) -> Capture:
    return Capture(
        path="app/k.zarr",
        application="app",
        symbol="k",
        demangled=demangled,
        parameters=(Parameter(name="n", offset=0, size=4, kind="scalar", dtype="int32"),),
        source=Source(root=".", main="k.cu", span=(1, 2), files=(("k.cu", ""),), flags=("-DN=4",)) if source else None,
        units=(),
    )


def unit(grid: Dim3 = (8, 1, 1), block: Dim3 = (128, 1, 1), shared_bytes: int = 0) -> ReplayUnit:
    return ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=grid, block=block, shared_bytes=shared_bytes),
        arguments=b"\x07\0\0\0",
        pointers=(),
        allocations=(),
    )


def test_a_request_holds_the_variants_texts_over_the_captures() -> None:
    variant = Variant(files=(("k.cu", "new"),), configuration=Configuration(pipeline="O1"))
    request = build_request(capture(), {"k.cu": "old", "k.h": "h"}, unit(), variant, CPU)
    assert dict(request.files) == {"k.cu": "new", "k.h": "h"}
    assert (request.main, request.flags, request.symbol) == ("k.cu", ("-DN=4",), "k")
    assert request.configuration == Configuration(pipeline="O1")
    assert request.facts.scalars == (("n", b"\x07\0\0\0"),)


def test_fast_math_is_a_flag_beside_the_sources_own() -> None:
    variant = Variant(configuration=Configuration(fast_math=True))
    assert build_request(capture(), {"k.cu": ""}, unit(), variant, CPU).flags == ("-DN=4", "-use_fast_math")


def test_nothing_changed_is_the_default_pipeline() -> None:
    assert build_request(capture(), {"k.cu": ""}, unit(), Variant(), CPU).configuration == Configuration()


def test_a_launch_rule_keeps_the_threads_per_axis() -> None:
    variant = Variant(launch=LaunchRule(block=(96, 2, 1)))
    launch = launch_for(unit(grid=(3, 5, 1), block=(64, 1, 1)), variant)
    assert (launch.grid, launch.block) == ((2, 3, 1), (96, 2, 1))
    assert build_request(capture(), {"k.cu": ""}, unit(), variant, CPU).facts.launch.block == (96, 2, 1)
    assert launch_for(unit(), Variant()) == unit().launch


def test_a_capture_without_source_names_itself() -> None:
    with pytest.raises(CaptureError, match=r"app/k\.zarr holds no source"):
        build_request(capture(source=False), {}, unit(), Variant(), CPU)
    with pytest.raises(CaptureError, match=r"k\.cu"):
        build_request(capture(), {}, unit(), Variant(), CPU)


def test_blocks_of_ptx_text() -> None:
    text = (
        ".version 9.0\n.visible .entry k(\n .param .u64 p\n)\n{\n mov.u32 %r1, %ctaid.x;\n mov.u32 %r2, %ntid.x;\n"
        " mov.u32 %r3, %tid.x;\n mad.lo.s32 %r4, %r1, %r2, %r3;\n ret;\n}\n"
    )
    source = Source(root="", main="k.ptx", span=(1, 2), files=(("k.ptx", ""),), language="ptx")
    held = replace(capture(), source=source)
    assert legal_blocks(held, unit(), {"k.ptx": text})[:2] == ((128, 1, 1), (64, 1, 1))
    assert legal_blocks(held, unit(), {"k.ptx": text.replace("ret;", "bar.sync 0;")}) == ((128, 1, 1),)
    assert legal_blocks(held, unit(shared_bytes=4), {"k.ptx": text}) == ((128, 1, 1),)


INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def blocks_of(text: str, demangled: str = "k", **launch: object) -> tuple[Dim3, ...]:
    return legal_blocks(capture(demangled), unit(**launch), {"k.cu": text})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        f"__global__ void k(int n, float* y) {{ {INDEX} if (i < n) y[i] = 0; }}",
        "__global__ void k(int n) { size_t i = (size_t)blockDim.x * blockIdx.x + threadIdx.x; }",
        "__global__ void k(int n) { long i = threadIdx.x + (long)(blockIdx.x) * blockDim.x; }",
        "__global__ void k(int n) { int i = (blockIdx.x * blockDim.x) + threadIdx.x; /* __shared__ */ }",
        f"#define INDEX {INDEX[8:-1]}\n__global__ void k(int n) {{ int i = INDEX; }}",
        f"__device__ int at() {{ {INDEX} return i; }}\n__global__ void k(int n) {{ at(); }}",
        f"__global__ void no() {{ if (1) {{ __syncwarp(); }} }}\n__global__ void k(int n) {{ if (n) {{ {INDEX} }} }}",
        f'__global__ void k(int n) {{ {INDEX} assert(i >= 0 && "gridDim"); }} // blockDim',
    ],
)
def test_a_kernel_that_only_counts_its_threads_may_have_any_block(text: str) -> None:
    assert blocks_of(text) == ((128, 1, 1), (64, 1, 1), (256, 1, 1), (512, 1, 1), (1024, 1, 1))


@pytest.mark.parametrize(
    "text",
    [
        f"__global__ void k(int n) {{ __shared__ float s[4]; {INDEX} }}",
        f"__global__ void k(int n) {{ {INDEX} __syncthreads(); }}",
        f"__global__ void k(int n) {{ {INDEX} __shfl_down_sync(~0u, i, 1); }}",
        f"__global__ void k(int n) {{ {INDEX} i += gridDim.x * blockDim.x; }}",
        "__global__ void k(int n) { int row = blockIdx.x; for (int i = threadIdx.x; i < n; i += blockDim.x) {} }",
        "__global__ void k(int n) { int i = blockIdx.x * blockDim.x + threadIdx.x * 2; }",
        "__global__ void k(int n) { int i = 2 * blockIdx.x * blockDim.x + threadIdx.x; }",
        "__global__ void k(int n) { int i = blockIdx.x * blockDim.x + threadIdx.y; }",
        "__global__ void k(int n) { int i = n - blockIdx.x * blockDim.x + threadIdx.x; }",
        f"__device__ void wait() {{ __syncthreads(); }}\n__global__ void k(int n) {{ {INDEX} wait(); }}",
        f"#define WAIT __syncthreads()\n__global__ void k(int n) {{ {INDEX} WAIT; }}",
        f"#define SIZE 8 * \\\n  blockDim.x\n__global__ void k(int n) {{ {INDEX} i += SIZE; }}",
        f"__launch_bounds__(THREADS) __global__ void k(int n) {{ {INDEX} }}",
        f"__global__ void k(int n) {{\n{INDEX}\n{{\n}}\n__syncthreads();\n}}\n",
        f"__device__ void wait()\n{{\n{{\n}}\n__syncthreads();\n}}\n__global__ void k(int n) {{ {INDEX} wait(); }}",
        "__global__ void another(int n) { }",
        "",
    ],
)
def test_any_doubt_keeps_the_recorded_block(text: str) -> None:
    assert blocks_of(text) == ((128, 1, 1),)


def test_launch_bounds_of_the_source_limit_the_block() -> None:
    text = f"__global__ void __launch_bounds__(256, 2) k(int n) {{ {INDEX} }}"
    assert max(block[0] for block in blocks_of(text)) == 256


def test_dynamic_shared_memory_keeps_the_recorded_block() -> None:
    assert blocks_of(f"__global__ void k(int n) {{ {INDEX} }}", shared_bytes=64) == ((128, 1, 1),)


def test_small_grids_are_not_given_blocks_much_larger_than_themselves() -> None:
    shapes = blocks_of(f"__global__ void k(int n) {{ {INDEX} }}", grid=(1, 1, 1), block=(100, 1, 1))
    assert shapes == ((100, 1, 1), (64, 1, 1), (128, 1, 1))


def test_shapes_use_the_axes_that_the_launch_uses() -> None:
    text = f"__global__ void k(int n) {{ {INDEX} int j = blockIdx.y * blockDim.y + threadIdx.y; }}"
    shapes = blocks_of(text, grid=(8, 16, 1), block=(16, 16, 1))
    assert shapes[0] == (16, 16, 1)
    assert (64, 4, 1) in shapes
    assert all(x * y * z <= 1024 and x * y * z % 32 == 0 and z == 1 for x, y, z in shapes)


def test_names_of_templates_and_namespaces_are_found() -> None:
    text = f"namespace s {{ template <class T> __global__ void axpy(int n) {{ {INDEX} }} }}"
    assert len(blocks_of(text, demangled="void s::axpy<double>(int)")) == 5


def test_a_thread_that_does_the_work_of_several_needs_fewer_blocks() -> None:
    rule = LaunchRule(block=(64, 2, 1), per_thread=(4, 1, 1))
    assert rule.apply(LaunchConfig(grid=(9, 3, 1), block=(32, 8, 1))).grid == (2, 12, 1)
