"""The tables that the worker's own kernels read: what to copy, what to patch, what to compare. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[Any]

# A block of the copy and the comparison handles at most so much.
PIECE = 64 << 10

CHUNK = np.dtype([("to", "u8"), ("from", "u8"), ("nbytes", "u8")])
WORD = np.dtype([("at", "u8"), ("value", "u8")])
PIECES = np.dtype(
    [
        ("expected", "u8"),
        ("actual", "u8"),
        ("nbytes", "u8"),
        ("first", "u8"),
        ("row", "u4"),
        ("type", "u4"),
        ("tolerant", "u4"),
        ("pad", "u4"),
        ("atol", "f8"),
        ("rtol", "f8"),
        ("least", "f8"),
        ("ulp", "f8"),
    ]
)
ROW = np.dtype([("count", "u8"), ("first", "u8"), ("error", "u8"), ("place", "u8")])


@dataclass(frozen=True, slots=True)
class Rule:
    """How one buffer is compared: see service.cu. ``exact`` and ``ignored`` hold the edges of runs of elements."""

    name: str
    contents: int
    type: int
    item: int
    tolerant: int
    atol: float
    rtol: float
    least: float
    ulp: float
    exact: Sequence[int] = ()
    ignored: Sequence[int] = ()


def split(nbytes: int) -> Table:
    """Offsets and sizes of pieces of ``nbytes``."""
    offsets = np.arange(0, nbytes, PIECE, dtype=np.int64)
    return np.stack([offsets, np.minimum(PIECE, nbytes - offsets)], 1)


def chunks(copies: Iterable[tuple[int, int, int]]) -> Table:
    """A table for r3_copy from (to, from, nbytes)."""
    parts = []
    for to, source, nbytes in copies:
        cut = split(nbytes)
        table = np.empty(len(cut), CHUNK)
        table["to"], table["from"], table["nbytes"] = to + cut[:, 0], source + cut[:, 0], cut[:, 1]
        parts.append(table)
    return np.concatenate(parts) if parts else np.empty(0, CHUNK)


def pieces(rules: Iterable[tuple[Rule, int, int, int]]) -> Table:
    """A table for r3_compare from rules and, for each, where is what is expected, what is there, and how many bytes."""
    parts = [_pieces(row, *each) for row, each in enumerate(rules)]
    return np.concatenate(parts) if parts else np.empty(0, PIECES)


def _pieces(row: int, rule: Rule, expected: int, actual: int, nbytes: int) -> Table:
    starts, ends, tolerant = _runs(rule, nbytes)
    counts = -(-(ends - starts) // PIECE)
    run = np.repeat(np.arange(counts.size), counts)
    number = np.arange(run.size) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = starts[run] + number * PIECE
    table = np.zeros(run.size, PIECES)
    table["expected"], table["actual"] = expected + offsets, actual + offsets
    table["nbytes"], table["first"] = np.minimum(PIECE, ends[run] - offsets), offsets // rule.item
    table["row"], table["type"], table["tolerant"] = row, rule.type, tolerant[run]
    table["atol"], table["rtol"], table["least"], table["ulp"] = rule.atol, rule.rtol, rule.least, rule.ulp
    return table


def _runs(rule: Rule, nbytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Bytes from and up to, and whether elements may differ there by a limit; without what is ignored."""
    exact, ignored = (np.array(edges, np.int64) for edges in (rule.exact, rule.ignored))
    edges = np.unique(np.concatenate([[0, nbytes // rule.item], exact, ignored]))
    starts, ends = edges[:-1], edges[1:]
    kept = ~_within(ignored, starts)
    starts, ends = starts[kept], ends[kept]
    return starts * rule.item, ends * rule.item, ~_within(exact, starts) & bool(rule.tolerant)


def _within(edges: NDArray[np.int64], elements: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray(np.searchsorted(edges, elements, side="right") % 2 == 1)
