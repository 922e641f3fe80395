"""How many CUDA sources of other people become IR: python tests/benchmarks/public_sources.py [-IDIR -DNAME ...] FOLDER

Every .cu file below the folder is compiled by nvcc (device code only, sm_90), and, where nvcc accepts it, by our front
end with CUDA's own headers, then through our own pipeline to PTX where LLVM takes it. Needs nvcc and r3bench[toolkit].
"""

from __future__ import annotations

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
FACTS = UnitFacts(launch=LaunchConfig(grid=(1, 1, 1), block=(128, 1, 1)))


def accepted(nvcc: Path, unit: Path, flags: Sequence[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(nvcc), "-ptx", "-arch=sm_90", "-std=c++17", "-w", "-rdc=true", "--expt-relaxed-constexpr"]
        command += ["--extended-lambda", *flags, str(unit), "-o", f"{folder}/unit.ptx"]
        return subprocess.run(command, capture_output=True, timeout=600, check=False).returncode == 0


def built(translation: sources.Translation, compiler: Compiler) -> str:
    """``PTX`` where IR and all kernels' code came about, else what stopped it."""
    try:
        unit = sources.compiled(translation)
    except (BuildError, RecordError) as error:
        return f"no IR: {error}"
    request = BuildRequest(
        files=tuple(unit.texts.items()), main=unit.main, flags=unit.flags, symbol="", target=HOPPER,
        configuration=Configuration(), facts=FACTS,
    )  # fmt: skip
    for symbol in frontend.kernels(unit.typed_ir):
        try:
            compiler.submit(replace(request, symbol=symbol)).result()
        except BuildError as error:
            if "which the source does not define" not in str(error):
                return f"IR, but no code of {symbol}: {error}"
    return "PTX"


def main() -> None:
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("nvcc is not here")
    *flags, folder = sys.argv[1:]
    count: Counter[str] = Counter()
    with Compiler() as compiler:
        for path in sorted(Path(folder).rglob("*.cu")):
            count["units"] += 1
            if not accepted(nvcc, path, flags):
                print(f"{path}: not accepted by nvcc", flush=True)
                continue
            begin = time.perf_counter()
            (translation,) = sources.named([path], flags)
            became = built(translation, compiler)
            count["accepted by nvcc"] += 1
            count["IR"] += not became.startswith("no IR")
            count["PTX"] += became == "PTX"
            print(f"{path}: {became[:300]} ({time.perf_counter() - begin:.1f} s)", flush=True)
    print(", ".join(f"{number} {what}" for what, number in count.items()))


if __name__ == "__main__":
    main()
