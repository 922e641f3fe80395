"""Large arrays are read chunk by chunk past Zarr: the same bytes, and every damage is noticed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from r3bench import store
from r3bench.errors import CaptureError
from r3bench.model import Allocation, Capture, LaunchConfig, ReplayUnit
from r3bench.store import UnitContents, arrays, attributes, shards

NODE = "units/0/before/big"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large is small here."""
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(arrays, "SHARD_BYTES", 1 << 14)


def written(path: Path, values: np.ndarray) -> Capture:
    allocation = Allocation(
        name="big", address=1 << 40, nbytes=values.nbytes, dtype=values.dtype.name, shape=values.shape
    )
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
        arguments=b"",
        pointers=(),
        allocations=(allocation,),
    )
    capture = Capture(path="", application="demo", symbol="k", demangled="k", parameters=(), source=None, units=(unit,))
    held = UnitContents({"big": values.reshape(-1).view(np.uint8)}, {})
    return store.write(path, capture, [held])


def drawn(*shape: int, dtype: str = "int32") -> np.ndarray:
    return np.random.default_rng(1).integers(0, 100, shape).astype(dtype)


def forbidden(*_: Any) -> Any:
    raise AssertionError("Zarr was asked for a large array of ours")


@pytest.mark.parametrize("name", ["a.zarr", "a.zarr.zip"])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((10_000,), "int32"),
        ((16_384,), "uint8"),  # just not large
        ((50_001,), "uint8"),
        ((100, 128), "float64"),
        ((7, 33, 41), "float64"),
        ((3, 5000), "float32"),
        ((2, 3, 1500), "int64"),
        ((5000, 3), "uint16"),
    ],
)
def test_what_was_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, ...], dtype: str
) -> None:
    values = drawn(*shape, dtype=dtype)
    capture = written(tmp_path / name, values)
    if values.nbytes > arrays.SHARD_BYTES:
        monkeypatch.setattr(arrays, "_by_zarr", forbidden)
    assert np.array_equal(store.contents(capture, 0).before["big"], values.reshape(-1).view(np.uint8))


def rewritten(path: Path, values: np.ndarray, **layout: Any) -> Capture:
    """A capture whose array was written anew by Zarr itself, cut and packed in another way."""
    written(path, values)
    old = zarr.open_array(path / NODE)
    kept = dict(old.attrs)
    new = zarr.create_array(
        store=str(path),
        name=NODE,
        shape=values.shape,
        dtype=values.dtype,
        overwrite=True,
        attributes=kept,
        **layout,
    )
    new[...] = values
    root = json.loads((path / "zarr.json").read_text())
    root["consolidated_metadata"]["metadata"][NODE] = json.loads((path / NODE / "zarr.json").read_text())
    root["attributes"]["r3bench"]["content_hash"] = attributes.content_hash(root)
    (path / "zarr.json").write_text(json.dumps(root))
    return store.open_capture(path)


BLOSC = [zarr.codecs.BloscCodec(cname="lz4"), zarr.codecs.Crc32cCodec()]


@pytest.mark.parametrize(
    "layout",
    [
        {"chunks": (10, 16), "shards": (50, 64), "compressors": BLOSC},  # bytes of a chunk lie apart
        {"chunks": (10, 128), "compressors": BLOSC},  # no shards
        {"chunks": (10, 128), "shards": (50, 128), "compressors": None},
        {"chunks": (10, 128), "shards": (50, 128), "compressors": BLOSC, "fill_value": 1.0},
        {
            "chunks": (10, 128), "shards": (50, 128), "compressors": BLOSC,
            "chunk_key_encoding": {"name": "default", "separator": "."},
        },
    ],
)  # fmt: skip
def test_arrays_cut_in_other_ways_are_read_by_zarr(tmp_path: Path, layout: dict[str, Any]) -> None:
    values = drawn(100, 128, dtype="float64")
    capture = rewritten(tmp_path / "a.zarr", values, **layout)
    assert shards.layout_of(arrays_document(tmp_path / "a.zarr"), 8) is None
    assert np.array_equal(store.contents(capture, 0).before["big"], values.reshape(-1).view(np.uint8))


def arrays_document(path: Path) -> Any:
    return json.loads((path / NODE / "zarr.json").read_text())


def test_chunks_that_were_left_out_are_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = drawn(100, 128, dtype="float64")
    values[20:30] = 0
    capture = rewritten(tmp_path / "a.zarr", values, chunks=(10, 128), shards=(50, 128), compressors=BLOSC)
    monkeypatch.setattr(arrays, "_by_zarr", forbidden)
    assert np.array_equal(store.contents(capture, 0).before["big"], values.reshape(-1).view(np.uint8))


def test_any_flipped_bit_of_a_shard_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = written(tmp_path / "a.zarr", drawn(10_000))
    monkeypatch.setattr(arrays, "_by_zarr", forbidden)
    chance, targets = random.Random(7), sorted((tmp_path / "a.zarr" / NODE / "c").iterdir())
    for _ in range(60):
        target = chance.choice(targets)
        whole = bytearray(target.read_bytes())
        bit = chance.randrange(8 * len(whole))
        target.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        with pytest.raises(CaptureError, match="units/0/before/big"):
            store.contents(capture, 0)
        target.write_bytes(whole)
    store.contents(capture, 0)


def sealed(table: np.ndarray) -> bytes:
    import google_crc32c

    data = table.astype("<u8").tobytes()
    return data + google_crc32c.value(data).to_bytes(4, "little")


@pytest.mark.parametrize(
    "entry", [(0, 1 << 40), (0, 3), (0, 100), (1 << 50, 100), ((1 << 64) - 1, 100), ((1 << 63) + 7, (1 << 31) - 1)]
)
def test_a_table_that_lies_is_noticed(tmp_path: Path, entry: tuple[int, int]) -> None:
    """Its checksum is right, for whoever wrote it meant it."""
    capture = written(tmp_path / "a.zarr", drawn(10_000))
    shard = tmp_path / "a.zarr" / NODE / "c/0"
    whole = shard.read_bytes()
    table = np.frombuffer(whole[-68:-4], "<u8").reshape(-1, 2).copy()
    table[1] = entry
    shard.write_bytes(whole[:-68] + sealed(table))
    with pytest.raises(CaptureError, match="units/0/before/big: its array cannot be read"):
        store.contents(capture, 0)


@pytest.mark.parametrize("kept", [0, 10, 68, 200])
def test_a_shard_that_was_cut_is_noticed(tmp_path: Path, kept: int) -> None:
    capture = written(tmp_path / "a.zarr", drawn(10_000))
    shard = tmp_path / "a.zarr" / NODE / "c/1"
    shard.write_bytes(shard.read_bytes()[:kept])
    with pytest.raises(CaptureError, match="units/0/before/big: its array cannot be read"):
        store.contents(capture, 0)
