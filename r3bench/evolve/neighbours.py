"""Which other kernels an edit reaches: through the device functions and files that they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from r3bench.evolve.opened import opened
from r3bench.model import Capture
from r3bench.syntax import kernels, tokens
from r3bench.worktree import place_of

Texts = Mapping[str, str]
"""Texts by path: in a translation unit below its own root, of changes below the repository's."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A captured kernel with the texts of its translation unit as they were when a search began."""

    capture: Capture
    texts: Texts

    def place(self, path: str) -> str:
        """A file's path below the repository's root."""
        assert self.capture.source is not None
        return place_of(self.capture.source, path)

    def changes(self, files: Iterable[tuple[str, str]]) -> dict[str, str]:
        """What is changed in files of this unit."""
        return {self.place(path): text for path, text in files if text != self.texts.get(path)}

    def edited(self, changes: Texts) -> dict[str, str]:
        """All texts of this unit, with changes of files that it may share."""
        return {path: changes.get(self.place(path), text) for path, text in self.texts.items()}

    def reached(self, changes: Texts) -> Iterator[tuple[str, str]]:
        """The kernels of this unit whose code, or that of a device function they call, the changes make another: the
        file, below the repository's root, and the name of each; in the order of the files."""
        after = self.edited(changes)
        both = ((path, name) for path in after for name in kernels(after[path]) if name in kernels(self.texts[path]))
        for path, name in both if after != self.texts else ():
            if _code(self.texts, path, name) != _code(after, path, name):
                yield self.place(path), name


def _code(files: Texts, file: str, kernel: str) -> list[tuple[str, ...]]:
    """The tokens of a kernel and of the device functions that it reaches."""
    return [tokens(item.text) for item in opened(files, file, kernel)]
