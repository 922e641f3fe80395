"""A kernel's texts as a tree has them: what a test or a search builds, before the text in the store.

A tree is a folder (:class:`Folder`, the working tree for one) or a commit (:class:`r3bench.commits.Commit`).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from r3bench.errors import CaptureError
from r3bench.model import Capture, Source, Variant

WORKING_TREE = "working tree"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


class Tree(Protocol):
    """Files by their paths relative to the top; nothing outside is ever read."""

    @property
    def name(self) -> str:
        """What people call it."""

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None where it is not there. OSError or an R3Error where it cannot be read."""

    def stores(self, below: str) -> tuple[str, ...]:
        """The captures (``.zarr`` folders and ``.zarr.zip`` files) below a folder, in order."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder as a tree."""

    top: Path
    name: str = WORKING_TREE

    def read(self, path: str) -> bytes | None:
        place = (self.top / path).resolve()
        inside = place.is_file() and place.is_relative_to(self.top.resolve())
        return place.read_bytes() if inside else None

    def stores(self, below: str) -> tuple[str, ...]:
        found = [path for pattern in ("*.zarr", "*.zarr.zip") for path in (self.top / below).rglob(pattern)]
        return tuple(sorted(path.relative_to(self.top).as_posix() for path in found))


def checkout(place: Path) -> Path | None:
    """The top of the git checkout that a place lies in; None where it lies in none."""
    made = os.environ.get("GIT_WORK_TREE")
    here = place.absolute()
    return next((top for top in (here, *here.parents) if (top / ".git").exists() or str(top) == made), None)


def home(capture: Capture, given: Path) -> Path:
    """The folder that a capture's source is relative to: ``given`` where the source is there, or else the nearest above
    it, then above the capture, in the same checkout; ``given`` where none has it."""
    main = source_path(capture)
    places = (given, *_above(given), *_above(Path(capture.path)))
    return next((place for place in places if main and (place / main).is_file()), given)


def source_path(capture: Capture) -> str:
    """A capture's main file relative to its tree; empty where it has no source."""
    return "" if capture.source is None else place_of(capture.source, capture.source.main)


def place_of(source: Source, file: str) -> str:
    """A file of a source relative to its tree."""
    return posixpath.normpath(posixpath.join(source.root, file))


def _above(place: Path) -> tuple[Path, ...]:
    """The folders above a place, up to the top of its checkout; none where it lies in none."""
    top = checkout(place)
    return () if top is None else tuple(p for p in place.absolute().parents if p.is_relative_to(top))


def collect(tree: Tree, main: str, root: str = ".") -> dict[str, str]:
    """``main`` and every file below ``root`` that it includes in quotes, by path relative to ``root``.

    A quoted name is looked up beside the file that includes it, then at the root; what is not there is left to the
    compiler, which has standard headers and names what it misses. OSError or UnicodeDecodeError if one cannot be read.
    """
    first = tree.read(posixpath.join(root, main))
    if first is None:
        raise FileNotFoundError(f"{main} is not there")
    texts = {posixpath.normpath(main): first.decode()}
    pending = list(texts)
    while pending:
        includer = pending.pop()
        for name in INCLUDE.findall(texts[includer]):
            found = next(_read(tree, root, includer, name), None)
            if found is not None and found[0] not in texts:
                texts[found[0]] = found[1].decode()
                pending.append(found[0])
    return dict(sorted(texts.items()))


def _read(tree: Tree, root: str, includer: str, name: str) -> Iterator[tuple[str, bytes]]:
    """Where a quoted name leads, below ``root`` only."""
    for folder in (posixpath.dirname(includer), ""):
        path = posixpath.normpath(posixpath.join(folder, name))
        data = None if path.startswith(("..", "/")) else tree.read(posixpath.join(root, path))
        if data is not None:
            yield path, data


def variant(capture: Capture, tree: Tree) -> Variant | None:
    """A tree's version of a kernel; None where its main file is not there.

    CaptureError names the file where one cannot be read. The variant of an unchanged tree equals the recorded source
    through the default pipeline, not the recorded image.
    """
    source = capture.source
    if source is None or capture.lacks:
        return None
    try:
        texts = collect(tree, source.main, source.root)
        for path in dict(source.files).keys() - texts.keys():  # found by the compiler's flags when it was recorded
            data = tree.read(posixpath.join(source.root, path))
            if data is not None:
                texts[path] = data.decode()
        return Variant(files=tuple(sorted(texts.items())))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(
            f"{posixpath.join(source.root, source.main)} in {tree.name}, or a file it includes, cannot be read as "
            f"UTF-8 text: {error}"
        ) from error


def lent(capture: Capture, found: Variant) -> tuple[str, ...]:
    """Recorded files that a tree's texts include in quotes and the tree has not, such as generated ones: the capture's
    own are built in their place. By path relative to the capture's root."""
    texts = dict(found.files or ())
    recorded = dict(capture.source.files if capture.source is not None else ()).keys() - texts.keys()
    quoted = (name.split("/") for text in texts.values() for name in INCLUDE.findall(text))
    ends = {"/".join(("", *(part for part in parts if part not in ("", ".", "..")))) for parts in quoted}
    return tuple(path for path in sorted(recorded) if any(f"/{path}".endswith(end) for end in ends))
