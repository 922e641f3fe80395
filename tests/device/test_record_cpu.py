"""Recording on the CPU device: real kernels, checked against NumPy, and replayed from what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from r3bench import store
from r3bench.devices import Device, open_device
from r3bench.errors import LaunchError, RecordError
from r3bench.model import Status, Variant
from r3bench.record import Session, Struct
from r3bench.replay import replay
from r3bench.toolchain import Compiler
from tests.device.run_kernel import Runner

SOURCE = """\
struct Field { double* data; int n; float scale; };

__constant__ double weights[3] = {0.25, 0.5, 0.25};
__device__ unsigned long long visits;
static __device__ float bias = 1.5f;

extern "C" __global__ void smooth(double* out, const double* in, int n) {
    extern __shared__ double tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tile[threadIdx.x] = in[i];
    __syncthreads();
    if (i < n) {
        atomicAdd(&visits, 1ull);
        double left = threadIdx.x > 0 ? tile[threadIdx.x - 1] : i > 0 ? in[i - 1] : 0.0;
        double right = i == n - 1 ? 0.0 : threadIdx.x < blockDim.x - 1 ? tile[threadIdx.x + 1] : in[i + 1];
        out[i] = weights[0] * left + weights[1] * tile[threadIdx.x] + weights[2] * right + bias;
    }
}

__global__ void scale(Field field) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < field.n) field.data[i] *= field.scale;
}

__global__ void sum_rows(const float* const* rows, float* sums, int width) {
    float sum = 0;
    for (int i = 0; i < width; i++) sum += rows[threadIdx.x][i];
    sums[threadIdx.x] = sum;
}

extern "C" __global__ void stray(int* out) { out[threadIdx.x + 1000000] = 1; }
"""


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device("cpu", threads=2)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    opened = Compiler(workers=1)
    yield opened
    opened.close()


@pytest.fixture
def session(tmp_path: Path, device: Device, compiler: Compiler) -> Iterator[Session]:
    (tmp_path / "kernels.cu").write_text(SOURCE)
    with Session("demo", tmp_path, device, compiler=compiler) as opened:
        yield opened


def assert_replays(path: Path, device: Device, compiler: Compiler) -> None:
    capture = store.open_capture(path)
    for unit in capture.units:
        outcome = replay(capture, Variant(), device, compiler, unit=unit.index)
        assert outcome.verdict.status is Status.MATCH, outcome.verdict.detail


def test_shared_memory_variables_and_barriers(
    session: Session, tmp_path: Path, device: Device, compiler: Compiler
) -> None:
    module, values = session.module("kernels.cu"), np.random.default_rng(0).normal(size=100)
    given, out = session.array("in", values), session.array("out", np.zeros(100))
    session.capture("smooth", [0, 1])
    session.launch(module, "smooth", 4, 32, [out, given, 100], shared_bytes=32 * 8)
    padded = np.pad(values, 1)
    np.testing.assert_allclose(out.values, 0.25 * padded[:-2] + 0.5 * values + 0.25 * padded[2:] + 1.5, rtol=1e-14)
    assert module.variable("visits") == 100
    module.variable("weights")[:] = [0, 2, 0]
    module.variable("bias")[...] = 0
    session.launch(module, "smooth", 4, 32, [out, given, 100], shared_bytes=32 * 8)
    np.testing.assert_array_equal(out.values, 2 * values)
    assert module.variable("visits") == 200
    (capture,) = session.save(tmp_path)
    assert [set(unit.written) for unit in capture.units] == [{"out", "visits"}, {"out", "visits"}]
    assert_replays(tmp_path / "smooth.zarr", device, compiler)


def test_structs_and_views(session: Session, tmp_path: Path, device: Device, compiler: Compiler) -> None:
    module, data = session.module("kernels.cu"), session.array("data", np.arange(10.0))
    record = np.zeros((), [("data", "u8"), ("n", "i4"), ("scale", "f4")])
    record["n"], record["scale"] = 6, 0.5
    session.capture("scale")
    session.launch(module, "scale", 1, 32, [Struct(record[()], {0: data[4:]})])
    assert data.values.tolist() == [0, 1, 2, 3, 2, 2.5, 3, 3.5, 4, 4.5]
    session.save(tmp_path)
    assert_replays(tmp_path / "scale.zarr", device, compiler)


def test_pointers_in_memory(session: Session, tmp_path: Path, device: Device, compiler: Compiler) -> None:
    module = session.module("kernels.cu")
    matrix = session.array("matrix", np.arange(12, dtype="f4").reshape(3, 4))
    rows, sums = session.array("rows", [matrix[2], matrix[0], matrix[1]]), session.array("sums", np.zeros(3, "f4"))
    session.capture("sum_rows")
    session.launch(module, "sum_rows", 1, 3, [rows, sums, 4])
    assert sums.values.tolist() == [38, 6, 22]
    session.save(tmp_path)
    assert_replays(tmp_path / "sum_rows.zarr", device, compiler)


def test_a_fault_names_the_kernel_and_leaves_the_session_usable(session: Session) -> None:
    module, out = session.module("kernels.cu"), session.array("out", np.zeros(4, "i4"))
    with pytest.raises(RecordError, match="kernel stray failed while it ran for recording"):
        session.launch(module, "stray", 1, 32, [out])
    assert out.values.tolist() == [0, 0, 0, 0]
    test = session.array("data", np.ones(2))
    session.launch(
        module, "scale", 1, 32, [Struct(bytes(8) + np.int32(2).tobytes() + np.float32(3).tobytes(), {0: test})]
    )
    assert test.values.tolist() == [3, 3]


HUGE = '__device__ double big[1ull << 43];\nextern "C" __global__ void k(double* x) { big[1] = x[0]; }\n'


def test_variables_larger_than_memory_are_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(HUGE)
    with Session("app", tmp_path, "cpu") as session:
        module = session.module("k.cu")
        with pytest.raises(RecordError, match="device variable big has 70368744177664 bytes, more than half"):
            session.launch(module, "k", 1, 32, [session.array("x", [1.0])])


def test_the_device_loads_no_variables_larger_than_memory(tmp_path: Path) -> None:
    with closing(open_device("cpu")) as device, Compiler(1, cache=tmp_path) as compiler:
        runner = Runner(compiler, device, HUGE)
        with pytest.raises(LaunchError, match="out of memory: k with its variables needs 70368744177664 bytes"):
            runner("k", (1,), (32,), np.ones(1))
