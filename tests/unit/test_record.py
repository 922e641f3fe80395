"""Recording from Python: what kernels are given, what a session keeps of it, what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r3bench import store
from r3bench.errors import BuildError, CaptureError, DeviceFault, RecordError
from r3bench.model import Capture, Global, Parameter, Pointer
from r3bench.record import Session, Struct, VacuousUnit
from r3bench.record.arguments import pack
from r3bench.record.memory import FIRST_ADDRESS, AddressSpace
from r3bench.record.variables import read_variable, variable_names
from r3bench.remix import BuildRequest
from r3bench.testing.fake import FakeDevice, FakeLaunch, Program, fake_binary
from r3bench.toolchain import Built

SOURCE = """\
#include "lib/shape.h"

__constant__ double weights[3] = {0.25, 0.5, 0.25};
__device__ int launches;

extern "C" __global__ void smooth(double* out, const double* in, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) launches++;
    if (i > 0 && i < n - 1)
        out[i] = factor * (weights[0] * in[i - 1] + weights[1] * in[i] + weights[2] * in[i + 1]);
}

__global__ void add(Field field, double value) { field.data[threadIdx.x] += value * field.scale; }

extern "C" __global__ void gather(double** rows, double* out, int n) { out[threadIdx.x] = rows[threadIdx.x][n]; }

template <typename T> __global__ void fill(T* out, T value) { out[threadIdx.x] = value; }
template __global__ void fill<float>(float*, float);
template __global__ void fill<double>(double*, double);

extern "C" __global__ void idle(double* out) {}
"""
SHAPE = "struct Field { double* data; int n; float scale; };\n"


class FakeCompiler:
    """Gives a binary by the kernel's symbol, and the variables each kernel uses; fails on request."""

    def __init__(self) -> None:
        self.requests: list[BuildRequest] = []
        self.failing = False

    def submit(self, request: BuildRequest) -> Future[Built]:
        self.requests.append(request)
        done: Future[Built] = Future()
        if self.failing:
            done.set_exception(BuildError("kernels.cu:6:1: no"))
            return done
        used = (Global(symbol="launches", nbytes=4), Global(symbol="weights", nbytes=24, constant=True))
        variables = used if request.symbol == "smooth" else ()
        done.set_result(Built(binary=fake_binary(request.symbol), module="0" * 64, globals=variables))
        return done


def smooth(run: FakeLaunch) -> None:
    out, values = run.at(run.argument(0, "u8"), "f8"), run.at(run.argument(8, "u8"), "f8")
    n, weights = run.argument(16, "i4"), run.array("weights", "f8")
    run.array("launches", "i4")[0] += 1
    inner = weights[0] * values[: n - 2] + weights[1] * values[1 : n - 1] + weights[2] * values[2:n]
    out[1 : n - 1] = run.argument(20, "f4") * inner


def add(run: FakeLaunch) -> None:
    run.at(run.argument(0, "u8"), "f8")[:3] += run.argument(16, "f8") * run.argument(12, "f4")


def gather(run: FakeLaunch) -> None:
    rows, out, n = run.at(run.argument(0, "u8"), "u8"), run.at(run.argument(8, "u8"), "f8"), run.argument(16, "i4")
    for i, row in enumerate(rows[:2]):
        out[i] = run.at(row, "f8")[n]
    rows[:2] = rows[:2][::-1].copy()


def fault(run: FakeLaunch) -> None:
    raise DeviceFault("buffer out was read 8 bytes behind its end")


@pytest.fixture
def application(tmp_path: Path) -> Path:
    (tmp_path / "demo/lib").mkdir(parents=True)
    (tmp_path / "demo/kernels.cu").write_text(SOURCE)
    (tmp_path / "demo/lib/shape.h").write_text(SHAPE)
    return tmp_path


@pytest.fixture
def compiler() -> FakeCompiler:
    return FakeCompiler()


