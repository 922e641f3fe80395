"""Recorded launches as captures: buffers cut, named and typed, pointers found, images taken out of fat binaries."""

from __future__ import annotations

import filecmp
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from r3bench import store
from r3bench.errors import NotRecordable, RecordError
from r3bench.model import Allocation, Capture, Global, LaunchConfig, Parameter, Pointer, ReplayUnit
from r3bench.record import textures
from r3bench.record.dump import PAGE, Bytes, Held, Launched, Pages, Run, fill
from r3bench.record.fatbin import machine_code
from r3bench.record.sources import Found
from r3bench.store import Parts
from r3bench.symbols import demangled

# An allocation is cut to what is used of it where it is at least so large and at most this share of it is used.
CUT_FROM_BYTES = 64 << 20
CUT_BELOW_SHARE = 0.25
# Used pages no further apart than this stay in one piece; as much is kept on both sides.
JOINED_PAGES = 256
_SCANNED_BYTES = 4 << 20
_SCANNERS = min(8, os.cpu_count() or 1)
# A thread's stack where an application asks for nothing else.
_STACK_BYTES = 1024

ImageFormat = Literal["cubin", "fatbin", "ptx", "hsaco"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an allocation that a unit keeps, ``start`` bytes behind its beginning; whole if it is all of it."""

    held: Held
    start: int
    nbytes: int

    @property
    def address(self) -> int:
        return self.held.address + self.start

    @property
    def end(self) -> int:
        return self.address + self.nbytes

    @property
    def changed(self) -> bool:
        """Whether the launch changed anything in it."""
        first, end = self.start // PAGE, -(-(self.start + self.nbytes) // PAGE)
        return any(run.first < end and first < run.first + run.count for run in self.held.after)


# -- which memory -----------------------------------------------------------------------------------------------------


def pieces(launched: Launched) -> list[Piece]:
    """The allocations of a launch in order, large and mostly empty ones cut to what is used of them."""
    allocations = [held for held in launched.held if held.symbol is None]
    return [piece for held in allocations for piece in _cut(held, launched)]


def _cut(held: Held, launched: Launched) -> Iterator[Piece]:
    filled_before = (run for run in held.before if run.place >= 0)
    used = [(run.first, run.first + run.count) for run in (*filled_before, *held.after)]
    count = sum(end - first for first, end in used)
    if held.nbytes < CUT_FROM_BYTES or count * PAGE > CUT_BELOW_SHARE * held.nbytes:
        yield Piece(held, 0, held.nbytes)
        return
    used += [(page, page + 1) for page in _pointed_to(held, launched)]
    for first, end in _joined(sorted(used)):
        start, stop = max(0, first - JOINED_PAGES) * PAGE, min((end + JOINED_PAGES) * PAGE, held.nbytes)
        yield Piece(held, start, stop - start)


def _pointed_to(held: Held, launched: Launched) -> Iterator[int]:
    """Pages that arguments lead to."""
    for word in _words(np.frombuffer(bytes.fromhex(launched.facts["arguments"]), np.uint8), 4):
        if held.address <= word < held.address + held.nbytes:
            yield (word - held.address) // PAGE


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, end in spans:
        if joined and first - joined[-1][1] <= 2 * JOINED_PAGES:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined


def _words(data: Bytes, step: int = 8) -> list[int]:
    block = data.tobytes()
    return [int.from_bytes(block[at : at + 8], "little") for at in range(0, len(block) - 7, step)]


# -- names and types --------------------------------------------------------------------------------------------------


def places(launched: Launched) -> list[tuple[int, int]]:
    """Offset and size of every parameter, as the driver gives them."""
    return [(int(offset), int(size)) for offset, size in launched.facts["parameters"]]


def parameters_of(launched: Launched, known: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """The parameters as the driver gives them, with names and types from the source where that agrees."""
    if known and [(p.offset, p.size) for p in known] == places(launched):
        return tuple(known)
    block = bytes.fromhex(launched.facts["arguments"])
    return tuple(
        Parameter(name=f"arg{index}", offset=offset, size=size, kind=_kind(launched, block[offset : offset + size]))
        for index, (offset, size) in enumerate(places(launched))
    )


def _kind(launched: Launched, value: bytes) -> Literal["pointer", "scalar", "struct"]:
    if len(value) not in (1, 2, 4, 8):
        return "struct"
    word = int.from_bytes(value, "little")
    leads = any(h.symbol is None and h.address <= word <= h.address + h.nbytes for h in launched.held)
    return "pointer" if len(value) == 8 and leads else "scalar"


def _named(launched: Launched, kept: Sequence[Piece], parameters: Sequence[Parameter]) -> list[Allocation]:
    """Each piece under the name of the first parameter that leads into it, typed as that parameter says."""
    block = bytes.fromhex(launched.facts["arguments"])
    taken: set[str] = {held.symbol for held in launched.held if held.symbol}
    return [_allocation(piece, _leading(piece, parameters, block), index, taken) for index, piece in enumerate(kept)]


def _leading(piece: Piece, parameters: Sequence[Parameter], block: bytes) -> Parameter | None:
    for parameter in parameters:
        words = _words(np.frombuffer(block[parameter.offset : parameter.offset + parameter.size], np.uint8))
        if any(piece.address <= word < piece.end for word in words):
            return parameter
    return None


def _allocation(piece: Piece, parameter: Parameter | None, index: int, taken: set[str]) -> Allocation:
    base = parameter.name if parameter else f"memory{index}"
    name = next(n for n in (base, *(f"{base}_{i}" for i in range(2, index + 3))) if n not in taken)
    taken.add(name)
    dtype = (parameter.dtype if parameter and parameter.kind == "pointer" else None) or "uint8"
    whole = piece.nbytes % np.dtype("uint16" if dtype == "bfloat16" else dtype).itemsize == 0
    return Allocation(
        name=name,
        address=piece.address,
        nbytes=piece.nbytes,
        dtype=dtype if whole else "uint8",
        align=_alignment(piece.address),
        memory=cast(Literal["device", "managed", "host", "pool"], piece.held.memory),
        whole_bytes=piece.held.nbytes if piece.nbytes != piece.held.nbytes else None,
    )


def _alignment(address: int) -> int:
    return min(256, address & -address)


# -- pointers ---------------------------------------------------------------------------------------------------------


def _pointers(holder: str, data: Parts, allocations: Sequence[Allocation]) -> list[Pointer]:
    """Every aligned word of a buffer that leads into an allocation."""
    ordered = sorted(allocations, key=lambda a: a.address)
    if not ordered:
        return []
    low, high = ordered[0].address, max(a.address + a.nbytes for a in ordered)
    found = []
    for begin in range(0, data.nbytes, _SCANNED_BYTES):
        part = data[begin : begin + _SCANNED_BYTES]
        words = part[: part.size // 8 * 8].view(np.uint64)
        for index in np.flatnonzero(words - np.uint64(low) <= np.uint64(high - low)):
            found += _pointer(holder, begin + 8 * int(index), int(words[index]), ordered)
    return found


def _argument_pointers(block: bytes, allocations: Sequence[Allocation]) -> Iterator[Pointer]:
    """Words of the arguments that lead into an allocation; a word found is not looked into again."""
    ordered, end = sorted(allocations, key=lambda a: a.address), 0
    for at, word in enumerate(_words(np.frombuffer(block, np.uint8), 4)):
        if 4 * at >= end and (found := _pointer("", 4 * at, word, ordered)):
            yield from found
            end = 4 * at + 8


def _pointer(holder: str, offset: int, word: int, ordered: Sequence[Allocation]) -> list[Pointer]:
    at = bisect_right(ordered, word, key=lambda a: a.address) - 1
    if at < 0 or word > ordered[at].address + ordered[at].nbytes:
        return []
    found = ordered[at]
    return [Pointer(offset=offset, allocation=found.name, displacement=word - found.address, holder=holder)]


# -- a unit -----------------------------------------------------------------------------------------------------------


def _launch_config(facts: dict[str, Any]) -> LaunchConfig:
    x, y, z = facts["cluster"]
    stack_bytes, carveout = facts.get("stack_bytes", _STACK_BYTES), facts.get("shared_carveout", -1)
    return LaunchConfig(
        grid=tuple(facts["grid"]),
        block=tuple(facts["block"]),
        shared_bytes=facts["shared_bytes"],
        cooperative=facts["cooperative"],
        cluster=(x, y, z) if x else None,
        stack_bytes=stack_bytes if stack_bytes > _STACK_BYTES else None,
        carveout=carveout if carveout >= 0 else None,
    )


def _global(held: Held) -> Global:
    assert held.symbol is not None
    return Global(symbol=held.symbol, nbytes=held.nbytes, constant=held.memory == "constant")


@dataclass(frozen=True, slots=True)
class Memory:
    """What a piece holds before a launch, or after it (``runs`` of pages, the later ones on top); read when taken."""

    piece: Piece
    pages: Pages
    runs: tuple[tuple[Run, ...], ...]

    @property
    def nbytes(self) -> int:
        return self.piece.nbytes

    def __getitem__(self, part: slice) -> Bytes:
        start, stop, _ = part.indices(self.nbytes)
        into = np.empty(stop - start, np.uint8)
        for runs in self.runs:
            fill(runs, self.pages, into, self.piece.start + start)
        return into


class Moments(NamedTuple):
    """The memory of a unit as the store takes it."""

    before: Mapping[str, Memory]
    after: Mapping[str, Memory]


class Converted(NamedTuple):
    """A replay unit and its memory."""

    unit: ReplayUnit
    contents: Moments


def unit(launched: Launched, index: int, parameters: Sequence[Parameter]) -> Converted:
    """One recorded launch as a replay unit and its memory, which stays on disk."""
    kept, pages = pieces(launched), Pages.of(launched.files)
    allocations = _named(launched, kept, parameters)
    variables = [held for held in launched.held if held.symbol is not None]
    buffers = [(a.name, piece) for a, piece in zip(allocations, kept, strict=True)]
    buffers += [(str(held.symbol), Piece(held, 0, held.nbytes)) for held in variables]
    before = {name: Memory(piece, pages, (piece.held.before,)) for name, piece in buffers}
    after = {
        name: Memory(piece, pages, (piece.held.before, piece.held.after)) for name, piece in buffers if piece.changed
    }
    block = bytes.fromhex(launched.facts["arguments"])
    with ThreadPoolExecutor(_SCANNERS) as scanners:
        inside = scanners.map(lambda name: _pointers(name, before[name], allocations), before)
        pointers = (*_argument_pointers(block, allocations), *(pointer for found in inside for pointer in found))
    recorded = ReplayUnit(
        index=index,
        launch=_launch_config(launched.facts),
        arguments=block,
        pointers=pointers,
        allocations=tuple(allocations),
        globals=tuple(map(_global, variables)),
        written=tuple(after),
        occurrence=launched.facts["occurrence"],
        seconds=launched.facts["seconds"],
        stream=launched.facts["stream"],
        held_out=index > 0,
    )
    return Converted(recorded, Moments(before, after))


# -- a capture --------------------------------------------------------------------------------------------------------


def image_of(launched: Launched) -> tuple[bytes, ImageFormat] | None:
    """The image that ran: machine code out of a fat binary where it is for this GPU, else all of what was loaded."""
    if launched.image is None:
        return None
    try:
        data = launched.image.read_bytes()
    except OSError as error:
        raise RecordError(f"image {launched.image} cannot be read ({error.strerror}): record again") from error
    kind = launched.image.suffix.removeprefix(".")
    if kind == "fatbin" and (code := machine_code(data, launched.facts["arch"])):
        return code, "cubin"
    return data, cast(ImageFormat, kind)


def recorded_on(launched: Launched) -> tuple[tuple[str, str], ...]:
    """Where a launch ran, and how long it took there."""
    facts = launched.facts
    version = f"{facts['driver'] // 1000}.{facts['driver'] % 1000 // 10}"
    found = {"device": "cuda", "arch": facts["arch"], "gpu": facts["gpu"], "driver": version}
    found["launch_us"] = f"{1e6 * facts['gpu_seconds']:.2f}"
    settings = ("registers", "local_bytes", "static_shared_bytes", "max_dynamic_shared_bytes", "stack_bytes")
    return tuple(sorted({**found, **{name: str(facts[name]) for name in settings if name in facts}}.items()))


def write(
    path: Path,
    application: str,
    command: Sequence[str],
    group: Sequence[Launched],
    known: Found | None,
    done: Callable[[], None] = lambda: None,
) -> Capture:
    """One capture of the recorded launches of one kernel, in order.

    ``done`` is called for each of them. NotRecordable where a capture cannot hold what the kernel uses.
    """
    first = group[0]
    image = image_of(first)
    arch = int(first.facts["arch"].removeprefix("sm_"))
    if image is not None and textures.used(*image, first.kernel, arch):
        raise NotRecordable("its code uses textures or surfaces")
    parameters = parameters_of(first, known.parameters if known else ())
    converted = [unit(launched, index, parameters) for index, launched in enumerate(group)]
    capture = Capture(
        path=str(path),
        application=application,
        symbol=first.kernel,
        demangled=known.demangled if known else demangled(first.kernel),
        parameters=parameters,
        source=known.source if known else None,
        units=tuple(one.unit for one in converted),
        image_format=image[1] if image else None,
        command=tuple(command),
        recorded_on=recorded_on(first),
    )
    contents = (_told(one.contents, done) for one in converted)
    texts, ir = (known.texts, known.ir) if known else (None, None)
    return store.write(path, capture, contents, texts, ir=ir, image=image[0] if image else None)


def _told(contents: Moments, done: Callable[[], None]) -> Moments:
    done()
    return contents


def grouped(found: Sequence[Launched]) -> list[list[Launched]]:
    """Launches by kernel and image, each in order; the same launch of several ranks counts once."""
    groups: dict[tuple[str, str], list[Launched]] = {}
    for launched in found:
        group = groups.setdefault((launched.kernel, launched.facts["image"]), [])
        if not any(_same_of_another_process(launched, other) for other in group):
            group.append(launched)
    return list(groups.values())


def _same_of_another_process(one: Launched, other: Launched) -> bool:
    if one.path.parent == other.path.parent or one.held != other.held:
        return False
    alike = all(one.facts[what] == other.facts[what] for what in ("occurrence", "grid", "block", "arguments"))
    return alike and all(map(_same_bytes, one.files, other.files))


def _same_bytes(one: Path, other: Path) -> bool:
    return filecmp.cmp(one, other, shallow=False)


def file_names(groups: Sequence[Sequence[Launched]]) -> list[str]:
    """A file name for each kernel: its own name, numbered where two share it."""
    names: list[str] = []
    for group in groups:
        base = re.sub(r"[^\w.-]+", "_", demangled(group[0].kernel).partition("<")[0].replace("::", "."))
        name = next(n for n in (base, *(f"{base}-{i}" for i in range(2, len(names) + 3))) if n not in names)
        names.append(name)
    return names
