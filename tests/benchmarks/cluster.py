"""What a cluster costs, and how it scales: verified and ranked configurations a second, here and through Dask.

    python -m tests.benchmarks.cluster cuda [configurations]
    python -m tests.benchmarks.cluster cpu [configurations] [workers]

``cuda``: a replay server in this process against a cluster ``local:1`` on the same GPU; asked: 90 % of the rate.
``cpu``: ``local:1`` on a share of the processors against ``local:workers`` on all of them, so that each replay worker
has as many; asked: 80 % of linear. Configurations of a miniWeather kernel, known source, nothing in the cache; equal
code is replayed once, so distinct binaries are told too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import deque
from concurrent.futures import Future
from time import perf_counter, process_time

from r3bench import store
from r3bench.cluster import open_cluster
from r3bench.model import Outcome, Status, Variant
from r3bench.server import ReplayServer, Server
from tests.benchmarks.evaluation_rate import CAPTURES, variants
from tests.benchmarks.machine import describe

KERNEL = "tendencies_z"


def rate(server: Server, count: int) -> float:
    """Configurations a second, said with how many were distinct; a few before warm everything up."""
    capture = store.open_capture(CAPTURES / f"{KERNEL}.zarr")
    first, *wanted = [Variant(), *variants(capture, server, count + 16)]
    server.submit(capture, first).result()
    warm, wanted = wanted[:16], wanted[16:]
    for done in [server.submit(capture, each, timing="once") for each in warm]:
        done.result()
    waiting: deque[Future[Outcome]] = deque()
    outcomes: list[Outcome] = []
    begin, cpu = perf_counter(), process_time()
    for variant in wanted:
        waiting.append(server.submit(capture, variant, timing="once"))
        if len(waiting) >= server.at_once:
            outcomes.append(waiting.popleft().result())
    outcomes += [future.result() for future in waiting]
    found, cpu = len(outcomes) / (perf_counter() - begin), 1e3 * (process_time() - cpu) / len(outcomes)
    matched = sum(outcome.verdict.status is Status.MATCH for outcome in outcomes)
    devices = {dict(o.measurement.conditions).get("device", "") for o in outcomes if o.measurement is not None}
    codes = len({outcome.binary for outcome in outcomes})
    told = f"{len(outcomes)} configurations, {codes} codes, {matched} match, {len(devices)} devices"
    print(f"  {found:.1f} a second: {told}; {cpu:.1f} ms of a processor in this process for each")
    return found


def clustered(text: str, device: str, count: int) -> float:
    with _no_cache():
        begin = perf_counter()
        with open_cluster(text, device) as cluster:
            print(f"{text} on {len(os.sched_getaffinity(0))} processors, up in {perf_counter() - begin:.1f} s")
            return rate(cluster, count)


def _no_cache() -> tempfile.TemporaryDirectory[str]:
    """A new place for the cache of builds, here and in processes started from now on."""
    folder = tempfile.TemporaryDirectory()
    os.environ["XDG_CACHE_HOME"] = folder.name
    return folder


def cuda(count: int) -> bool:
    with _no_cache(), ReplayServer("cuda") as server:
        print("in this process")
        here = rate(server, count)
    share = clustered("local:1", "cuda", count) / here
    print(f"through Dask: {share:.0%} of the local rate (asked: 90 %)")
    return share >= 0.9


def cpu(count: int, workers: int) -> bool:
    everything = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, everything[: max(1, len(everything) // workers)])
    one = clustered("local:1", "cpu", count)
    os.sched_setaffinity(0, everything)
    linear = clustered(f"local:{workers}", "cpu", count * workers) / (one * workers)
    print(f"{workers} workers: {linear:.0%} of linear (asked: 80 %)")
    return linear >= 0.8


def main(device: str = "cpu", count: str = "200", workers: str = "4") -> bool:
    print(describe())
    good = cuda(int(count)) if device == "cuda" else cpu(int(count), int(workers))
    print(describe())
    return good


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
