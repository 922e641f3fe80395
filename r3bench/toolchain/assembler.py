"""PTX to machine code with NVIDIA's ptxas or, where that is not here, nvJitLink. Runs in compile workers, off the GPU's
critical path.

ptxas makes the code that nvcc makes. The library is the same compiler without a process to start, which saves a third
of a processor's time for most kernels, but it compiles for linking: other code for each of 20 kernels, other registers
or stack for 9 of them, 90 registers where ptxas takes 68 (tests/benchmarks/assemblers.py). Without either the driver
compiles PTX when it is loaded: one kernel at a time, in tens of milliseconds each.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain, islice
from pathlib import Path

from r3bench.errors import BuildError
from r3bench.files import scratch
from r3bench.toolchain import jitlink

Options = Sequence[tuple[str, str]]
Facts = tuple[tuple[str, int], ...]
Assemble = Callable[[bytes], tuple[bytes, Facts]]
"""From PTX to a cubin and what ptxas says of the kernel: registers, local memory, spills, static shared memory."""

_TRIES = 3  # where it is killed
# With pages of 2 MB it takes a tenth less of a processor: faults of small ones were that much.
_MALLOC = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864:glibc.malloc.mmap_threshold=1073741824"
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


def find() -> Path | None:
    """ptxas of a CUDA toolkit (CUDA_HOME, CUDA_PATH), of NVIDIA's wheels, on PATH, or below /usr/local/cuda."""
    return next((path for path in _places() if path.is_file()), None)


def _places() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin/ptxas"
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    yield from sorted(packages.glob("*/bin/ptxas"), reverse=True)
    if on_path := shutil.which("ptxas"):
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/ptxas")


def available() -> bool:
    """Whether PTX can become machine code here."""
    return find() is not None or jitlink.version() is not None


def version() -> tuple[int, int] | None:
    """The version of CUDA that it came with; None where there is none, or it does not tell."""
    path = find()
    if path is None:
        return jitlink.version()
    with suppress(OSError):
        said = subprocess.run([str(path), "--version"], capture_output=True, text=True, errors="replace", check=False)
        if found := _RELEASE.search(said.stdout):
            return int(found[1]), int(found[2])
    return None


def identity() -> list[str]:
    """What tells one from another without running it; empty where there is none."""
    path = find()
    if path is None:
        return [f"nvJitLink {jitlink.version()}"] if jitlink.version() else []
    held = path.resolve().stat()
    return [str(path), str(held.st_size), str(held.st_mtime_ns)]


@contextmanager
def started(path: Path | None, symbol: str, arch: str, options: Options) -> Iterator[Assemble]:
    """What makes a cubin of PTX, once; ptxas takes longer to start than for a small kernel, so it waits for the text.

    ``path`` is ptxas; None for nvJitLink. BuildError where it refuses the text.
    """
    flags = [f"--{name}={value}" for name, value in options]

    def assembled(made: bytes | None, said: str) -> tuple[bytes, Facts]:
        if made is None:
            raise BuildError(f"ptxas refused {symbol}: {_reason(said)}")
        return made, tuple(facts(said, symbol))

    if path is None:
        yield lambda ptx: assembled(*jitlink.link(ptx, arch, flags))
        return
    with scratch("r3bench-ptxas-") as folder:
        made = Path(folder, "kernel.cubin")
        command = [str(path), f"-arch={arch}", "-v", *flags, "/dev/stdin", "-o", str(made)]
        with closing(_processes(command)) as processes:
            first = next(processes)
            yield lambda ptx: assembled(*_run(chain([first], processes), ptx, made))


def _processes(command: Sequence[str]) -> Generator[subprocess.Popen[bytes]]:
    """One after the other, as they are asked for; none is left running."""
    while True:
        try:
            process = subprocess.Popen(
                command,
                env={"GLIBC_TUNABLES": _MALLOC, **os.environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise BuildError(f"{command[0]} cannot be run ({error}); reinstall it or set CUDA_HOME") from error
        with process:
            try:
                yield process
            finally:
                process.kill()


def _run(processes: Iterable[subprocess.Popen[bytes]], ptx: bytes, made: Path) -> tuple[bytes | None, str]:
    """What ptxas makes, None where it refuses, and what it says."""
    for process in islice(processes, _TRIES):
        said = process.communicate(ptx)[0].decode("utf-8", "replace")
        if process.returncode != -signal.SIGKILL:
            break
    return None if process.returncode else made.read_bytes(), said or f"exit code {process.returncode}"


def check(options: Options, there: Mapping[str, Sequence[str]]) -> None:
    """BuildError for an option, or a value of one, that is not among those there are."""
    for name, value in options:
        if value not in there.get(name, ()):
            known = "; ".join(f"{known} {', '.join(values)}" for known, values in there.items())
            raise BuildError(f"what compiles PTX here has no option {name}={value}; choose from {known}")


def facts(said: str, symbol: str) -> Iterator[tuple[str, int]]:
    """Numbers from what ptxas says about one kernel."""
    _, _, after = said.partition(f"Compiling entry function '{symbol}'")
    section = after.split("Compiling entry function", 1)[0]
    if found := _USED.search(section):
        yield "registers", int(found[1])
    if found := _SPILLS.search(section):
        yield from zip(("local_bytes", "spill_store_bytes", "spill_load_bytes"), map(int, found.groups()), strict=True)
    found = _SHARED.search(section)
    yield "shared_bytes", int(found[1]) if found else 0


def _reason(said: str) -> str:
    lines = said.strip().splitlines() or ["it gave no reason"]
    text = next((line for line in lines if "error" in line or "fatal" in line), lines[0])
    return re.sub(r"^ptxas (?:application ptx input|\S*?)(?:, line \d+;?)?\s*(?:error|fatal)\s*:\s*", "", text.strip())
