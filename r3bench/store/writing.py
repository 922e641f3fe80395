"""Writing captures: a whole store at a time, equal bytes for equal content."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from r3bench.errors import CaptureError
from r3bench.model import Allocation, Capture, Global, ReplayUnit
from r3bench.store import arrays, attributes, files
from r3bench.store.arrays import CHUNK_BYTES, Contents, Parts
from r3bench.store.attributes import buffer_name, buffers, node_name, storage_dtype, view_shape
from r3bench.store.files import PathLike
from r3bench.store.reading import Reader, open_capture
from r3bench.store.root import open_root

# Buffers that are packed at a time; each takes a few times a shard of memory.
_WRITERS = min(8, os.cpu_count() or 1)


def write(
    path: PathLike,
    capture: Capture,
    contents: Iterable[Contents],
    sources: Mapping[str, str] | None = None,
    ir: str | bytes | None = None,
    image: bytes | None = None,
) -> Capture:
    """Write a whole capture in one step, in place of what was at ``path``; it as :func:`open_capture` gives it.

    ``contents`` gives each unit's memory in order, as arrays (from a generator one unit is held at a time) or part by
    part. Which buffers were written is found by comparing, whatever ``unit.written`` says. ``sources`` holds the texts
    of ``capture.source.files``. CaptureError where the parts do not fit together or the disk refuses.
    """
    target = Path(path)
    with files.replacing(target) as folder:
        _refuse_foreign(target)
        _build(folder, target, capture, contents, _Module(sources or {}, ir, image))
    return open_capture(target)


def append(path: PathLike, capture: Capture, contents: Iterable[Contents]) -> Capture:
    """Add the units of ``capture`` to the same kernel's store at ``path``, numbered after those that are there.

    The store is rewritten as a whole, in one step. CaptureError where kernel, parameters or source differ.
    """
    target = Path(path)
    with files.replacing(target) as folder:
        old, root = open_root(target)
        if _kernel_of(old) != _kernel_of(capture):
            raise CaptureError(f"{path} holds another kernel or another source: record into a new capture")
        added = [replace(unit, index=len(old.units) + i) for i, unit in enumerate(capture.units)]
        both = replace(old, units=(*old.units, *added))
        with Reader(target, root) as reader:
            module = _Module(reader.sources(old), reader.bytes_of("ir"), reader.bytes_of("image"))
            _build(folder, target, both, _chain(reader, old, contents), module)
    return open_capture(target)


def text_sha256(text: str) -> str:
    """The SHA-256 of a source file, as :class:`~r3bench.model.Source` lists it."""
    return arrays.sha256(_text_bytes(text))


@dataclass(frozen=True, slots=True)
class _Module:
    """What a capture holds of the kernel's code: texts by path, IR, image."""

    sources: Mapping[str, str]
    ir: str | bytes | None
    image: bytes | None


def _kernel_of(capture: Capture) -> tuple[Any, ...]:
    return capture.application, capture.symbol, capture.parameters, capture.source, capture.image_format


def _chain(reader: Reader, old: Capture, new: Iterable[Contents]) -> Iterator[Contents]:
    for unit in old.units:
        yield reader.contents(unit)
    yield from new


def _build(folder: Path, target: Path, capture: Capture, contents: Iterable[Contents], module: _Module) -> None:
    where = str(target)
    attributes.check_capture(attributes.decode(Capture, attributes.encode(capture), where), where)
    _write_module(folder, capture, module, where)
    units = tuple(_write_units(folder, capture, contents, where))
    _write_groups(folder, units)
    _write_root(folder, replace(capture, units=units))


def _write_units(folder: Path, capture: Capture, contents: Iterable[Contents], where: str) -> Iterator[ReplayUnit]:
    rest = iter(contents)
    for unit in capture.units:
        held = next(rest, None)
        if held is None:
            raise CaptureError(f"{where}: contents of unit {unit.index} were not given")
        yield _write_unit(folder, unit, held, f"{where}, unit {unit.index}")
    if next(rest, None) is not None:
        raise CaptureError(f"{where}: contents of more than {len(capture.units)} units were given")


def _write_module(folder: Path, capture: Capture, module: _Module, where: str) -> None:
    named = dict(capture.source.files) if capture.source else {}
    if named != {path: text_sha256(text) for path, text in module.sources.items()}:
        raise CaptureError(f"{where}: the texts given are not those that its source lists; pass exactly those")
    if (module.image is None) != (capture.image_format is None):
        raise CaptureError(f"{where}: an image and its format belong together; give both or none")
    for path, text in module.sources.items():
        _write_bytes(folder, f"source/{node_name(path)}", _text_bytes(text), {"path": path}, plain=True)
    for name, held in (("ir", module.ir), ("image", module.image)):
        if held is not None:
            _write_bytes(folder, name, held.encode() if isinstance(held, str) else held, {}, plain=False)


