"""Buffers as Zarr arrays and back: typed, named, shuffled, packed, each chunk with a checksum.

The only place that imports zarr, and only when an array is touched. An array's attributes ``r3bench`` hold the
SHA-256 of its bytes, and its true name and dtype where Zarr cannot hold those.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np

from r3bench.errors import CaptureError
from r3bench.store import shards
from r3bench.store.attributes import damaged, storage_dtype
from r3bench.store.files import is_zip
from r3bench.store.rooms import Room, in_memory
from r3bench.store.shards import CHUNK_LIMIT, Bytes, Document

READERS = min(8, os.cpu_count() or 1)
CHUNK_BYTES = 4 << 20
SHARD_BYTES = 64 << 20
SMALL_BYTES = 8 << 20
RATIO_LIMIT = 1 << 17  # zstd packs zeros about 8,000 to 1 in a chunk of ours
_RAISED_ON_DAMAGE = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError),
    BadZipFile,
)
CODECS = {"bytes", "blosc", "zstd", "crc32c", "sharding_indexed"}


class Parts(Protocol):
    """Bytes that are taken part by part; a flat array of bytes is such, too."""

    @property
    def nbytes(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Bytes: ...


@dataclass(frozen=True, slots=True)
class UnitContents:
    """The memory of one unit as uint8 arrays by buffer name: all of it before, and after the launch.

    When written, ``after`` may hold unchanged buffers too or leave them out; when read, it holds what changed.
    """

    before: Mapping[str, Bytes]
    after: Mapping[str, Bytes]


class Contents(Protocol):
    """The memory of one unit as :class:`UnitContents` gives it, if perhaps part by part."""

    @property
    def before(self) -> Mapping[str, Parts]: ...
    @property
    def after(self) -> Mapping[str, Parts]: ...


# -- writing --------------------------------------------------------------------------------------------------------


def write_array(
    folder: Path,
    node: str,
    data: Parts,
    *,
    dtype: str = "uint8",
    shape: Sequence[int] | None = None,
    dims: Sequence[str] = (),
    attributes: Mapping[str, Any] | None = None,
    plain: bool = False,
) -> None:
    """Store raw bytes as the array ``node`` of a store, a shard at a time; ``plain``: as one unpacked file."""
    import zarr

    stored = storage_dtype(dtype)
    sizes = tuple(shape) if shape is not None else (data.nbytes // stored.itemsize,)
    chunks = pieces(sizes, stored.itemsize, data.nbytes if plain else CHUNK_BYTES)
    shards = _shards(sizes, stored.itemsize, chunks) if data.nbytes > SHARD_BYTES and not plain else None
    array: Any = zarr.create_array(
        store=str(folder),
        name=node,
        shape=sizes,
        dtype=stored,
        chunks=chunks,
        shards=shards,
        compressors=None if plain else _compressors(data.nbytes, stored.itemsize),
        filters=None,
        fill_value=0,
        dimension_names=tuple(dims) or _own_dims(node, len(sizes)),
        config={"write_empty_chunks": True},  # a chunk of zeros is not left out: -0.0 would lose its sign
    )
    digest, at = hashlib.sha256(), 0
    for region in _regions(sizes, shards or sizes):
        extent = tuple(axis.stop - axis.start for axis in region)
        part = data[at : at + prod(extent) * stored.itemsize]
        digest.update(part.data)
        array[region] = part.view(stored).reshape(extent)
        at += part.nbytes
    array.update_attributes({"r3bench": {**(attributes or {}), "sha256": digest.hexdigest()}})


def _regions(shape: tuple[int, ...], cut: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Parts of an array in the order in which their bytes lie, where ``cut`` is as :func:`pieces` makes it."""
    starts = (range(0, max(size, 1), max(step, 1)) for size, step in zip(shape, cut, strict=True))
    for first in product(*starts):
        yield tuple(slice(at, min(at + step, size)) for at, step, size in zip(first, cut, shape, strict=True))


def sha256(data: Bytes | bytes) -> str:
    return hashlib.sha256(data if isinstance(data, bytes) else data.data).hexdigest()


def _own_dims(node: str, rank: int) -> tuple[str, ...]:
    """Names no other array in the same group has, since xarray wants one size per name."""
    name = node.rpartition("/")[2]
    return tuple(f"{name}[{axis}]" for axis in range(rank))


def _compressors(nbytes: int, itemsize: int) -> list[Any]:
    """zstd for what may be kept in git; else LZ4, ten times as fast, and a tenth larger on fields of numbers.

    Much memory of no known type is mostly numbers of eight bytes.
    """
    from zarr.codecs import BloscCodec, Crc32cCodec

    small = nbytes <= SMALL_BYTES
    cname: Any = "zstd" if small else "lz4"
    width = 8 if itemsize == 1 and not small else itemsize
    return [BloscCodec(cname=cname, clevel=5, shuffle="shuffle", typesize=width), Crc32cCodec()]