@pytest.fixture
def session(application: Path, compiler: FakeCompiler) -> Iterator[Session]:
    programs = {
        "smooth": Program(smooth),
        "_Z3add5Fieldd": Program(add),
        "gather": Program(gather),
        "_Z4fillIfEvPT_S0_": Program(fault),
        "idle": Program(lambda run: None),
    }
    with Session("demo", application / "demo", FakeDevice(programs), compiler=compiler, top=application) as session:
        yield session


def run_smooth(session: Session, n: int = 6, times: int = 1) -> tuple[Any, Any]:
    module = session.module("kernels.cu", ["-DX=1"])
    values = session.array("in", np.arange(n) ** 2.0, dims=("x",))
    out = session.array("out", np.zeros(n), dims=("x",))
    for _ in range(times):
        session.launch(module, "smooth", n, (32, 1), [out, values, n, 2.0])
    return module, out


def expected_smooth(n: int) -> list[float]:
    return [0.0, *(2.0 * (i * i + 0.5) for i in range(1, n - 1)), 0.0]


# -- launching ------------------------------------------------------------------------------------------------------


def test_arrays_and_variables_hold_what_a_launch_left(session: Session) -> None:
    module, out = run_smooth(session, times=3)
    assert out.values.tolist() == expected_smooth(6)
    assert np.asarray(out).sum() == sum(expected_smooth(6))
    assert module.variable("launches").tolist() == 3
    assert module.variable("weights").tolist() == [0.25, 0.5, 0.25]


def test_the_host_writes_arrays_and_variables_between_launches(session: Session) -> None:
    module = session.module("kernels.cu")
    values, out = session.array("in", np.ones(4)), session.array("out", np.zeros(4))
    module.variable("weights")[:] = [1, 2, 3]
    session.launch(module, "smooth", 1, 32, [out, values, 4, 1])
    assert out.values.tolist() == [0, 6, 6, 0]
    values.values[:] = 10
    session.launch(module, "smooth", 1, 32, [out, values, 4, 1])
    assert out.values.tolist() == [0, 60, 60, 0]


def test_slices_point_into_arrays(session: Session) -> None:
    module = session.module("kernels.cu")
    both = session.array("both", np.vstack([np.zeros(4), np.ones(4)]))
    session.launch(module, "smooth", 1, 32, [both[0], both[1:], 4, 1.0])
    assert both.values[0].tolist() == [0, 1, 1, 0]


def test_structs_carry_pointers(session: Session) -> None:
    module = session.module("kernels.cu")
    data = session.array("data", np.arange(5.0))
    record = np.zeros((), [("data", "u8"), ("n", "i4"), ("scale", "f4")])
    record["n"], record["scale"] = 5, 0.5
    session.launch(module, "add", 1, 3, [Struct(record[()], {0: data[2:]}), 8.0])
    assert data.values.tolist() == [0, 1, 6, 7, 8]


def test_pointers_in_arrays_are_followed_even_where_a_kernel_moved_them(session: Session, tmp_path: Path) -> None:
    module = session.module("kernels.cu")
    a, b = session.array("a", [1.0, 2.0, 3.0]), session.array("b", [10.0, 20.0, 30.0])
    rows, out = session.array("rows", [a, b[1:], None]), session.array("out", np.zeros(2))
    session.capture("gather", [0, 1])
    session.launch(module, "gather", 1, 2, [rows, out, 1])
    assert out.values.tolist() == [2, 30]
    session.launch(module, "gather", 1, 2, [rows, out, 0])
    assert out.values.tolist() == [20, 1]
    (capture,) = session.save(tmp_path)
    first, second = capture.units
    assert [a.name for a in first.allocations] == ["rows", "out", "a", "b"]
    assert [(p.allocation, p.displacement) for p in first.pointers if p.holder == "rows"] == [("a", 0), ("b", 8)]
    assert [(p.allocation, p.displacement) for p in second.pointers if p.holder == "rows"] == [("b", 8), ("a", 0)]


