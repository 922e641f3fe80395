"""A search run as one xarray Dataset in a Zarr store of its own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.store import files
from r3bench.store.files import PathLike


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One variable of a run: its dimensions, its values, and attributes such as ``units`` or ``meanings``."""

    dims: tuple[str, ...]
    values: NDArray[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def write_run(path: PathLike, columns: Mapping[str, Column], attributes: Mapping[str, Any]) -> None:
    """Write a run in one step, in place of what was at ``path``; CaptureError where that cannot be written.

    Columns of one dimension must be equally long. ``xarray.open_zarr`` reads it.
    """
    import xarray

    variables = {name: (c.dims, np.asarray(c.values), dict(c.attributes)) for name, c in columns.items()}
    with files.replacing(Path(path)) as folder, warnings.catch_warnings():
        # As in captures: one read gives all metadata, and a reader that does not know it does without.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        xarray.Dataset(variables, attrs=dict(attributes)).to_zarr(folder, mode="w", zarr_format=3, consolidated=True)
