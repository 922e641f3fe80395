"""The example in reports/example and the picture of it, from a report that a run wrote.

    python docs/example.py reports/miniweather

The picture needs a Chromium, named by R3BENCH_CHROMIUM or found on PATH; without one it stays as it was.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from r3bench import report
from tests.unit import browser

TOP = Path(__file__).parent.parent
WIDTH, HEIGHT = 1200, 1045


def main(run: Path) -> None:
    example = TOP / "reports" / "example"
    shutil.rmtree(example, ignore_errors=True)
    report.write_document(report.load(run / "report.json"), example)
    for path in (*run.glob("*.patch"), *(path for path in run.glob("*.json") if path.name != "report.json")):
        shutil.copy(path, example)
    program = browser.find()
    if program is None:
        print("no Chromium was found: the picture stays as it was")
        return
    with tempfile.TemporaryDirectory() as profile, browser.Browser(program, Path(profile)) as opened:
        opened.open(example / "report.html", width=WIDTH)
        (TOP / "docs" / "report.png").write_bytes(opened.screenshot(height=HEIGHT))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
