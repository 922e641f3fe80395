"""What the plugin costs every pytest run of an environment: the import of r3bench.plugin beyond pytest's own.

Fresh processes import pytest as its command does, with pytest-benchmark (which is there for other reasons), and then
the plugin: the time of the second import, median and least of some processes (the least counts: whatever else runs only
makes it longer), and the heavy packages found loaded afterwards (there must be none). The figure asked for: 50 ms.

Printed too, since installing r3bench installs zarr: what zarr's own pytest plugin takes to import, which pytest loads
in every run unless it is told ``-p no:zarr``.

    python -m tests.benchmarks.plugin_import [processes]
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

from tests.benchmarks.machine import describe, judge

LIMIT_MS = 50.0
HEAVY = ("numpy", "zarr", "xarray", "llvmlite", "optuna", "tree_sitter", "tabulate", "litellm", "cupy", "dask")
PROGRAM = """
import json, sys, time
import pytest, _pytest.config
_pytest.config.get_config()
import pytest_benchmark.plugin
begin = time.perf_counter()
import {plugin}
print(json.dumps([1e3 * (time.perf_counter() - begin), [name for name in {heavy} if name in sys.modules]]))
"""


def import_ms(plugin: str) -> tuple[float, list[str]]:
    """Milliseconds that a fresh process takes to import a plugin, and the heavy packages it holds then."""
    program = PROGRAM.format(plugin=plugin, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ms, heavy = json.loads(done.stdout)
    return float(ms), list(heavy)


def main(processes: int = 9) -> bool:
    print(describe())
    found = [import_ms("r3bench.plugin") for _ in range(processes)]
    others = [import_ms("zarr.testing")[0] for _ in range(3)]
    heavy = sorted({name for _, names in found for name in names})
    times = [ms for ms, _ in found]
    print(f"r3bench.plugin: median {median(times):.1f} ms, least {min(times):.1f} ms of {processes} processes")
    print(f"zarr.testing, a pytest plugin that comes with zarr: median {median(others):.0f} ms")
    print(f"heavy packages loaded: {', '.join(heavy) or 'none'}")
    return judge("plugin import beyond pytest", min(times), LIMIT_MS, "ms") and not heavy


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
