"""Which other kernels of a translation unit an edit reaches through the device functions they share."""

from __future__ import annotations

from collections.abc import Mapping

from r3bench.evolve.opened import opened
from r3bench.syntax import kernels, tokens


def changed_kernels(before: Mapping[str, str], after: Mapping[str, str], own: str) -> tuple[str, ...]:
    """The kernels of a translation unit besides ``own`` whose code, or that of a device function they call, differs
    between its texts by path; in the order of the files."""
    both = ((path, name) for path in before for name in kernels(before[path]) if name in kernels(after[path]))
    return tuple(n for path, n in both if n != own and _code(before, path, n) != _code(after, path, n))


def _code(files: Mapping[str, str], file: str, kernel: str) -> list[tuple[str, ...]]:
    """The tokens of a kernel and of the device functions that it reaches."""
    return [tokens(item.text) for item in opened(files, file, kernel)]
