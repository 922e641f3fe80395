"""Large arrays, read chunk by chunk in several threads straight to where their bytes belong.

Zarr's own way takes three copies of each chunk and an event loop's time: 4.5 s of a processor for a gigabyte, against
2 s. What is read here is what :func:`r3bench.store.arrays.write_array` writes, the same format; the rest Zarr reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.store.files import extent

Bytes = NDArray[np.uint8]
Document = Mapping[str, Any]

CHUNK_LIMIT = 1 << 31  # Blosc cannot pack more

_ABSENT = (1 << 64) - 1  # both numbers of a chunk that a shard leaves out
_CHECK_BYTES = 4
_ENTRY_BYTES = 16  # of a shard's table, a chunk
_PACKING = [(codec, "little") for codec in ("bytes", "blosc", "crc32c")]
_KEYS = {"name": "default", "configuration": {"separator": "/"}}
_INDEX = [(codec, "little") for codec in ("bytes", "crc32c")]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How an array is cut: shape, and elements along each axis of its shards and of the chunks in them."""

    shape: tuple[int, ...]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]
    itemsize: int

    @property
    def slots(self) -> int:
        """Chunks of a shard; those beyond the end of the array are left out."""
        return prod(whole // part for whole, part in zip(self.shard, self.chunk, strict=True))

    def chunks(self) -> Iterator[tuple[str, int, int]]:
        """Of every chunk in the order in which their bytes lie: its shard, its place there, and how many bytes of it
        belong to the array."""
        counts = [range(-(-size // part)) for size, part in zip(self.shape, self.chunk, strict=True)]
        inside = [whole // part for whole, part in zip(self.shard, self.chunk, strict=True)]
        for at in product(*counts):
            shard = "/".join(str(number // each) for number, each in zip(at, inside, strict=True))
            place = 0
            for number, each in zip(at, inside, strict=True):
                place = place * each + number % each
            sizes = (
                min(part, size - number * part) for number, part, size in zip(at, self.chunk, self.shape, strict=True)
            )
            yield shard, place, prod(sizes) * self.itemsize


def layout_of(document: Document, itemsize: int) -> _Layout | None:
    """The layout of an array whose document was checked, where it is as we cut and pack large arrays."""
    sharding, *more = document["codecs"]
    inner = sharding.get("configuration", {})
    if more or sharding["name"] != "sharding_indexed" or inner.get("index_location", "end") != "end":
        return None
    packing = [(codec["name"], _endian(codec)) for codec in inner.get("codecs", ())]
    index = [(codec["name"], _endian(codec)) for codec in inner.get("index_codecs", ())]
    found = _Layout(
        tuple(document["shape"]),
        tuple(document["chunk_grid"]["configuration"]["chunk_shape"]),
        tuple(inner.get("chunk_shape", ())),
        itemsize,
    )
    known = packing == _PACKING and index == _INDEX and document["chunk_key_encoding"] == _KEYS
    known &= not document["fill_value"]
    return found if known and _in_order(found) else None


def _endian(codec: Document) -> str:
    return str(codec.get("configuration", {}).get("endian", "little"))


def _in_order(layout: _Layout) -> bool:
    """Whether the bytes of each chunk lie together: single along some axes, in parts along one, then whole."""
    if len(layout.chunk) != len(layout.shape) or not all(type(part) is int and part > 0 for part in layout.chunk):
        return False
    whole = [whole % part == 0 for whole, part in zip(layout.shard, layout.chunk, strict=True)]
    room = prod(layout.shard) * layout.itemsize >= _ENTRY_BYTES * layout.slots
    cut = next((axis for axis, part in enumerate(layout.chunk) if part > 1), len(layout.shape))
    return all(whole) and room and layout.chunk[cut + 1 :] == layout.shape[cut + 1 :]


def read(path: Path, node: str, layout: _Layout, into: Bytes, readers: Executor) -> Iterator[Bytes]:
    """Fill ``into`` with an array's bytes, in several threads; yields its parts in order as they are there.

    Raises what codecs and files raise where a chunk is damaged or missing.
    """
    ends = 0
    parts = []
    for shard, place, nbytes in layout.chunks():
        parts.append((shard, place, into[ends : ends + nbytes]))
        ends += nbytes
    reading = _Reading(path, f"{node}/c", layout)
    return readers.map(lambda part: reading.chunk(*part), parts)


class _Reading:
    """Reads chunks of one array; each thread keeps the memory that it reads into."""

    def __init__(self, path: Path, folder: str, layout: _Layout) -> None:
        self._path, self._folder, self._layout = path, folder, layout
        self._shards: dict[str, tuple[Path, int, NDArray[np.uint64]]] = {}
        self._own = local()

    def chunk(self, shard: str, place: int, into: Bytes) -> Bytes:
        """Unpack one chunk to where it belongs."""
        import numcodecs.blosc as blosc

        packed = self._packed(shard, place)
        if packed is None:
            into[:] = 0
            return into
        nbytes, _, stored = map(int, packed[4:16].view("<u4"))  # of Blosc's header
        if stored != packed.size or nbytes != prod(self._layout.chunk) * self._layout.itemsize:
            raise ValueError(f"a chunk of shard {shard} does not unpack to its size")
        if nbytes == into.nbytes:
            blosc.decompress(packed, into)
        else:  # the last along its axis: padded to its full size
            into[:] = np.frombuffer(blosc.decompress(packed), np.uint8)[: into.nbytes]
        return into

    def _packed(self, shard: str, place: int) -> Bytes | None:
        """A chunk as it is stored, its checksum tested."""
        if shard not in self._shards:
            self._shards[shard] = self._index(shard)
        file, start, index = self._shards[shard]
        at, nbytes = (int(number) for number in index[place])
        if at == nbytes == _ABSENT:
            return None
        if nbytes > CHUNK_LIMIT:
            raise ValueError(f"a chunk of shard {shard} is larger than Blosc can make one")
        return _sound(_read(file, start + at, self._room(nbytes)))

    def _index(self, shard: str) -> tuple[Path, int, NDArray[np.uint64]]:
        """The file that holds a shard, where it begins there, and its table: where each chunk begins and its bytes."""
        file, start, nbytes = extent(self._path, f"{self._folder}/{shard}")
        table = np.empty(_ENTRY_BYTES * self._layout.slots + _CHECK_BYTES, np.uint8)
        found = _sound(_read(file, start + nbytes - table.size, table))
        return file, start, found.view("<u8").reshape(-1, 2)

    def _room(self, nbytes: int) -> Bytes:
        held = getattr(self._own, "room", None)
        if held is None or held.size < nbytes:
            held = self._own.room = np.empty(nbytes, np.uint8)
        found: Bytes = held[:nbytes]
        return found


def _read(file: Path, at: int, into: Bytes) -> Bytes:
    with open(file, "rb", buffering=0) as opened:
        opened.seek(at)
        if opened.readinto(into.data) != into.nbytes:
            raise EOFError(f"{file.name} ends within a chunk")
    return into


def _sound(data: Bytes) -> Bytes:
    """Bytes without the checksum behind them; ValueError where that is another's."""
    import google_crc32c

    inner, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    if google_crc32c.value(inner) != int.from_bytes(check.tobytes(), "little"):
        raise ValueError("a checksum does not fit its chunk")
    return inner
