"""A unit's memory as the CUDA device knows it: recorded contents here, numbers and addresses of what the worker has."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from r3bench.compare import Buffer as Compared
from r3bench.compare import Tolerance, buffers, element_type, largest_limit, tolerance_of
from r3bench.devices import Bytes
from r3bench.devices.contents import ARGUMENTS, Pointers, check_pointers, kept
from r3bench.devices.cuda.placement import ALIGN, Buffer
from r3bench.devices.cuda.wire import PORTION, TYPES
from r3bench.model import ReplayUnit
from r3bench.parts import in_parts

_numbers = count()


class Exchange:
    """A file in memory by which bulk data goes to the worker and back; kept, since new pages cost more than copying."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("r3bench-exchange", os.MFD_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._fd)
        self._data = np.empty(0, np.uint8)

    def room(self, nbytes: int) -> tuple[int, Bytes]:
        """The file's descriptor and its first bytes; what was in them before is still there."""
        if nbytes > self._data.size:
            os.ftruncate(self._fd, nbytes)
            self._data = np.frombuffer(mmap.mmap(self._fd, nbytes), np.uint8)
        return self._fd, self._data[:nbytes]


Piece = tuple[str, int, int]
"""Of a buffer, where a piece of it begins, and its bytes."""


@dataclass(eq=False, slots=True)
class Contents:
    """Bytes of some buffers that the worker keeps for the GPU, uploaded when they are first needed there; for a unit of
    so many bytes. ``expected``: they are what is to be there after a launch.

    ``owner`` is what must live as long, so that nothing else takes the identity of its arrays. ``like`` has the same
    bytes in the buffers that ``same`` names, at the same places.
    """

    buffers: tuple[Buffer, ...]
    arrays: Mapping[str, Bytes]
    unit_bytes: int
    expected: bool = False
    owner: object = None
    like: Contents | None = None
    same: frozenset[str] = frozenset()
    number: int = field(default_factory=lambda: next(_numbers))

    def portions(self, without: Collection[str] = ()) -> Iterator[list[Piece]]:
        """What goes to the worker with each request, but for some buffers; the first may be empty."""
        portion, room = list[Piece](), PORTION
        for buffer in self.buffers:
            begin = buffer.nbytes if buffer.name in without else 0
            while begin < buffer.nbytes:
                if not room:
                    yield portion
                    portion, room = [], PORTION
                nbytes = min(room, buffer.nbytes - begin)
                portion.append((buffer.name, begin, nbytes))
                begin, room = begin + nbytes, room - nbytes
        yield portion

    def lay_out(self, portion: Sequence[Piece], exchange: Exchange) -> int:
        """Put pieces one behind the other into the file that is exchanged; its descriptor."""
        fd, data = exchange.room(max(1, sum(nbytes for _, _, nbytes in portion)))
        at = 0
        for name, begin, nbytes in portion:
            in_parts(partial(_copy, data[at : at + nbytes], self.arrays[name][begin : begin + nbytes]), nbytes)
            at += nbytes
        return fd


def _copy(to: Bytes, source: Bytes, part: slice) -> None:
    to[part] = source[part]


@dataclass(eq=False, slots=True)
class Rules:
    """How the worker compares some buffers with what is expected of them: sent once, and by number from then on.

    ``contents`` is what of that is not what was there before; ``kept``: for the next time, too.
    """

    rows: list[tuple[Any, ...]]
    contents: Contents | None
    kept: bool
    number: int = field(default_factory=lambda: next(_numbers))


