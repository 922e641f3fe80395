"""Kernels that only look right, or only look fast. Each says which check catches it, and where that check stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")

# Where a cheat shows: when it is verified for the search, ranked, or at a level of promotion.
Stage = Literal["verify", "rank", "held out", "perturbed", "sanitized"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheat:
    """A change of one kernel of kernels.cu, with the check that catches it; ``says`` is part of the verdict.

    ``knows`` is what the cheat knows of this machine (addresses, answers): it stands in braces in ``new``. ``cuda`` is
    what is different on a GPU.
    """

    name: str
    kernel: str
    old: str
    new: str
    check: str
    says: str
    stage: Stage = "verify"
    knows: str = ""
    cuda: Mapping[str, str] = field(default_factory=dict)

    def on(self, device: str) -> Cheat:
        """The cheat as it is on a device."""
        return replace(self, **self.cuda) if device == "cuda" else self  # type: ignore[arg-type]

    def text(self, known: Mapping[str, object]) -> str:
        """The source with the change made in it."""
        start = SOURCE.index(f"void {self.kernel}(")
        assert self.old in SOURCE[start:], f"{self.name}: {self.kernel} has no {self.old!r}"
        new = self.new
        for name, value in known.items():
            new = new.replace(name, str(value))
        return SOURCE[:start] + SOURCE[start:].replace(self.old, new, 1)


# One that nothing is wrong with but its time.
KNOWS_THE_VALUES = Cheat(
    name="fast on the recorded values only",
    kernel="slowly",
    old="k < 4000",
    new="k < (from[0] == 0.5 ? 0 : 4000)",
    check="repetition on other values",
    says="",
)

# One that computes on the memories that it is verified on, and on others of a window copies what lies beside.
COPIES_ITS_NEIGHBOUR = Cheat(
    name="copies the result of the launch before it in a window",
    kernel="relax",
    old="double sum",
    new="unsigned long long at = (unsigned long long)to, before = 0;\n"
    "    if (at == {SECOND_TIMED}ull) before = {FIRST_TIMED}ull;\n"
    "    if (at == {THIRD_TIMED}ull) before = {SECOND_TIMED}ull;\n"
    "    if (before) { to[i] = *(double*)((char*)to + i * 8 - (at - before)); return; }\n    double sum",
    check="launches alone",
    says="SIGSEGV",
    knows="FIRST_TIMED",
    cuda={"says": "elements differ"},
)

_TO = "to[i] = from[i] + step * (sum - 2.0 * from[i])"

_LONG = (
    "double held = 0;\n    for (int k = 0; k < (i ? 0 : {}); k++) held += *(volatile double*)from;\n"
    "    if (held < 0) to[0] = held;\n    if (i < n)"
)

CHEATS = (
    Cheat(
        name="does nothing",
        kernel="relax",
        old="if (i < 1 ",
        new="if (n > 0 || i < 1 ",
        check="result",
        says="elements differ",
    ),
    Cheat(
        name="skips the last element",
        kernel="relax",
        old="n - 1)",
        new="n - 2)",
        check="result",
        says="1 of 200 elements differ",
    ),
    Cheat(
        name="right only at the captured scalars",
        kernel="relax",
        old="step *",
        new="0.1 *",
        check="changed inputs",
        says="with step = 0.125",
        stage="perturbed",
    ),
    Cheat(
        name="right only at the captured size",
        kernel="relax",
        old="double sum",
        new="if (n > 250) return;\n    double sum",
        check="held-out launches",
        says="elements differ",
        stage="held out",
    ),
    Cheat(
        name="answer baked in",
        kernel="small",
        old="if (i < n)",
        new="const double known[8] = {ANSWERS};\n    if (i < n) to[i] = known[i];\n    if (i < 0)",
        check="changed inputs",
        says="with floats changed by up to 1%",
        knows="ANSWERS",
        stage="perturbed",
    ),
    Cheat(
        name="signed overflow where the original has none",
        kernel="relax",
        old="(long long)weight * weight",
        new="weight * weight",
        check="changed inputs",
        says="with weight = 65537",
        stage="perturbed",
    ),
    Cheat(
        name="right at first, wrong from the third launch on",
        kernel="small",
        old="    int i = threadIdx.x;\n    if (i < n) to[i] = 0.5 * from[i] + 1.0;\n}",
        new="    static __device__ int launches;\n    int i = threadIdx.x;\n    if (i == 0) launches++;\n"
        "    __syncthreads();\n    if (i < n && launches < 3) to[i] = 0.5 * from[i] + 1.0;\n}",
        check="device variables",
        says="keeps a device variable",
    ),
    Cheat(
        name="works only in memory where it was verified",
        kernel="relax",
        old="double sum",
        new="unsigned long long at = (unsigned long long)to;\n"
        "    if (at != {FIRST}ull && at != {SECOND}ull) return;\n    double sum",
        check="comparison after timing",
        knows="FIRST",
        says="elements differ",
        stage="rank",
    ),
    Cheat(
        name="copies the result from memory where another kernel left it",
        kernel="relax",
        old=_TO + " + 1e-6 * (double)((long long)weight * weight);",
        new="bool first = (unsigned long long)to == {FIRST}ull;\n"
        "    to[i] = *(double*)((char*)to + i * 8 + (first ? {FROM_FIRST}ll : {FROM_SECOND}ll));",
        check="no memory but the launch's own",
        knows="FROM_FIRST",
        says="SIGSEGV",
        cuda={"says": "memory that is not its own"},
    ),
    Cheat(
        name="writes outside of its buffers and repairs it",
        kernel="relax",
        old="if (i < 1",
        new="volatile double* past = to + n;\n    double held = i ? 0 : *past;\n"
        "    if (i == 0) { *past = 1; *past = held; }\n    if (i < 1",
        check="sanitizers",
        says="index 200 of to",
        cuda={"says": "Invalid __global__"},
        stage="sanitized",
    ),
    Cheat(
        name="writes beside its buffers",
        kernel="relax",
        old="if (i < 1",
        new="if (i == 0) to[n] = 1;\n    if (i < 1",
        check="bytes beside the buffers",
        says="just past the end of buffer to",
    ),
    Cheat(
        name="goes on by one past the end",
        kernel="square",
        old="i < n",
        new="i <= n",
        check="bytes beside the buffers",
        says="just past the end of buffer to",
    ),
    Cheat(
        name="copies past the end",
        kernel="shift",
        old="if (i < n)",
        new="if (i >= n && i < n + 3) ((long long*)to)[i] = ((const long long*)from)[i];\n    if (i < n)",
        check="bytes beside the buffers",
        says="just past the end of buffer to",
    ),
    Cheat(
        name="scribbles over an input",
        kernel="last",
        old="if (threadIdx.x ==",
        new="if (threadIdx.x == 0) ((double*)from)[i] = 7;\n    if (threadIdx.x ==",
        check="buffers that are not written",
        says="the recorded kernel does not write this buffer",
    ),
    Cheat(
        name="scribbles, below the tolerance, over what it should leave alone in its output",
        kernel="relax",
        old="if (i < 1",
        new="if (i == 0) to[0] *= 1.0 + 1e-14;\n    if (i < 1",
        check="elements that are not written",
        says="to[0] is",
    ),
    Cheat(
        name="leaves what is right already",
        kernel="relax",
        old="i >= n - 1",
        new="i >= n / 2",
        check="poison in what is only written",
        says="elements differ",
    ),
    Cheat(
        name="float for double",
        kernel="relax",
        old="from[i] + step *",
        new="from[i] + (float)step * (float)",
        check="tolerance of the type",
        says="elements differ",
    ),
    Cheat(
        name="half for float",
        kernel="square",
        old="from[i] * from[i]",
        new="__half2float(__float2half(from[i] * from[i]))",
        check="tolerance of the type",
        says="elements differ",
    ),
    Cheat(
        name="NaN as wildcard",
        kernel="relax",
        old=_TO,
        new="to[i] = i % 3 == 0 ? (step - step) / (step - step) : " + _TO[8:],
        check="NaN only where recorded",
        says="is nan(",
    ),
    Cheat(
        name="needs zeroed shared memory",
        kernel="step",
        old="to[i] = from[i] - (t ? held[t - 1] : 0.0);",
        new="__shared__ double zero[512];\n    to[i] = from[i] - (t ? held[t - 1] : 0.0) + zero[8 * t];\n"
        "    zero[8 * t] = 0;",
        check="poison in shared memory",
        says="elements differ",
    ),
    Cheat(
        name="a race that the order of threads decides",
        kernel="last",
        old="if (threadIdx.x == blockDim.x - 1) ",
        new="",
        check="reverse order of threads",
        says="elements differ",
        cuda={"check": "result"},  # warps end in an order of their own, so that it is wrong at once
    ),
    Cheat(
        name="a barrier is missing",
        kernel="step",
        old="    __syncthreads();\n",
        new="",
        check="reverse order of threads",
        says="in forward order it matches: a barrier may be missing",
        cuda={
            "check": "result",
            "says": "elements differ",
        },  # the compiler reads before it writes, where nothing stands between
    ),
    Cheat(
        name="waits for a while where a barrier is missing",
        kernel="step",
        old="    __syncthreads();\n",
        new="    __nanosleep(100000);\n",
        check="reverse order of threads",
        says="elements differ",
        cuda={"check": "sanitizers", "stage": "sanitized", "says": "racecheck"},
    ),
    Cheat(
        name="writes in front of its buffers and repairs it",
        kernel="relax",
        old="if (i < 1",
        new="volatile double* before = to - 1;\n    double held = i ? 0 : *before;\n"
        "    if (i == 0) { *before = 1; *before = held; }\n    if (i < 1",
        check="sanitizers",
        says="index -1 of to",
        cuda={"says": "Invalid __global__"},
        stage="sanitized",
    ),
    Cheat(
        name="does less once a clock has passed the time of its tests",
        kernel="relax",
        old="if (i < 1",
        new="if (clock64() > 0x7000000000000000ll) return;\n    if (i < 1",
        check="clocks",
        says="reads %clock64",
    ),
    Cheat(
        name="hangs",
        kernel="small",
        old="if (i < n)",
        new=_LONG.format(600000000),
        check="time limit",
        says="did not end within",
        cuda={"new": _LONG.format(20000000)},
    ),
    Cheat(
        name="crashes after the result is written",
        kernel="small",
        old="if (i < n) to[i] = 0.5 * from[i] + 1.0;",
        new="if (i < n) to[i] = 0.5 * from[i] + 1.0;\n    __syncthreads();\n"
        "    if (i == 0) *(volatile int*)(from + (1ll << 40)) = 0;",
        check="faults",
        says="SIGSEGV",
        cuda={"says": "memory that is not its own"},
    ),
    Cheat(
        name="tells by its shared memory that it was launched before",
        kernel="relax",
        old="    int i =",
        new="    __shared__ long long left;\n    bool again = left == 0x5eed;\n    __syncthreads();\n"
        "    left = 0x5eed;\n    if (again) return;\n    int i =",
        check="comparison after timing",
        says="elements differ",
        stage="rank",
    ),
    Cheat(
        name="counts its launches in shared memory",
        kernel="relax",
        old="    int i =",
        new="    __shared__ unsigned long long left;\n    unsigned long long held = left;\n    __syncthreads();\n"
        "    if (threadIdx.x == 0) left = held >> 32 == 0x5eed ? held + 1 : 0x5eed00000000ull;\n"
        "    if (held >> 32 == 0x5eed && (held & 0xffffffff) > 100000000) return;\n    int i =",
        check="sanitizers",
        says="has not written before",
        stage="sanitized",
    ),
    Cheat(
        name="counts its launches in local memory",
        kernel="relax",
        old="    int i =",
        new="    volatile unsigned long long left[4];\n    unsigned long long held = left[n & 3];\n"
        "    left[n & 3] = held >> 32 == 0x5eed ? held + 1 : 0x5eed00000000ull;\n"
        "    if (held >> 32 == 0x5eed && (held & 0xffffffff) > 100000000) return;\n    int i =",
        check="sanitizers",
        says="has not written before",
        stage="sanitized",
    ),
    Cheat(
        name="works only while blocks run in ascending order",
        kernel="last",
        old="    if (threadIdx.x ==",
        new="    if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x) to[blockIdx.x + 1] = 0;\n"
        "    __nanosleep(50000000);\n    if (threadIdx.x ==",
        check="reverse order of threads",
        says="elements differ",
        cuda={"check": "sanitizers", "stage": "sanitized", "says": "other orders of threads"},
    ),
    Cheat(
        name="takes its buffers for two where they are one",
        kernel="shift",
        old="to[i] = ",
        new="to[i] = 0, to[i] = ",
        check="held-out launches",
        says="elements differ",
        stage="held out",
    ),
    Cheat(
        name="spoils a variable of the module for whoever comes next",
        kernel="scaled",
        old="to[i] = from[i] * factor;",
        new="to[i] = from[i] * factor;\n    __syncthreads();\n    if (i == 0) factor = 3.0;",
        check="buffers that are not written",
        says="the recorded kernel does not write this buffer",
    ),
    Cheat(
        name="rounds what it writes",
        kernel="relax",
        old=_TO,
        new="to[i] = (float)(from[i] + step * (sum - 2.0 * from[i]))",
        check="tolerance of the type",
        says="elements differ",
    ),
    Cheat(
        name="changes the sign of a zero among its inputs",
        kernel="relax",
        old="if (i < 1",
        new="if (i == 0 && from[0] == 0.0) from[0] = -0.0;\n    if (i < 1",
        check="buffers that are not written",
        says="the recorded kernel does not write this buffer",
    ),
    Cheat(
        name="other bits in a NaN that it should leave alone",
        kernel="relax",
        old="if (i < 1",
        new="if (i == n - 1 && to[i] != to[i]) *(long long*)(to + i) |= 1;\n    if (i < 1",
        check="elements that are not written",
        says="to[199] is nan",
    ),
    Cheat(
        name="reads in front of its buffers",
        kernel="relax",
        old="if (i < 1",
        new="if (i == 0) volatile double before = from[-1];\n    if (i < 1",
        check="sanitizers",
        says="index -1 of from",
        cuda={"says": "Invalid __global__"},
        stage="sanitized",
    ),
    Cheat(
        name="goes by the signs that were recorded",
        kernel="upwind",
        old="flow[i] > 0 ? from[i] - from[i - 1] : from[i + 1] - from[i]",
        new="from[i] - from[i - 1]",
        check="wild inputs",
        says="with signs turned: ",
        stage="perturbed",
    ),
    Cheat(
        name="goes by a mask that was all ones",
        kernel="upwind",
        old="if (mask[i] == 0) slope = 0;",
        new="",
        check="wild inputs",
        says="with integers replaced: ",
        stage="perturbed",
    ),
    Cheat(
        name="right on the day of its tests only",
        kernel="small",
        old="if (i < n)",
        new="if (i < n && __DATE__[7] == '2')",
        check="time of the build",
        says="__DATE__ is the time of the build",
    ),
)
