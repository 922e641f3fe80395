"""Several devices of one machine as one server."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock

from r3bench.devices import count_devices, open_device
from r3bench.errors import DeviceUnavailable
from r3bench.model import Capture, Level, Outcome, Target, Variant
from r3bench.server.local import ReplayServer
from r3bench.server.requests import Server, Timing
from r3bench.stats import Comparison
from r3bench.toolchain import Built, Compiler


def open_server(device: str = "auto", timeout_s: float = 10.0) -> Server:
    """A server on every device of a kind that is to be used here; they share the compiler's workers."""
    count = count_devices(device)
    if count < 2:
        return ReplayServer(device, timeout_s=timeout_s)
    compiler = Compiler()
    openers = [partial(open_device, device, index=number) for number in range(count)]
    return Fleet([ReplayServer(opener, timeout_s=timeout_s, compiler=compiler) for opener in openers])


class Fleet:
    """Servers whose devices are of one architecture; captures are given out in turn.

    All that is asked of a capture is asked of one device, so that its times may be compared, and it is on one only.
    DeviceUnavailable where the devices differ.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._chosen: dict[str, Server] = {}
        self._guard = Lock()
        targets = {server.target for server in servers}
        if len(targets) > 1:
            kinds = ", ".join(sorted(target.arch for target in targets))
            self.close()
            raise DeviceUnavailable(f"the devices differ ({kinds}): name those of one kind in CUDA_VISIBLE_DEVICES.")

    def _for(self, capture: Capture) -> Server:
        with self._guard:
            turn = len(self._chosen) % len(self._servers)
            return self._chosen.setdefault(capture.content_hash, self._servers[turn])

    @property
    def target(self) -> Target:
        return self._servers[0].target

    @property
    def name(self) -> str:
        return ", ".join(server.name for server in self._servers)

    @property
    def machine(self) -> str:
        return ", ".join(server.machine for server in self._servers)

    @property
    def levels(self) -> tuple[Level, ...]:
        return self._servers[0].levels

    @property
    def at_once(self) -> int:
        """Of one, which counts processors: they build for all."""
        return self._servers[0].at_once

    def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: Timing = "rank") -> Future[Outcome]:
        return self._for(capture).submit(capture, variant, unit, timing)

    def verify(self, capture: Capture, variant: Variant, level: Level, unit: int = 0) -> Future[Outcome]:
        return self._for(capture).verify(capture, variant, level, unit)

    def profile(self, capture: Capture, unit: int = 0) -> Future[dict[str, str]]:
        return self._for(capture).profile(capture, unit)

    def compare(
        self,
        capture: Capture,
        unit: int,
        baseline: Variant,
        candidate: Variant,
        gate: float = 0.05,
        kernels: int = 1,
        looks: int = 3,
    ) -> Future[Comparison]:
        return self._for(capture).compare(capture, unit, baseline, candidate, gate, kernels, looks)

    def compiled(self, capture: Capture, variant: Variant, target: Target, unit: int = 0) -> Future[Built]:
        return self._for(capture).compiled(capture, variant, target, unit)

    def conditions(self) -> dict[str, str]:
        """Of the first; the conditions of a time are those of its device."""
        return self._servers[0].conditions()

    def close(self) -> None:
        for server in self._servers:
            server.close()
