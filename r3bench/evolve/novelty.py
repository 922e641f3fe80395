"""Which programs are new: by their text before anything is compiled, by their optimized code before they are tuned."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from math import inf

from r3bench.evolve.sources import Files, Source
from r3bench.model import LaunchRule, content_id
from r3bench.syntax import tokens


@lru_cache(maxsize=64)
def text_id(files: Files, launch: LaunchRule | None) -> str:
    """Equal for texts that differ in white space and comments only, and ask for the same launch."""
    digest = sha256(content_id(launch).encode())
    for path, text in files:  # by paragraph: most are another text's, too, whose tokens are known
        words = b"".join(map(_words, text.split("\n\n")))
        digest.update(b"".join((path.encode(errors="surrogatepass"), b"\0", words, b"\n")))
    return digest.hexdigest()


@lru_cache(maxsize=256)
def _words(paragraph: str) -> bytes:
    return "".join(f"{token}\0" for token in tokens(paragraph)).encode(errors="surrogatepass")


class Novelty:
    """The texts and codes of the programs judged so far, each with the first program that had it.

    Whoever asks while others are judged says up to which step of the search programs count: what it is told, and how
    many trials it takes, then does not depend on which of them ends first.
    """

    def __init__(self) -> None:
        self._texts: dict[str, Source] = {}
        self._codes: dict[str, Source] = {}

    def same_text(self, source: Source, last: float = inf) -> Source | None:
        """The program with this text, of those up to step ``last``."""
        return _up_to(last, self._texts.get(text_id(source.files, source.launch)))

    def same_code(self, source: Source, last: float = inf) -> Source | None:
        """The program whose default build is this one's, instruction for instruction, of those up to step ``last``."""
        return _up_to(last, self._codes.get(_code_id(source)))

    def add(self, source: Source) -> None:
        self._texts.setdefault(text_id(source.files, source.launch), source)
        if source.outcomes and source.outcomes[0][1].module is not None:
            self._codes.setdefault(_code_id(source), source)


def _up_to(last: float, first: Source | None) -> Source | None:
    return first if first is not None and first.step <= last else None


def _code_id(source: Source) -> str:
    return content_id(source.outcomes[0][1].module, source.launch) if source.outcomes else ""
