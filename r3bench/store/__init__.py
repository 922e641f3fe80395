"""Captures on disk: the only package that knows Zarr.

A capture is a Zarr group, readable with plain ``zarr.open`` and ``xarray.open_datatree``::

    zarr.json                    attributes "r3bench": the capture, and all metadata below (consolidated)
    ir, image                    the kernel's IR and the application's own module, where recorded
    source/<path>                texts of the translation unit, unpacked: source/kernels.cu/c/0 is the file itself
    units/<n>                    attributes "r3bench": the unit's launch, arguments, pointer table, buffers
    units/<n>/before/<buffer>    every allocation and global, typed, named, with dimensions
    units/<n>/after/<buffer>     those the kernel changed

:func:`open_capture` reads ``zarr.json`` alone; :func:`contents` and the others read arrays and check each against its
recorded SHA-256. Whatever is wrong with a store is a :class:`~r3bench.errors.CaptureError`. Equal content gives equal
bytes on disk.
"""

from r3bench.store.arrays import Parts, UnitContents
from r3bench.store.attributes import DTYPES
from r3bench.store.files import find, parts
from r3bench.store.reading import contents, dataset, expected, image, ir, open_capture, sources, verify
from r3bench.store.recorded import RecordedUnit
from r3bench.store.rooms import Room, in_memory, on_disk
from r3bench.store.runs import Column, write_run
from r3bench.store.writing import append, text_sha256, write

__all__ = [
    "DTYPES",
    "Column",
    "Parts",
    "RecordedUnit",
    "Room",
    "UnitContents",
    "append",
    "contents",
    "dataset",
    "expected",
    "find",
    "image",
    "in_memory",
    "ir",
    "on_disk",
    "open_capture",
    "parts",
    "sources",
    "text_sha256",
    "verify",
    "write",
    "write_run",
]