def test_a_kernel_is_built_once_with_its_flags(session: Session, compiler: FakeCompiler) -> None:
    run_smooth(session, times=2)
    run_smooth(session)
    (request,) = compiler.requests
    assert (request.main, request.flags, request.symbol) == ("kernels.cu", ("-DX=1",), "smooth")
    assert dict(request.files) == {"kernels.cu": SOURCE, "lib/shape.h": SHAPE}


def test_a_changed_source_is_loaded_anew(session: Session, application: Path, compiler: FakeCompiler) -> None:
    module, _ = run_smooth(session)
    (application / "demo/kernels.cu").write_text(SOURCE.replace("0.25, 0.5, 0.25", "1.0, 1.0, 1.0"))
    again, _ = run_smooth(session)
    assert again is not module
    out, values = session.array("out", np.zeros(3)), session.array("in", np.ones(3))
    session.launch(module, "smooth", 1, 32, [out, values, 3, 1.0])
    assert out.values.tolist() == [0, 1, 0]
    session.launch(again, "smooth", 1, 32, [out, values, 3, 1.0])
    assert out.values.tolist() == [0, 3, 0]
    assert again.variable("weights").tolist() == [1, 1, 1]
    assert len(compiler.requests) == 2


# -- what is kept ---------------------------------------------------------------------------------------------------


def test_chosen_launches_become_units(session: Session, tmp_path: Path) -> None:
    session.capture("smooth", [0, 2])
    run_smooth(session, times=2)
    run_smooth(session, n=9, times=2)
    (capture,) = session.save(tmp_path / "captures")
    assert capture == store.verify(tmp_path / "captures/smooth.zarr")
    first, second = capture.units
    assert [(u.occurrence, u.held_out, u.launch.grid) for u in capture.units] == [
        (0, False, (6, 1, 1)),
        (2, True, (9, 1, 1)),
    ]
    assert first.written == ("out", "launches")
    assert first.arguments[16:] == (6).to_bytes(4, "little") + np.float32(2).tobytes()
    assert first.pointers == (
        Pointer(offset=0, allocation="out"),
        Pointer(offset=8, allocation="in"),
    )
    assert second.globals == (
        Global(symbol="launches", nbytes=4, dtype="int32"),
        Global(symbol="weights", nbytes=24, dtype="float64", shape=(3,), constant=True),
    )
    before, after = store.dataset(capture, 1), store.dataset(capture, 1, "after")
    assert before["in"].dims == ("x",)
    assert before["in"].values.tolist() == [i * i for i in range(9)]
    assert before["launches"].values.tolist() == [2]
    assert after["launches"].values.tolist() == [3]
    assert after["out"].values.tolist() == expected_smooth(9)


def test_the_capture_says_where_its_kernel_is_from(session: Session, tmp_path: Path) -> None:
    session.capture("smooth")
    run_smooth(session)
    (capture,) = session.save(tmp_path / "captures", packed=True)
    assert capture.path == str(tmp_path / "captures/smooth.zarr.zip")
    assert capture.name == "demo/smooth"
    assert [(p.name, p.offset, p.kind, p.dtype) for p in capture.parameters] == [
        ("out", 0, "pointer", "float64"),
        ("in", 8, "pointer", "float64"),
        ("n", 16, "scalar", "int32"),
        ("factor", 20, "scalar", "float32"),
    ]
    source = capture.source
    assert source is not None
    assert (source.root, source.main, source.span, source.flags) == ("demo", "kernels.cu", (6, 11), ("-DX=1",))
    assert store.sources(capture) == {"kernels.cu": SOURCE, "lib/shape.h": SHAPE}
    assert dict(capture.recorded_on)["device"] == "fake"
    ir = store.ir(capture)
    assert ir is not None
    assert b"define" in ir
    assert str(tmp_path).encode() not in ir


