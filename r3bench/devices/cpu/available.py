"""How much memory could still be had, and how much it takes to fill the caches with something else."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from r3bench.errors import LaunchError

_FILES = ("/proc/meminfo", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current")
EVICT_PARTS = 64
_EVICT_MAX_BYTES = 1 << 29
_opened: dict[str, int] = {}


def keep_open() -> tuple[int, ...]:
    """Open what is read here, for a process that will not be allowed to: the descriptors."""
    for path in _FILES:
        with suppress(OSError):
            _opened[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return tuple(_opened.values())


def check_available(nbytes: int, what: str) -> None:
    """LaunchError if so many bytes cannot be had."""
    available = available_bytes()
    if nbytes > available:
        raise LaunchError(f"out of memory: {what} needs {nbytes} bytes, and {available} are available")


def available_bytes() -> int:
    """By the system's own estimate and, where there is one, the control group's limit."""
    meminfo, *group = _FILES
    fields = dict(line.split(":", 1) for line in _read(meminfo).splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    try:
        limit, used = map(_read, group)
    except OSError:
        return available
    return available if limit.strip() == "max" else max(0, min(available, int(limit) - int(used)))


def _read(path: str) -> str:
    if _opened:
        if path not in _opened:
            raise FileNotFoundError(path)
        return os.pread(_opened[path], 1 << 14, 0).decode()
    with open(path) as file:
        return file.read()


def evict_bytes() -> int:
    """Twice the last-level cache, in whole parts, as far as the system tells its size."""
    sizes = [1 << 25]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1))
    part = min(2 * max(sizes), _EVICT_MAX_BYTES) // EVICT_PARTS
    return part // 64 * 64 * EVICT_PARTS
