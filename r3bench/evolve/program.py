"""The noun of the outer search: one proposed source text, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from r3bench.model import LaunchRule

Fate = Literal["matched", "failed", "refused", "duplicate"]
"""``matched``: some configuration of it left the recorded memory behind. ``failed``: it was built or replayed, and none
did. ``refused``: the answer held no text to be tried. ``duplicate``: the same text or the same code as another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One source text of a kernel, who proposed it, and what became of it. Written to the ledger as it is.

    ``id`` is short and stable (``p17``; ``p0`` is the text the search began with), ``parent`` the id of the program it
    was made from. ``files`` holds whole texts by path, as in a :class:`~r3bench.model.Variant`; empty where the answer
    was refused. ``launch`` is the rule they need where a thread does the work of several. ``origin`` names the proposer
    (``recorded``, ``rules:hoist``, ``openai:<model>``), ``description`` says in one sentence what was changed.
    ``detail`` is one sentence on what went wrong, or names the program that a duplicate equals.

    ``ns`` is its shortest ranking time over ``trials`` configurations and ``speedup`` the baseline's divided by it:
    they rank and claim nothing; None where nothing matched. ``default_ns`` is the time under the default pipeline.
    ``cell`` is its place in the archive of ``island``, None for what is not kept there. ``step`` counts proposals from
    1 (0 for ``p0``); ``lag`` is how many programs its island received after the parent was drawn.
    """

    id: str
    files: tuple[tuple[str, str], ...]
    launch: LaunchRule | None = None
    parent: str | None = None
    origin: str = "recorded"
    description: str = ""
    status: Fate = "matched"
    detail: str = ""
    speedup: float | None = None
    ns: float | None = None
    default_ns: float | None = None
    trials: int = 0
    cell: tuple[int, ...] | None = None
    island: int = 0
    step: int = 0
    lag: int = 0
    repaired: bool = False

    def __post_init__(self) -> None:
        if (self.speedup is not None) != (self.status == "matched"):
            raise ValueError(f"{self.id}: only a program that matched has a speedup, and each that matched has one")