def test_recording_twice_gives_the_same_bytes(application: Path, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        device = FakeDevice({"smooth": Program(smooth)})
        with Session("demo", application / "demo", device, compiler=FakeCompiler()) as session:
            session.capture("smooth")
            run_smooth(session)
            session.save(tmp_path / name, packed=True)
        found.append((tmp_path / name / "smooth.zarr.zip").read_bytes())
    assert found[0] == found[1]


def test_another_session_adds_units(application: Path, tmp_path: Path) -> None:
    captures: list[Capture] = []
    for n in (6, 9):
        device = FakeDevice({"smooth": Program(smooth)})
        with Session("demo", application / "demo", device, compiler=FakeCompiler()) as session:
            session.capture("smooth", label=f"n={n}")
            run_smooth(session, n)
            captures += session.save(tmp_path, add=True)
    assert [(u.label, u.held_out) for u in captures[-1].units] == [("n=6", False), ("n=9", True)]
    assert store.expected(captures[-1], 1)["out"].view("f8").tolist() == expected_smooth(9)


def test_templates_are_found_by_their_full_name(session: Session) -> None:
    module = session.module("kernels.cu")
    assert module.symbol("fill<float>") == module.symbol("_Z4fillIfEvPT_S0_") == "_Z4fillIfEvPT_S0_"
    with pytest.raises(RecordError, match=r"2 kernels named fill .*_Z4fillIdEvPT_S0_"):
        module.symbol("fill")


def test_a_launch_that_changes_nothing_is_called_vacuous(session: Session, tmp_path: Path) -> None:
    module, out = session.module("kernels.cu"), session.array("out", np.zeros(3))
    session.capture("idle")
    with pytest.warns(VacuousUnit, match="launch 0 of kernel idle changed nothing"):
        session.launch(module, "idle", 1, 32, [out])
    (capture,) = session.save(tmp_path)
    assert capture.units[0].written == ()


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"kernel smooth takes 4 arguments \(out, in, n, factor\), but 0 were given"),
        (["out", "out", 6.5, 1.0], "'n' of kernel smooth takes no float"),
        (["out", "out", 1 << 31, 1.0], "'n' of kernel smooth is of type int32, which cannot hold 2147483648"),
        (["out", "out", 6, 1e39], r"'factor' of kernel smooth is of type float32, which cannot hold 1e\+39"),
        (["out", "out", "out", 1.0], "'n' of kernel smooth is no pointer"),
        (["out", 7, 6, 1.0], "'in' of kernel smooth is a pointer: pass an array"),
        (["out", "flat", 6, 1.0], "'in' of kernel smooth points to float64, but array 'flat' holds float32"),
        (["out", "twin", 6, 1.0], "two arrays or variables of a launch of smooth share a name"),
        (["out", "out", None, 1.0], "'n' of kernel smooth is of type int32: pass a number, not NoneType"),
    ],
)
def test_wrong_arguments_name_kernel_and_parameter(session: Session, arguments: list[Any], message: str) -> None:
    module = session.module("kernels.cu")
    arrays = {
        "out": session.array("out", np.zeros(6)),
        "flat": session.array("flat", np.zeros(6, "f4")),
        "twin": session.array("out", np.zeros(6)),
    }
    values = [arrays[a] if isinstance(a, str) else a for a in arguments]
    with pytest.raises(RecordError, match=message):
        session.launch(module, "smooth", 1, 32, values)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda s: s.module("none.cu"), "none.cu is not there: check the path"),
        (lambda s: s.module("broken.cu"), r"does not compile: broken.cu:1:\d+: "),
        (
            lambda s: s.module("host.cu"),
            r"<vector> is .* or compile it with CUDA's own headers: flags=\[\"--cuda-headers",
        ),
        (lambda s: s.module("latin.cu"), "cannot be read as UTF-8"),
        (lambda s: s.module("kernels.cu").symbol("other"), r"has no kernels named other \(.*\): name one symbol"),
        (
            lambda s: s.module("kernels.cu").symbol("k<int>"),
            r"instantiate it: template __global__ decltype\(k<int>\) k<",
        ),
        (lambda s: s.module("kernels.cu").variable("other"), "has no variables named other"),
        (lambda s: s.save("x"), "nothing of demo was chosen"),
        (lambda s: s.array("a", ["x"]), "array 'a' has dtype"),
        (lambda s: s.array("a", [object()]), "array 'a' has dtype object"),
        (lambda s: s.array("a", np.zeros((2, 2)), dims=("x",)), "2 dimensions, but 1 names"),
        (lambda s: s.array("a", np.zeros(4))[[0, 1]], r"shape \(4,\) has no place \[0, 1\]"),
        (lambda s: s.array("a", np.zeros(4))[4], "has no place 4"),
        (lambda s: s.array("a", np.zeros(1), pointers={4: s.array("b", [1])}), "no pointer fits at 4"),
        (lambda s: run_smooth(s, times=0)[0] and s.launch(s.module("kernels.cu"), "idle", 0, 1, [None]), "positive"),
    ],
)
def test_wrong_use_says_what_is_wrong(
    session: Session, application: Path, act: Callable[..., Any], message: str
) -> None:
    (application / "demo/broken.cu").write_text("__global__ void k( {}\n")
    (application / "demo/latin.cu").write_bytes(b"// \xe9\n")
    (application / "demo/host.cu").write_text("#include <vector>\n")
    with pytest.raises(RecordError, match=message):
        act(session)


