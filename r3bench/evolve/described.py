"""A compile configuration in words: only what differs from the default pipeline and the recorded launch."""

from __future__ import annotations

from collections.abc import Iterator

from r3bench.model import Configuration, Dim3, LaunchRule, Specialization, Variant

_CHOICES = {True: "on", False: "off"}


def described(variant: Variant, recorded: Dim3) -> tuple[str, ...]:
    """One short phrase per setting; ``recorded`` is the block of the recorded launch. Empty for the default."""
    configuration = variant.configuration or Configuration()
    lines: list[str] = []
    if variant.launch is not None:
        lines += _launch(variant.launch, recorded)
    lines += _specialized(configuration.specialize)
    lines += _bounds(configuration)
    lines += _pipeline(configuration)
    return tuple(lines)


def _launch(rule: LaunchRule, recorded: Dim3) -> Iterator[str]:
    if rule.block != recorded:
        yield f"block {_shape(rule.block)} instead of {_shape(recorded)}"
    if rule.per_thread != (1, 1, 1):
        yield f"a thread for {_shape(rule.per_thread)} recorded ones"


def _shape(block: Dim3) -> str:
    return "x".join(str(n) for n in block)


def _specialized(special: Specialization) -> Iterator[str]:
    if special.arguments:
        noun = "constants" if len(special.arguments) > 1 else "a constant"
        yield f"{', '.join(special.arguments)} compiled in as {noun}"
    if special.block:
        yield "the block's size compiled in"
    if special.grid:
        yield "the grid's size compiled in"
    if special.noalias:
        yield "pointers taken not to overlap"
    if special.align:
        yield "pointers taken to be aligned as recorded"


def _bounds(configuration: Configuration) -> Iterator[str]:
    if configuration.bound_threads != "none":
        blocks = f", {configuration.min_blocks} blocks per multiprocessor" if configuration.min_blocks else ""
        exact = "exactly" if configuration.bound_threads == "exact" else "at most"
        yield f"launch bounds: {exact} the block's threads{blocks}"
    if configuration.max_registers is not None:
        yield f"at most {configuration.max_registers} registers per thread"


def _pipeline(configuration: Configuration) -> Iterator[str]:
    if configuration.pipeline != Configuration().pipeline:
        yield f"-{configuration.pipeline} instead of -{Configuration().pipeline}"
    for name, value in configuration.tuning:
        yield f"{name.replace('_', ' ')} {_CHOICES[value] if isinstance(value, bool) else value}"
    if configuration.before:
        yield f"extra passes before the pipeline: {', '.join(configuration.before)}"
    if configuration.after:
        yield f"extra passes after it: {', '.join(configuration.after)}"
    if configuration.options:
        yield f"LLVM options {' '.join(f'-{name}={value}' for name, value in configuration.options)}"
    if configuration.fast_math:
        yield "fast math: approximate divisions, square roots and functions of 32-bit floats, within the tolerance"
    if configuration.assembler:
        yield f"ptxas options {' '.join(f'--{name}={value}' for name, value in configuration.assembler)}"
