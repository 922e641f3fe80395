"""Run an unmodified application under the preload library."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from r3bench import recorder
from r3bench.errors import RecordError
from r3bench.record import nvrtc

_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be recorded, as the preload library reads it.

    ``kernels`` and ``excluded`` are extended regular expressions, searched in the kernel's symbol; ``launches`` counts
    from 0 for each kernel. ``variables`` names device variables of packed images, after "c " for constants, "d " for
    others. Of a parallel run only ``ranks`` record, all of them where that is empty. ``substitutes`` describe tuned
    kernels. The time in NVTX ranges called ``region`` is added up.
    """

    folder: Path
    kernels: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    launches: tuple[int, ...] = ()
    every: int = 1
    skip: int = 0
    max_per_kernel: int = 2
    distinct: bool = False
    max_bytes: int = _LARGEST
    timeout_s: float = 60.0
    profile: bool = False
    region: str = ""
    variables: tuple[str, ...] = ()
    ranks: tuple[int, ...] = (0,)
    substitutes: tuple[Path, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"folder {self.folder.resolve()}"
        yield from (f"kernel {pattern}" for pattern in self.kernels)
        yield from (f"exclude {pattern}" for pattern in self.excluded)
        yield from (f"launch {number}" for number in self.launches)
        yield from (f"variable {name}" for name in self.variables)
        yield from (f"rank {number}" for number in self.ranks)
        yield from (f"substitute {path.resolve()}" for path in self.substitutes)
        yield f"every {self.every}"
        yield f"skip {self.skip}"
        yield f"max-per-kernel {self.max_per_kernel}"
        yield f"distinct {int(self.distinct)}"
        yield f"max-bytes {self.max_bytes}"
        yield f"timeout {self.timeout_s:g}"
        yield f"profile {int(self.profile)}"
        if self.region:
            yield f"region {self.region}"


def run(command: Sequence[str], plan: Plan, *, keep_output: bool = False) -> tuple[int, bytes]:
    """Run the application to its end under a plan; its exit status, negative for a signal, and its standard output.

    The output goes where it always goes unless it is kept. RecordError where the application cannot be started.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", prefix="plan-", dir=plan.folder, delete=False, encoding="utf-8") as written:
        written.writelines(f"{line}\n" for line in plan.lines())
    library = str(recorder.library())
    preload = ":".join(filter(None, (library, os.environ.get("LD_PRELOAD"))))
    environment = {**os.environ, "LD_PRELOAD": preload, "R3BENCH_PLAN": str(Path(written.name).resolve())}
    if plan.region:
        environment["NVTX_INJECTION64_PATH"] = library
    if plan.max_per_kernel:
        environment |= nvrtc.ENVIRONMENT
    try:
        done = subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE if keep_output else None)
    except OSError as error:
        raise RecordError(f"{command[0]} cannot be started ({error.strerror}): check the command") from error
    return done.returncode, done.stdout or b""
