"""The knobs as data: passes, options and bounds, each with the values a search may choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Literal

from r3bench.model import Dim3, Parameter, Target
from r3bench.space import passes
from r3bench.space.facts import UnitFacts
from r3bench.space.knob import Knob, Value

TUNING: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "cpu": {
        "loop_unrolling": (True, False),
        "loop_vectorization": (True, False),
        "slp_vectorization": (True, False),
    },
    "cuda": {
        "loop_unrolling": (True, False),
        "inlining_threshold": ("default", 5),
    },
}
"""Options of the base pipeline per device; ``default`` leaves one out."""

Options = tuple[tuple[str, str], ...]

_UNROLL: Mapping[str, Options] = {
    "default": (),
    "threshold=50": (("unroll-threshold", "50"),),
    "threshold=2000": (("unroll-threshold", "2000"),),
    "count=2": (("unroll-count", "2"),),
    "count=4": (("unroll-count", "4"),),
    "runtime=false": (("unroll-runtime", "false"),),
}
_GVN: Mapping[str, Options] = {"default": (), "new": (("enable-newgvn", "true"),)}
_FOLD: Mapping[str, Options] = {
    "default": (),
    "never": (("two-entry-phi-node-folding-threshold", "0"),),
    "eager": (("two-entry-phi-node-folding-threshold", "20"),),
}
_VECTORIZE: Mapping[str, Options] = {
    "default": (),
    **{f"width={n}": (("force-vector-width", str(n)),) for n in (1, 4, 8, 16)},
    **{f"interleave={n}": (("force-vector-interleave", str(n)),) for n in (2, 4)},  # 1 is what threads get anyway
}
_SLP: Mapping[str, Options] = {
    "default": (),
    "eager": (("slp-threshold", "-10"),),
    "reluctant": (("slp-threshold", "10"),),
}

OPTIONS: Mapping[str, Mapping[str, Mapping[str, Options]]] = {
    "cpu": {
        "unroll": _UNROLL,
        "vectorize": _VECTORIZE,
        "slp": _SLP,
        "gvn": _GVN,
        "fold": _FOLD,
    },
    "cuda": {"unroll": _UNROLL, "gvn": {**_GVN, "hoist": (("enable-gvn-hoist", "true"),)}, "fold": _FOLD},
}
"""LLVM's own options per device: each knob's values are sets of options. All of them act in the optimizer, none in code
generation. Few knobs, since each combination of options needs a compile worker of its own."""

OPTION_NAMES = frozenset(
    name
    for knobs in OPTIONS.values()
    for values in knobs.values()
    for options in values.values()
    for name, _ in options
)

ASSEMBLER: Mapping[str, tuple[str, ...]] = {
    "opt-level": ("3", "2", "1", "0"),
    "def-load-cache": ("ca", "cg", "cv"),
    "def-store-cache": ("wb", "cg", "wt"),
}
"""Options of ptxas with their values, the default first."""

DRIVERS: Mapping[str, tuple[str, ...]] = {
    "opt-level": ASSEMBLER["opt-level"],
    "def-load-cache": ("ca", "cg"),
}
"""Those that the driver's own compiler has, too."""

BOUNDS: tuple[tuple[str, Literal["none", "max", "exact"], int | None, int | None], ...] = (
    ("none", "none", None, None),
    ("max", "max", None, None),
    ("exact", "exact", None, None),
    *((f"{bound} blocks={n}", bound, n, None) for bound in ("max", "exact") for n in (2, 3, 4, 6, 8)),
    *((f"registers={n}", "none", None, n) for n in (32, 40, 48, 64, 96, 128, 168, 255)),
)
_THREADS_PER_SM = 2048


def _bounds(threads: int) -> tuple[Value, ...]:
    """Launch bounds and register caps that a block of ``threads`` can have at all."""
    return tuple(name for name, _, blocks, _ in BOUNDS if (blocks or 1) * threads <= _THREADS_PER_SM)


def block_name(block: Dim3) -> str:
    return "x".join(str(n) for n in block)


def knobs_of(
    facts: UnitFacts,
    target: Target,
    blocks: Sequence[Dim3],
    language: str = "cuda",
    *,
    fast_math: bool,
    slots: int = 0,
) -> Iterable[Knob]:
    """All knobs of a kernel; PTX text is behind the compiler, so that only its assembler and its launch are left."""
    if language != "ptx":
        yield from passes.knobs(slots)
        yield from _compiler_knobs(facts, target, blocks, fast_math=fast_math and language != "llvm")
    if target.device == "cuda":
        for name, values in ASSEMBLER.items():
            yield Knob(f"assembler.{name}", values)
    if len(blocks) > 1:
        yield Knob("block", tuple(block_name(block) for block in blocks))


def _compiler_knobs(facts: UnitFacts, target: Target, blocks: Sequence[Dim3], *, fast_math: bool) -> Iterable[Knob]:
    for name, values in TUNING.get(target.device, {}).items():
        yield Knob(f"tuning.{name}", values)
    for name, settings in OPTIONS.get(target.device, {}).items():
        yield Knob(f"option.{name}", tuple(settings))
    # A kernel that may have any block does not read gridDim: its size compiled in changed no code of any kernel tried.
    yield from _specialization_knobs(facts, grid=len(blocks) == 1)
    if target.device == "cuda":
        yield Knob("bounds", _bounds(max(prod(block) for block in blocks)))
        if fast_math:
            yield Knob("fast_math", (False, True))


def _specialization_knobs(facts: UnitFacts, grid: bool) -> Iterable[Knob]:
    choices = tuple(_argument_choices(facts.parameters))
    if len(choices) > 1:
        yield Knob("specialize.arguments", choices)
    yield Knob("specialize.block", (False, True))
    if grid:
        yield Knob("specialize.grid", (False, True))
    if facts.disjoint and len(facts.alignments) > 1:
        yield Knob("specialize.noalias", (False, True))
    if facts.alignments:
        yield Knob("specialize.align", (False, True))


def _argument_choices(parameters: Sequence[Parameter]) -> Iterable[str]:
    yield "none"
    whole, every = named_arguments("integers", parameters), named_arguments("all", parameters)
    if whole and whole != every:
        yield "integers"
    if every:
        yield "all"


def named_arguments(choice: Value, parameters: Sequence[Parameter]) -> tuple[str, ...]:
    if choice == "none":
        return ()
    scalars = [p for p in parameters if p.kind == "scalar"]
    return tuple(p.name for p in scalars if choice == "all" or "int" in (p.dtype or "") or p.dtype == "bool")
