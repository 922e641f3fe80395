"""The clang that comes with ziglang, sealed: started ahead of its source, which it takes from standard input."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from r3bench import sealing
from r3bench.errors import BuildError
from r3bench.files import scratch

PRELUDE = Path(__file__).parents[1] / "prelude"
MOST_ERRORS = 20
GENERATED = "<stdin>"
# Of the compiler's process: address space, and what it may write (its output is a file).
LIMITS = {"as": 4 << 30, "fsize": 128 << 20, "core": 0, "nofile": 64}

# By the time of its build a kernel could tell its tests, and be wrong on another day.
_TIMES = ("__DATE__", "__TIME__", "__TIMESTAMP__")
TIMELESS = [
    f'-D{name}=_Pragma("GCC error \\"{name} is the time of the build, which no kernel may go by: take it out\\"")'
    for name in _TIMES
]
# Until it is named, clang does not know that a precompiled header defines a macro of its own anew: pop_macro would
# bring its own back.
NAMED = f"#if {' + '.join(f'defined {name}' for name in _TIMES)}\n#endif\n#line 1"


def find_compiler() -> Path:
    """The ``zig`` binary whose clang compiles kernels. Raises ImportError where the package ziglang is missing."""
    import ziglang

    return Path(ziglang.__file__).parent / "zig"


@functools.cache
def compiler_version() -> str:
    """For example ``clang version 22.1.8``."""
    done = subprocess.run([find_compiler(), "clang", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def dialect(arch: str, debug: bool) -> list[str]:
    """clang's own front end rather than its driver, which would search the host for headers and a CUDA toolkit."""
    return [
        *(str(find_compiler()), "clang", "-cc1", "-fcuda-is-device", "-fcuda-allow-variadic-functions"),
        *("-triple", "nvptx64-nvidia-cuda", "-aux-triple", "x86_64-unknown-linux-gnu"),
        *("-target-cpu", arch, "-target-feature", "+ptx86", "-target-sdk-version=12.8"),
        *("-O3", "-disable-llvm-passes", "-mframe-pointer=none", "-fno-threadsafe-statics"),
        "-disable-free",  # A process that ends gives its memory back anyway.
        # Kernel names as nvcc gives them.
        "-fclang-abi-compat=17",
        *("-nostdsysteminc", "-nobuiltininc", "-isystem", str(PRELUDE / "include")),
        *("-w", "-ferror-limit", str(MOST_ERRORS), "-fno-caret-diagnostics", "-fno-diagnostics-show-option"),
        "-fno-spell-checking",  # Its suggestions come from the prelude.
        *(("-debug-info-kind=standalone", "-dwarf-version=4") if debug else ()),
    ]


def precompiled(command: Sequence[str], header: Path = PRELUDE / "prelude.h") -> Path | None:
    """The prelude parsed beforehand in this dialect (25 ms less per kernel; CUDA's own headers: half a second).

    None where that is not possible.
    """
    inputs = [*sorted(header.parent.glob("*.h")), find_compiler()]
    state = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in inputs]
    key = hashlib.sha256(json.dumps([command, state]).encode()).hexdigest()[:24]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "r3bench")
    target = cache / f"prelude-{key}.pch"
    if not target.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                built = Path(folder, target.name)
                build = [*command, "-x", "cuda", "-emit-pch", "-o", str(built), str(header)]
                subprocess.run(build, check=True, capture_output=True, timeout=60)
                built.replace(target)
        except (OSError, subprocess.SubprocessError):
            return None
    return target


Asked = tuple[tuple[str, ...], tuple[Path, ...], tuple[str, ...], float]
"""A command, what it may read beside its source, folders of the source tree that it looks for when it starts, and the
seconds it has."""


class Compiler:
    """A compiler that has started and waits for its source, which saves half of the time if it is done beforehand.

    Of this machine's files it can open itself, those it was ``asked`` to read, and the source tree that it is given.
    """

    def __init__(self, asked: Asked, root: Path | None = None) -> None:
        """``root``: a tree that is there already."""
        self.asked = asked
        command, read, folders, seconds = asked
        with ExitStack() as resources:
            self._root = root or Path(resources.enter_context(scratch("r3-")))
            for folder in folders:
                Path(self._root, folder).mkdir(parents=True, exist_ok=True)
            self._output = resources.enter_context(tempfile.TemporaryFile())
            self._errors = resources.enter_context(tempfile.TemporaryFile())
            # Read, as ended, once no process holds the other end.
            ended, theirs = os.pipe()
            self._ended = resources.enter_context(open(ended, "rb", 0))
            with open(theirs, "wb", 0):
                self._process = resources.enter_context(
                    sealing.started(
                        command,
                        read=[*read, self._root],
                        limits=LIMITS | {"cpu": int(seconds) + 2},
                        cwd=self._root,
                        env={"PATH": os.defpath, "LC_ALL": "C"},
                        stdin=subprocess.PIPE,
                        stdout=self._output,
                        stderr=self._errors,
                        pass_fds=[theirs],
                    )
                )
            resources.callback(self._process.kill)
            self._resources = resources.pop_all()

    def compile(self, files: Mapping[str, str], text: str, main: str) -> subprocess.CompletedProcess[str]:
        """Compile ``text``, which includes some of ``files`` (relative path -> text), and be done.

        Raises BuildError, in the name of ``main``, where it takes too long.
        """
        command, *_, seconds = self.asked
        with self._resources:
            for path, content in files.items():
                target = self._root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(content)
            assert self._process.stdin
            with suppress(BrokenPipeError), self._process.stdin as source:
                source.write(text.encode())
            if not select.select([self._ended], [], [], seconds)[0]:
                raise BuildError(f"{main}: the compiler took longer than {seconds:g} s and was stopped")
            self._process.kill()
            status = self._process.wait()
            return subprocess.CompletedProcess(command, status, _content(self._output), _content(self._errors))

    def close(self) -> None:
        """End it without a source."""
        self._resources.close()


class Ahead:
    """Starts compilers, one before it is needed: like the last that was asked for."""

    def __init__(self) -> None:
        self._last: Asked | None = None
        self._waiting: Compiler | None = None

    def take(self, asked: Asked) -> Compiler:
        waiting, self._waiting, self._last = self._waiting, None, asked
        if waiting and waiting.asked == asked:
            return waiting
        if waiting:
            waiting.close()
        return Compiler(asked)

    def start(self) -> None:
        """Start the next one."""
        if self._last and not self._waiting:
            self._waiting = Compiler(self._last)


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
