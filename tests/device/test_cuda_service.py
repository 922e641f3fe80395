"""The worker's own kernels, run on the CPU device: comparison agrees with r3bench.compare element by element."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r3bench import frontend
from r3bench.compare import (
    Buffer,
    Found,
    Runs,
    Tolerance,
    difference_found,
    differences,
    element_type,
    largest_limit,
)
from r3bench.devices import Device, open_device
from r3bench.devices.cuda import tables
from r3bench.devices.cuda.tables import PIECES, Rule, pieces
from r3bench.devices.cuda.wire import TYPES
from r3bench.model import Binary, Configuration, Difference, LaunchConfig, Pointer
from r3bench.remix import BuildRequest, UnitFacts
from r3bench.testing.contract import address_of, case
from r3bench.toolchain import Compiler
from tests.shipped import ptx

SOURCE = Path(frontend.__file__).parents[1] / "devices" / "cuda" / "service.cu"

TOLERANCES = (
    Tolerance(),
    Tolerance(kind="float", rtol=1e-3),
    Tolerance(kind="float", atol=0.5),
    Tolerance(kind="float", scale=1e-3),
    Tolerance(kind="float", ulp=3),
    Tolerance(kind="float", rtol=1e-9, ulp=1, atol=1e-300),
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PIECE", 368)


def test_the_shipped_code_is_made_of_the_source() -> None:
    shipped = SOURCE.with_suffix(".ptx").read_text(encoding="utf-8")
    assert shipped == ptx(SOURCE), "run python -m tests.device.test_cuda_service"


# -- on the CPU device ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(1, cache=tmp_path_factory.mktemp("cache")) as made:
        yield made


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device("cpu", threads=1)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def binaries(compiler: Compiler, device: Device) -> dict[str, Binary]:
    def built(symbol: str) -> Binary:
        request = BuildRequest(
            files=(("service.cu", SOURCE.read_text(encoding="utf-8")),),
            main="service.cu",
            flags=(),
            symbol=symbol,
            target=device.target,
            configuration=Configuration(),
            facts=UnitFacts(launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)), parameters=()),
        )
        return compiler.submit(request).result(120).binary

    return {name: built(name) for name in ("r3_compare", "r3_copy")}


def find(
    device: Device, binary: Binary, expected: Any, actual: Any, dtype: str, tolerance: Tolerance
) -> Difference | None:
    """What r3_compare finds, in pieces of some hundred bytes, as the device makes a difference of it."""
    held = Buffer(name="x", nbytes=expected.nbytes, dtype=dtype, shape=(expected.nbytes // item_bytes(dtype),))
    kind, item, tolerant = element_type(held, tolerance)
    least = largest_limit(expected, kind, tolerance) if tolerant else 0.0
    limits = (int(tolerant), tolerance.atol, tolerance.rtol, least, tolerance.ulp)
    rule = Rule("x", 0, TYPES[kind], item, *limits, tolerance.exact.edges.tolist(), tolerance.ignore.edges.tolist())
    buffers = {"expected": expected, "actual": actual, "pieces": expected, "rows": np.zeros(4, np.uint64)}
    places = {name: address_of(buffers, name) for name in ("expected", "actual")}
    table = pieces([(rule, places["expected"], places["actual"], expected.nbytes)])
    rows = np.array([0, 2**64 - 1, 0, 2**64 - 1], np.uint64)
    pointers = [
        Pointer(
            holder="pieces",
            offset=at * PIECES.itemsize + PIECES.fields[name][1],
            allocation=name,
            displacement=int(table[name][at]) - places[name],
        )
        for at in range(len(table))
        for name in ("expected", "actual")
    ]
    for again in (0, 1):
        raw = {**buffers, "pieces": table.view(np.uint8), "rows": rows}
        grid = (len(table), 1, 1)
        given = case(raw, ["pieces", "rows", np.uint32(again)], grid=grid, block=(8, 1, 1), pointers=pointers)
        memory = device.allocate(given.unit, given.before)
        device.launch(device.load(binary), memory, given.unit.launch)
        rows = device.download(memory)["rows"].view(np.uint64)
        device.release(memory)
    count, first, error, worst = map(int, rows)
    if not count:
        return None
    found = [actual.view(np.uint8)[at * item : (at + 1) * item].tobytes() for at in (first, worst)]
    as_double = struct.unpack("<d", struct.pack("<Q", error))[0]
    return difference_found(
        expected,
        held,
        tolerance,
        Found(count=count, first=first, worst=worst, first_bytes=found[0], worst_bytes=found[1], error=as_double),
    )


def item_bytes(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def bits_of(values: Any, dtype: str) -> Any:
    """Numbers as the bytes of a dtype."""
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(dtype).view(np.uint8)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("tolerance", TOLERANCES, ids=str)
def test_floats_differ_as_the_comparison_says(
    device: Device, binaries: dict[str, Binary], dtype: str, tolerance: Tolerance
) -> None:
    chance = np.random.default_rng(len(dtype))
    values = chance.normal(size=200) * 10.0 ** chance.integers(-9, 5, 200)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-42, 6e-8, 6e4, 1e300])
    values[:100:5], values[100:110] = np.resize(special, 20), special
    others = values * (1 + chance.choice([0, 1e-16, 1e-7, 1e-3, 0.1, 1], 200))
    others[101:160:3] = np.resize(special[::-1], 20)
    expected, actual = bits_of(values, dtype), bits_of(others, dtype)
    held = Buffer(name="x", nbytes=expected.nbytes, dtype=dtype, shape=(200,))
    wanted = differences(expected, actual, held, tolerance)
    assert find(device, binaries["r3_compare"], expected, actual, dtype, tolerance) == wanted
    assert find(device, binaries["r3_compare"], expected, expected, dtype, tolerance) is None


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["float", "exact"])
def test_elements_with_rules_of_their_own(device: Device, binaries: dict[str, Binary], dtype: str, kind: Any) -> None:
    chance = np.random.default_rng(11)
    exact, ignore = (Runs.of(chance.random(200) < share) for share in (0.3, 0.2))
    tolerance = Tolerance(kind=kind, rtol=0.05 * (kind == "float"), exact=exact, ignore=ignore)
    values = chance.normal(size=200)
    expected = bits_of(values, dtype)
    held = Buffer(name="x", nbytes=expected.nbytes, dtype=dtype, shape=(200,))
    for spoiled in (exact, ignore, Runs(np.array([0, 200])), Runs(np.array([199, 200]))):
        factor = np.where(spoiled.hold(np.arange(200)), chance.choice([1.01, 1.3], 200), 1)
        actual = bits_of(values * factor, dtype)
        assert find(device, binaries["r3_compare"], expected, actual, dtype, tolerance) == differences(
            expected, actual, held, tolerance
        )


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_differ_as_the_comparison_says(device: Device, binaries: dict[str, Binary], dtype: str) -> None:
    chance = np.random.default_rng(3)
    expected = chance.integers(0, 256, 101 * item_bytes(dtype)).astype(np.uint8)
    actual = expected.copy()
    actual[chance.integers(0, actual.size, 9)] ^= chance.integers(1, 256, 9).astype(np.uint8)
    actual[-1] ^= 0x80
    held = Buffer(name="x", nbytes=expected.nbytes, dtype=dtype, shape=(101,))
    wanted = differences(expected, actual, held, Tolerance())
    assert wanted is not None
    assert find(device, binaries["r3_compare"], expected, actual, dtype, Tolerance()) == wanted


@pytest.mark.parametrize("shift", [0, 1, 16])
def test_copies_of_any_alignment(device: Device, binaries: dict[str, Binary], shift: int) -> None:
    source, to = np.random.default_rng(5).integers(0, 256, 5000).astype(np.uint8), np.zeros(5000, np.uint8)
    table = np.zeros(3, np.uint64)
    buffers = {"source": source, "to": to, "table": table}
    table[:] = address_of(buffers, "to") + shift, address_of(buffers, "source"), 4099
    pointers = [
        Pointer(holder="table", offset=0, allocation="to", displacement=shift),
        Pointer(holder="table", offset=8, allocation="source"),
    ]
    given = case(buffers, ["table"], block=(32, 1, 1), pointers=pointers)
    memory = device.allocate(given.unit, given.before)
    device.launch(device.load(binaries["r3_copy"]), memory, given.unit.launch)
    after = device.download(memory)["to"]
    assert (after[shift : shift + 4099] == source[:4099]).all()
    assert not after[:shift].any()
    assert not after[shift + 4099 :].any()


if __name__ == "__main__":
    SOURCE.with_suffix(".ptx").write_text(ptx(SOURCE), encoding="utf-8")
