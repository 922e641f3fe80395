"""Tuned kernels for a running application: built, and described with the conditions under which they may run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from r3bench import remix, store
from r3bench.model import Capture, ReplayUnit, Target, Variant
from r3bench.space import unit_facts
from r3bench.toolchain import Built, Compiler


def prepare(capture: Capture, variant: Variant, target: Target, compiler: Compiler, folder: Path) -> list[Path]:
    """Build a variant for every specialization key among a capture's units; the descriptions for the preload library.

    A key is what the variant compiles in: arguments, block, grid. BuildError where it does not build.
    """
    texts = store.sources(capture)
    written: dict[tuple[str, ...], Path] = {}
    for unit in capture.units:
        conditions = tuple(_conditions(capture, unit, variant))
        if conditions in written:
            continue
        built = compiler.submit(remix.build_request(capture, texts, unit, variant, target)).result()
        written[conditions] = _write(folder, capture, built, conditions)
    return list(written.values())


def _conditions(capture: Capture, unit: ReplayUnit, variant: Variant) -> Iterator[str]:
    """The lines that substitutes.h explains."""
    configuration, launch = variant.configuration, unit.launch
    if variant.launch is not None:
        yield f"launch {_dim(variant.launch.block)} {_dim(variant.launch.per_thread)}"
    if configuration is None:
        return
    special = configuration.specialize
    bound = configuration.bound_threads != "none"
    if special.block or special.grid or bound:
        yield f"block {_dim(launch.block)}"
    if special.grid:
        yield f"grid {_dim(launch.grid)}"
    for parameter in capture.parameters:
        if parameter.name in special.arguments:
            value = unit.arguments[parameter.offset : parameter.offset + parameter.size]
            yield f"argument {parameter.offset} {value.hex()}"
        if special.noalias and parameter.kind == "pointer":
            yield f"distinct {parameter.offset}"
    if special.align:
        places = {parameter.name: parameter.offset for parameter in capture.parameters}
        facts = unit_facts(capture.parameters, unit, remix.launch_for(unit, variant))
        yield from (f"aligned {places[name]} {nbytes}" for name, nbytes in facts.alignments)


def _dim(size: tuple[int, int, int]) -> str:
    return " ".join(map(str, size))


def _write(folder: Path, capture: Capture, built: Built, conditions: tuple[str, ...]) -> Path:
    image = folder / f"{built.binary.sha256[:24]}.{built.binary.format}"
    image.write_bytes(built.binary.image)
    path = folder / f"substitute-{len(list(folder.glob('substitute-*')))}"
    lines = (f"kernel {capture.symbol}", f"image {image.resolve()}", *conditions)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
