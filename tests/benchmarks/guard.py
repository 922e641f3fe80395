"""The guard's figures on miniWeather, on the CPU device: an unchanged tree, and a planted slow-down of 10 %.

``python tests/benchmarks/guard.py [RUNS] [KERNEL[=ROUNDS] ...]`` (20 by default, about a quarter of a minute each; on a
quiet machine). Where kernels are named, only these are slowed down, and the unchanged tree is left out: for runs in
parts. ROUNDS are what an earlier part found.

In the planted runs every kernel has a test that never holds, of one number in the base and of another in head: the
others do the same work with other machine code, so that they are timed. One of the kernels, in turn, has a loop of
arithmetic on both sides, with so many more rounds in head that it takes 10 % longer. Exactly that one must be SLOWER at
a gate of 5 %.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import machine

from r3bench import store
from r3bench.model import Variant
from r3bench.server import ReplayServer
from r3bench.syntax import find_kernel, kernels

TOP = Path(__file__).parents[2]
SOURCE = "kernels/miniweather/kernels.cu"
FEW, FIRST, TRIES, CLOSE = 16, 48, 5, 0.01  # rounds in base; in head at first; how often; how close is close enough
PLANTED = ("tendencies_x", "tendencies_z", "initial_state", "diagnostics")
# The first guard of each kernel gets a condition more; where there is none, it gets a condition of its own.
NEVER = "nx == 0x7ffffff{}"
BASE, HEAD = NEVER.format(1), NEVER.format(2)
# Both sides have the loop, so that they differ by its rounds alone: time grows evenly with them, where a loop that only
# one side has may change how all else is compiled. The compiler does not know their number, or it would unroll some.
MORE = (
    " int rounds = nx == 0x7ffffff3 ? 1 : {rounds};"
    " double more = threadIdx.x; for (int n = 0; n < rounds; n++) more = more + 0.5;"
    " if (more == -1.0) return; "
)


def changed(text: str, never: str, slow: str = "", rounds: int = 0) -> str:
    """A test that never holds in each kernel, and so many rounds of arithmetic more for each thread of one of them."""
    for name in kernels(text):
        body = find_kernel(text, name).body
        data, begin, end = text.encode(), body.start_byte + 1, body.end_byte
        inner = data[begin:end].decode()
        if ") return;" in inner:
            inner = inner.replace(") return;", f" || {never}) return;", 1)
        else:
            inner = f" if ({never}) return; {inner}"
        if name == slow:
            inner = MORE.format(rounds=rounds) + inner
        text = (data[:begin] + inner.encode() + data[end:]).decode()
    return text


def calibrated(slow: str, wanted: float = 0.10) -> int:
    """How many rounds make a kernel slower by the fraction ``wanted``, between the numbers that are tried.

    The gate is what is wanted, so that hardly a look decides early. Each contest has a process of its own, for a
    kernel's time differs from one to the next.
    """
    text, constants = (TOP / SOURCE).read_text(), (TOP / SOURCE).with_name("constants.h").read_text()
    capture = store.open_capture(TOP / f"captures/miniweather/{slow}.zarr")

    def longer(rounds: int) -> float:
        sides = (changed(text, BASE, slow, FEW), changed(text, HEAD, slow, rounds))
        before, after = (Variant(files=(("constants.h", constants), ("kernels.cu", each))) for each in sides)
        with ReplayServer("cpu") as server:
            compared = server.compare(capture, 0, before, after, gate=wanted).result()
        assert compared.speedup is not None
        return 1 / compared.speedup - 1

    found: dict[int, list[float]] = {}
    rounds = FIRST
    for _ in range(TRIES):
        found.setdefault(rounds, []).extend(longer(rounds) for _ in range(2))
        means = {FEW: 0.0} | {tried: fmean(found[tried]) for tried in sorted(found)}
        if abs(means[rounds] - wanted) < CLOSE:
            break
        rounds = between(means, wanted)
    said = ", ".join(f"{tried}: {', '.join(f'{more:.1%}' for more in found[tried])}" for tried in found)
    print(f"{slow}: {rounds} rounds instead of {FEW} for {wanted:.0%} ({said})", flush=True)
    return rounds


def between(means: Mapping[int, float], wanted: float) -> int:
    """The rounds for what is wanted, on the line through the first pair of those tried that encloses it."""
    pairs = list(pairwise(means.items()))
    (low, less), (high, more) = next((pair for pair in pairs if pair[1][1] >= wanted), pairs[-1])
    return min(2 * high, max(FEW + 1, round(low + (high - low) * (wanted - less) / max(more - less, 1e-3))))


def guard(tree: Path, base: Path, gate: float) -> tuple[dict[str, Any], float]:
    """One run of pytest in a tree against another; its document and seconds."""
    begin = perf_counter()
    options = ("--r3-device=cpu", f"--r3-gate={gate:g}", f"--r3-guard={base}", "-q", "-p", "no:zarr")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "captures/miniweather"],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 10):
        sys.exit(done.stdout + done.stderr)
    document: dict[str, Any] = json.loads((tree / "reports/guard/report.json").read_text())
    return document["guard"], perf_counter() - begin


def copied(tree: Path) -> Path:
    for part in ("kernels/miniweather", "captures/miniweather"):
        shutil.copytree(TOP / part, tree / part)
    (tree / "pytest.ini").write_text("[pytest]\n")
    return tree


def main(runs: int, *named: str) -> bool:
    print(machine.describe(), flush=True)
    with tempfile.TemporaryDirectory(prefix="r3bench-guard-") as folder:
        base, tree = copied(Path(folder, "base")), copied(Path(folder, "head"))
        holds = [] if named else [unchanged(tree)]
        given = dict(name.partition("=")[::2] for name in named or PLANTED[:runs])
        rounds = {slow: int(number or 0) or calibrated(slow) for slow, number in given.items()}
        found = [planted(tree, base, list(rounds)[run % len(rounds)], rounds, run) for run in range(runs)]
    right, wrong = sum(one for one, _ in found), sum(others for _, others in found)
    holds.append(machine.judge(f"planted slow-down found in {runs} runs", right, 0.95 * runs, "runs", at_least=True))
    holds.append(machine.judge("other kernels called slower", wrong, 0, "kernels"))
    return all(holds)


def unchanged(tree: Path) -> bool:
    """Whether nothing of an unchanged tree is timed, in 15 s."""
    guarded, seconds = guard(tree, TOP, 5)
    nothing = all(row["verdict"] == "identical" and row["comparison"] is None for row in guarded["kernels"])
    print(f"unchanged: {guarded['sentence']}; nothing timed: {nothing}", flush=True)
    return machine.judge("unchanged tree", seconds, 15, "s") and nothing


def planted(tree: Path, base: Path, slow: str, rounds: Mapping[str, int], run: int) -> tuple[bool, int]:
    """Whether the planted kernel is called slower, and how many others are."""
    text = (TOP / SOURCE).read_text()
    (base / SOURCE).write_text(changed(text, BASE, slow, FEW))
    (tree / SOURCE).write_text(changed(text, HEAD, slow, rounds[slow]))
    guarded, seconds = guard(tree, base, 5)
    rows = {row["kernel"].partition("/")[2]: row for row in guarded["kernels"]}
    others = [name for name, row in rows.items() if row["verdict"] == "slower" and name != slow]
    said = ", ".join(f"{name} {row['verdict']}" for name, row in rows.items())
    print(f"run {run}: planted in {slow} ({rows[slow]['detail']}); {said}; {seconds:.0f} s", flush=True)
    return rows[slow]["verdict"] == "slower", len(others)


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, *sys.argv[2:]))
