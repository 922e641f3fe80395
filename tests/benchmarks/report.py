"""How large and how quick reports are: a search of 7 kernels and 200 iterations.

Drawing is timed in the Chromium named by R3BENCH_CHROMIUM or found on PATH, and left out without one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from r3bench import report
from tests.unit import browser
from tests.unit.report_case import large


def main() -> None:
    document = large()
    for name, render in (("html", report.html), ("markdown", report.markdown), ("terminal", report.table)):
        start = perf_counter()
        size = len(render(document).encode())
        print(f"{name}: {size / 1e3:.0f} kB in {perf_counter() - start:.3f} s")
    program = browser.find()
    if program is None:
        print("no browser found: drawing is not timed")
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report.html(document), encoding="utf-8")
        with browser.Browser(program, Path(folder) / "profile") as opened:
            for _ in range(5):
                opened.open(page)
                drawn = opened.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
                print(f"drawn after {drawn:.0f} ms")


if __name__ == "__main__":
    main()