def pieces(shape: tuple[int, ...], itemsize: int, limit: int) -> tuple[int, ...]:
    """The largest run of whole trailing axes, and a part of the axis before, that stays within ``limit`` bytes."""
    cut, nbytes = [1] * len(shape), itemsize
    for axis in reversed(range(len(shape))):
        cut[axis] = max(1, min(shape[axis], limit // max(nbytes, 1)))
        nbytes *= cut[axis]
        if cut[axis] < shape[axis]:
            break
    return tuple(cut)


def _shards(shape: tuple[int, ...], itemsize: int, chunks: tuple[int, ...]) -> tuple[int, ...]:
    wanted = pieces(shape, itemsize, SHARD_BYTES)
    return tuple(-(-shard // chunk) * chunk for shard, chunk in zip(wanted, chunks, strict=True))


# -- checking what a document claims --------------------------------------------------------------------------------


def check_document(document: Any, dtype: str, shape: Sequence[int], where: str) -> None:
    """CaptureError unless an array's document is one we could have written for such a buffer.

    Names of codecs come from a short list, so that opening a store can never run what it brings along.
    """
    expected = {"zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": storage_dtype(dtype).name}
    if not isinstance(document, Mapping) or any(document.get(key) != value for key, value in expected.items()):
        raise damaged(where, f"its array is missing or not of shape {tuple(shape)} and type {dtype}")
    if document.get("storage_transformers") or not _known(document.get("codecs")):
        raise damaged(where, f"its array uses codecs other than {', '.join(sorted(CODECS))}")
    if not re.fullmatch("[0-9a-f]{64}", recorded_hash(document)):
        raise damaged(where, "its array has no SHA-256")
    chunks = _member(document, "chunk_grid", "configuration", "chunk_shape")
    sound = isinstance(chunks, list) and all(type(c) is int and 0 < c <= CHUNK_LIMIT for c in chunks)
    if not sound or len(chunks) != len(shape) or prod(chunks) * storage_dtype(dtype).itemsize > CHUNK_LIMIT:
        raise damaged(where, "its array's chunks are out of range")


def recorded_hash(document: Document) -> str:
    """The SHA-256 a document gives for its array's bytes, or an empty text."""
    digest = _member(document, "attributes", "r3bench", "sha256")
    return digest if isinstance(digest, str) else ""


def _member(document: Any, *names: str) -> Any:
    for name in names:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _known(codecs: Any) -> bool:
    """Whether a list of codecs, and those inside shards, holds only known ones."""
    if not isinstance(codecs, list) or not codecs:
        return False
    for codec in codecs:
        name, inner = _member(codec, "name"), _member(codec, "configuration") or {}
        if not isinstance(name, str) or name not in CODECS:
            return False
        if name == "sharding_indexed" and not (_known(inner.get("codecs")) and _known(inner.get("index_codecs"))):
            return False
    return True


# -- reading --------------------------------------------------------------------------------------------------------


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    """The Zarr store of a capture, open for :func:`read_array`."""
    import zarr
    from zarr.storage import LocalStore, ZipStore

    if not is_zip(path):
        yield LocalStore(path, read_only=True)
        return
    archive = ZipStore(path, mode="r", read_only=True)
    with _zarr_errors(str(path)):
        zarr.open_group(archive, mode="r")  # what opens an archive; arrays read it without asking whether it is open
    try:
        yield archive
    finally:
        archive.close()


def read_array(path: Path, store: Any, node: str, document: Document, readers: Executor, room: Room) -> Bytes:
    """The bytes of one array of a capture, whose document was checked and whose Zarr store is open; CaptureError unless
    they are the recorded ones. Several threads of ``readers`` unpack a large one, into a ``room``."""
    where = f"{path}, {node}"
    digest = hashlib.sha256()
    with _zarr_errors(where):
        nbytes = prod(document["shape"]) * (itemsize := np.dtype(document["data_type"]).itemsize)
        layout = shards.layout_of(document, itemsize) if nbytes > SHARD_BYTES else None
        if layout is None:
            data = _kept(_by_zarr(store, node, document), room)
            digest.update(data.data)
        else:
            data = room(nbytes)
            for part in shards.read(path, node, layout, data, readers):
                digest.update(part.data)
    if digest.hexdigest() != recorded_hash(document):
        raise damaged(where, "its bytes are not the recorded ones")
    return data


def _kept(data: Bytes, room: Room) -> Bytes:
    if room is in_memory:
        return data
    held = room(data.nbytes)
    held[:] = data
    return held


def _by_zarr(store: Any, node: str, document: Document) -> Bytes:
    import zarr
    from zarr.storage import StorePath

    array: Any = zarr.Array.from_dict(StorePath(store, node), dict(document))
    data: Bytes = np.ascontiguousarray(array[...]).reshape(-1).view(np.uint8)
    return data


@contextmanager
def _zarr_errors(where: str) -> Iterator[None]:
    """Zarr and its codecs have no error of their own for damage: what they raise on it, seen by flipping bits."""
    try:
        yield
    except _RAISED_ON_DAMAGE as error:
        raise damaged(where, f"its array cannot be read ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def check_room(nbytes: int, stored: int, where: str, *, on_disk: bool = False) -> None:
    """CaptureError, before anything is allocated, where arrays claim more than the machine or their files can hold."""
    if nbytes > stored * RATIO_LIMIT:
        raise damaged(where, f"{stored} stored bytes cannot hold the {nbytes} it claims")
    if not on_disk and nbytes > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise CaptureError(f"capture {where}: {nbytes} bytes exceed this machine's memory; replay it on a larger one")
