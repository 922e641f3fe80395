"""What the items check, on the one replay server of the process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from r3bench.errors import CaptureError
from r3bench.plugin.options import DEFAULT_GATES, gate, number, option

if TYPE_CHECKING:
    from r3bench.model import Variant
    from r3bench.plugin.items import CaptureItem
    from r3bench.server import Server
    from r3bench.stats import Comparison

SERVER: pytest.StashKey[Server] = pytest.StashKey()
TIMING = pytest.StashKey[dict[str, Any]]()
GUARDED = pytest.StashKey[dict[str, Any]]()
HISTORY = pytest.StashKey[dict[str, Any]]()


class Finding(Exception):
    """A check of a capture that did not hold; the text says what was found."""


def server_of(config: pytest.Config) -> Server:
    """The one server that this process uses, opened on first use: its own, or that of --r3-server or --r3-cluster."""
    if SERVER not in config.stash:
        config.stash[SERVER] = _open_server(config)
    return config.stash[SERVER]


def _open_server(config: pytest.Config) -> Server:
    from r3bench.server import ReplayServer

    if option(config, "server"):
        from r3bench.server.remote import RemoteServer

        return RemoteServer(str(option(config, "server")))
    if option(config, "cluster"):
        from r3bench.cluster import open_cluster

        return open_cluster(str(option(config, "cluster")), str(option(config, "device")), number(config, "timeout"))
    return ReplayServer(str(option(config, "device")), timeout_s=number(config, "timeout"))


def pytest_keyboard_interrupt() -> None:
    """What is left to do after an interrupt (the report, ending processes) is short: a second one does not cut it.

    A search calls it as soon as it knows; pytest only calls it once it has written its traceback.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def told_to_end() -> Iterator[None]:
    """While this holds, SIGTERM (a job's time limit, a machine that shuts down) does what ctrl-C does, also where a
    shell has this process ignore ctrl-C. To be entered in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    before = signal.signal(signal.SIGTERM, signal.default_int_handler if ignored else interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def pytest_unconfigure(config: pytest.Config) -> None:
    if SERVER in config.stash:
        config.stash[SERVER].close()
        del config.stash[SERVER]


def broken(error: CaptureError) -> Callable[[CaptureItem], None]:
    def check(item: CaptureItem) -> None:
        raise error

    return check


def tree_variant(item: CaptureItem) -> Variant:
    """The working tree's source of the item's kernel, or what the store holds, said so in the report."""
    from r3bench import worktree
    from r3bench.model import Variant

    top = worktree.home(item.capture, item.config.rootpath)
    found, source = worktree.variant(item.capture, worktree.Folder(top)), worktree.source_path(item.capture)
    if found is None and source and not item.capture.lacks:
        where = f"{source} is not in {top}, nor above it or the capture in a checkout"
        told = f"{item.capture.name} was tested from its own source, not from your tree"
        item.warn(pytest.PytestWarning(f"{where}: {told}"))
    if found is not None and (lent := ", ".join(worktree.lent(item.capture, found))):
        item.warn(pytest.PytestWarning(f"the working tree has no {lent}, which {item.capture.name} includes: the "
                                       "capture's own is built"))  # fmt: skip
    label = "working tree" if found else "stored source (the working tree does not have the kernel's file)"
    item.user_properties.append(("r3_source", label))
    return found or Variant()


def check_correctness(item: CaptureItem) -> None:
    """The working tree's kernel leaves the memory behind that was recorded."""
    from r3bench.model import Status

    outcome = server_of(item.config).submit(item.capture, tree_variant(item), item.unit, timing="none").result()
    if outcome.verdict.status is not Status.MATCH:
        limit = "; --r3-timeout sets the limit" if outcome.verdict.status is Status.TIMEOUT else ""
        raise Finding(
            f"{item.capture.name}, unit {item.unit}: {outcome.verdict.status.value}: {outcome.verdict.detail}{limit}"
        )


def check_timing(item: CaptureItem) -> None:
    """The working tree's kernel against the stored source; fails only with a gate, or when it has no time."""
    from r3bench.model import Configuration, Variant
    from r3bench.report.words import words
    from r3bench.stats import Decision, block_statistic

    limit = gate(item.config)
    # Without a source there is nothing to rebuild: the recorded image is what can be timed.
    stored = Variant(configuration=Configuration() if item.capture.source else None)
    tree = tree_variant(item)
    server = server_of(item.config)
    used = limit or DEFAULT_GATES[server.target.device]
    kernels = count(item.session, "timing")
    found = server.compare(item.capture, item.unit, stored, tree, gate=used, kernels=kernels).result()
    if found.decision is Decision.REFUSED:
        raise Finding(f"{item.capture.name}, unit {item.unit}: no time for the {found.refused}: {found.verdict.detail}")
    samples_ns = samples_of(item, found, tree)
    item.stash[TIMING] = timing_of(found, samples_ns, server.name) | {"tree": tree != Variant()}
    keep_time(item, found.candidate_ns or block_statistic(samples_ns))
    if limit is not None and found.decision is Decision.SLOWER:
        raise Finding(f"{item.capture.name}, unit {item.unit}: slower than recorded: {words(found)}")


def keep_time(item: CaptureItem, ns: float) -> None:
    """With --r3-history: the time of an item's kernel on this machine, as contests count it: the shortest window of a
    block, the median of several blocks."""
    if not option(item.config, "history"):
        return
    kernel = f"{item.capture.name}[{item.unit}]"
    item.stash[HISTORY] = {"machine": server_of(item.config).machine, "kernel": kernel, "ns": ns}


def count(session: pytest.Session, kind: str) -> int:
    """How many kernels share this session's error budget."""
    return len({item.path for item in session.items if getattr(item, "kind", "") == kind})


def samples_of(item: CaptureItem, found: Comparison, tree: Variant) -> list[float]:
    """The working tree's times per launch in nanoseconds; identical code was not timed yet, so it is ranked.

    A ranking goes by its shortest window, and its first warms up; the mean of a table would take that one in.
    """
    if found.candidate_samples_ns:
        return [sample for block in found.candidate_samples_ns for sample in block]
    outcome = server_of(item.config).submit(item.capture, tree, item.unit).result()
    if outcome.measurement is None:
        raise Finding(f"{item.capture.name}, unit {item.unit}: no time: {outcome.verdict.detail}")
    return list(outcome.measurement.samples_ns[1:])


def timing_of(found: Comparison, samples_ns: list[float], device: str) -> dict[str, Any]:
    """What travels with the report of a timing item, as plain values."""
    from r3bench.report.words import words

    return {"samples_ns": samples_ns, "decision": found.decision.value, "words": words(found), "device": device}
