"""``pytest captures/miniweather`` as a user runs it: collection, all checks and timings, and the whole search.

Each is one process, timed from start to end by this one. *Collection* is ``--collect-only``, three times, the least
counting; beside it stands the same command on an empty folder (what Python, pytest and the other plugins take), and the
difference, which is this plugin's own share. Hypothesis' plugin is off meanwhile: only this project's own tests need
it, and it takes as long to import as all the rest. *Run* is every correctness and timing item, with an empty cache.
*Search* is ``--r3-evolve``, with its reports in a folder that is dropped; the table of its results is printed.

The figures asked for on two cores: collection at most 1 s, run at most 40 s, run with search at most 240 s.

    python -m tests.benchmarks.miniweather [collect] [run] [search]    (default: all three)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from tests.benchmarks.machine import describe, judge

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = "captures/miniweather"
COLLECT_S, RUN_S, SEARCH_S = 1.0, 40.0, 240.0
TIMES = 3


def pytest_s(cache: Path, *arguments: str) -> tuple[float, str]:
    """Seconds that one pytest process takes, and what it printed; its builds are cached below ``cache``."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    begin = perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    return perf_counter() - begin, done.stdout + done.stderr


def collect(folder: Path) -> bool:
    empty = folder / "empty"
    empty.mkdir()
    only = ("--collect-only", "-p", "no:hypothesispytest")
    found = [pytest_s(folder, *only, CAPTURES) for _ in range(TIMES)]
    bare = min(pytest_s(folder, *only, str(empty))[0] for _ in range(TIMES))
    least = min(seconds for seconds, _ in found)
    print(f"collection: {least:.2f} s, of an empty folder {bare:.2f} s; own share {least - bare:.2f} s")
    print(found[0][1].strip().splitlines()[-1])
    return judge("collection, whole process,", least, COLLECT_S, "s")


def run(folder: Path) -> bool:
    seconds, printed = pytest_s(folder, "--durations=5", CAPTURES)
    print("\n".join(printed.splitlines()[-14:]))
    return judge("run of all checks and timings", seconds, RUN_S, "s")


def search(folder: Path) -> bool:
    seconds, printed = pytest_s(folder, "--durations=8", "--r3-evolve", f"--r3-reports={folder / 'reports'}", CAPTURES)
    failures = printed.find(" FAILURES ")
    print(printed[failures if failures >= 0 else printed.find("r3bench: search") :])
    return judge("run with search", seconds, SEARCH_S, "s")


def main(*parts: str) -> bool:
    print(describe())
    holds = True
    for part in (collect, run, search):
        if not parts or part.__name__ in parts:
            with tempfile.TemporaryDirectory() as folder:
                holds &= part(Path(folder))
            print(describe())
    return holds


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