def _write_bytes(folder: Path, node: str, held: bytes, attrs: Mapping[str, Any], *, plain: bool) -> None:
    arrays.write_array(folder, node, np.frombuffer(held, np.uint8), attributes=attrs, plain=plain)


def _text_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _write_unit(folder: Path, unit: ReplayUnit, held: Contents, where: str) -> ReplayUnit:
    """Write a unit's arrays; the unit, with what was written found by comparing."""
    named = {buffer_name(buffer): buffer for buffer in buffers(unit)}
    if set(held.before) != set(named) or not set(held.after) <= set(named):
        raise CaptureError(f"{where}: contents do not name the unit's buffers; give every one of {', '.join(named)}")
    before = {name: _raw(held.before[name], buffer, where) for name, buffer in named.items()}
    after = {name: _raw(held.after[name], named[name], where) for name in named if name in held.after}
    changed = tuple(name for name, data in after.items() if not _same(data, before[name]))
    group = f"units/{unit.index}"
    arrays_of = [(f"{group}/before", named[name], data) for name, data in before.items()]
    arrays_of += [(f"{group}/after", named[name], after[name]) for name in changed]
    with ThreadPoolExecutor(_WRITERS) as writers:  # packing and hashing leave the interpreter to others
        list(writers.map(lambda array: _write_buffer(folder, *array), arrays_of))
    return replace(unit, written=changed)


def _raw(data: Parts, buffer: Allocation | Global, where: str) -> Parts:
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else data
    if raw.nbytes != buffer.nbytes:
        raise CaptureError(f"{where}: '{buffer_name(buffer)}' has {buffer.nbytes} bytes, but {raw.nbytes} were given")
    return raw


def _same(one: Parts, other: Parts) -> bool:
    parts = (slice(at, at + CHUNK_BYTES) for at in range(0, one.nbytes, CHUNK_BYTES))
    return all(np.array_equal(one[part], other[part]) for part in parts)


def _write_buffer(folder: Path, group: str, buffer: Allocation | Global, data: Parts) -> None:
    is_global = isinstance(buffer, Global)
    attrs: dict[str, Any] = {"name": buffer_name(buffer), "global": is_global}
    if storage_dtype(buffer.dtype).name != buffer.dtype:
        attrs["dtype"] = buffer.dtype
    dims = buffer.dims if isinstance(buffer, Allocation) else ()
    node = f"{group}/{node_name(buffer_name(buffer))}"
    arrays.write_array(folder, node, data, dtype=buffer.dtype, shape=view_shape(buffer), dims=dims, attributes=attrs)


def _write_groups(folder: Path, units: Sequence[ReplayUnit]) -> None:
    groups: dict[str, Any] = {"units": {}}
    if (folder / "source").is_dir():
        groups["source"] = {}
    for unit in units:
        groups[f"units/{unit.index}"] = {"r3bench": attributes.encode(unit)}
        groups[f"units/{unit.index}/before"] = {}
        groups[f"units/{unit.index}/after"] = {}
    for path, attrs in groups.items():
        (folder / path).mkdir(parents=True, exist_ok=True)
        _write_json(folder / path / files.ROOT_FILE, _group(attrs))


def _write_root(folder: Path, capture: Capture) -> None:
    found = sorted(folder.rglob(files.ROOT_FILE))
    nodes = {p.parent.relative_to(folder).as_posix(): json.loads(p.read_bytes()) for p in found if p.parent != folder}
    ours = attributes.encode(replace(capture, units=(), path="", content_hash=""))
    del ours["units"], ours["path"]
    ours |= {"format": attributes.FORMAT, "units": len(capture.units)}
    root = _group({"r3bench": ours})
    root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": nodes}
    ours["content_hash"] = attributes.content_hash(root)
    _write_json(folder / files.ROOT_FILE, root)


def _group(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": "group", "attributes": attrs}


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n")


def _refuse_foreign(target: Path) -> None:
    """Writing replaces the whole of what is there: only where that is a capture, if perhaps a damaged one."""
    if target.exists() and not _is_ours(target):
        raise CaptureError(f"{target} exists and is no capture: move it away or choose another name")


def _is_ours(target: Path) -> bool:
    if target.is_dir() and not any(target.iterdir()):
        return True
    try:
        return not _foreign(files.read_root(target))
    except CaptureError:
        return False


def _foreign(root: bytes) -> bool:
    try:
        document = json.loads(root)
    except (ValueError, RecursionError):
        return False
    return not isinstance(document, dict) or "r3bench" not in (document.get("attributes") or {})
