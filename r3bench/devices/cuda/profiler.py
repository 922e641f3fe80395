"""Hardware counters of one launch, as Nsight Compute (ncu) counts them: the launch runs in a process of its own.

Counting replays the launch once for every group of counters, with caches flushed before; its time says nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path

from r3bench.devices.cuda import watched
from r3bench.devices.cuda.memory import CudaMemory
from r3bench.errors import ReplayTimeout
from r3bench.model import Binary, LaunchConfig

_PEAK = "pct_of_peak_sustained_elapsed"
COUNTERS: Mapping[str, str] = {
    f"sm__throughput.avg.{_PEAK}": "busiest compute pipeline, % of its peak",
    f"gpu__compute_memory_throughput.avg.{_PEAK}": "busiest part of the memory system, % of its peak",
    f"gpu__dram_throughput.avg.{_PEAK}": "device memory, % of its peak",
    "dram__bytes_read.sum": "bytes read from device memory",
    "dram__bytes_write.sum": "bytes written to device memory",
    "l1tex__t_sector_hit_rate.pct": "hits in L1, %",
    "lts__t_sector_hit_rate.pct": "hits in L2, %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps resident on a multiprocessor, % of the most",
    "launch__registers_per_thread": "registers per thread",
    "smsp__inst_executed.sum": "instructions executed by warps",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "threads active per instruction, of 32",
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active": "double-precision pipeline, % of its peak",
}
"""What is counted, and the words for it."""
STALLS: Mapping[str, str] = {
    "long_scoreboard": "a load from global or local memory",
    "short_scoreboard": "shared memory or a special function",
    "lg_throttle": "the queue of global memory",
    "mio_throttle": "the queue of shared memory and special functions",
    "math_pipe_throttle": "a busy arithmetic pipeline",
    "wait": "a dependence of fixed latency",
    "barrier": "a barrier",
    "imc_miss": "a constant that is not cached",
    "no_instruction": "the next instruction",
}
"""What a warp may wait for, and the words for it."""
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS_TOLD = 3


def counters(index: int, binary: Binary, memory: CudaMemory, launch: LaunchConfig, timeout_s: float) -> dict[str, str]:
    """The counters of one launch, by their words; none where ncu is not here or may not count on this system."""
    path = watched.find("ncu")
    if path is None:
        return {}
    try:
        _, said = watched.launched(_command(path), index, binary, memory, launch, timeout_s)
    except ReplayTimeout:
        return {}
    return told(read(said.splitlines()))


def _command(path: Path) -> list[str]:
    names = ",".join((*COUNTERS, *map(_STALL.format, STALLS)))
    return [str(path), "--csv", "--print-units", "base", "--clock-control", "none", "--metrics", names]


def read(lines: Iterable[str]) -> dict[str, float]:
    """The metrics of the first kernel in ncu's table; lines around the table, and metrics without a number, are left
    out."""
    found: dict[str, float] = {}
    head: list[str] = []
    first = None
    for row in csv.reader(line for line in lines if line.startswith('"')):
        if "Metric Name" in row and "Metric Value" in row:
            head = row
        elif head and len(row) == len(head):
            cells = dict(zip(head, row, strict=True))
            first = cells.get("ID") if first is None else first
            value = _number(cells["Metric Value"])
            if cells.get("ID") == first and value is not None:
                found.setdefault(cells["Metric Name"], value)
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if isfinite(value) else None


def told(metrics: Mapping[str, float]) -> dict[str, str]:
    """Metrics by their words, three digits each; of what warps wait for only what they wait for most."""
    found = {words: f"{metrics[name]:.3g}" for name, words in COUNTERS.items() if name in metrics}
    stalls = {words: metrics.get(_STALL.format(name), 0.0) for name, words in STALLS.items()}
    most = sorted((words for words in stalls if stalls[words] > 0), key=lambda words: -stalls[words])
    reasons = ", ".join(f"{words} ({stalls[words]:.3g})" for words in most[:_STALLS_TOLD])
    return found | ({"warps waiting per instruction issued, for": reasons} if reasons else {})
