"""Code of recorded kernels that no source file holds: what Triton keeps in its cache, and the PTX text in images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from r3bench import ptxtext, store, syntax
from r3bench.model import Source
from r3bench.record.dump import Launched
from r3bench.record.fatbin import entries
from r3bench.record.sources import Found
from r3bench.symbols import demangled

_SUFFIX = {"llvm": "ll", "ptx": "ptx"}


def find(launched: Launched) -> Found | None:
    """LLVM IR of the kernel, else its PTX text; None where neither is to be had."""
    for text in _llvm_texts(launched):
        return _found(launched, "llvm", text)
    for text in _ptx_texts(launched):
        if ptxtext.defines(text, launched.kernel):
            return _found(launched, "ptx", text)
    return None


def _found(launched: Launched, language: Literal["llvm", "ptx"], text: str) -> Found:
    name = demangled(launched.kernel)
    main = f"{syntax.plain_name(name)}.{_SUFFIX[language]}"
    files = ((main, store.text_sha256(text)),)
    source = Source(root="", main=main, span=(1, max(1, text.count("\n"))), files=files, language=language)
    return Found(name, (), source, {main: text}, text if language == "llvm" else None)


# -- PTX --------------------------------------------------------------------------------------------------------------


def _ptx_texts(launched: Launched) -> Iterator[str]:
    """PTX text in what the application loaded, that for the newest architecture first; then Triton's."""
    if launched.image is None:
        return
    if launched.image.suffix == ".ptx":
        yield _text(launched.image.read_bytes())
    elif launched.image.suffix == ".fatbin":
        arch = int("".join(filter(str.isdigit, launched.facts["arch"])))
        fitting = [e for e in entries(launched.image.read_bytes()) if e.kind == "ptx" and e.arch <= arch]
        yield from (_text(entry.data) for entry in sorted(fitting, key=lambda entry: -entry.arch))
    else:
        yield from (path.read_text("utf-8", "replace") for path in _beside(launched, ".ptx"))


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode("utf-8", "replace")


# -- Triton -----------------------------------------------------------------------------------------------------------


def _llvm_texts(launched: Launched) -> Iterator[str]:
    return (path.read_text("utf-8", "replace") for path in _beside(launched, ".llir"))


def _beside(launched: Launched, suffix: str) -> Iterator[Path]:
    """Files of Triton's cache that were made together with the machine code that ran: it is kept as it is loaded."""
    if launched.image is None or launched.image.suffix != ".cubin":
        return
    code = launched.image.read_bytes()
    for cached in _cache().glob("*/*.cubin"):
        made = cached.with_suffix(suffix)
        if cached.stat().st_size >= len(code) and made.is_file() and cached.read_bytes().startswith(code):
            yield made


def _cache() -> Path:
    """Where Triton keeps what it compiled: TRITON_CACHE_DIR, or .triton/cache of TRITON_HOME or the home folder."""
    named = os.environ.get("TRITON_CACHE_DIR")
    return Path(named) if named else Path(os.environ.get("TRITON_HOME") or Path.home(), ".triton/cache")
