"""Whole trials by one request each, for several threads at once: the worker always has the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r3bench.compare import Tolerance
from r3bench.devices import Bytes, Memory, Tried, Windows
from r3bench.devices.cuda.memory import CudaMemory, Rules
from r3bench.devices.cuda.process import Reply, Request, Worker
from r3bench.devices.cuda.requests import (
    check_binary,
    check_launch,
    differences_found,
    limit_s,
    many_rules,
    nanoseconds,
    place_of,
    running,
)
from r3bench.devices.cuda.supply import CudaKernel, Supply
from r3bench.errors import DeviceFault
from r3bench.model import Binary, Difference, LaunchConfig, Target


class CudaQueue:
    """See :class:`r3bench.devices.Queue`.

    What is asked restores all that it launches on: before and after, memories may hold anything.
    """

    def __init__(self, supply: Supply, target: Target) -> None:
        self._supply, self._target = supply, target

    def tried(
        self,
        binary: Binary,
        memory: Memory,
        launch: LaunchConfig,
        windows: Windows,
        expected: Mapping[str, Bytes],
        tolerances: Mapping[str, Tolerance],
        *,
        timeout_s: float = 60.0,
    ) -> Tried | None:
        check_binary(binary, self._target)
        check_launch(binary.symbol, launch)
        own = self._supply.own
        first, judged, ring = own(memory), own(windows.judged), [own(each) for each in windows.memories]
        trial = _Trial(self._supply, CudaKernel(self._supply, binary), launch, expected, tolerances)
        after_once, after_windows = trial.rules(first), trial.rules(judged)
        if after_once is None or after_windows is None:
            return None
        worker = self._supply.worker()
        for held in (first, *ring):
            self._supply.memory(worker, held)
            held.stale, held.used, held.rows = True, True, None
        self._supply.mine.ran = first
        how = {"windows": windows.times, "stops": windows.stops, "evict": windows.flush}
        once = trial.run(worker, [first], first, after_once, timeout_s)
        most_s = limit_s(windows.times, windows.stops, timeout_s)
        timed = trial.run(worker, ring, judged, after_windows, most_s, **how)
        loading = self._supply.loading(worker, trial.kernel)  # last, for contents that are missing go by the same file
        worker.kernels.add(trial.kernel.number)  # even where that fails: it is unloaded as others are
        return trial.told((first, judged), self._supply.replies(worker, loading, once, timed))


@dataclass(frozen=True, slots=True)
class _Trial:
    supply: Supply
    kernel: CudaKernel
    launch: LaunchConfig
    expected: Mapping[str, Bytes]
    tolerances: Mapping[str, Tolerance]

    def rules(self, held: CudaMemory) -> Rules | None:
        """By what the worker alone can judge a memory, and keeps; None where it cannot."""
        compared = held.recorded.compared
        if any(held.relocated(each.name) for each in compared) or any(map(many_rules, self.tolerances.values())):
            return None
        rules = held.recorded.rules(compared, self.expected, self.tolerances)
        return rules if rules.kept else None

    def run(
        self,
        worker: Worker,
        memories: Sequence[CudaMemory],
        judged: CudaMemory,
        rules: Rules,
        timeout_s: float,
        **how: Any,
    ) -> Request:
        """To launch where what was asked before went well."""
        known = self.supply.rules(worker, rules)
        restored = [memory.number for memory in memories]
        message = running(self.kernel.number, memories, self.launch, restored, rules=known, judged=judged, **how)
        return Request({**message, "after": True}, self.kernel.binary.symbol, timeout_s)

    def told(self, judged: Sequence[CudaMemory], replies: Sequence[Reply]) -> Tried | None:
        """What the replies come to; None where something was left out that nothing explains."""
        loading, once, timed = (reply["answer"] for reply in replies)
        self.kernel.learn({**loading["facts"], "blocks_per_multiprocessor": once["occupancy"]})
        if once["damaged"] is not None:
            raise DeviceFault(f"{self.kernel.binary.symbol} wrote {place_of(int(once['damaged']), judged[0])}")
        seconds = [float(reply["seconds"]) for reply in replies]  # an answer may be there before its turn comes
        differences = self._differences(judged[0], once)
        if differences:
            return Tried(self.kernel, differences, [], seconds)
        if "skipped" in timed:
            return None
        return Tried(self.kernel, self._differences(judged[1], timed), nanoseconds(timed), seconds)

    def _differences(self, held: CudaMemory, answer: Mapping[str, Any]) -> tuple[Difference, ...]:
        rows = held, held.recorded.compared, self.expected, self.tolerances, answer["rows"]
        return tuple(each for each in differences_found(*rows).values() if each is not None)
