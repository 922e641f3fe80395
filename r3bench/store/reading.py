"""Reading captures: metadata from the root document alone, arrays checked against their recorded SHA-256."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from r3bench.errors import CaptureError
from r3bench.model import Allocation, Capture, Global, ReplayUnit
from r3bench.store import arrays, files
from r3bench.store.arrays import UnitContents
from r3bench.store.attributes import buffer_name, buffers, damaged, node_name, storage_dtype, view_shape
from r3bench.store.files import PathLike
from r3bench.store.rooms import Room, in_memory
from r3bench.store.root import open_root, parse
from r3bench.store.shards import Bytes

if TYPE_CHECKING:
    import xarray


def open_capture(path: PathLike) -> Capture:
    """A capture's metadata, read from its root document alone and checked; no array is touched, zarr not imported."""
    return open_root(Path(path))[0]


def contents(capture: Capture, index: int, room: Room = in_memory) -> UnitContents:
    """The memory of one unit, each buffer checked against its recorded SHA-256; large ones in a ``room``."""
    with _reader(capture) as reader:
        return reader.contents(_unit(capture, index), room)


def expected(capture: Capture, index: int) -> dict[str, Bytes]:
    """All of a unit's memory after the launch: what changed, and what did not as it was before."""
    held = contents(capture, index)
    return {**held.before, **held.after}


def sources(capture: Capture) -> dict[str, str]:
    """The texts of the translation unit by path; bytes that are not UTF-8 become surrogates, none is lost."""
    with _reader(capture) as reader:
        return reader.sources(capture)


def ir(capture: Capture) -> bytes | None:
    """The kernel's IR (text or bitcode) as recorded, if it was."""
    with _reader(capture) as reader:
        return reader.bytes_of("ir")


def image(capture: Capture) -> bytes | None:
    """The application's own module in ``capture.image_format``, if it was recorded."""
    with _reader(capture) as reader:
        return reader.bytes_of("image")


def dataset(capture: Capture, index: int, moment: Literal["before", "after"] = "before") -> xarray.Dataset:
    """One unit's memory before the launch, or what changed of it after, as variables named by buffer.

    Elements have the buffer's dtype (bfloat16: uint16 with attribute ``dtype``) and dimensions.
    """
    import xarray

    unit, held = _unit(capture, index), contents(capture, index)
    chosen = held.before if moment == "before" else held.after
    named = {buffer_name(buffer): buffer for buffer in buffers(unit)}
    return xarray.Dataset(
        {name: _variable(named[name], data) for name, data in chosen.items()},
        attrs={"kernel": capture.symbol, "unit": index, "moment": moment},
    )


def verify(path: PathLike) -> Capture:
    """Check everything in a store: every array against its SHA-256, every node's own document against the root's."""
    target = Path(path)
    capture, root = open_root(target)
    with Reader(target, root) as reader:
        reader.check_documents()
        for unit in capture.units:
            reader.contents(unit)
        reader.sources(capture)
        reader.bytes_of("ir")
        reader.bytes_of("image")
    return capture


def _variable(buffer: Allocation | Global, data: Bytes) -> tuple[tuple[str, ...], Any, dict[str, str]]:
    shape = view_shape(buffer)
    given = buffer.dims if isinstance(buffer, Allocation) else ()
    dims = given or tuple(f"{buffer_name(buffer)}[{axis}]" for axis in range(len(shape)))
    attrs = {"dtype": buffer.dtype} if storage_dtype(buffer.dtype).name != buffer.dtype else {}
    return dims, data.view(storage_dtype(buffer.dtype)).reshape(shape), attrs


def _unit(capture: Capture, index: int) -> ReplayUnit:
    if not 0 <= index < len(capture.units):
        raise CaptureError(f"capture {capture.path} has units 0 to {len(capture.units) - 1}, but {index} was asked for")
    return capture.units[index]


def _reader(capture: Capture) -> Reader:
    now, root = open_root(Path(capture.path))
    if now.content_hash != capture.content_hash:
        raise CaptureError(f"capture {capture.path} was rewritten since it was opened: open it again")
    return Reader(Path(capture.path), root)


class Reader:
    """Reads arrays of one store whose root document was checked."""

    def __init__(self, path: Path, root: Mapping[str, Any]) -> None:
        self._path = path
        self._nodes: Mapping[str, Any] = root["consolidated_metadata"]["metadata"]
        self._members = files.members(path)
        self._open = ExitStack()

    def __enter__(self) -> Reader:
        self._store = self._open.enter_context(arrays.reading(self._path))
        self._readers = self._open.enter_context(ThreadPoolExecutor(arrays.READERS))
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()

    def contents(self, unit: ReplayUnit, room: Room = in_memory) -> UnitContents:
        where = f"{self._path}, unit {unit.index}"
        group = f"units/{unit.index}/"
        claimed = 2 * sum(buffer.nbytes for buffer in buffers(unit))
        arrays.check_room(claimed, self._stored(group), where, on_disk=room is not in_memory)
        named = {buffer_name(buffer): node_name(buffer_name(buffer)) for buffer in buffers(unit)}
        before = {name: f"{group}before/{node}" for name, node in named.items()}
        after = {name: f"{group}after/{named[name]}" for name in unit.written}
        nodes = (*before.values(), *after.values())
        with ThreadPoolExecutor(arrays.READERS) as hashers:  # unpacking and hashing leave the interpreter to others
            read = list(hashers.map(partial(self._read, room=room), nodes))
        return UnitContents(
            before=dict(zip(before, read, strict=False)), after=dict(zip(after, read[len(before) :], strict=True))
        )

    def sources(self, capture: Capture) -> dict[str, str]:
        paths = [path for path, _ in capture.source.files] if capture.source else []
        return {
            path: (self._read_small(f"source/{node_name(path)}")).decode("utf-8", "surrogateescape") for path in paths
        }

    def bytes_of(self, name: str) -> bytes | None:
        return self._read_small(name) if name in self._nodes else None

    def check_documents(self) -> None:
        """Plain Zarr readers use each node's own document: it must be what the root says."""
        for node, document in self._nodes.items():
            name = f"{node}/{files.ROOT_FILE}"
            if name not in self._members or parse(files.read_member(self._path, name), str(self._path)) != document:
                raise damaged(str(self._path), f"{name} is missing or not what the root document says")

    def _read(self, node: str, room: Room = in_memory) -> Bytes:
        return arrays.read_array(self._path, self._store, node, self._nodes[node], self._readers, room)

    def _read_small(self, node: str) -> bytes:
        size = self._nodes[node]["shape"][0]
        arrays.check_room(size, self._stored(f"{node}/"), f"{self._path}, {node}")
        return self._read(node).tobytes()

    def _stored(self, prefix: str) -> int:
        return sum(size for name, size in self._members.items() if name.startswith(prefix))
