"""The root document of a store: parsed, checked and turned into a Capture, without reading anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r3bench.errors import CaptureError
from r3bench.model import Capture, ReplayUnit
from r3bench.store import arrays, attributes, files
from r3bench.store.attributes import buffer_name, buffers, damaged, node_name, view_shape


def open_root(path: Path) -> tuple[Capture, Mapping[str, Any]]:
    where = str(path)
    root = parse(files.read_root(path), where)
    ours, nodes = _ours(root, where)
    units = tuple(_decode_unit(nodes, i, where) for i in range(_unit_count(ours, nodes, where)))
    given = {name: value for name, value in ours.items() if name not in ("format", "units")}
    found = attributes.decode_fields(Capture, given, where, skip=frozenset({"path", "units"}))
    capture = Capture(path=where, units=units, **found)
    attributes.check_capture(capture, where)
    if capture.content_hash != attributes.content_hash(root):
        raise damaged(where, "its metadata is not what was recorded")
    _check_arrays(capture, nodes, where)
    return capture, root


def parse(text: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise damaged(where, f"its {files.ROOT_FILE} is no JSON ({error})") from error
    if not isinstance(document, dict):
        raise damaged(where, f"its {files.ROOT_FILE} is no JSON object")
    return document


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _ours(root: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our attributes and the consolidated metadata of a root document."""
    attrs, inline = root.get("attributes"), root.get("consolidated_metadata")
    ours = attrs.get("r3bench") if isinstance(attrs, dict) else None
    if not isinstance(ours, dict):
        raise CaptureError(f"{where} is no capture of r3bench: its {files.ROOT_FILE} has no attributes 'r3bench'")
    if type(ours.get("format")) is not int or ours["format"] < 1:
        raise damaged(where, "its format is no number from 1 on")
    if ours["format"] > attributes.FORMAT:
        raise CaptureError(
            f"capture {where} has format {ours['format']}, but this version reads up to {attributes.FORMAT}: "
            "upgrade r3bench"
        )
    nodes = inline.get("metadata") if isinstance(inline, dict) else None
    if not isinstance(nodes, dict):
        raise damaged(where, f"its {files.ROOT_FILE} lacks the consolidated metadata")
    return ours, nodes


def _unit_count(ours: Mapping[str, Any], nodes: Mapping[str, Any], where: str) -> int:
    count = ours.get("units")
    if type(count) is not int or not 0 <= count <= len(nodes):
        raise damaged(where, "its number of units is not that of its nodes")
    return count


def _decode_unit(nodes: Mapping[str, Any], index: int, where: str) -> ReplayUnit:
    node = nodes.get(f"units/{index}")
    attrs = node.get("attributes") if isinstance(node, dict) else None
    if not isinstance(attrs, dict) or "r3bench" not in attrs:
        raise damaged(where, f"unit {index} is missing")
    unit: ReplayUnit = attributes.decode(ReplayUnit, attrs["r3bench"], f"{where}, unit {index}")
    return unit


def _check_arrays(capture: Capture, nodes: Mapping[str, Any], where: str) -> None:
    for unit in capture.units:
        for buffer in buffers(unit):
            for moment in ("before", "after") if buffer_name(buffer) in unit.written else ("before",):
                node = f"units/{unit.index}/{moment}/{node_name(buffer_name(buffer))}"
                arrays.check_document(nodes.get(node), buffer.dtype, view_shape(buffer), f"{where}, {node}")
    texts = dict(capture.source.files) if capture.source else {}
    for path, digest in texts.items():
        node = f"source/{node_name(path)}"
        _check_flat(nodes.get(node), f"{where}, {node}")
        if arrays.recorded_hash(nodes[node]) != digest:
            raise damaged(f"{where}, {node}", "its SHA-256 is not that of the source's list")
    for name in attributes.MODULE_ARRAYS:
        if name in nodes:
            _check_flat(nodes[name], f"{where}, {name}")
    if ("image" in nodes) != (capture.image_format is not None):
        raise damaged(where, "its image and the image's format do not go together")


def _check_flat(document: Any, where: str) -> None:
    shape = document.get("shape") if isinstance(document, dict) else None
    if not isinstance(shape, list) or len(shape) != 1 or type(shape[0]) is not int or shape[0] < 0:
        raise damaged(where, "its array is missing or not flat")
    arrays.check_document(document, "uint8", shape, where)
