"""Every figure that only a GPU can give, in order of value, in calls of ten minutes: what is done stays done.

Each part is a command with a time limit of its own; its output goes to ``<out>/<part>.log`` and, with what became of
it, to the terminal. The next call begins with the first part that has not ended. A part that was cut by its own limit
has ended; one for which the call had no time left has not.

    python -m tests.benchmarks.gpu_session [--out DIR] [--seconds OF THIS CALL] [--device cpu] [--list] [PART ...]

``--device cpu`` runs the same on the CPU device, as far as it can, in small numbers: to see that it would run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

LEAST_S = 15.0  # no part is begun in less
SHOWN = 25  # lines of a part's output


@dataclass(frozen=True, slots=True)
class Part:
    """One question: a name, a command, and the seconds it may take."""

    name: str
    seconds: float
    command: Sequence[str]


def parts(device: str, out: Path) -> list[Part]:
    """All of them, the most valuable first; what is recorded comes before what needs it."""
    real, large = device == "cuda", out / "large"
    run, test = (sys.executable, "-m"), (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    figures = (*run, "tests.benchmarks.gpu_figures", "300", "--folder", str(large), "--only")
    count = {"copies": "110", "contests": "20"} if real else {"copies": "1", "contests": "1"}
    kept = ("--large", "--image", "nvcc") if real else ()
    search = ("--r3-evolve", str(large), "--r3-device", device, "--r3-seconds", "15" if real else "1")
    found = [
        Part("record", 120, (*run, "kernels.miniweather.record", "--device", device, *kept, "--out", str(large))),
        Part("evolve", 400, (*test, *search, "--r3-reports", str(out / "reports"))),
        Part("cheats", 180, (*test, "tests/cheats", "-k", device)),
        Part("slow-downs", 270, (*run, "tests.benchmarks.slow_downs", device, count["contests"], "85")),
        Part("promotions", 320, (*run, "tests.benchmarks.aa_promotions", device, count["copies"], "310", "89")),
    ]
    if real:
        found += [
            Part("tests", 420, (*test, "-m", "gpu", "tests", "--deselect", "tests/cheats")),
            Part("same", 200, (*figures, "same")),
            Part("reproducible", 90, (*figures, "large", "reproducible", "classes")),
            Part("apart", 60, (*figures, "apart")),
            Part("device", 90, (*figures, "device", "bandwidth")),
            Part("nvrtc", 90, (*figures, "nvrtc")),
        ]
    return found


def work(wanted: Iterable[Part], out: Path, seconds: float) -> bool:
    """Do what has not ended, as long as there is time; whether all has."""
    out.mkdir(parents=True, exist_ok=True)
    begin = monotonic()
    ended = set(_ended(out))
    for part in wanted:
        if part.name in ended:
            continue
        left = seconds - (monotonic() - begin)
        if left < LEAST_S:
            print(f"-- {part.name}: no time left in this call")
            return False
        _did(part, out, left)
    return {part.name for part in wanted} <= set(_ended(out))


def _ended(out: Path) -> list[str]:
    """The names of the parts that have."""
    file = out / "ended.jsonl"
    return [json.loads(line)["part"] for line in file.read_text().splitlines()] if file.exists() else []


def _did(part: Part, out: Path, left: float) -> None:
    """Run one part, print what it said last, and keep that it ended unless this call's end cut it."""
    print(f"-- {part.name}: {' '.join(part.command)}", flush=True)
    begin, log = monotonic(), out / f"{part.name}.log"
    status = _run(part.command, log, min(part.seconds, left))
    for line in log.read_text(errors="replace").splitlines()[-SHOWN:]:
        print(f"   {line}")
    print(f"   {part.name}: {status} after {monotonic() - begin:.0f} s", flush=True)
    if status != "cut" or part.seconds <= left:
        with (out / "ended.jsonl").open("a") as file:
            file.write(
                json.dumps({"part": part.name, "status": status, "seconds": round(monotonic() - begin, 1)}) + "\n"
            )


def _run(command: Sequence[str], log: Path, seconds: float) -> str:
    """``cut``, or the exit status in words; all that it started ends with it."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return f"exit {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            return "cut"
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("reports/gpu"))
    parser.add_argument("--seconds", type=float, default=570.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("part", nargs="*", help="these only")
    arguments = parser.parse_args()
    offered = parts(arguments.device, arguments.out)
    wanted = [part for part in offered if part.name in arguments.part or not arguments.part]
    if arguments.list:
        for part in wanted:
            print(f"{part.name:14} {part.seconds:4.0f} s  {' '.join(part.command)}")
        return 0
    return not work(wanted, arguments.out, arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())
