"""A search run as one xarray Dataset in a Zarr store of its own."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.errors import CaptureError
from r3bench.store import files
from r3bench.store.files import PathLike

_MARK, _FORMAT = "r3bench_run", 1


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One variable of a run: its dimensions, its values, and attributes such as ``units`` or ``meanings``."""

    dims: tuple[str, ...]
    values: NDArray[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def write_run(path: PathLike, columns: Mapping[str, Column], attributes: Mapping[str, Any]) -> None:
    """Write a run in one step, in place of an earlier one at ``path``.

    Columns of one dimension must be equally long. ``xarray.open_zarr`` reads it, a zip file as
    ``zarr.storage.ZipStore(path)``. CaptureError where it cannot be written, or where anything else is there.
    """
    import xarray

    variables = {name: (c.dims, np.asarray(c.values), dict(c.attributes)) for name, c in columns.items()}
    with files.replacing(Path(path)) as folder, warnings.catch_warnings():
        _refuse_foreign(Path(path))
        # As in captures: one read gives all metadata, and a reader that does not know it does without.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        run = xarray.Dataset(variables, attrs={**attributes, _MARK: _FORMAT})
        run.to_zarr(folder, mode="w", zarr_format=3, consolidated=True)


def _refuse_foreign(target: Path) -> None:
    """Writing replaces the whole of what is there: only where that is an earlier run."""
    if target.exists() and not _is_run(target):
        raise CaptureError(f"{target} exists and is no earlier export: move it away or choose another name")


def _is_run(target: Path) -> bool:
    try:
        document = json.loads(files.read_root(target))
    except (CaptureError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and _MARK in (document.get("attributes") or {})
