"""The C sources of a worker, compiled by ziglang's clang: ``driver.c`` runs blocks on threads, ``blocks.c`` the threads
of a block. They call nothing but a few functions of libc."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NAMES = ("driver.c", "blocks.c")
_FLAGS = ("-c", "-O2", "-march=native", "-fPIC", "-ffreestanding", "-fno-stack-protector", "-fno-sanitize=all")


def compiled() -> list[bytes]:
    """An object file of each, compiled at the same time. SystemExit in a sentence where one does not compile."""
    with ThreadPoolExecutor(len(NAMES)) as threads:
        return list(threads.map(_compiled, NAMES))


def _compiled(name: str) -> bytes:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("the package ziglang is not installed")
    source = Path(__file__).with_name(name)
    with tempfile.TemporaryDirectory(prefix="r3bench-") as folder:
        output = Path(folder, "code.o")
        command = [str(Path(spec.origin).with_name("zig")), "clang", *_FLAGS, "-o", str(output), str(source)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{source.name} does not compile: {done.stderr.strip()}")
        return output.read_bytes()
