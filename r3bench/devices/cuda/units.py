"""Copies of units and their recorded contents on the GPU: restored, compared and read back by the worker."""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from r3bench.devices.contents import redzone_pattern
from r3bench.devices.cuda.driver import call
from r3bench.devices.cuda.placement import (
    SLAB,
    VAULT,
    Buffer,
    Range,
    gap,
    packed,
    recorded_ranges,
    redzones,
    relocated,
    slots,
)
from r3bench.devices.cuda.service import Service, Tables
from r3bench.devices.cuda.space import Place, Right, Space
from r3bench.devices.cuda.staging import Staging
from r3bench.devices.cuda.tables import ROW, WORD, Rule, Table, chunks, pieces
from r3bench.devices.cuda.wire import TYPES

_PATTERN_BYTES, _PATTERN_STEP = 2 << 20, 16 * 521
_BYTES = Rule("", 0, TYPES["uint8"], 1, 0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Contents:
    """Recorded bytes of some buffers, one behind the other, in memory that is closed while a candidate runs; apart from
    others where they are what is ``expected`` of one."""

    place: Place
    range: Range
    offsets: dict[str, int]
    expected: bool

    def at(self, name: str) -> int:
        return self.range.start + self.offsets[name]


@dataclass(eq=False, slots=True)
class Slab:
    """Memory for some copies of a unit, to which access is given and taken at once; which of it is free."""

    place: Place
    free: list[Range]
    slots: int


Share = tuple[Slab, Range]


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a unit: where its buffers are, the memory they are in, and what restoring it takes.

    ``own`` is memory at the recorded addresses, ``shares`` what it has of slabs.
    """

    addresses: dict[str, int]
    sizes: dict[str, int]
    own: tuple[Place, ...]
    shares: tuple[Share, ...]
    contents: Contents
    arguments: bytes
    variables: tuple[str, ...]
    words: Table
    chunks: Table
    zones: tuple[Range, ...]
    places: frozenset[Place]

    @property
    def recorded(self) -> bool:
        """Whether it lies where it was recorded."""
        return bool(self.own)


class Units:
    """Everything of units that is on the device."""

    def __init__(self, space: Space, service: Service) -> None:
        self.space, self._service, self._tables = space, service, Tables(space)
        self._staging = Staging()
        self.contents: dict[int, Contents] = {}
        self.copies: dict[int, Copy] = {}
        self.rules: dict[int, list[Rule]] = {}
        self._slabs: defaultdict[tuple[Range, int], list[Slab]] = defaultdict(list)
        self._pattern = space.map(_PATTERN_BYTES, always=True).start
        pattern = redzone_pattern(0, _PATTERN_BYTES)
        call(cuda.cuMemcpyHtoD, self._pattern, pattern.ctypes.data, _PATTERN_BYTES)

    # -- contents --

    def put(
        self,
        identity: int,
        buffers: Sequence[Buffer],
        *,
        like: int | None,
        same: Sequence[str],
        host: bool,
        expected: bool,
    ) -> None:
        """Keep bytes on the GPU or, where they leave no room there, on the ``host``. Those of some buffers are the
        ``same`` as in other contents, and come from there; the others are to be filled."""
        layout, there = packed(buffers), None if like is None else self.contents[like]
        place, held = self._vault(layout.nbytes, host=host, expected=expected)
        self.contents[identity] = Contents(place, held, layout.offsets, expected)
        if there is not None:
            self.space.open([place, there.place])
            for buffer in buffers:
                if buffer.name in same and buffer.nbytes:
                    to = held.start + layout.offsets[buffer.name]
                    call(cuda.cuMemcpyDtoD, to, there.at(buffer.name), buffer.nbytes)

    def fill(self, identity: int, pieces: Sequence[tuple[str, int, int]], fd: int) -> None:
        """Put pieces of some buffers there: they are one behind the other in a file."""
        contents, source = self.contents[identity], self._staging.address(fd)
        self.space.open([contents.place])
        for name, begin, nbytes in pieces:
            call(cuda.cuMemcpyHtoD, contents.at(name) + begin, source, nbytes)
            source += nbytes

    def _vault(self, nbytes: int, *, host: bool, expected: bool) -> tuple[Place, Range]:
        """Room among other contents, or in memory of its own: access is given to all in a piece at once."""
        alike = {contents.place for contents in self.contents.values() if contents.expected == expected}
        for place in () if host else alike:
            taken = (contents.range for contents in self.contents.values() if contents.place is place)
            found = gap(place.range, taken, nbytes)
            if found is not None:
                return place, found
        place = self.space.map(nbytes if host else max(VAULT, nbytes), host=host)
        return place, Range(place.start, place.start + nbytes)

    def drop(self, identity: int) -> None:
        self._tables.forget()
        self.rules = {
            number: rules for number, rules in self.rules.items() if all(rule.contents != identity for rule in rules)
        }
        place = self.contents.pop(identity).place
        if all(contents.place is not place for contents in self.contents.values()):
            self.space.unmap(place)

    # -- copies --

    def make(self, identity: int, description: dict[str, Any]) -> Copy:
        """Place a copy of a unit: where it was recorded, if that is asked for and can be had, or anywhere."""
        buffers = list(starmap(Buffer, description["buffers"]))
        contents = self.contents[description["contents"]]
        own, shares, addresses = self._place(buffers, contents, description["as_recorded"])
        arguments = bytearray.fromhex(description["arguments"])
        words = []
        for holder, offset, target, displacement in description["pointers"]:
            value = addresses[target] + displacement
            if holder:
                words.append((addresses[holder] + offset, value))
            else:
                arguments[offset : offset + 8] = value.to_bytes(8, "little")
        placed = [Range(addresses[b.name], addresses[b.name] + b.nbytes) for b in buffers]
        zones = redzones([*(place.range for place in own), *(share for _, share in shares)], placed)
        patterns = [(zone.start, source, zone.nbytes) for zone, source in self._patterns(zones)]
        restored = [(addresses[b.name], contents.at(b.name), b.nbytes) for b in buffers]
        copy = Copy(
            addresses=addresses,
            sizes={b.name: b.nbytes for b in buffers},
            own=tuple(own),
            shares=tuple(shares),
            contents=contents,
            arguments=bytes(arguments),
            variables=tuple(b.name for b in buffers if b.address is None),
            words=np.array(words, WORD),
            chunks=chunks(restored + patterns),
            zones=tuple(zones),
            places=frozenset([*own, *(slab.place for slab, _ in shares)]),
        )
        self.copies[identity] = copy
        return copy

    def _place(
        self, buffers: Sequence[Buffer], contents: Contents, as_recorded: bool
    ) -> tuple[list[Place], list[Share], dict[str, int]]:
        fixed = [b for b in buffers if b.address is not None]
        own = self._where_recorded(fixed) if as_recorded else []
        if not own:
            share, addresses = self._relocate(buffers, contents)
            return [], [share], addresses
        addresses = {b.name: b.address for b in fixed if b.address is not None}
        rest = [b for b in buffers if b.address is None]
        if not rest:
            return own, [], addresses
        share, others = self._relocate(rest, contents)
        return own, [share], addresses | others

    def _where_recorded(self, buffers: Sequence[Buffer]) -> list[Place]:
        """Memory for all these buffers at their own addresses; none if some cannot be had."""
        own: list[Place] = []
        for wanted in recorded_ranges(buffers):
            place = self.space.map_at(wanted)
            if place is None:
                for taken in own:
                    self.space.unmap(taken)
                return []
            own.append(place)
        return own

    def _relocate(self, buffers: Sequence[Buffer], contents: Contents) -> tuple[Share, dict[str, int]]:
        layout = relocated(buffers)
        slabs = self._slabs[contents.range, layout.nbytes]
        slab = next((each for each in slabs if each.free), None) or self._more(slabs, layout.nbytes)
        share = slab.free.pop(0)
        return (slab, share), {name: share.start + offset for name, offset in layout.offsets.items()}

    def _more(self, slabs: list[Slab], step: int) -> Slab:
        """A slab with room for as many copies again as there are: the last one, grown, or another where it is full."""
        nbytes = step * slots(step, sum(each.slots for each in slabs))
        if slabs and slabs[-1].place.range.nbytes + nbytes <= SLAB:
            self.space.grow(slabs[-1].place, nbytes)
        else:
            slabs.append(Slab(self.space.map(nbytes, room=SLAB), [], 0))
        slab, end = slabs[-1], slabs[-1].place.range.end
        slab.free += [Range(at, at + step) for at in range(end - nbytes, end, step)]
        slab.slots += nbytes // step
        return slab

    def remove(self, identity: int) -> None:
        self._tables.forget()
        copy = self.copies.pop(identity)
        for place in copy.own:
            self.space.unmap(place)
        for slab, share in copy.shares:
            slab.free.append(share)
            if len(slab.free) == slab.slots:
                self._slabs[copy.contents.range, share.nbytes].remove(slab)
                self.space.unmap(slab.place)

    # -- restoring --

    def restore(self, identities: Sequence[int]) -> None:
        """Bring back the contents, the pointers and the redzones of these copies."""
        if not identities:
            return
        copies = [self.copies[identity] for identity in identities]
        self.space.open({copy.contents.place for copy in copies}, Right.READ)
        self.space.open(set[Place]().union(*(copy.places for copy in copies)))
        every = tuple(identities)
        self._service.copy(self._tables.get(("chunks", every), lambda: np.concatenate([c.chunks for c in copies])))
        self._service.patch(self._tables.get(("words", every), lambda: np.concatenate([c.words for c in copies])))

    # -- comparing --

    def compare(self, identity: int, number: int) -> list[list[Any]]:
        """One row for each of these rules: how many elements differ, the first, the largest error as bits, where, and
        both elements."""
        return self._compared(identity, number, ())[0]

    def launched(self, identity: int, number: int | None) -> tuple[int | None, list[list[Any]]]:
        """The address of the first byte of a redzone that a launch wrote to; its rows, where there are rules."""
        zones = self.copies[identity].zones
        rows, beside = self._compared(identity, number, zones)
        hit = [zone.start + int(found["first"]) for zone, found in zip(zones, beside, strict=True) if found["count"]]
        return min(hit, default=None), rows

    def _compared(self, identity: int, number: int | None, zones: Sequence[Range]) -> tuple[list[list[Any]], Table]:
        """Rows for rules and for redzones, in one run."""
        copy, rules = self.copies[identity], [] if number is None else self.rules[number]
        self.space.open((self.contents[rule.contents].place for rule in rules), Right.READ)
        self.space.open(copy.places)
        table = self._tables.get(("pieces", identity, number, len(zones)), lambda: self._pieces(copy, rules, zones))
        found = self._judge(table, len(rules) + len(zones))
        rows = [self._found(copy, rule, row) for rule, row in zip(rules, found, strict=False)]
        return rows, found[len(rules) :]

    def _pieces(self, copy: Copy, rules: Sequence[Rule], zones: Sequence[Range]) -> Table:
        wanted = [
            (rule, self.contents[rule.contents].at(rule.name), copy.addresses[rule.name], copy.sizes[rule.name])
            for rule in rules
        ]
        beside = [(_BYTES, source, zone.start, zone.nbytes) for zone, source in self._patterns(zones)]
        return pieces(wanted + beside)

    def _patterns(self, zones: Sequence[Range]) -> Iterator[tuple[Range, int]]:
        """Each redzone with what it holds: a part of the pattern that begins elsewhere than any other's."""
        for number, zone in enumerate(zones):
            yield zone, self._pattern + _PATTERN_STEP * number % (_PATTERN_BYTES // 2) + zone.start % 16

    def _judge(self, table: tuple[int, int], rows: int) -> Table:
        """What a table of pieces finds; only reading it back waits for the device."""
        found = np.zeros(rows, ROW)
        found["first"] = found["place"] = np.iinfo(np.uint64).max
        if not rows:
            return found
        fresh, _ = self._tables.get(("fresh", rows), lambda: found)
        place, _ = self._tables.get(("rows", rows), lambda: found)
        call(cuda.cuMemcpyDtoDAsync, place, fresh, found.nbytes, self._service.stream)
        for again in (False, True):
            self._service.compare(table, place, again=again)
            call(cuda.cuMemcpyDtoH, found.ctypes.data, place, found.nbytes)
            if not found["count"].any():
                break
        return found

    def _found(self, copy: Copy, rule: Rule, row: Any) -> list[Any]:
        count, first, error, place = (int(row[name]) for name in ("count", "first", "error", "place"))
        if not count:
            return [0]
        item, start = rule.item, copy.addresses[rule.name]
        return [count, first, error, place, *(self._read(start + at * item, item).hex() for at in (first, place))]

    def _read(self, address: int, nbytes: int) -> bytes:
        data = np.empty(nbytes, np.uint8)
        call(cuda.cuMemcpyDtoH, data.ctypes.data, address, nbytes)
        return data.tobytes()

    def seconds(self, identity: int, number: int) -> dict[str, float]:
        """How long restoring and comparing a copy take on the GPU itself: the least of some tries."""
        copy = self.copies[identity]
        self.restore([identity])
        self.compare(identity, number)
        rules = self.rules[number]
        chunk_table = self._tables.get(("chunks", (identity,)), lambda: copy.chunks)
        piece_table = self._tables.get(("pieces", identity, number, 0), lambda: self._pieces(copy, rules, ()))
        place, _ = self._tables.get(("rows", len(rules)), lambda: np.zeros(len(rules), ROW))
        return {
            "restore": self._service.seconds(lambda: self._service.copy(chunk_table)),
            "compare": self._service.seconds(lambda: self._service.compare(piece_table, place, again=False)),
        }

    # -- reading back --

    def download(self, identity: int, names: Sequence[str], fd: int) -> None:
        """Write the bytes of these buffers to a file, one behind the other."""
        copy = self.copies[identity]
        self.space.open(copy.places)
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
