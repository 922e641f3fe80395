"""The working tree's own text of a captured kernel: what a test or a search builds, before the text in the store."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from r3bench.errors import CaptureError
from r3bench.model import Capture, Variant

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def collect(root: Path, main: str) -> dict[str, str]:
    """``main`` and every file below ``root`` that it includes in quotes, by path relative to ``root``.

    A quoted name is looked up beside the file that includes it, then at the root; what is not there is left to the
    compiler, which has standard headers and names what it misses. OSError or UnicodeDecodeError if ``main`` cannot be
    read.
    """
    texts: dict[str, str] = {}
    pending = [PurePosixPath(main)]
    while pending:
        path = pending.pop()
        if str(path) in texts:
            continue
        text = (root / path).read_text(encoding="utf-8")
        texts[str(path)] = text
        pending += [found for name in INCLUDE.findall(text) if (found := _locate(root, path, name))]
    return dict(sorted(texts.items()))


def _locate(root: Path, includer: PurePosixPath, name: str) -> PurePosixPath | None:
    for folder in (includer.parent, PurePosixPath()):
        place = (root / folder / name).resolve()
        if place.is_file() and place.is_relative_to(root.resolve()):
            return PurePosixPath(place.relative_to(root.resolve()).as_posix())
    return None


def variant(capture: Capture, top: Path) -> Variant | None:
    """The working tree's version of a kernel, below ``top`` (the repository); None where its main file is not there.

    CaptureError names the file where one cannot be read. The variant of an unchanged tree equals the recorded source
    through the default pipeline, not the recorded image.
    """
    source = capture.source
    if source is None or not (top / source.root / source.main).is_file():
        return None
    try:
        return Variant(files=tuple(collect(top / source.root, source.main).items()))
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(
            f"{top / source.root / source.main}, or a file it includes, cannot be read as UTF-8 text: {error}"
        ) from error
