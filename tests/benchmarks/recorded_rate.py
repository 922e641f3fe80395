"""How many configurations a search with recorded answers evaluates in a second, and what an evaluation is made of.

On each small kernel of captures/miniweather, on the CPU device: a search with the rules leaves its answers, and another
one takes them from there, on a server that has replayed the recorded kernel and nothing else. Its rate counts
everything from then to the last evaluation. Asked for: at least 10 a second on 2 cores.

    python -m tests.benchmarks.recorded_rate [evaluations] [kernel ...]
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from tabulate import tabulate

from r3bench import store
from r3bench.evolve import Kernel, Limits, Search, Settings
from r3bench.evolve.propose import open_proposers
from r3bench.ledger import Ledger, Record, read
from r3bench.model import Capture, Variant
from r3bench.server import ReplayServer
from tests.benchmarks.machine import describe, judge

CAPTURES = Path(__file__).parents[2] / "captures" / "miniweather"
SMALL = ("halo_x", "halo_z", "update", "diagnostics", "initial_state")
STAGES = ("frontend", "specialize", "lower", "optimize", "emit", "load", "verify", "time")


def explored(capture: Capture, proposer: str, ledger: Path, evaluations: int, texts: int) -> float:
    """The seconds that a search for so many evaluations takes, from an empty cache."""
    settings = Settings(iterations=texts, limits=Limits(evaluations=evaluations))
    with (
        tempfile.TemporaryDirectory() as cache,
        Ledger.open(ledger) as opened,
        ReplayServer("cpu", cache=Path(cache)) as server,
    ):
        kernel = Kernel(capture=capture, ledger=opened, working=lambda capture: None)
        search = Search([kernel], server, open_proposers(proposer), settings)
        server.submit(capture, Variant()).result()
        begin = perf_counter()
        search.explore()
        return perf_counter() - begin


def cpu_seconds() -> float:
    """What this process and all those that it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def row(capture: Capture, evaluations: int) -> list[object]:
    with tempfile.TemporaryDirectory() as folder:
        asked, again = Path(folder) / "asked.jsonl", Path(folder) / "again.jsonl"
        explored(capture, "rules", asked, evaluations, 10 * evaluations)
        texts = max(record["step"] for record in read(asked)[0] if record["kind"] == "reply")
        before = cpu_seconds()
        seconds = explored(capture, f"recorded:{asked}", again, evaluations, texts)
        used = cpu_seconds() - before
        outcomes = [record for record in read(again)[0] if record["kind"] == "outcome"]
    count = len(outcomes)
    return [capture.name, count, count / seconds, 1e3 * used / count, *(mean_ms(outcomes, stage) for stage in STAGES)]


def mean_ms(outcomes: list[Record], stage: str) -> float:
    return 1e3 * sum(dict(record["outcome"]["stages"]).get(stage, 0.0) for record in outcomes) / len(outcomes)


def main(evaluations: str = "160", *kernels: str) -> bool:
    print(describe())
    rows = []
    for path in store.find([CAPTURES]):
        capture = store.open_capture(path)
        if capture.symbol in (kernels or SMALL):
            rows.append(row(capture, int(evaluations)))
            print(tabulate(rows[-1:], headers=["kernel", "evaluations", "per s", "CPU ms", *STAGES], floatfmt=".1f"))
    print(describe())
    return judge("least rate", min(float(str(row[2])) for row in rows), 10, "per s", at_least=True)


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