class Recorded:
    """The recorded contents of a unit, shared by its copies: before, and what was expected after."""

    def __init__(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> None:
        self.unit = unit
        self.buffers, self.compared = tuple(_buffers(unit)), buffers(unit)
        self.compared_by: Rules | None = None  # the last time; a launch on a copy compares by them at once
        self.arrays = {buffer.name: kept(before, buffer.name, buffer.nbytes) for buffer in self.buffers}
        self.arguments = np.frombuffer(unit.arguments, np.uint8)
        check_pointers(unit, {**self.arrays, ARGUMENTS: self.arguments})
        self.nbytes = sum(buffer.nbytes for buffer in self.buffers)
        self.before = Contents(self.buffers, self.arrays, self.nbytes)
        self._given = {buffer.name: before[buffer.name] for buffer in self.buffers}
        self.shared = not any(given.flags.writeable for given in self._given.values())
        self.copies = 0
        self.alike = hash(unit)  # equal for equal units
        self._expected: dict[tuple[int, ...], Contents] = {}
        self._least: dict[tuple[int, str, Tolerance], float] = {}
        self._rules: dict[Hashable, Rules] = {}

    def take_over(self, others: Iterable[Recorded]) -> None:
        """Share what was recorded with a unit that has the same arrays at the same places, or some of them."""
        for other in others:
            if self.buffers == other.buffers:
                same = frozenset(name for name, array in self._given.items() if other._given[name] is array)
                if len(same) == len(self._given):
                    self.before = other.before
                    return
                if len(same) > len(self.before.same):
                    self.before = Contents(self.buffers, self.arrays, self.nbytes, like=other.before, same=same)

    def expected(self, given: Mapping[str, Bytes]) -> tuple[Contents | None, bool]:
        """What of these is not what was there before, as contents; and whether they are kept for the next time."""
        differing = tuple(b for b in self.buffers if not self.shared or given[b.name] is not self._given[b.name])
        if not differing:
            return None, True
        arrays = {b.name: np.ascontiguousarray(given[b.name]).reshape(-1).view(np.uint8) for b in differing}
        if any(given[b.name].flags.writeable for b in differing):
            return Contents(differing, arrays, self.nbytes, expected=True), False
        key = tuple(id(given[b.name]) for b in differing)
        if key not in self._expected:
            owner = [given[b.name] for b in differing]
            self._expected[key] = Contents(differing, arrays, self.nbytes, expected=True, owner=owner)
        return self._expected[key], True

    def least(self, name: str, given: Bytes, dtype: str, tolerance: Tolerance) -> float:
        """See :func:`r3bench.compare.largest_limit`; found once for contents that are kept."""
        if given.flags.writeable:
            return largest_limit(given, dtype, tolerance)
        key = (id(given), name, tolerance)
        if key not in self._least:
            self._least[key] = largest_limit(given, dtype, tolerance)
        return self._least[key]

    def rules(
        self, wanted: Sequence[Compared], given: Mapping[str, Bytes], overrides: Mapping[str, Tolerance]
    ) -> Rules:
        """How the worker is to compare these buffers with what is given; the same for contents that are kept."""
        contents, kept = self.expected(given)
        key = contents, tuple((each.name, overrides.get(each.name)) for each in wanted)
        if key not in self._rules:
            numbers = dict.fromkeys(self.arrays, self.before.number)
            if contents is not None:
                numbers |= {buffer.name: contents.number for buffer in contents.buffers}
            rows = [self._rule(each, given[each.name], numbers[each.name], overrides) for each in wanted]
            if not kept:
                return Rules(rows, contents, kept)
            self._rules[key] = Rules(rows, contents, kept)
        return self._rules[key]

    def _rule(self, held: Compared, given: Bytes, contents: int, overrides: Mapping[str, Tolerance]) -> tuple[Any, ...]:
        """How it is to compare one: see :class:`r3bench.devices.cuda.tables.Rule`."""
        tolerance = tolerance_of(self.unit, held, overrides)
        dtype, item, tolerant = element_type(held, tolerance)
        if not tolerant:
            return (held.name, contents, TYPES[dtype], item, 0, 0.0, 0.0, 0.0, 0.0, (), tolerance.ignore.edges.tolist())
        least = self.least(held.name, given, dtype, tolerance)
        limits = (1, tolerance.atol, tolerance.rtol, least, tolerance.ulp)
        runs = (tolerance.exact.edges.tolist(), tolerance.ignore.edges.tolist())
        return (held.name, contents, TYPES[dtype], item, *limits, *runs)

    def all_contents(self) -> Iterable[Contents]:
        return (self.before, *self._expected.values())


class CudaMemory:
    """One copy of a unit on the GPU. ``stale``: it is to be restored before it is next used. ``used``: a launch may
    have left its results there.

    ``rows`` is what its last launch left behind by ``rules``, until the copy is used again.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.unit = recorded.unit
        self.number = next(_numbers)
        self.stale, self.used = True, False
        self.rules: Rules | None = None
        self.rows: list[list[Any]] | None = None
        self.addresses: dict[str, int] = {}
        self.as_recorded = True
        self._pointers: dict[str, Pointers] = {}

    def description(self) -> dict[str, Any]:
        """What the worker needs to make it."""
        unit = self.unit
        return {
            "id": self.number,
            "contents": self.recorded.before.number,
            "buffers": [wired(buffer) for buffer in self.recorded.buffers],
            "arguments": unit.arguments.hex(),
            "pointers": [(p.holder, p.offset, p.allocation, p.displacement) for p in unit.pointers],
        }

    def placed(self, addresses: Mapping[str, Any], as_recorded: bool) -> None:
        """Note where the worker put it."""
        self.addresses = {name: int(address) for name, address in addresses.items()}
        self.as_recorded, self.stale, self.used, self.rows = as_recorded, True, False, None
        self._pointers = {
            holder: Pointers.within(self.unit, holder, self.recorded.arrays[holder], self.addresses.__getitem__)
            for holder in {pointer.holder for pointer in self.unit.pointers} - {ARGUMENTS}
        }

    def names(self) -> list[str]:
        """Every allocation and global."""
        return list(self.recorded.arrays)

    def relocated(self, name: str) -> bool:
        """Whether this buffer holds pointers that differ from the recorded ones."""
        pointers = self._pointers.get(name)
        return pointers is not None and not np.array_equal(pointers.recorded, pointers.real)

    def original(self, name: str, data: Bytes) -> Bytes:
        """Bytes read back from a buffer, with pointers as the application saw them."""
        pointers = self._pointers.get(name)
        return data if pointers is None else pointers.as_recorded(data, self.unit, self.addresses.__getitem__)


def wired(buffer: Buffer) -> tuple[str, int | None, int, int]:
    return buffer.name, buffer.address, buffer.nbytes, buffer.align


def _buffers(unit: ReplayUnit) -> Iterator[Buffer]:
    for held in unit.allocations:
        yield Buffer(held.name, held.address, held.nbytes, held.align)
    for variable in unit.globals:
        yield Buffer(variable.symbol, None, variable.nbytes, ALIGN)
