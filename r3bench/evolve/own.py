"""A changed source as the application's own compiler builds it, where that compiler is here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from r3bench.errors import RecordError
from r3bench.model import Capture, Target, Variant
from r3bench.record.images import MAKERS, cubin


def own_compiler(capture: Capture, files: Sequence[tuple[str, str]], target: Target) -> Variant | None:
    """``files`` through nvcc, or NVRTC where there is no nvcc; None where neither is here or accepts them."""
    source = capture.source
    if source is None or target.device != "cuda":
        return None
    for maker in MAKERS:
        with suppress(RecordError):
            image = cubin(maker, dict(files), source.main, source.flags, target.arch)
            return Variant(files=tuple(files), image=image)
    return None
