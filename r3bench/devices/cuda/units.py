"""Copies of units and their recorded contents on the GPU: restored, compared and read back by the worker."""

from __future__ import annotations

import mmap
import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from r3bench.devices.cuda.driver import call
from r3bench.devices.cuda.placement import Buffer, Range, packed, recorded_ranges, redzones, relocated
from r3bench.devices.cuda.service import Service, Table, Tables
from r3bench.devices.cuda.space import Space

# A block of the copy and the comparison handles at most so much.
PIECE = 64 << 10
_PATTERN_BYTES = 2 << 20

CHUNK = np.dtype([("to", "u8"), ("from", "u8"), ("nbytes", "u8")])
WORD = np.dtype([("at", "u8"), ("value", "u8")])
PIECES = np.dtype(
    [
        ("expected", "u8"),
        ("actual", "u8"),
        ("nbytes", "u8"),
        ("first", "u8"),
        ("row", "u4"),
        ("type", "u4"),
        ("tolerant", "u4"),
        ("pad", "u4"),
        ("atol", "f8"),
        ("rtol", "f8"),
        ("least", "f8"),
        ("ulp", "f8"),
    ]
)
ROW = np.dtype([("count", "u8"), ("first", "u8"), ("error", "u8"), ("place", "u8")])


@dataclass(frozen=True, slots=True)
class Contents:
    """Recorded bytes of some buffers, one behind the other; closed while a candidate runs."""

    place: Range
    offsets: dict[str, int]

    def at(self, name: str) -> int:
        return self.place.start + self.offsets[name]


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a unit: where its buffers are, the ranges they are in, and what restoring it takes."""

    addresses: dict[str, int]
    sizes: dict[str, int]
    ranges: tuple[Range, ...]
    recorded: bool
    contents: Contents
    arguments: bytes
    variables: tuple[str, ...]
    words: Table
    chunks: Table
    zones: tuple[Range, ...]

    @property
    def starts(self) -> list[int]:
        return [each.start for each in self.ranges]


def split(nbytes: int) -> Table:
    """Offsets and sizes of pieces of ``nbytes``."""
    offsets = np.arange(0, nbytes, PIECE, dtype=np.int64)
    return np.stack([offsets, np.minimum(PIECE, nbytes - offsets)], 1)


def chunks(copies: Iterable[tuple[int, int, int]]) -> Table:
    """A table for r3_copy from (to, from, nbytes)."""
    parts = []
    for to, source, nbytes in copies:
        cut = split(nbytes)
        table = np.empty(len(cut), CHUNK)
        table["to"], table["from"], table["nbytes"] = to + cut[:, 0], source + cut[:, 0], cut[:, 1]
        parts.append(table)
    return np.concatenate(parts) if parts else np.empty(0, CHUNK)


def pieces(wanted: Iterable[tuple[Any, ...]]) -> Table:
    """A table for r3_compare from (row, expected, actual, nbytes, type, item, tolerant, atol, rtol, least, ulp)."""
    parts = []
    for row, expected, actual, nbytes, kind, item, tolerant, atol, rtol, least, ulp in wanted:
        cut = split(nbytes)
        table = np.zeros(len(cut), PIECES)
        table["expected"], table["actual"], table["nbytes"] = expected + cut[:, 0], actual + cut[:, 0], cut[:, 1]
        table["first"], table["row"], table["type"], table["tolerant"] = cut[:, 0] // item, row, kind, tolerant
        table["atol"], table["rtol"], table["least"], table["ulp"] = atol, rtol, least, ulp
        parts.append(table)
    return np.concatenate(parts) if parts else np.empty(0, PIECES)


class Units:
    """Everything of units that is on the device."""

    def __init__(self, space: Space, service: Service) -> None:
        self.space, self._service, self._tables = space, service, Tables(space)
        self.contents: dict[int, Contents] = {}
        self.copies: dict[int, Copy] = {}
        self._pattern = space.map(_PATTERN_BYTES, always=True).start
        pattern = np.where(np.arange(_PATTERN_BYTES) % 2, 0xFF, 0xFE).astype(np.uint8)
        call(cuda.cuMemcpyHtoD, self._pattern, pattern.ctypes.data, _PATTERN_BYTES)

    # -- contents --

    def put(self, identity: int, buffers: Sequence[Buffer], fd: int) -> None:
        """Keep the bytes in a file, laid out as :func:`placement.packed` does."""
        layout = packed(buffers)
        place = self.space.map(layout.nbytes)
        self.space.open([place.start])
        with mmap.mmap(fd, layout.nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ) as shared:
            data = np.frombuffer(shared, np.uint8)
            call(cuda.cuMemcpyHtoD, place.start, data.ctypes.data, layout.nbytes)
            del data
        os.close(fd)
        self.contents[identity] = Contents(place, layout.offsets)

    def drop(self, identity: int) -> None:
        self._tables.forget()
        self.space.unmap(self.contents.pop(identity).place.start)

    # -- copies --

    def make(self, identity: int, description: dict[str, Any]) -> Copy:
        """Place a copy of a unit: where it was recorded if that can be had and nobody is there, otherwise anywhere."""
        buffers = list(starmap(Buffer, description["buffers"]))
        ranges, addresses, recorded = self._place(buffers)
        contents = self.contents[description["contents"]]
        arguments = bytearray.fromhex(description["arguments"])
        words = []
        for holder, offset, target, displacement in description["pointers"]:
            value = addresses[target] + displacement
            if holder:
                words.append((addresses[holder] + offset, value))
            else:
                arguments[offset : offset + 8] = value.to_bytes(8, "little")
        placed = [Range(addresses[b.name], addresses[b.name] + b.nbytes) for b in buffers]
        zones = redzones(ranges, placed)
        patterns = [(zone.start, self._pattern + zone.start % 16, zone.nbytes) for zone in zones]
        restored = [(addresses[b.name], contents.at(b.name), b.nbytes) for b in buffers]
        copy = Copy(
            addresses=addresses,
            sizes={b.name: b.nbytes for b in buffers},
            ranges=tuple(ranges),
            recorded=recorded,
            contents=contents,
            arguments=bytes(arguments),
            variables=tuple(b.name for b in buffers if b.address is None),
            words=np.array(words, WORD),
            chunks=chunks(restored + patterns),
            zones=tuple(zones),
        )
        self.copies[identity] = copy
        return copy

    def _place(self, buffers: Sequence[Buffer]) -> tuple[list[Range], dict[str, int], bool]:
        fixed = [b for b in buffers if b.address is not None]
        mapped: list[Range] = []
        for wanted in recorded_ranges(fixed):
            if not self.space.map_at(wanted):
                break
            mapped.append(wanted)
        else:
            rest = [b for b in buffers if b.address is None]
            addresses = {b.name: b.address for b in fixed if b.address is not None}
            if rest:
                place, others = self._relocate(rest)
                return [*mapped, place], addresses | others, True
            return mapped, addresses, True
        for place in mapped:
            self.space.unmap(place.start)
        place, addresses = self._relocate(buffers)
        return [place], addresses, False

    def _relocate(self, buffers: Sequence[Buffer]) -> tuple[Range, dict[str, int]]:
        layout = relocated(buffers)
        place = self.space.map(layout.nbytes)
        return place, {name: place.start + offset for name, offset in layout.offsets.items()}

    def remove(self, identity: int) -> None:
        self._tables.forget()
        for place in self.copies.pop(identity).ranges:
            self.space.unmap(place.start)

    # -- restoring --

    def restore(self, identities: Sequence[int]) -> None:
        """Bring back the contents, the pointers and the redzones of these copies."""
        if not identities:
            return
        copies = [self.copies[identity] for identity in identities]
        self.space.open(start for copy in copies for start in (*copy.starts, copy.contents.place.start))
        every = tuple(identities)
        self._service.copy(self._tables.get(("chunks", every), lambda: np.concatenate([c.chunks for c in copies])))
        self._service.patch(self._tables.get(("words", every), lambda: np.concatenate([c.words for c in copies])))

    # -- comparing --

    def compare(self, identity: int, rules: Sequence[Sequence[Any]], key: Hashable) -> list[list[Any]]:
        """One row a rule: how many elements differ, the first, the largest error as bits, where, and both elements.

        A rule is [name, contents, type, element bytes, tolerant, atol, rtol, least, ulp].
        """
        copy = self.copies[identity]
        used = {int(rule[1]) for rule in rules}
        self.space.open([*copy.starts, *(self.contents[each].place.start for each in used)])
        rows = self._judge(self._tables.get((key, identity), lambda: self._pieces(copy, rules)), len(rules))
        return [self._found(copy, rule, row) for rule, row in zip(rules, rows, strict=True)]

    def damaged(self, identity: int) -> int | None:
        """The address of the first byte of a redzone that was written to."""
        copy = self.copies[identity]
        row = self._judge(self._tables.get(("zones", identity), lambda: self._zone_pieces(copy)), len(copy.zones))
        hit = [zone.start + int(found["first"]) for zone, found in zip(copy.zones, row, strict=True) if found["count"]]
        return min(hit, default=None)

    def _pieces(self, copy: Copy, rules: Sequence[Sequence[Any]]) -> Table:
        return pieces(
            (row, self.contents[contents].at(name), copy.addresses[name], copy.sizes[name], kind, item, *limits)
            for row, (name, contents, kind, item, *limits) in enumerate(rules)
        )

    def _zone_pieces(self, copy: Copy) -> Table:
        return pieces(
            (row, self._pattern + zone.start % 16, zone.start, zone.nbytes, 0, 1, 0, 0.0, 0.0, 0.0, 0.0)
            for row, zone in enumerate(copy.zones)
        )

    def _judge(self, table: tuple[int, int], rows: int) -> Table:
        found = np.zeros(rows, ROW)
        found["first"] = found["place"] = np.iinfo(np.uint64).max
        if not rows:
            return found
        place, _ = self._tables.get(("rows", rows), lambda: found)
        call(cuda.cuMemcpyHtoD, place, found.ctypes.data, found.nbytes)
        for again in (False, True):
            self._service.compare(table, place, again=again)
            call(cuda.cuMemcpyDtoH, found.ctypes.data, place, found.nbytes)
            if not found["count"].any():
                break
        return found

    def _found(self, copy: Copy, rule: Sequence[Any], row: Any) -> list[Any]:
        count, first, error, place = (int(row[name]) for name in ("count", "first", "error", "place"))
        if not count:
            return [0]
        item, start = int(rule[3]), copy.addresses[rule[0]]
        return [count, first, error, place, *(self._read(start + at * item, item).hex() for at in (first, place))]

    def _read(self, address: int, nbytes: int) -> bytes:
        data = np.empty(nbytes, np.uint8)
        call(cuda.cuMemcpyDtoH, data.ctypes.data, address, nbytes)
        return data.tobytes()

    def seconds(self, identity: int, rules: Sequence[Sequence[Any]]) -> dict[str, float]:
        """How long restoring and comparing a copy take on the GPU itself: the least of some tries."""
        copy = self.copies[identity]
        self.restore([identity])
        self.compare(identity, rules, "seconds")
        chunk_table = self._tables.get(("chunks", (identity,)), lambda: copy.chunks)
        piece_table = self._tables.get(("seconds", identity), lambda: self._pieces(copy, rules))
        place, _ = self._tables.get(("rows", len(rules)), lambda: np.zeros(len(rules), ROW))
        return {
            "restore": self._service.seconds(lambda: self._service.copy(chunk_table)),
            "compare": self._service.seconds(lambda: self._service.compare(piece_table, place, again=False)),
        }

    # -- reading back --

    def download(self, identity: int, names: Sequence[str], fd: int) -> None:
        """Write the bytes of these buffers to a file, one behind the other."""
        copy = self.copies[identity]
        self.space.open(copy.starts)
        total = sum(copy.sizes[name] for name in names)
        if total:
            with mmap.mmap(fd, total, mmap.MAP_SHARED | mmap.MAP_POPULATE) as shared:
                data = np.frombuffer(shared, np.uint8)
                at = 0
                for name in names:
                    if nbytes := copy.sizes[name]:
                        call(cuda.cuMemcpyDtoH, data.ctypes.data + at, copy.addresses[name], nbytes)
                    at += copy.sizes[name]
                del data
        os.close(fd)
