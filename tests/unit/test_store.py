"""Captures on disk: what is written is read back, by us and by plain Zarr readers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from zarr.storage import LocalStore, ZipStore

from r3bench import store
from r3bench.errors import CaptureError
from r3bench.model import Allocation, Capture, Global, LaunchConfig, Parameter, Pointer, ReplayUnit, Source
from r3bench.store import UnitContents, arrays

TEXTS = {"kernels.cu": '#include "lib/a.cuh"\n__global__ void step(double*, int) {}\n', "lib/a.cuh": "// \udce9\n"}
BASE = 0x7F0000000000


def raw(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def make_unit(index: int = 0, nx: int = 4, **changes: Any) -> tuple[ReplayUnit, UnitContents]:
    """A unit with every kind of buffer; the launch adds one to ``state`` and sets the global ``_ZN1a5totalE``."""
    state = np.arange(2 * 3 * nx, dtype="float64").reshape(2, 3, nx) - 1.5
    before = {
        "state": raw(state),
        "flags": raw(np.array([True, False, True])),
        "half": raw(np.array([1.5, -0.0], dtype="float16")),
        "brain": raw(np.array([0x3F80, 0x8000], dtype="uint16")),
        "wave": raw(np.array([1 + 2j], dtype="complex64")),
        "particles<double>::p/q": raw(np.arange(24, dtype="uint8")),
        "nothing": raw(np.zeros(0)),
        "_ZN1a5totalE": raw(np.zeros(1, dtype="int64")),
    }
    allocations = (
        Allocation(name="state", address=BASE, nbytes=48 * nx, dtype="float64", shape=(2, 3, nx), dims=("v", "z", "x")),
        Allocation(name="flags", address=BASE + 0x1000, nbytes=3, dtype="bool", align=1),
        Allocation(name="half", address=BASE + 0x2000, nbytes=4, dtype="float16", memory="managed"),
        Allocation(name="brain", address=BASE + 0x3000, nbytes=4, dtype="bfloat16", shape=(2,)),
        Allocation(name="wave", address=BASE + 0x4000, nbytes=8, dtype="complex64", memory="host"),
        Allocation(name="particles<double>::p/q", address=BASE + 0x5000, nbytes=24, memory="pool", whole_bytes=1 << 34),
        Allocation(name="nothing", address=BASE + 0x6000, nbytes=0, dtype="float64"),
    )
    unit = ReplayUnit(
        index=index,
        launch=LaunchConfig(grid=(2, 1, 1), block=(32, 1, 1), shared_bytes=16, cluster=(2, 1, 1)),
        arguments=(BASE + 48).to_bytes(8, "little") + nx.to_bytes(4, "little"),
        pointers=(
            Pointer(offset=0, allocation="state", displacement=48),
            Pointer(offset=8, allocation="wave", holder="particles<double>::p/q"),
        ),
        allocations=allocations,
        globals=(Global(symbol="_ZN1a5totalE", nbytes=8, dtype="int64"),),
        written=("state", "_ZN1a5totalE"),
        occurrence=7 + index,
        seconds=0.25,
        stream=3,
        held_out=index > 0,
        label=f"nx={nx}",
    )
    after = {"state": raw(state + 1), "_ZN1a5totalE": raw(np.ones(1, dtype="int64")), "wave": before["wave"].copy()}
    return replace(unit, **changes), UnitContents(before, after)


def make_capture(*units: ReplayUnit, **changes: Any) -> Capture:
    files = tuple((path, store.text_sha256(text)) for path, text in TEXTS.items())
    capture = Capture(
        path="",
        application="demo",
        symbol="_Z4stepPdi",
        demangled="step(double*, int)",
        parameters=(
            Parameter(name="state", offset=0, size=8, kind="pointer", dtype="float64", restrict=True),
            Parameter(name="nx", offset=8, size=4, kind="scalar", dtype="int32"),
        ),
        source=Source(root="kernels/demo", main="kernels.cu", span=(2, 2), files=files, flags=("-DN=1",)),
        units=units,
        command=("./demo", "--steps", "3"),
        recorded_on=(("device", "cpu"), ("os", "Linux")),
    )
    return replace(capture, **changes)


def write_demo(path: Path, **changes: Any) -> Capture:
    units, held = zip(make_unit(0), make_unit(1, nx=5), strict=True)
    return store.write(path, make_capture(*units, **changes), held, TEXTS, ir="; the IR\n", image=None)


@pytest.fixture(scope="module", params=["step.zarr", "step.zarr.zip"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """A capture to read only."""
    return write_demo(tmp_path_factory.mktemp("demo") / str(request.param))


@pytest.fixture(params=["step.zarr", "step.zarr.zip"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def files_of(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {path.name: path.read_bytes()}
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_nouns_come_back_equal(demo: Capture) -> None:
    opened = store.open_capture(demo.path)
    assert opened == demo
    units = tuple(make_unit(i, nx)[0] for i, nx in enumerate((4, 5)))
    assert replace(opened, path="", content_hash="") == make_capture(*units)
    assert len(opened.content_hash) == 64


def test_bytes_come_back_equal_and_after_holds_only_changes(demo: Capture) -> None:
    for index, nx in enumerate((4, 5)):
        given, read = make_unit(index, nx)[1], store.contents(demo, index)
        assert {n: d.tobytes() for n, d in read.before.items()} == {n: d.tobytes() for n, d in given.before.items()}
        assert set(read.after) == {"state", "_ZN1a5totalE"}
        full = store.expected(demo, index)
        assert list(full) == list(given.before)
        assert full["state"].tobytes() == given.after["state"].tobytes()
        assert full["half"].tobytes() == given.before["half"].tobytes()


def test_sources_ir_and_image(demo: Capture, tmp_path: Path) -> None:
    assert store.sources(demo) == TEXTS
    assert store.ir(demo) == b"; the IR\n"
    assert store.image(demo) is None
    path = tmp_path / Path(demo.path).name
    unit, held = make_unit()
    capture = store.write(path, make_capture(unit, image_format="cubin"), [held], TEXTS, image=b"\x7fELF\0")
    assert store.image(capture) == b"\x7fELF\0"
    assert store.ir(capture) is None


def test_source_is_kept_as_a_plain_file(demo: Capture) -> None:
    place = zipfile.Path(demo.path) if demo.path.endswith("zip") else Path(demo.path)
    assert (place / "source/kernels.cu/c/0").read_bytes() == TEXTS["kernels.cu"].encode()
    assert (place / "source/lib%2Fa.cuh/c/0").read_bytes() == b"// \xe9\n"


def plain(capture: Capture) -> LocalStore | ZipStore:
    """A capture as a user of zarr opens it."""
    return ZipStore(Path(capture.path)) if capture.path.endswith("zip") else LocalStore(capture.path)


def test_plain_xarray_reads_named_variables_with_dimensions(demo: Capture) -> None:
    for options in ({"consolidated": False}, {}):
        place = plain(demo) if demo.path.endswith("zip") else demo.path
        with xarray.open_datatree(place, engine="zarr", **options) as tree:  # type: ignore[arg-type]
            state = tree["units/0/before/state"]
            assert state.dims == ("v", "z", "x")
            assert state.dtype == np.float64
            np.testing.assert_array_equal(state.values.reshape(-1), np.arange(24.0) - 1.5)
            np.testing.assert_array_equal(tree["units/1/after/state"].values.reshape(-1), np.arange(30.0) - 0.5)
            assert set(tree["units/0/after"].data_vars) == {"state", "_ZN1a5totalE"}
            assert tree["units/0/before/flags"].values.tolist() == [True, False, True]
            assert np.signbit(tree["units/0/before/half"].values).tolist() == [False, True]
            assert tree["units/0/before/brain"].dtype == np.uint16
            odd = tree["units/0/before/particles%3Cdouble%3E%3A%3Ap%2Fq"]
            assert odd.attrs["r3bench"]["name"] == "particles<double>::p/q"


def test_plain_zarr_reads_it(demo: Capture) -> None:
    with plain(demo) as place:
        group = zarr.open_group(place, mode="r")
        assert group.attrs["r3bench"]["symbol"] == "_Z4stepPdi"  # type: ignore[index,call-overload]
        np.testing.assert_array_equal(group["units/0/before/wave"][:], np.array([1 + 2j], "complex64"))  # type: ignore[index]


def test_dataset_has_true_names_and_dtypes(demo: Capture) -> None:
    before, after = store.dataset(demo, 1), store.dataset(demo, 1, "after")
    assert dict(before["state"].sizes) == {"v": 2, "z": 3, "x": 5}
    assert before["particles<double>::p/q"].dtype == np.uint8
    assert before["brain"].attrs == {"dtype": "bfloat16"}
    assert set(after) == {"state", "_ZN1a5totalE"}
    np.testing.assert_array_equal(after["state"], before["state"] + 1)


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.zarr", "a.zarr.zip"):
        (tmp_path / "one").mkdir(exist_ok=True)
        write_demo(tmp_path / name)
        write_demo(tmp_path / "one" / name)
        assert files_of(tmp_path / name) == files_of(tmp_path / "one" / name)


def test_content_hash_follows_the_content_not_the_place(demo: Capture, tmp_path: Path) -> None:
    assert write_demo(tmp_path / "a.zarr").content_hash == demo.content_hash
    assert write_demo(tmp_path / "a.zarr", application="other").content_hash != demo.content_hash


@pytest.mark.parametrize(("rows", "files"), [(100, 7), (1100, 5)])
def test_big_buffers_are_cut_and_sharded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, files: int
) -> None:
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(arrays, "SHARD_BYTES", 1 << 18)
    values = np.random.default_rng(1).integers(0, 9, (rows, 128), dtype="int64")
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
        arguments=b"",
        pointers=(),
        allocations=(Allocation(name="big", address=BASE, nbytes=values.nbytes, dtype="int64", shape=values.shape),),
    )
    capture = make_capture(unit, parameters=(), source=None)
    zeros = np.zeros(values.nbytes, np.uint8)
    paths = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for path in paths:
        capture = store.write(path, capture, [UnitContents({"big": raw(values)}, {"big": zeros})])
    assert files_of(paths[0]) == files_of(paths[1])
    packed = store.write(tmp_path / "c.zarr.zip", capture, [UnitContents({"big": raw(values)}, {"big": zeros})])
    for read in (store.contents(capture, 0), store.contents(packed, 0)):
        assert np.array_equal(read.before["big"], raw(values))
        assert np.array_equal(read.after["big"], zeros)
    assert len(list((tmp_path / "a.zarr/units/0/before/big/c").rglob("*/0"))) == files


@pytest.mark.parametrize("shape", [(5,), (1 << 21,), (3, 1 << 20), (1 << 20, 3), (2, 3, 1 << 20), (1 << 30, 1 << 30)])
def test_pieces_fit_and_are_whole_rows(shape: tuple[int, ...]) -> None:
    pieces = arrays.pieces(shape, 8, 4 << 20)
    assert all(1 <= piece <= size for piece, size in zip(pieces, shape, strict=True))
    assert prod(pieces) * 8 <= 4 << 20
    assert prod(pieces) * 8 > 1 << 20 or pieces == shape
    cut = [axis for axis, (piece, size) in enumerate(zip(pieces, shape, strict=True)) if piece < size]
    assert all(pieces[axis] == 1 for axis in cut[:-1])


def test_append_numbers_units_on_and_keeps_the_rest(path: Path) -> None:
    unit, held = make_unit(0)
    store.write(path, make_capture(unit), [held], TEXTS, ir="; the IR\n")
    again, other = make_unit(0, nx=5, held_out=True, occurrence=8)
    capture = store.append(path, make_capture(again), [other])
    reference = path.with_name("all.zarr")
    assert replace(capture, path="") == replace(write_demo(reference), path="")
    assert store.expected(capture, 1)["state"].tobytes() == other.after["state"].tobytes()
    assert store.ir(capture) == b"; the IR\n"


def test_append_refuses_another_kernel(path: Path) -> None:
    unit, held = make_unit(0)
    before = write_demo(path)
    with pytest.raises(CaptureError, match="another kernel"):
        store.append(path, make_capture(unit, symbol="_Z5otherv"), [held])
    assert store.open_capture(path) == before


def test_write_replaces_the_whole_old_store(path: Path) -> None:
    write_demo(path)
    unit, held = make_unit()
    capture = store.write(path, make_capture(unit, source=None), [held])
    assert len(store.open_capture(path).units) == 1
    assert not [name for name in files_of(path) if name.startswith("source/")]
    with pytest.raises(CaptureError, match="units 0 to 0"):
        store.contents(capture, 1)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_stale_capture_is_refused(path: Path) -> None:
    old = write_demo(path)
    write_demo(path, application="other")
    with pytest.raises(CaptureError, match="rewritten since"):
        store.contents(old, 0)


def test_find_lists_stores_without_looking_inside(tmp_path: Path) -> None:
    for name in ("b/x.zarr", "a.zarr/inner.zarr", ".hidden/z.zarr", "b/c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b/c/y.zarr.zip").touch()
    found = [tmp_path / "a.zarr", tmp_path / "b/c/y.zarr.zip", tmp_path / "b/x.zarr"]
    assert store.find([tmp_path, tmp_path / "a.zarr"]) == found
    assert store.find([tmp_path / "b"]) == found[1:]
    with pytest.raises(CaptureError, match="check the path"):
        store.find([tmp_path / "none"])


def test_opening_is_quick_and_imports_no_zarr(demo: Capture) -> None:
    code = (
        "import sys, time\nfrom r3bench import store\nstart = time.process_time()\n"
        f"for _ in range(20): store.open_capture({demo.path!r})\n"
        "assert not {'zarr', 'xarray', 'numcodecs'} & set(sys.modules)\nprint(time.process_time() - start)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert float(done.stdout) < 0.3  # about 0.05 s for 20 stores