def test_failures_of_device_and_compiler_become_record_errors(session: Session, compiler: FakeCompiler) -> None:
    module, out = session.module("kernels.cu"), session.array("out", np.zeros(3, "f4"))
    with pytest.raises(RecordError, match="kernel fill<float> failed while it ran for recording: buffer out"):
        session.launch(module, "fill<float>", 1, 3, [out, 1])
    compiler.failing = True
    with pytest.raises(RecordError, match=r"kernel smooth cannot be built for fake: kernels\.cu:6:1"):
        run_smooth(session)


def test_choosing_too_late_or_in_vain_is_an_error(session: Session, tmp_path: Path) -> None:
    session.capture("smooth", [5])
    run_smooth(session, times=2)
    with pytest.raises(RecordError, match="launch 1 of kernel smooth is over"):
        session.capture("smooth", [1])
    with pytest.raises(RecordError, match="launched 2 times, so launch 5 was not recorded"):
        session.save(tmp_path)
    assert list(tmp_path.glob("*.zarr")) == []


def test_a_pointer_to_nowhere_is_an_error(session: Session) -> None:
    module = session.module("kernels.cu")
    rows = session.array("rows", [session.array("a", [1.0])])
    rows.values[0] = 64
    with pytest.raises(RecordError, match=r"array 'rows' holds the pointer 0x40"):
        session.launch(module, "gather", 1, 1, [rows, None, 0])


def test_sources_must_lie_below_the_repository(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="does not lie below"):
        Session("demo", tmp_path, FakeDevice({}), compiler=FakeCompiler(), top=tmp_path / "other")


# -- bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "value", "data"),
    [
        ("int8", -1, b"\xff"),
        ("uint64", (1 << 64) - 1, b"\xff" * 8),
        ("bool", True, b"\1"),
        ("float16", -2, np.float16(-2).tobytes()),
        ("bfloat16", 1.0, b"\x80\x3f"),
        ("bfloat16", 1 + 2**-8, b"\x80\x3f"),
        ("bfloat16", 1 + 3 * 2**-8, b"\x82\x3f"),
        ("float32", float("inf"), np.float32("inf").tobytes()),
        ("complex64", 1 - 2j, np.complex64(1 - 2j).tobytes()),
        ("int32", np.int64(7), b"\7\0\0\0"),
        (None, 7, b"\7\0\0\0\0\0\0\0"),
    ],
)
def test_scalars_are_packed_by_type(dtype: str | None, value: Any, data: bytes) -> None:
    parameter = Parameter(name="x", offset=4, size=len(data), kind="scalar", dtype=dtype)
    assert pack("k", [parameter], [value]).block == bytes(4) + data


