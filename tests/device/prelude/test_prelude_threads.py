"""What the device prelude offers threads together, and its types: on the CPU device, forward and in full reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from r3bench.devices import Device
from r3bench.errors import DeviceFault, Unsupported
from r3bench.toolchain import Compiler
from tests.device.run_kernel import Array, Runner

N = 96
WARPS = np.arange(N).reshape(-1, 32)


@pytest.fixture(params=["forward", "reverse"])
def run(request: pytest.FixtureRequest, compiler: Compiler, device: Device) -> Callable[..., list[Array]]:
    """Run kernel ``k`` of a text on one block of 96 threads (or as given) and return its arrays."""

    def run(
        text: str, *arguments: Any, grid: tuple[int, ...] = (1,), block: tuple[int, ...] = (N,), **options: Any
    ) -> Any:
        return Runner(compiler, device, text)("k", grid, block, *arguments, order=request.param, **options)

    return run


def zeros(*shape: int, dtype: str = "i4") -> Array:
    return np.zeros(shape, dtype)


# -- indices ---------------------------------------------------------------------------------------------------------


def test_indices_in_three_dimensions(run: Callable[..., list[Array]]) -> None:
    text = """
    __device__ int flat(uint3 p, dim3 n) { return p.x + n.x * (p.y + n.y * p.z); }
    __global__ void k(int* out) {
      dim3 block = blockDim;
      auto grid = gridDim;
      const uint3 t = threadIdx;
      int place = flat(blockIdx, gridDim) * (block.x * block.y * block.z) + flat(threadIdx, block);
      int* o = out + 6 * place;
      o[0] = t.x, o[1] = threadIdx.y, o[2] = t.z, o[3] = blockIdx.x, o[4] = blockIdx.y, o[5] = blockIdx.z + 10 * grid.y;
    }"""
    grid, block = (3, 2, 2), (4, 3, 2)
    (out,) = run(text, zeros(12 * 24, 6), grid=grid, block=block)
    z, y, x = np.indices(block[::-1]).reshape(3, -1)
    bz, by, bx = np.indices(grid[::-1]).reshape(3, -1)
    assert (out[:, :3] == np.tile(np.stack([x, y, z], 1), (12, 1))).all()
    assert (out[:, 3:] == np.repeat(np.stack([bx, by, bz + 20], 1), 24, axis=0)).all()


# -- barriers and warps ----------------------------------------------------------------------------------------------


def test_barriers_that_count(run: Callable[..., list[Array]]) -> None:
    text = """__global__ void k(const int* x, int* out) {
      int t = threadIdx.x;
      out[3 * t] = __syncthreads_count(x[t] > 1);
      out[3 * t + 1] = __syncthreads_and(x[t] >= 0) != 0;
      out[3 * t + 2] = __syncthreads_or(x[t] > 3) != 0;
    }"""
    x = np.arange(N, dtype="i4") % 4
    out = run(text, x, zeros(N, 3))[1]
    assert (out == [(x > 1).sum(), 1, 0]).all()


def test_barriers_in_loops_and_shared_memory(run: Callable[..., list[Array]]) -> None:
    text = """__global__ void k(int* out, int rounds) {
      __shared__ int ring[2][96];
      extern __shared__ int more[];
      int t = threadIdx.x;
      ring[0][t] = t;
      for (int r = 0; r < rounds; ++r) {
        __syncthreads();
        ring[1 - r % 2][t] = ring[r % 2][(t + 1) % blockDim.x];
      }
      more[t] = ring[rounds % 2][t];
      __syncthreads();
      out[t] = more[(t + 1) % blockDim.x];
    }"""
    (out,) = run(text, zeros(N), 7, shared_bytes=4 * N)
    assert (out == (np.arange(N) + 8) % N).all()


TYPES = {
    "int": "i4",
    "unsigned": "u4",
    "long": "i8",
    "unsigned long": "u8",
    "long long": "i8",
    "unsigned long long": "u8",
    "float": "f4",
    "double": "f8",
    "half": "f2",
}


def test_shuffles(run: Callable[..., list[Array]]) -> None:
    text = """__global__ void k(const int* x, int* out) {
      int t = threadIdx.x, n = blockDim.x, v = x[t];
      out[t] = __shfl_sync(0xffffffffu, v, 5);
      out[n + t] = __shfl_sync(~0u, v, t + 3, 8);
      out[2 * n + t] = __shfl_up_sync(~0u, v, 2);
      out[3 * n + t] = __shfl_up_sync(~0u, v, 3, 16);
      out[4 * n + t] = __shfl_down_sync(~0u, v, 4);
      out[5 * n + t] = __shfl_down_sync(~0u, v, 1, 4);
      out[6 * n + t] = __shfl_xor_sync(~0u, v, 9);
    }"""
    x = np.random.default_rng(1).integers(-1000, 1000, N).astype("i4")
    out = run(text, x, zeros(7, N))[1]
    lane, base = np.arange(N) % 32, np.arange(N) // 32 * 32
    in8, in16, in4 = lane % 8, lane % 16, lane % 4
    sources = [
        base + 5,
        base + lane - in8 + (np.arange(N) + 3) % 8,
        np.where(lane >= 2, base + lane - 2, base + lane),
        np.where(in16 >= 3, base + lane - 3, base + lane),
        np.where(lane + 4 < 32, base + lane + 4, base + lane),
        np.where(in4 + 1 < 4, base + lane + 1, base + lane),
        base + (lane ^ 9),
    ]
    assert (out == x[np.array(sources)]).all()


def test_shuffles_of_every_type(run: Callable[..., list[Array]]) -> None:
    parameters = ", ".join(f"{ctype}* {dtype}{n}" for n, (ctype, dtype) in enumerate(TYPES.items()))
    body = "".join(f"{d}{n}[t] = __shfl_xor_sync(~0u, {d}{n}[t], 5); " for n, d in enumerate(TYPES.values()))
    text = f"#include <cuda_fp16.h>\n__global__ void k({parameters}) {{ int t = threadIdx.x; {body} }}"
    bits = np.random.default_rng(1).integers(-(2**62), 2**62, N)
    arrays = [bits.astype(f"i{np.dtype(dtype).itemsize}").view(dtype) for dtype in TYPES.values()]
    for array, out, ctype in zip(arrays, run(text, *arrays), TYPES, strict=True):
        assert out.tobytes() == array[np.arange(N) ^ 5].tobytes(), ctype


def test_votes_match_and_reduce(run: Callable[..., list[Array]]) -> None:
    text = """__global__ void k(const int* x, unsigned* out) {
      int t = threadIdx.x, p;
      unsigned* o = out + 16 * t;
      o[0] = __ballot_sync(~0u, x[t] > 0);
      o[1] = __all_sync(~0u, x[t] > -100) != 0;
      o[2] = __any_sync(~0u, x[t] == 3) != 0;
      o[3] = __match_any_sync(~0u, x[t]);
      o[4] = __match_all_sync(~0u, x[t] / 100, &p) + p;
      o[5] = __match_all_sync(~0u, (long long)x[t], &p) + p;
      o[6] = __reduce_add_sync(~0u, x[t]);
      o[7] = __reduce_min_sync(~0u, x[t]);
      o[8] = __reduce_max_sync(~0u, x[t]);
      o[9] = __reduce_min_sync(~0u, (unsigned)x[t]);
      o[10] = __reduce_max_sync(~0u, (unsigned)x[t]);
      o[11] = __reduce_and_sync(~0u, (unsigned)x[t] | 4);
      o[12] = __reduce_or_sync(~0u, (unsigned)x[t] & 7);
      o[13] = __reduce_xor_sync(~0u, (unsigned)x[t]);
      o[14] = __activemask();
      o[15] = __match_any_sync(~0u, 0.5 * x[t]);
      __syncwarp();
    }"""
    x = np.random.default_rng(2).integers(-4, 5, N).astype("i4")
    out = run(text, x, zeros(N, 16, dtype="u4"))[1].reshape(-1, 32, 16)
    bit = np.uint32(1) << np.arange(32, dtype="u4")
    for warp, got in zip(x.reshape(-1, 32), out, strict=True):
        word = warp.view("u4")
        equal = np.array([bit[warp == value].sum() for value in warp])
        uniform = [
            bit[warp > 0].sum(),
            1,
            3 in warp,
            *(warp.sum(), warp.min(), warp.max()),
            *(word.min(), word.max()),
            np.bitwise_and.reduce(word | 4),
            np.bitwise_or.reduce(word & 7),
            np.bitwise_xor.reduce(word),
            0xFFFFFFFF,
        ]
        for column, value in zip((0, 1, 2, 6, 7, 8, 9, 10, 11, 12, 13, 14), uniform, strict=True):
            assert (got[:, column] == np.uint32(int(value) & 0xFFFFFFFF)).all(), column
        assert (got[:, 3] == equal).all()
        assert (got[:, 15] == equal).all()
        # All 32 agree on x / 100 == 0: the full mask, plus the predicate 1, wraps to 0.
        assert (got[:, 4] == 0).all()
        assert (got[:, 5] == 0).all()


def test_collectives_of_some_lanes(run: Callable[..., list[Array]]) -> None:
    text = """__global__ void k(unsigned* out) {
      int t = threadIdx.x, lane = t & 31;
      if (lane % 2) {
        out[t] = __ballot_sync(0xaaaaaaaau, lane > 10) + __shfl_sync(0xaaaaaaaau, t, 7);
      } else {
        out[t] = __reduce_add_sync(0x55555555u, lane);
      }
    }"""
    (out,) = run(text, zeros(N, dtype="u4"))
    lane, warp = np.arange(N) % 32, np.arange(N) // 32
    ballot = sum(1 << k for k in range(11, 32, 2))
    assert (out == np.where(lane % 2, ballot + 32 * warp + 7, sum(range(0, 32, 2)))).all()


# -- atomics ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ctype", "scope"),
    [("int", ""), ("unsigned", "_block"), ("long long", "_system"), ("unsigned long long", "")],
)
def test_integer_atomics(run: Callable[..., list[Array]], ctype: str, scope: str) -> None:
    text = f"""__global__ void k(const {ctype}* x, {ctype}* out, int* winners) {{
      int t = threadIdx.x;
      atomicAdd{scope}(out, x[t]);
      atomicSub{scope}(out + 1, x[t]);
      atomicMin{scope}(out + 2, x[t]);
      atomicMax{scope}(out + 3, x[t]);
      atomicAnd{scope}(out + 4, x[t]);
      atomicOr{scope}(out + 5, x[t]);
      atomicXor{scope}(out + 6, x[t]);
      if (atomicExch{scope}(out + 7, ({ctype})t + 1) == 0) atomicAdd{scope}(winners, 1);
      if (atomicCAS{scope}(out + 8, 5, 6) == 5) atomicAdd{scope}(winners + 1, 1);
      {ctype} seen = out[9], assumed;
      do {{ assumed = seen; seen = atomicCAS{scope}(out + 9, assumed, assumed * 3); }} while (seen != assumed);
    }}"""
    dtype = np.dtype(TYPES[ctype])
    x = np.random.default_rng(3).integers(0, 1 << 30, N).astype(dtype)
    x = (x << np.array(8 * (dtype.itemsize - 4), dtype)) * (
        1 if dtype.kind == "u" else np.where(np.arange(N) % 3, 1, -1)
    )
    x = x.astype(dtype)
    before = np.array([7, 7, 100, 5, -1 if dtype.kind == "i" else np.iinfo(dtype).max, 0, 9, 0, 5, 1], dtype)
    _, out, winners = run(text, x, before, zeros(2))
    total = int(x.astype(object).sum())
    wrap = lambda value: np.array(value & (2 ** (8 * dtype.itemsize) - 1), f"u{dtype.itemsize}").view(dtype)  # noqa: E731
    assert out[0] == wrap(7 + total)
    assert out[1] == wrap(7 - total)
    assert out[2] == min(100, x.min())
    assert out[3] == max(5, x.max())
    assert out[4] == np.bitwise_and.reduce(x)
    assert out[5] == np.bitwise_or.reduce(x)
    assert out[6] == np.bitwise_xor.reduce(x) ^ dtype.type(9)
    assert 1 <= out[7] <= N
    assert out[8] == 6
    assert out[9] == wrap(3**N)
    assert winners.tolist() == [1, 1]


def test_other_atomics(run: Callable[..., list[Array]]) -> None:
    text = """#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    __global__ void k(float* f, double* d, unsigned* u, half* h, __nv_bfloat16* b, unsigned short* s) {
      int t = threadIdx.x;
      atomicAdd(f, 0.5f);
      atomicAdd_block(d, 0.25);
      atomicInc(u, 9u);
      atomicDec(u + 1, 9u);
      atomicAdd(h, half(0.5f));
      atomicAdd((half2*)(h + 2), half2(1.0f, 2.0f));
      atomicAdd(b, __nv_bfloat16(1.0f));
      if (t == 0) f[1] = atomicExch(f + 2, 3.0f), d[1] = atomicAdd(d + 2, 1.0);
      atomicCAS(s, 4, 5);
    }"""
    f, d = np.array([1, 0, 2], "f4"), np.array([1, 0, 2], "f8")
    half, brain = np.zeros(4, "f2"), np.zeros(1, "u2")
    f, d, u, half, brain, s = run(text, f, d, np.array([3, 3], "u4"), half, brain, np.array([4], "u2"))
    assert f.tolist() == [1 + N / 2, 2, 3]
    assert d.tolist() == [1 + N / 4, 2, 3]
    assert u.tolist() == [(3 + N) % 10, (3 - N) % 10]
    assert half.tolist() == [N / 2, 0, N, 2 * N]
    assert (brain.astype("u4") << 16).view("f4") == N
    assert s[0] == 5


def test_a_last_block_sees_what_others_wrote(run: Callable[..., list[Array]]) -> None:
    text = """__device__ unsigned arrived;
    __global__ void k(const int* x, int* partial, int* total) {
      __shared__ bool last;
      if (threadIdx.x == 0) partial[blockIdx.x] = 0;
      __syncthreads();
      atomicAdd(partial + blockIdx.x, x[blockIdx.x * blockDim.x + threadIdx.x]);
      __syncthreads();
      __threadfence();
      if (threadIdx.x == 0) last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
      __syncthreads();
      if (last && threadIdx.x == 0) for (int b = 0; b < gridDim.x; ++b) *total += *(volatile int*)(partial + b);
    }"""
    x = np.arange(10 * N, dtype="i4")
    _, partial, total = run(text, x, zeros(10), zeros(1), grid=(10,))
    assert (partial == x.reshape(10, N).sum(1)).all()
    assert total[0] == x.sum()


# -- memory and types ------------------------------------------------------------------------------------------------


def test_vectors_caches_and_copies(run: Callable[..., list[Array]]) -> None:
    text = """struct Cell { float4 a; double2 b; uchar4 c; short3 d; };
    __constant__ float table[4] = {1, 2, 3, 4};
    __constant__ int3 corner = {5, 6, 7};
    static __device__ double scale = 0.5;
    __global__ void k(const float4* x, const int* y, double* out, int* sizes) {
      int t = threadIdx.x;
      float4 v = __ldg(x + t), w = make_float4(t, 1, 2, 3);
      Cell cell = {v, make_double2(y[t], 1), make_uchar4(1, 2, 3, t), {1, 2, 3}};
      Cell copy;
      memcpy(&copy, &cell, sizeof(Cell));
      memset(&w.y, 0, 8);
      float sum = copy.a.x + copy.a.w + w.x + w.y + w.w + __ldcg(&y[t]) + __ldg(&y[t]) + __ldcs(y) + __ldcv(y + 1);
      __stcg(out + t, scale * (sum + copy.b.x + copy.c.w + copy.d.z + table[t & 3] + corner.y));
      if (t == 0) {
        sizes[0] = sizeof(Cell), sizes[1] = alignof(float4), sizes[2] = sizeof(float3), sizes[3] = alignof(double4);
        sizes[4] = sizeof(long), sizes[5] = sizeof(size_t), sizes[6] = sizeof(dim3), sizes[7] = warpSize;
      }
    }"""
    x, y = np.random.default_rng(4).integers(0, 9, (N, 4)).astype("f4"), np.arange(N, dtype="i4")
    _, _, out, sizes = run(text, x, y, zeros(N, dtype="f8"), zeros(8))
    t = np.arange(N)
    expected = x[:, 0] + x[:, 3] + t + 3 + y + y + 0 + 1 + y + t + 3 + (t % 4 + 1) + 6
    assert (out == expected / 2).all()
    assert sizes.tolist() == [48, 16, 12, 16, 8, 8, 12, 32]


def test_limits_and_constants(run: Callable[..., list[Array]]) -> None:
    text = """#include <cfloat>
    #include <climits>
    #include <limits>
    #include <stdint.h>
    #include <cmath>
    __global__ void k(double* out, long long* whole) {
      double d[] = {FLT_MAX, FLT_EPSILON, DBL_EPSILON, DBL_MIN, M_PI, M_E, M_SQRT2, INFINITY,
                    std::numeric_limits<float>::max(), std::numeric_limits<double>::lowest()};
      long long w[] = {INT_MIN, UINT_MAX, LLONG_MAX, CHAR_BIT, SHRT_MIN, std::numeric_limits<unsigned char>::max(),
                       std::numeric_limits<long long>::min(), (int8_t)200, (uint16_t)-1};
      for (int n = 0; n < 10; ++n) out[n] = d[n];
      for (int n = 0; n < 9; ++n) whole[n] = w[n];
    }"""
    out, whole = run(text, zeros(10, dtype="f8"), zeros(9, dtype="i8"), block=(1,))
    single, double = np.finfo("f4"), np.finfo("f8")
    floats = [single.max, single.eps, double.eps, double.tiny, np.pi, np.e, np.sqrt(2), np.inf, single.max, double.min]
    assert out.tolist() == [float(value) for value in floats]
    assert whole.tolist() == [-(2**31), 2**32 - 1, 2**63 - 1, 8, -(2**15), 255, -(2**63), -56, 65535]


def brain(values: Array) -> Array:
    """Rounded to bfloat16, as float32."""
    bits = values.astype("f4").view("u4").astype("u8")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype("u4").view("f4")


SMALL = """__global__ void k(const T* x, const T* y, T* out, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  T a = x[i], b = y[i];
  T r[] = {{a + b, a - b, a * b, a / b, -a, __hadd_rn(a, b), __hmul_rn(a, b), __hfma(a, b, a), __hmin(a, b),
           __hmax(a, b), __habs(a), hsqrt(b), __hadd_sat(a, b), T(a < b), T(__hge(a, b)), T(float(a) * 3.0f),
           T((double)(float)b), T(7)}};
  P p = {pair}(a, b), q = __hfma2(p, p, P(b, a));
  T s[] = {{q.x, q.y, __hadd2(p, p).y, (p * P(b, b)).x, T(__hbgt2(p, q)), T({to_float}(__hneg2(p).y))}};
  for (int m = 0; m < 18; ++m) out[m * n + i] = r[m];
  for (int m = 0; m < 6; ++m) out[(18 + m) * n + i] = s[m];
}}"""


def small_results(a: Array, b: Array, narrow: Callable[[Array], Array]) -> list[Array]:
    """What ``SMALL`` computes, each operation exactly in double and rounded once."""
    x, y = a.astype("f8"), b.astype("f8")
    qx, qy = narrow(x * x + y), narrow(y * y + x)
    one = [
        x + y,
        x - y,
        x * y,
        x / y,
        -x,
        x + y,
        x * y,
        x * y + x,
        np.minimum(x, y),
        np.maximum(x, y),
        np.abs(x),
        np.sqrt(y),
    ]
    one += [np.clip(narrow(x + y), 0, 1), x < y, x >= y, (x * 3).astype("f4"), y, np.full(len(x), 7.0)]
    two = [qx, qy, y + y, x * y, (x > qx) & (y > qy), -y]
    return [narrow(np.asarray(values, "f8")) for values in (*one, *two)]


def test_half(run: Callable[..., list[Array]]) -> None:
    random = np.random.default_rng(5)
    a, b = random.normal(size=300).astype("f2"), random.uniform(0.1, 4, 300).astype("f2")
    text = "#include <cuda_fp16.h>\ntypedef half T; typedef half2 P;\n"
    out = run(
        text + SMALL.format(pair="__halves2half2", to_float="__half2float"),
        a,
        b,
        zeros(24, 300, dtype="f2"),
        300,
        grid=(4,),
    )[2]
    for number, (actual, exact) in enumerate(zip(out, small_results(a, b, lambda v: v.astype("f2")), strict=True)):
        assert (actual == exact).all(), number


def test_bfloat16(run: Callable[..., list[Array]]) -> None:
    random = np.random.default_rng(6)
    a, b = brain(random.normal(size=300)), brain(random.uniform(0.1, 4, 300))
    words = [(v.view("u4") >> 16).astype("u2") for v in (a, b)]
    text = "#include <cuda_bf16.h>\ntypedef __nv_bfloat16 T; typedef __nv_bfloat162 P;\n"
    text += SMALL.format(pair="__halves2bfloat162", to_float="__bfloat162float")
    out = run(text, *words, zeros(24, 300, dtype="u2"), 300, grid=(4,))[2]
    for number, (actual, exact) in enumerate(zip(out, small_results(a, b, brain), strict=True)):
        assert ((actual.astype("u4") << 16).view("f4") == exact).all(), number


def test_half_conversions(run: Callable[..., list[Array]]) -> None:
    text = """#include <cuda_fp16.h>
    __global__ void k(const float* x, half* out, int* whole) {
      int t = threadIdx.x;
      out[t] = __float2half(x[t]);
      half h = __double2half(x[t]);
      half2 pair = __floats2half2_rn(x[t], 1.0f);
      int* w = whole + 8 * t;
      w[0] = __half2int_rz(h), w[1] = __half2int_rn(h), w[2] = __half_as_ushort(h), w[3] = __half2short_rz(h);
      w[4] = __half_as_short(__int2half_rn(t)), w[5] = __half22float2(pair).y, w[6] = __hisnan(h);
      w[7] = __float2int_rz(__high2float(__lowhigh2highlow(pair)));
    }"""
    x = np.concatenate([np.linspace(-70000, 70000, 40), np.linspace(-3, 3, 50), [1e-8, 6e-8, 2049, 2051, 65519, 65520]])
    x = x.astype("f4")
    with np.errstate(over="ignore"):
        half = x.astype("f2")
    _, out, whole = run(text, x, zeros(N, dtype="f2"), zeros(N, 8))
    assert (out.view("u2") == half.view("u2")).all()
    wide = np.clip(half.astype("f8"), -(2**31), 2**31 - 1)
    lanes = np.arange(N)
    assert (whole[:, 0] == np.trunc(wide)).all()
    assert (whole[:, 1] == np.rint(wide)).all()
    assert (whole[:, 2] == half.view("u2")).all()
    assert (whole[:, 3] == np.clip(np.trunc(wide), -32768, 32767)).all()
    assert (whole[:, 4] == lanes.astype("f2").view("i2")).all()
    assert (whole[:, 5] == 1).all()
    assert (whole[:, 6] == 0).all()
    assert (whole[:, 7] == np.trunc(wide)).all()


# -- clocks, and what ends a kernel ----------------------------------------------------------------------------------


def test_clocks_go_forward(run: Callable[..., list[Array]]) -> None:
    text = """__global__ void k(long long* out) {
      long long start = clock64();
      unsigned long long t = __globaltimer();
      __nanosleep(20);
      out[0] = clock64() - start;
      out[1] = __globaltimer() - t;
      out[2] = clock() != 0;
    }"""
    (out,) = run(text, zeros(3, dtype="i8"), block=(1,))
    assert (out >= 0).all()


def test_assertions_and_traps_are_faults(run: Callable[..., list[Array]]) -> None:
    text = "#include <cassert>\n__global__ void k(int* x, int n) { assert(x[threadIdx.x] < n); x[threadIdx.x] = 1; }"
    x = np.arange(N, dtype="i4")
    assert (run(text, x, N)[0] == 1).all()
    with pytest.raises(DeviceFault):
        run(text, x, 5)
    with pytest.raises(DeviceFault):
        run("__global__ void k(int* x) { if (x[threadIdx.x] == 3) __trap(); }", x)


def test_what_the_cpu_device_lacks_is_named(run: Callable[..., list[Array]]) -> None:
    with pytest.raises(Unsupported, match="printf"):
        run('#include <cstdio>\n__global__ void k(int* x) { printf("%d", x[0]); }', zeros(1))
