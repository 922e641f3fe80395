"""The C sources of a worker, compiled by ziglang's clang: ``driver.c`` runs blocks on threads, ``blocks.c`` the threads
of a block. They call nothing but a few functions of libc. Their objects are kept in the user's cache."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from llvmlite import binding as llvm

NAMES = ("driver.c", "blocks.c")
_PROCESSOR = "-march=native" if platform.machine() == "x86_64" else "-mcpu=native"
_FLAGS = ("-c", "-O2", _PROCESSOR, "-fPIC", "-ffreestanding", "-fno-stack-protector", "-fno-sanitize=all")


def compiled() -> list[bytes]:
    """An object file of each. SystemExit in a sentence where one does not compile."""
    return [_known(Path(__file__).with_name(name)) for name in NAMES]


def _known(source: Path) -> bytes:
    """The object from the cache, or compiled and kept; a file whose content is not what was written is ignored."""
    zig = _zig()
    state = [
        *_FLAGS,
        str(zig),
        zig.stat().st_mtime_ns,
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ]
    key = hashlib.sha256(source.read_bytes() + json.dumps(state).encode()).hexdigest()[:24]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "r3bench", f"{source.stem}-{key}.o")
    with suppress(OSError):
        content = kept.read_bytes()
        digest, image = content[:32], content[32:]
        if hashlib.sha256(image).digest() == digest:
            return image
    image = _compiled(zig, source)
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
            file.write(hashlib.sha256(image).digest() + image)
        Path(file.name).replace(kept)
    return image


def _zig() -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("the package ziglang is not installed")
    return Path(spec.origin).with_name("zig")


def _compiled(zig: Path, source: Path) -> bytes:
    with tempfile.TemporaryDirectory(prefix="r3bench-") as folder:
        output = Path(folder, "code.o")
        command = [str(zig), "clang", *_FLAGS, "-o", str(output), str(source)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{source.name} does not compile: {done.stderr.strip()}")
        return output.read_bytes()