def test_structs_are_packed_as_given() -> None:
    parameter = Parameter(name="s", offset=0, size=16, kind="struct")
    array = AddressSpace().array("a", np.zeros(4))
    packed = pack("k", [parameter], [Struct(b"\1" * 16, {8: array[3]})])
    assert packed.block == b"\1" * 8 + (FIRST_ADDRESS + 24).to_bytes(8, "little")
    assert packed.pointers == (Pointer(offset=8, allocation="a", displacement=24),)
    for wrong in (b"\1" * 15, Struct(bytes(16), {9: array}), 3):
        with pytest.raises(RecordError, match="argument 's' of kernel k"):
            pack("k", [parameter], [wrong])


def test_views_lead_where_numpy_says() -> None:
    array = AddressSpace().array("a", np.zeros((3, 4), "f4"))
    places = [array[:], array[1], array[1, 2], array[-1, -1], array[:, 3], array[2:, 1:], array[0, 4:]]
    assert [view.displacement for view in places] == [0, 16, 24, 44, 12, 36, 16]


@pytest.mark.parametrize(
    ("line", "dtype", "shape", "first"),
    [
        ("@v = addrspace(1) externally_initialized global i32 0, align 4", "int32", (), bytes(4)),
        ("@v = dso_local addrspace(4) constant [2 x i16] [i16 1, i16 -1]", "int16", (2,), b"\1\0\xff\xff"),
        ('@v = addrspace(1) global [4 x i8] c"a\\22\\0Ab"', "int8", (4,), b'a"\nb'),
        (
            "@v = addrspace(1) global [2 x [1 x float]] [[1 x float] [float 1.5], [1 x float] zeroinitializer]",
            "float32",
            (2, 1),
            np.array([1.5, 0], "f4").tobytes(),
        ),
        ("@v = addrspace(1) global double 0x3FD5555555555555, align 8", "float64", (), np.float64(1 / 3).tobytes()),
        ("@v = addrspace(1) global half 0xH3C00", "float16", (), np.float16(1).tobytes()),
        ("@v = addrspace(1) global bfloat 0xR3F80", "bfloat16", (), b"\x80\x3f"),
        (
            "@v = addrspace(1) global %struct.S { i8 1, double 2.0 }",
            "uint8",
            (16,),
            b"\1" + bytes(7) + b"\0\0\0\0\0\0\0@",
        ),
        ("@v = addrspace(1) global <{ i8, i32 }> <{ i8 1, i32 2 }>", "uint8", (5,), b"\1\2\0\0\0"),
        ("@v = internal addrspace(1) global ptr addrspace(1) null, align 8", "uint8", (8,), bytes(8)),
        (
            "@v = addrspace(1) global <2 x float> <float 1.0, float 2.0>",
            "uint8",
            (8,),
            np.array([1, 2], "f4").tobytes(),
        ),
        ("@v = addrspace(1) global [1000000000 x i8] zeroinitializer", None, (1000000000,), None),
    ],
)
def test_first_values_are_read_from_ir(
    line: str, dtype: str | None, shape: tuple[int, ...], first: bytes | None
) -> None:
    ir = f"%struct.S = type {{ i8, double }}\n{line}\n@shared = addrspace(3) global i32 undef\n"
    assert variable_names(ir) == ("v",)
    if dtype is not None:
        found = read_variable(ir, "v")
        assert (found.dtype, found.shape, found.first) == (dtype, shape, first)


def test_a_first_value_that_is_an_address_is_refused() -> None:
    with pytest.raises(RecordError, match=r"first value of variable v cannot be read \('@w'\)"):
        read_variable("@v = addrspace(1) global ptr @w", "v")


def test_a_bad_unit_is_refused_by_the_store(session: Session, tmp_path: Path) -> None:
    session.capture("smooth")
    module = session.module("kernels.cu")
    values, out = session.array("in", np.zeros(4), dims=("x",)), session.array("out", np.zeros(5), dims=("x",))
    session.launch(module, "smooth", 1, 32, [out, values, 4, 1.0])
    with pytest.raises(CaptureError, match="dimension 'x'"):
        session.save(tmp_path)
