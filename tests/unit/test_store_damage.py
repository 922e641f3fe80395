"""Stores that are damaged or hostile: one CaptureError that names the store."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r3bench import store
from r3bench.errors import CaptureError
from r3bench.store import attributes, files
from tests.unit.store_case import complaint, write


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "k.zarr"
    write(path)
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A store of one's own to damage."""
    return Path(shutil.copytree(whole, tmp_path / "k.zarr"))


def edit(path: Path, change: Callable[[Any], None], *, seal: bool = True) -> None:
    """Change a root document; ``seal`` gives it a content hash that fits, as someone hostile would."""
    root = json.loads((path / "zarr.json").read_bytes())
    change(root)
    if seal:
        root["attributes"]["r3bench"]["content_hash"] = attributes.content_hash(root)
    (path / "zarr.json").write_text(json.dumps(root))


def ours(root: Any) -> Any:
    return root["attributes"]["r3bench"]


def unit(root: Any) -> Any:
    return root["consolidated_metadata"]["metadata"]["units/0"]["attributes"]["r3bench"]


def array(root: Any, node: str = "units/0/before/a") -> Any:
    return root["consolidated_metadata"]["metadata"][node]


# -- what is no store -----------------------------------------------------------------------------------------------


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.zarr").mkdir()
    (tmp_path / "file.zarr").write_text("text")
    (tmp_path / "text.zarr.zip").write_text("text")
    (tmp_path / "none.zarr.zip").write_bytes(b"")
    (tmp_path / "folder.zarr.zip").mkdir()
    (tmp_path / "pipe.zarr").mkdir()
    os.mkfifo(tmp_path / "pipe.zarr/zarr.json")
    (tmp_path / "link.zarr").mkdir()
    (tmp_path / "link.zarr/zarr.json").symlink_to("/etc/passwd")
    with zipfile.ZipFile(tmp_path / "other.zarr.zip", "w") as archive:
        archive.writestr("a", "b")
    expected = {
        "missing.zarr": "check the path",
        "missing.zarr.zip": "check the path",
        "empty.zarr": "holds no zarr.json",
        "file.zarr": "is a folder",
        "text.zarr.zip": "no readable zip file",
        "none.zarr.zip": "no readable zip file",
        "folder.zarr.zip": "cannot be read",
        "pipe.zarr": "no regular file",
        "link.zarr": "cannot be read",
        "other.zarr.zip": "holds no zarr.json",
        "name": "name a folder that ends in .zarr",
    }
    for name, part in expected.items():
        message = complaint(lambda name=name: store.open_capture(tmp_path / name))  # type: ignore[misc]
        assert part in message
        assert str(tmp_path / name) in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "no JSON object"),
        ('{"a": NaN}', "is no JSON"),
        ("\x80", "is no JSON"),
        ('{"attributes": {}}', "is no capture of r3bench"),
        ('{"attributes": {"r3bench": {"format": 1}}}', "lacks the consolidated metadata"),
        ('{"attributes": {"r3bench": {"format": "1"}}}', "format is no number"),
        ('{"attributes": {"r3bench": {"format": 2}}}', "has format 2, but this version reads up to 1: upgrade r3bench"),
    ],
)
def test_root_documents_that_are_none(path: Path, text: str, part: str) -> None:
    (path / "zarr.json").write_bytes(text.encode("latin-1"))
    assert part in complaint(lambda: store.open_capture(path))


# -- what the root document may claim -------------------------------------------------------------------------------

WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda r: ours(r).update(units=0), "no replay unit"),
    (lambda r: ours(r).update(units=2), "unit 1 is missing"),
    (lambda r: ours(r).update(units=10**9), "number of units"),
    (lambda r: ours(r).update(units=True), "number of units"),
    (lambda r: ours(r).update(symbol=7), "symbol: expected str, found 7"),
    (lambda r: ours(r).update(symbol=""), "symbol is empty"),
    (lambda r: ours(r).pop("symbol"), "'symbol' is missing"),
    (lambda r: ours(r).update(more=1), "unknown field 'more'"),
    (lambda r: ours(r).update(image_format="exe"), "expected one of cubin"),
    (lambda r: ours(r).update(image_format="cubin"), "image and the image's format"),
    (lambda r: ours(r).update(command="ls"), "expected a list"),
    (lambda r: ours(r)["source"].update(root="/etc"), "does not stay inside"),
    (lambda r: ours(r)["source"].update(root="a/../../b"), "does not stay inside"),
    (lambda r: ours(r)["source"].update(main="other.cu"), "not among the source's files"),
    (lambda r: ours(r)["source"].update(files=[["../k.cu", "0" * 64]]), "does not stay inside"),
    (lambda r: ours(r)["source"].update(files=[["k.cu", "0" * 64]]), "not that of the source's list"),
    (lambda r: ours(r)["source"].update(span=[3, 1]), "no range of lines"),
    (lambda r: ours(r)["source"].update(span=[1]), "expected 2 items"),
    (lambda r: unit(r).update(index=1), "its index is 1"),
    (lambda r: unit(r).update(seconds="soon"), "expected float"),
    (lambda r: unit(r).update(arguments="0"), "expected bytes"),
    (lambda r: unit(r).update(held_out=0), "expected bool"),
    (lambda r: unit(r).update(written=["c"]), "'c' is not in the unit"),
    (lambda r: unit(r).update(written=["a", "b"]), "units/0/after/b: its array is missing"),
    (lambda r: unit(r)["launch"].update(grid=[0, 1, 1]), "is not positive"),
    (lambda r: unit(r)["launch"].update(grid=[1.0, 1, 1]), "expected int"),
    (lambda r: unit(r)["launch"].update(grid=[10**30, 1, 1]), "expected int"),
    (lambda r: unit(r)["pointers"][0].update(allocation="c"), "leads outside of 'c'"),
    (lambda r: unit(r)["pointers"][0].update(displacement=801), "leads outside of 'a'"),
    (lambda r: unit(r)["pointers"][0].update(offset=1), "which is outside"),
    (lambda r: unit(r)["pointers"].append(unit(r)["pointers"][0]), "two pointers"),
    (lambda r: unit(r)["allocations"][0].update(nbytes=1 << 50), "out of range"),
    (lambda r: unit(r)["allocations"][0].update(nbytes=-800), "out of range"),
    (lambda r: unit(r)["allocations"][0].update(shape=[10, 1 << 60]), "but it has 800"),
    (lambda r: unit(r)["allocations"][0].update(shape=[1] * 40), "out of range"),
    (lambda r: unit(r)["allocations"][0].update(dtype="object"), "dtype 'object' is not one of"),
    (lambda r: unit(r)["allocations"][0].update(dtype="int64"), "not of shape"),
    (lambda r: unit(r)["allocations"][0].update(align=3), "power of two"),
    (lambda r: unit(r)["allocations"][0].update(address=(1 << 64) - 1), "address"),
    (lambda r: unit(r)["allocations"][0].update(dims=["x"]), "1 dimension names for 2"),
    (lambda r: unit(r)["allocations"][0].update(dims=["x", "x"]), "not distinct"),
    (lambda r: unit(r)["allocations"][0].update(dims=["x", "b"]), "a buffer and a dimension"),
    (lambda r: unit(r)["allocations"][1].update(name="a"), "share a name"),
    (lambda r: unit(r)["allocations"][1].update(memory="disk"), "expected one of device"),
    (lambda r: array(r).update(shape=[1, 800]), "not of shape"),
    (lambda r: array(r).update(node_type="group"), "missing or not of shape"),
    (lambda r: array(r).update(codecs=[{"name": "pickle"}]), "codecs other than"),
    (lambda r: array(r).update(codecs=[{"name": "numcodecs.pickle"}]), "codecs other than"),
    (lambda r: array(r).update(codecs=[]), "codecs other than"),
    (lambda r: array(r).update(codecs=[{"name": ["bytes"]}]), "codecs other than"),
    (
        lambda r: array(r).update(codecs=[{"name": "sharding_indexed", "configuration": {"codecs": [1]}}]),
        "codecs other",
    ),
    (lambda r: array(r).update(storage_transformers=[{"name": "x"}]), "codecs other than"),
    (lambda r: array(r).update(chunk_grid=7), "chunks are out of range"),
    (
        lambda r: array(r)["chunk_grid"]["configuration"].update(chunk_shape=[1 << 20, 1 << 20]),
        "chunks are out of range",
    ),
    (lambda r: array(r)["chunk_grid"]["configuration"].update(chunk_shape=[0, 10]), "chunks are out of range"),
    (lambda r: array(r)["chunk_grid"]["configuration"].update(chunk_shape=["10", 10]), "chunks are out of range"),
    (lambda r: array(r)["attributes"].clear(), "no SHA-256"),
    (lambda r: r["consolidated_metadata"]["metadata"].pop("source/k.cu"), "missing or not flat"),
    (lambda r: array(r, "ir").update(shape=[-1]), "not flat"),
    (lambda r: array(r, "ir").update(data_type="int8"), "not of shape"),
]


@pytest.mark.parametrize(("change", "part"), WRONG, ids=[part for _, part in WRONG])
def test_claims_that_do_not_fit_are_refused_on_opening(path: Path, change: Callable[[Any], None], part: str) -> None:
    edit(path, change)
    assert part in complaint(lambda: store.open_capture(path))


