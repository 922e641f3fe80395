"""The guard's figures on miniWeather, on the CPU device: an unchanged tree, and a planted slow-down of 10 %.

``python tests/benchmarks/guard.py [RUNS]`` (20 by default, about half a minute each; on a quiet machine). In a planted
run one of the kernels, in turn, does so much more arithmetic that it takes 10 % longer; the others get a test that
never holds, so that their machine code differs and they are timed. Exactly the one must be SLOWER at a gate of 5 %.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import machine

from r3bench import store
from r3bench.model import Variant
from r3bench.server import ReplayServer
from r3bench.syntax import find_kernel, kernels

TOP = Path(__file__).parents[2]
SOURCE = "kernels/miniweather/kernels.cu"
PLANTED = ("tendencies_x", "tendencies_z", "initial_state", "diagnostics")
# The first kernel's guard in each, with a condition more; where there is none, a condition of its own.
NEVER = "nx == 0x7ffffff1"
MORE = (
    " double more = threadIdx.x; for (int n = 0; n < {rounds}; n++) more = more * 0.999 + 0.5;"
    " if (more == -1.0) return; "
)


def with_slow_down(text: str, slow: str, rounds: int) -> str:
    """So many rounds of arithmetic more for each thread of one kernel; all others get a test that never holds."""
    for name in kernels(text):
        body = find_kernel(text, name).body
        data, begin, end = text.encode(), body.start_byte + 1, body.end_byte
        inner = data[begin:end].decode()
        if name == slow:
            inner = MORE.format(rounds=rounds) + inner
        elif ") return;" in inner:
            inner = inner.replace(") return;", f" || {NEVER}) return;", 1)
        else:
            inner = f" if ({NEVER}) return; {inner}"
        text = (data[:begin] + inner.encode() + data[end:]).decode()
    return text


def calibrated(server: ReplayServer, slow: str, wanted: float = 0.10) -> int:
    """How many rounds make a kernel slower by the fraction ``wanted``: halving, up to a tenth of it."""
    text, constants = (TOP / SOURCE).read_text(), (TOP / SOURCE).with_name("constants.h").read_text()
    capture, low, high = store.open_capture(TOP / f"captures/miniweather/{slow}.zarr"), 0, 64
    before = Variant(files=(("constants.h", constants), ("kernels.cu", text)))
    while high - low > 1:
        rounds = (low + high) // 2
        changed = with_slow_down(text, slow, rounds)
        after = Variant(files=(("constants.h", constants), ("kernels.cu", changed)))
        compared = server.compare(capture, 0, before, after, looks=1).result()
        assert compared.speedup is not None
        longer = 1 / compared.speedup - 1
        print(f"{slow}: {rounds} rounds take {longer:.1%} longer", flush=True)
        if abs(longer - wanted) <= 0.1 * wanted:
            return rounds
        low, high = (rounds, high) if longer < wanted else (low, rounds)
    return high


def guard(tree: Path, gate: float) -> tuple[dict[str, Any], float]:
    """One run of pytest in a tree against the tree it was copied from; its document and seconds."""
    begin = perf_counter()
    options = ("--r3-device=cpu", f"--r3-gate={gate:g}", f"--r3-guard={TOP}", "-q", "-p", "no:zarr")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "captures/miniweather"],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 10):
        sys.exit(done.stdout + done.stderr)
    document: dict[str, Any] = json.loads((tree / "reports/guard/report.json").read_text())
    return document["guard"], perf_counter() - begin


def main(runs: int) -> bool:
    print(machine.describe())
    with tempfile.TemporaryDirectory(prefix="r3bench-guard-") as folder:
        tree = Path(folder)
        for part in ("kernels/miniweather", "captures/miniweather"):
            shutil.copytree(TOP / part, tree / part)
        (tree / "pytest.ini").write_text("[pytest]\n")
        unchanged, seconds = guard(tree, 5)
        nothing = all(row["verdict"] == "identical" and row["comparison"] is None for row in unchanged["kernels"])
        print(f"unchanged: {unchanged['sentence']}; nothing timed: {nothing}")
        holds = [nothing, machine.judge("unchanged tree", seconds, 15, "s")]
        with ReplayServer("cpu") as server:
            rounds = {slow: calibrated(server, slow) for slow in PLANTED}
        found = [planted(tree, PLANTED[run % len(PLANTED)], rounds, run) for run in range(runs)]
    right, wrong = sum(one for one, _ in found), sum(others for _, others in found)
    holds.append(machine.judge(f"planted slow-down found in {runs} runs", right, 0.95 * runs, "runs", at_least=True))
    holds.append(machine.judge("other kernels called slower", wrong, 0, "kernels"))
    return all(holds)


def planted(tree: Path, slow: str, rounds: Mapping[str, int], run: int) -> tuple[bool, int]:
    """Whether the planted kernel is called slower, and how many others are."""
    (tree / SOURCE).write_text(with_slow_down((TOP / SOURCE).read_text(), slow, rounds[slow]))
    guarded, seconds = guard(tree, 5)
    rows = {row["kernel"].partition("/")[2]: row for row in guarded["kernels"]}
    others = [name for name, row in rows.items() if row["verdict"] == "slower" and name != slow]
    said = ", ".join(f"{name} {row['verdict']}" for name, row in rows.items())
    print(f"run {run}: planted in {slow} ({rows[slow]['detail']}); {said}; {seconds:.0f} s", flush=True)
    return rows[slow]["verdict"] == "slower", len(others)


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
