"""The preload library: C++ beside this file, built on first use by the compiler that comes from PyPI, and cached.

Wheels may bring it along, built (hatch_build.py).

::

    interpose.cpp  dlsym, cuGetProcAddress, exported symbols      launches.cpp   every function that launches
    memory.cpp     allocations, by address                         recording.cpp  which launches, one at a time
    modules.cpp    images, kernels, variables (images.cpp: formats) unit.cpp       one recorded launch
    streams.cpp    streams, captures into graphs, waiting          pages.cpp      digests of pages
    profile.cpp    the time of every launch (timing.cpp)           staging.cpp    kept on the device for a while
    plan.cpp       what the user asked for                         pipeline.cpp   device to disk (stripes.cpp)
    reach.cpp      what a launch can reach                         background.cpp while the application goes on
    copies.cpp     what else writes device memory                  coverage.cpp   what became of every launch
    graphs.cpp     launches inside graphs (graph.cpp: one graph)   contexts.cpp   what ends with a context
    own.cpp        kernels of ours (own.cu)                        process.cpp    fork, exit
    substitutes.cpp  tuned kernels in place of the original        hip.cpp        the same of HIP, as far as it goes
    nvrtc.cpp      sources compiled at run time                    nvtx.cpp       time in ranges that are marked

It needs glibc 2.17 or newer and a CUDA driver, no toolkit and no C++ library. Without a plan (``R3BENCH_PLAN``) it
passes every call on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tempfile
from pathlib import Path

from r3bench import frontend
from r3bench.errors import RecordError

FOLDER = Path(__file__).parent
_TIMEOUT_S = 300.0
FLAGS = (
    *("-x", "c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-nostdlib++", "-nostdinc++", "-fno-exceptions"),
    *("-fno-rtti", "-fno-threadsafe-statics", "-fno-c++-static-destructors", "-fvisibility=hidden", "-g0"),
    *("-ftls-model=initial-exec", "-Wall", "-Wextra", "-Werror", "-Wno-unused-command-line-argument"),
)


def library() -> Path:
    """The library as it came with the package, or built; RecordError where it cannot be built."""
    sources = sorted(FOLDER.glob("*.cpp"))
    name = f"recorder-{_key(sources)}.so"
    if (FOLDER / name).is_file():
        return FOLDER / name
    target = _cache() / name
    if not target.exists():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                built = Path(folder, target.name)
                _compile(sources, built)
                built.replace(target)
        except OSError as error:
            raise RecordError(f"the recorder cannot be kept at {target} ({error}): set XDG_CACHE_HOME") from error
    return target


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "r3bench")


def _key(sources: list[Path]) -> str:
    inputs = [*sources, *sorted(FOLDER.glob("*.h")), *FOLDER.glob("*.ptx")]
    digest = hashlib.sha256("\0".join((*FLAGS, platform.machine(), frontend.compiler_version())).encode())
    for path in inputs:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def _compile(sources: list[Path], target: Path) -> None:
    machine = f"{platform.machine()}-linux-gnu.2.17"
    own = FOLDER / "own.ptx"
    # The compiler's cache does not see what the assembler includes: its content is in the command too.
    defines = (f'-DR3_OWN_PTX="{own}"', f"-DR3_OWN_KEY={hashlib.sha256(own.read_bytes()).hexdigest()}")
    command = [str(frontend.find_compiler()), "cc", *FLAGS, "-target", machine, *defines, *map(str, sources)]
    try:
        done = subprocess.run(
            [*command, "-ldl", "-lpthread", "-o", str(target)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RecordError(f"the recorder was not built within {_TIMEOUT_S:g} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line] or ["it gave no reason"]
        raise RecordError(f"the recorder cannot be built: {said[0]}")
