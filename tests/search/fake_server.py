"""A replay server without compiler or device: outcomes and contests come from a cost model in Python."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from hashlib import sha256

from r3bench.model import (
    Allocation,
    Capture,
    LaunchConfig,
    Level,
    Measurement,
    Outcome,
    Parameter,
    Pointer,
    ReplayUnit,
    Source,
    Status,
    Target,
    Variant,
    Verdict,
    content_id,
)
from r3bench.stats import Comparison, claims, compared, confirmed, identical, refused

TEXT = """\
extern "C" __global__ void smooth(const float* in, float* out, float width, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < 4; k++) {
        out[i] += in[i] / width;
    }
}
"""


@dataclass(frozen=True)
class Behaviour:
    """What a variant does: its time, or how it fails; equal ``module`` stands for equal machine code."""

    ns: float = 1000.0
    status: Status = Status.MATCH
    detail: str = ""
    module: str | None = None


Model = Callable[[Variant, int], Behaviour]
FAKE = Target(device="cpu", arch="fake")


@dataclass
class FakeServer:
    """``model`` gives a variant's behaviour on a unit; every call is kept in ``submitted`` and ``compared``."""

    model: Model
    target: Target = FAKE
    submitted: list[tuple[str, Variant, int, str]] = field(default_factory=list)
    compared: list[tuple[Variant, Variant]] = field(default_factory=list)
    profiled: int = 0
    levels: tuple[Level, ...] = (Level.SEEN, Level.HELD_OUT, Level.PERTURBED)
    load: str = "0.40"
    fails_at: Callable[[Variant, Level], str] = lambda variant, level: ""

    def verify(self, capture: Capture, variant: Variant, level: Level, unit: int = 0) -> Future[Outcome]:
        """As on a launch that is only verified, unless ``fails_at`` has a reason why it fails at this level."""
        found = self.submit(capture, variant, unit, "none").result()
        reason = self.fails_at(variant, level)
        verdict = Verdict(status=Status.MISMATCH, detail=reason) if reason else found.verdict
        done: Future[Outcome] = Future()
        done.set_result(replace(found, verdict=replace(verdict, level=level)))
        return done

    def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
        self.submitted.append((capture.name, variant, unit, timing))
        found = self.model(variant, unit)
        matches = found.status is Status.MATCH
        binary = sha256((found.module or content_id(variant)).encode()).hexdigest()
        samples = tuple(found.ns * f for f in (1.0, 1.01, 1.02, 1.03)) if matches and timing != "none" else ()
        done: Future[Outcome] = Future()
        done.set_result(
            Outcome(
                capture=capture.name,
                unit=unit,
                variant=content_id(variant),
                target=self.target,
                verdict=Verdict(status=found.status, detail=found.detail),
                measurement=self._measured(samples, binary) if samples else None,
                module=found.module or content_id(variant),
                binary=binary,
            )
        )
        return done

    def _measured(self, samples: tuple[float, ...], binary: str) -> Measurement:
        return Measurement(samples_ns=samples, binary=binary, conditions=tuple(self.conditions().items()))

    def conditions(self) -> dict[str, str]:
        return {"load": self.load}

    def profile(self, capture: Capture, unit: int = 0) -> Future[dict[str, str]]:
        self.profiled += 1
        done: Future[dict[str, str]] = Future()
        done.set_result({"memory bandwidth, writing": "12 GB/s", "registers per thread": "32"})
        return done

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
        self.compared.append((baseline, candidate))
        done: Future[Comparison] = Future()
        done.set_result(self._contest(self.model(baseline, unit), self.model(candidate, unit), gate))
        return done

    def _contest(self, old: Behaviour, new: Behaviour, gate: float) -> Comparison:
        if new.status is not Status.MATCH:
            return refused(gate, "candidate", Verdict(status=new.status, detail=new.detail))
        if old.module is not None and old.module == new.module:
            return identical(gate, old.module)
        return comparison(old.ns / new.ns, gate=gate, baseline_ns=old.ns)


def comparison(speedup: float, *, gate: float = 0.05, baseline_ns: float = 1000.0) -> Comparison:
    """A contest of which eleven blocks lie within 1 % of a speedup; a claim with its repetition."""
    ratios = [1.0, *(1.01, 1 / 1.01) * 5]
    candidate = [(baseline_ns / speedup * ratio,) for ratio in ratios]
    found = compared([(baseline_ns,)] * 11, candidate, ("AB", "BA") * 5 + ("AB",), gate, 0.01)
    return confirmed(found, found) if claims(found) else found


def capture(text: str = TEXT, *, symbol: str = "smooth", units: int = 3, disjoint: bool = True) -> Capture:
    """A capture of the kernel in ``text``, with nothing behind it: fit for a server that reads none."""
    parameters = (
        Parameter(name="in", offset=0, size=8, kind="pointer", dtype="float32", const=True),
        Parameter(name="out", offset=8, size=8, kind="pointer", dtype="float32"),
        Parameter(name="width", offset=16, size=4, kind="scalar", dtype="float32"),
        Parameter(name="n", offset=20, size=4, kind="scalar", dtype="int32"),
    )
    return Capture(
        path=f"captures/demo/{symbol}.zarr",
        application="demo",
        symbol=symbol,
        demangled=symbol,
        parameters=parameters,
        source=Source(
            root="kernels/demo",
            main="kernels.cu",
            span=(1, 7),
            files=(("kernels.cu", sha256(text.encode()).hexdigest()),),
        ),
        units=tuple(_unit(index, disjoint) for index in range(units)),
        content_hash=sha256(text.encode()).hexdigest(),
    )


def _unit(index: int, disjoint: bool) -> ReplayUnit:
    return ReplayUnit(
        index=index,
        launch=LaunchConfig(grid=(8, 1, 1), block=(128, 1, 1)),
        arguments=bytes(24),
        pointers=(Pointer(offset=0, allocation="in"), Pointer(offset=8, allocation="out" if disjoint else "in")),
        allocations=tuple(Allocation(name=n, address=4096 * a, nbytes=4096) for a, n in enumerate(("in", "out"), 1)),
        written=("out",),
        held_out=index > 0,
    )


def tree(text: str = TEXT) -> Callable[[Capture], Variant]:
    """The working tree of a capture: one file."""
    return lambda _: Variant(files=(("kernels.cu", text),))
