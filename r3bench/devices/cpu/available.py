"""How much memory could still be had."""

from __future__ import annotations

from pathlib import Path

from r3bench.errors import LaunchError

_GROUP = Path("/sys/fs/cgroup")


def check_available(nbytes: int, what: str) -> None:
    """LaunchError if so many bytes cannot be had."""
    available = available_bytes()
    if nbytes > available:
        raise LaunchError(f"out of memory: {what} needs {nbytes} bytes, and {available} are available")


def available_bytes() -> int:
    """By the system's own estimate and, where there is one, the control group's limit."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    try:
        limit, used = (_GROUP / "memory.max").read_text(), (_GROUP / "memory.current").read_text()
    except OSError:
        return available
    return available if limit.strip() == "max" else max(0, min(available, int(limit) - int(used)))
