"""The file beside a capture that says how far its buffers may differ.

For ``<kernel>.zarr`` it is ``<kernel>.tolerance.toml``::

    [flux]              # name of an allocation or of a global
    rtol = 1e-9         # fraction of the expected element
    scale = 1e-12       # fraction of the largest finite expected magnitude of the buffer
    atol = 0.0          # absolute
    ulp = 0             # units in the last place of the expected element
    ignore = ["0:2, :"] # regions that may hold anything: first and end of each dimension, as NumPy writes them

    [count]
    kind = "exact"

An element passes when it is within the largest of the four. What a buffer's entry leaves out is 0; a buffer that has no
entry is judged by what was measured of the recorded kernel. No entry loosens what that kernel does not write.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from r3bench.compare import (
    EXACT,
    NOWHERE,
    Buffer,
    Bytes,
    Runs,
    Tolerance,
    buffers,
    compared_shape,
    component,
    default_tolerance,
    largest,
)
from r3bench.errors import CaptureError
from r3bench.model import Capture, ReplayUnit, content_id

# What allows more than this fraction of an element, or of a buffer's largest, would pass results of another problem.
MOST = 0.05
_SPACING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def tolerance_path(capture: str | Path) -> Path:
    """Where the override file of a capture would be: ``a/k.tolerance.toml`` for ``a/k.zarr`` and ``a/k.zarr.zip``."""
    path = Path(capture)
    return path.with_name(path.name.removesuffix(".zip").removesuffix(".zarr") + ".tolerance.toml")


class Beside(NamedTuple):
    """The tolerances' text that lies beside a capture at one time, and what names that and the capture's content."""

    text: str | None
    identity: str


def beside(capture: Capture) -> Beside:
    """As it is now. CaptureError where it cannot be read."""
    text = tolerances_text(capture)
    return Beside(text, content_id(capture.content_hash, text))


def id_of(capture: Capture) -> str:
    """Names a capture's content and the tolerances that lie beside it now. CaptureError where they cannot be read."""
    return beside(capture).identity


def tolerances_text(capture: Capture) -> str | None:
    path = tolerance_path(capture.path)
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CaptureError(f"{path} cannot be read ({error.strerror}); correct or remove it.") from error


def tolerances_for(
    capture: Capture, unit: ReplayUnit, expected: Mapping[str, Bytes], written: Beside | None = None
) -> dict[str, Tolerance]:
    """The tolerances ``written`` beside a capture (default: now) for a unit's buffers; empty if there is no such file.

    ``expected`` holds what the launch left behind. CaptureError if the file cannot be read, names a buffer that no unit
    has, allows an integer buffer to differ, or allows so much that nothing would be checked.
    """
    path = tolerance_path(capture.path)
    text, _ = written or beside(capture)
    if text is None:
        return {}
    try:
        tables = tomllib.loads(text.encode("utf-8", "surrogateescape").decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CaptureError(f"{path} cannot be read as TOML ({error}); correct or remove it.") from error
    known = sorted({buffer.name for each in capture.units for buffer in buffers(each)})
    unknown = [name for name in tables if name not in known]
    if unknown:
        raise CaptureError(f"{path} names [{unknown[0]}], but the capture's buffers are {', '.join(known)}.")
    held = {buffer.name: buffer for buffer in buffers(unit)}
    return {
        name: _override(f"{path}: [{name}]", held[name], table, expected[name])
        for name, table in tables.items()
        if name in held
    }


def _override(where: str, buffer: Buffer, table: Any, expected: Bytes) -> Tolerance:
    if not isinstance(table, dict) or table.keys() - {"kind", "rtol", "scale", "atol", "ulp", "ignore"}:
        raise CaptureError(f"{where} may hold only kind, rtol, scale, atol, ulp and ignore.")
    limits = {key: value for key, value in table.items() if key not in ("kind", "ignore")}
    for key, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise CaptureError(f"{where}: {key} must be a finite number, zero or larger.")
    kind = table.get("kind", "float" if limits else default_tolerance(buffer.dtype).kind)
    if kind not in ("exact", "float"):
        raise CaptureError(f'{where}: kind must be "exact" or "float".')
    if kind == "exact" and limits:
        raise CaptureError(f'{where} is "exact", so it cannot have {", ".join(sorted(limits))} too.')
    if kind == "float" and default_tolerance(buffer.dtype) == EXACT:
        raise CaptureError(f"{where} holds {buffer.dtype}, which is always compared exactly.")
    _refuse_absurd(where, buffer, limits, expected)
    ignore = _regions(where, buffer, table["ignore"]) if "ignore" in table else NOWHERE
    if kind == "float" and not limits:
        return replace(default_tolerance(buffer.dtype), ignore=ignore)
    return Tolerance(kind=kind, **limits, ignore=ignore)


def _refuse_absurd(where: str, buffer: Buffer, limits: Mapping[str, float], expected: Bytes) -> None:
    """CaptureError for a limit under which a result of another problem would pass."""
    most = {"rtol": MOST, "scale": MOST, "atol": MOST * (largest(expected, buffer) or 1.0)}
    most["ulp"] = MOST / _SPACING.get(component(buffer.dtype), 1.0)
    for key, value in limits.items():
        if value > most[key]:
            raise CaptureError(
                f"{where}: {key} = {value:g} would let nearly anything pass; at most {most[key]:.3g} can be allowed."
            )


def _regions(where: str, buffer: Buffer, given: Any) -> Runs:
    """The elements in regions of a buffer; CaptureError where they are no regions, or leave nothing to compare."""
    if not isinstance(given, list) or not all(isinstance(region, str) for region in given):
        raise CaptureError(f'{where}: ignore must be a list of regions such as "0:2, :".')
    shape = compared_shape(buffer)
    chosen = np.zeros(shape, np.bool_)
    for region in given:
        part = tuple(_slices(where, region, len(buffer.shape) or 1))
        if not chosen[part].size:
            raise CaptureError(f'{where}: region "{region}" holds no element of a buffer of shape {shape}.')
        chosen[part] = True
    if chosen.all():
        raise CaptureError(f"{where}: ignore covers the whole buffer, so that nothing of it would be compared.")
    return Runs.of(chosen)


def _slices(where: str, region: str, dimensions: int) -> Iterator[slice]:
    parts = region.replace(" ", "").split(",")
    if len(parts) != dimensions or not all(re.fullmatch(r"-?\d*:-?\d*", part) for part in parts):
        raise CaptureError(f'{where}: region "{region}" is not one first:end for each of {dimensions} dimensions.')
    for part in parts:
        first, end = part.split(":")
        yield slice(int(first) if first else None, int(end) if end else None)