def test_a_change_that_fits_everywhere_is_still_noticed(path: Path) -> None:
    edit(path, lambda root: unit(root).update(occurrence=5), seal=False)
    assert "metadata is not what was recorded" in complaint(lambda: store.open_capture(path))


def test_attributes_of_others_are_left_alone(path: Path) -> None:
    edit(path, lambda root: root["attributes"].update(note="mine"), seal=False)
    assert store.open_capture(path).symbol == "k"


def test_huge_claims_are_refused_before_memory_is_taken(path: Path) -> None:
    def grow(root: Any) -> None:
        unit(root)["allocations"][0].update(nbytes=8 << 40, shape=[1 << 40, 1], dims=[])
        for node in ("units/0/before/a", "units/0/after/a"):
            array(root, node).update(shape=[1 << 40, 1])
            array(root, node)["chunk_grid"]["configuration"].update(chunk_shape=[1 << 20, 1])

    edit(path, grow)
    capture = store.open_capture(path)
    assert "cannot hold the" in complaint(lambda: store.contents(capture, 0))


def test_values_that_zarr_refuses_are_refused_by_us(path: Path) -> None:
    for change in (
        lambda r: array(r).update(fill_value="x"),
        lambda r: array(r).update(chunk_key_encoding={"name": "other"}),
        lambda r: array(r)["codecs"][1]["configuration"].update(cname="none"),
        lambda r: array(r).update(dimension_names=[1, 2, 3]),
    ):
        write(path)
        edit(path, change)
        capture = store.open_capture(path)
        assert "units/0/before/a" in complaint(lambda capture=capture: store.contents(capture, 0))  # type: ignore[misc]


# -- damaged arrays -------------------------------------------------------------------------------------------------

CHUNKS = ("units/0/before/a/c/0/0", "units/0/after/a/c/0/0", "source/k.cu/c/0", "ir/c/0")


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("name", CHUNKS)
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer", "missing", "link"])
def test_a_damaged_chunk_names_store_and_array(path: Path, name: str, damage: str) -> None:
    chunk = path / name
    whole = chunk.read_bytes()
    chunk.unlink()
    if damage == "link":
        (path.parent / "elsewhere").write_bytes(whole)
        chunk.symlink_to(path.parent / "elsewhere")
    elif damage != "missing":
        wrong = {"flip": bytes([whole[0] ^ 64]) + whole[1:], "cut": whole[:-1], "empty": b"", "longer": whole + b"\0"}
        chunk.write_bytes(wrong[damage])
    message = complaint(lambda: store.verify(path))
    assert str(path) in message
    assert damage == "link" or name.split("/c/")[0] in message


def test_any_flipped_bit_is_noticed(path: Path) -> None:
    chance = random.Random(7)
    names = sorted(files.members(path))
    for _ in range(60):
        target = path / chance.choice(names)
        whole = target.read_bytes()
        flip(target, chance.randrange(8 * len(whole)))
        if target.name == "zarr.json" and _same_json(whole, target.read_bytes()):
            continue  # a blank became another blank
        complaint(lambda: store.verify(path))
        target.write_bytes(whole)
    store.verify(path)


def _same_json(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def test_any_flipped_bit_of_a_zip_is_noticed_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "k.zarr.zip"
    good = write(path)
    whole, chance = path.read_bytes(), random.Random(3)
    unnoticed = 0
    for _ in range(60):
        flip(path, chance.randrange(8 * len(whole)))
        try:
            found = store.verify(path)
        except CaptureError:
            pass
        else:
            unnoticed += 1  # times, permissions and versions of a zip's entries mean nothing
            assert found == good
            assert store.expected(found, 0)["a"].tobytes() == store.expected(good, 0)["a"].tobytes()
        path.write_bytes(whole)
    assert unnoticed < 20


def test_cut_zips_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "k.zarr.zip"
    write(path)
    whole = path.read_bytes()
    for kept in (len(whole) - 1, len(whole) // 2, 30):
        path.write_bytes(whole[:kept])
        complaint(lambda: store.open_capture(path))


def test_packed_zips_are_refused_before_unpacking(tmp_path: Path) -> None:
    path = tmp_path / "k.zarr.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zarr.json", bytes(1 << 20))
    assert "packed, encrypted or repeated" in complaint(lambda: store.open_capture(path))


def test_documents_that_plain_readers_use_are_checked(path: Path) -> None:
    document = path / "units/0/before/a/zarr.json"
    document.write_text(document.read_text().replace('"float64"', '"int64"'))
    assert "units/0/before/a/zarr.json" in complaint(lambda: store.verify(path))


def test_nothing_inside_is_imported(path: Path) -> None:
    for name in ("test_evil.py", "conftest.py", "units/0/zarr.py"):
        (path / name).write_text("raise SystemExit('ran')")
    store.verify(path)
