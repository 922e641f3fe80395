"""What every benchmark prints beside its figures: the machine and how busy it was, and whether a figure holds."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path


def describe() -> str:
    """Processor, cores this process may use, load average."""
    processor = platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), processor)
    return f"{processor}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"


def judge(what: str, value: float, limit: float, unit: str, *, at_least: bool = False) -> bool:
    """Print a figure beside its limit; whether it holds."""
    holds = value >= limit if at_least else value <= limit
    sign = ">=" if at_least else "<="
    print(f"{'holds' if holds else 'FAILS'}: {what} {value:.3g} {unit} (asked: {sign} {limit:g} {unit})")
    return holds
