"""How many CUDA sources of other people become IR: python tests/benchmarks/public_sources.py [-IDIR -DNAME ...] FOLDER

Every .cu file below the folder, in an order drawn once, is compiled by nvcc (device code only, sm_90), and, where nvcc
accepts it, by our front end with CUDA's own headers; the first kernels of each then go through our own pipeline to PTX.
Each line says how many there have been. Needs nvcc and r3bench[toolkit].
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from r3bench import frontend
from r3bench.errors import BuildError, RecordError
from r3bench.model import Configuration, LaunchConfig, Target
from r3bench.record import sources
from r3bench.record.images import find_nvcc
from r3bench.remix import BuildRequest
from r3bench.space import UnitFacts
from r3bench.toolchain import Compiler

HOPPER = Target(device="cuda", arch="sm_90")
KERNELS = 3  # of each unit that are built
FACTS = UnitFacts(launch=LaunchConfig(grid=(1, 1, 1), block=(128, 1, 1)))


def accepted(nvcc: Path, unit: Path, flags: Sequence[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(nvcc), "-ptx", "-arch=sm_90", "-std=c++17", "-w", "-rdc=true", "--expt-relaxed-constexpr"]
        command += ["--extended-lambda", "-Xcicc=-O0", *flags, str(unit), "-o", f"{folder}/unit.ptx"]
        return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0


def built(translation: sources.Translation, compiler: Compiler) -> str:
    """``IR, PTX`` where IR and code of the first kernels came about, else what stopped it."""
    try:
        unit = sources.compiled(translation)
    except (BuildError, RecordError) as error:
        return f"no IR: {error}"
    request = BuildRequest(
        files=tuple(unit.texts.items()), main=unit.main, flags=unit.flags, symbol="", target=HOPPER,
        configuration=Configuration(), facts=FACTS,
    )  # fmt: skip
    for symbol in frontend.kernels(unit.typed_ir)[:KERNELS]:
        try:
            compiler.submit(replace(request, symbol=symbol)).result()
        except BuildError as error:
            if "which the source does not define" not in str(error):
                return f"IR, no code: of {symbol}: {error}"
    return "IR, PTX"


def main() -> None:
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("nvcc is not here")
    *flags, folder = sys.argv[1:]
    count: Counter[str] = Counter()
    units = sorted(Path(folder).rglob("*.cu"), key=lambda path: hashlib.sha256(path.name.encode()).digest())
    with Compiler() as compiler:
        for path in units:
            begin = time.perf_counter()
            became = told(nvcc, path, flags, compiler)
            count.update(("units", *became.partition(":")[0].split(", ")))
            seconds = time.perf_counter() - begin
            print(f"{path.name}: {became[:200]} ({seconds:.1f} s) {dict(count)}", flush=True)


def told(nvcc: Path, path: Path, flags: Sequence[str], compiler: Compiler) -> str:
    """What became of a unit, in words that count, and after a colon why."""
    if not accepted(nvcc, path, flags):
        return "refused by nvcc"
    (translation,) = sources.named([path], flags)
    return f"accepted by nvcc, {built(translation, compiler)}"


if __name__ == "__main__":
    main()
