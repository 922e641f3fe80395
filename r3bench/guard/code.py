"""Both sides' code for GPUs, counted by the compiler whether or not such a GPU is here. It fails nothing by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from r3bench.errors import CandidateFailure
from r3bench.model import Capture, Target, Variant, facts_of
from r3bench.server import Server
from r3bench.toolchain import AMD_GPUS, Built

Sides = dict[str, dict[str, Any]]
"""Counts of ``base`` and ``head`` by name, with a ``mix`` of instructions (``IR`` says that they are LLVM's); or why
there is no code (``failed``)."""
Compared = Mapping[str, Sides]
"""Sides by GPU (``sm_90``, ``gfx90a`` ...)."""

_NVIDIA = "sm_90"  # where a capture names no GPU
_COUNTS = {
    "cuda": ("registers", "spills", "shared_bytes", "ptx_instructions"),
    "hip": ("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "shared_bytes", "scratch_bytes", "instructions"),
}
_KINDS = {"cuda": "op_", "hip": "code_"}


def compared(capture: Capture, base: Variant, head: Variant, server: Server) -> Compared:
    """Counts of both sides' code for the capture's NVIDIA GPU, and for AMD GPUs."""
    arch = dict(capture.recorded_on).get("arch", "")
    nvidia = Target(device="cuda", arch=arch if arch.startswith("sm_") else _NVIDIA)
    targets = [server.target if server.target.device == "cuda" else nvidia]
    targets += [Target(device="hip", arch=arch) for arch in AMD_GPUS]
    builds = {
        target: [(name, server.compiled(capture, side, target)) for name, side in (("base", base), ("head", head))]
        for target in targets
    }
    return {
        target.arch: {name: _counts(build, target.device) for name, build in sides} for target, sides in builds.items()
    }


def _counts(build: Future[Built], device: str) -> dict[str, Any]:
    """For NVIDIA registers and spills where ptxas is here, and the optimized IR by kind; for AMD all of its code."""
    try:
        facts = facts_of(build.result().binary.facts)
    except CandidateFailure as failure:
        return {"failed": str(failure)}
    if "spill_store_bytes" in facts:
        facts["spills"] = facts["spill_store_bytes"] + facts["spill_load_bytes"]
    start = _KINDS[device]
    mix = {
        name.replace(start, "IR " if device == "cuda" else "", 1): count
        for name, count in facts.items()
        if name.startswith(start)
    }
    return {**{name: facts[name] for name in _COUNTS[device] if name in facts}, "mix": mix}


def notes(found: Compared) -> Iterator[str]:
    """What differs, a line for each GPU."""
    for arch, sides in found.items():
        changed = [
            f"{name.replace('_', ' ')} {sides['base'].get(name)} -> {after}"
            for name, after in sides["head"].items()
            if name not in ("mix", "failed") and "failed" not in sides["base"] and sides["base"].get(name) != after
        ]
        if changed:
            yield f"code for {arch}: {', '.join(changed)}"


def missing(found: Compared) -> Iterator[str]:
    """Why there is no code; the same reason is said once, for both sides and all GPUs."""
    failed: dict[tuple[str, str], dict[str, None]] = {}
    for arch, sides in found.items():
        for name, counts in sides.items():
            if "failed" in counts:
                failed.setdefault((_maker(arch), counts["failed"]), {})[name] = None
    for (maker, reason), names in failed.items():
        yield f"no code for {maker} GPUs from {' and '.join(names)}: {reason}"


def _maker(arch: str) -> str:
    return "NVIDIA" if arch.startswith("sm_") else "AMD"
