"""What the worker is asked for about launches, and what its answers say."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from r3bench.compare import Buffer, Found, Tolerance, difference_found, tolerance_of
from r3bench.devices import Bytes, Stops
from r3bench.devices.cuda.memory import CudaMemory
from r3bench.errors import LaunchError
from r3bench.model import Binary, Difference, LaunchConfig, Target

_FORMATS = ("cubin", "fatbin", "ptx")
# Edges of runs of elements with a rule of their own; more would take longer to send than the buffer to read back.
_MOST_EDGES = 1 << 14


def check_binary(binary: Binary, target: Target) -> None:
    """LaunchError for code of another format or for another target."""
    if binary.format not in _FORMATS or binary.target != target:
        made = f"{binary.format} code for {binary.target.device} {binary.target.arch}"
        raise LaunchError(f"{binary.symbol} is {made}; this device loads {', '.join(_FORMATS)} for {target.arch}")


def check_launch(symbol: str, launch: LaunchConfig) -> None:
    """LaunchError for numbers that a launch cannot even be asked for with; the GPU's own limits are the driver's."""
    sizes = (*launch.grid, *launch.block, *(launch.cluster or (1, 1, 1)))
    if not all(1 <= size < 1 << 31 for size in sizes) or not 0 <= launch.shared_bytes < 1 << 31:
        shape = f"grid {launch.grid}, block {launch.block} and {launch.shared_bytes} bytes of shared memory"
        raise LaunchError(f"{symbol} cannot be launched with {shape}")


def running(
    kernel: int,
    memories: Sequence[CudaMemory],
    launch: LaunchConfig,
    restore: Sequence[int],
    *,
    rules: tuple[int, Any] | None,
    judged: CudaMemory | None,
    windows: int = 0,
    stops: Stops = (),
    evict: bool = False,
) -> dict[str, Any]:
    """The message to launch once, or in so many windows, and compare what is judged then."""
    return {
        "op": "run",
        "kernel": kernel,
        "memories": [memory.number for memory in memories],
        "restore": restore,
        "evict": evict,
        "launch": [getattr(launch, field.name) for field in fields(launch)],
        "windows": windows,
        "stops": stops,
        "judged": judged.number if judged else None,
        "rules": rules,
        "written": memories[0].unit.written,
    }


def limit_s(times: int, stops: Stops, timeout_s: float) -> float:
    """How long so many windows may take, each as long as a launch: only short ones are beyond the last of the stops."""
    return timeout_s * max((count for count, _ in stops), default=times)


def nanoseconds(answer: Mapping[str, Any]) -> list[float]:
    """Those of windows."""
    return [max(1.0, float(ns)) for ns in answer["ns"]]


def many_rules(tolerance: Tolerance | None) -> bool:
    """Whether a buffer's elements follow so many rules that it is rather read back."""
    return tolerance is not None and tolerance.exact.edges.size + tolerance.ignore.edges.size > _MOST_EDGES


def differences_found(
    held: CudaMemory,
    wanted: Sequence[Buffer],
    expected: Mapping[str, Bytes],
    tolerances: Mapping[str, Tolerance],
    rows: Sequence[Sequence[Any]],
) -> dict[str, Difference | None]:
    """What rows say of buffers, by name."""
    return {
        each.name: _difference(expected[each.name], each, tolerance_of(held.unit, each, tolerances), row)
        for each, row in zip(wanted, rows, strict=True)
    }


def _difference(expected: Bytes, buffer: Buffer, tolerance: Tolerance, row: Sequence[Any]) -> Difference | None:
    if not row[0]:
        return None
    count, first, error, worst, first_bytes, worst_bytes = row
    found = Found(
        count=int(count),
        first=int(first),
        worst=int(worst),
        first_bytes=bytes.fromhex(first_bytes),
        worst_bytes=bytes.fromhex(worst_bytes),
        error=struct.unpack("<d", int(error).to_bytes(8, "little"))[0],
    )
    return difference_found(expected, buffer, tolerance, found)


def place_of(address: int, held: CudaMemory) -> str:
    """Where an address beside the buffers is, for a person."""
    distances = []
    for buffer in held.recorded.buffers:
        start = held.addresses[buffer.name]
        name = f"buffer {buffer.name} ({buffer.nbytes} bytes)"
        if address >= start + buffer.nbytes:
            past = address - start - buffer.nbytes
            distances.append((past, f"{past} bytes past the end of {name}" if past else f"just past the end of {name}"))
        else:
            before = start - address
            distances.append((before, f"{before} bytes before the start of {name}"))
    return min(distances)[1]
