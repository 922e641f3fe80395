"""What a kernel may not take, keep or read: it could tell by it when it is timed."""

from __future__ import annotations

from r3bench.errors import LaunchError, Unsupported
from r3bench.model import Capture, ReplayUnit, facts_of
from r3bench.replay.placement import Material
from r3bench.toolchain import Built


def refuse_other_parameters(built: Built, capture: Capture) -> None:
    """LaunchError for another number of parameters than was recorded, whether or not their bytes come to the same."""
    taken, recorded = facts_of(built.binary.facts).get("parameters"), len(capture.parameters)
    if taken is not None and recorded and taken != recorded:
        raise LaunchError(
            f"{capture.symbol} takes {taken} parameters where {recorded} were recorded: keep its signature"
        )


def refuse_hidden_state(built: Built, unit: ReplayUnit) -> None:
    """Unsupported for a device variable that the recording does not hold: a kernel could count its launches in it, and
    nothing here would show what it does from a later launch on."""
    recorded = {variable.symbol for variable in unit.globals}
    for variable in built.globals:
        if not variable.constant and variable.symbol not in recorded:
            raise Unsupported(
                f"the kernel keeps a device variable, {variable.symbol}, that was not recorded: "
                "use an argument's memory"
            )


def refuse_outside_reads(built: Built, material: Material) -> None:
    """Unsupported for a clock or a number of the launch that the recorded source does not name: a kernel could tell by
    it when it is timed, or work less from some launch on."""
    for name, _ in built.binary.facts:
        register = name.removeprefix("reads_")
        if register != name and not any(register in text for text in material.texts.values()):
            raise Unsupported(f"the kernel reads %{register}, which the recorded source does not: compute without it")
