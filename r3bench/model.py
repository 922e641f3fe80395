"""The nouns of r3bench: frozen, hashable, picklable, without input or output.

A noun holds metadata and content ids; buffers are read through :mod:`r3bench.store`. :func:`content_id` gives the
SHA-256 of a noun's fields, equal in every process, so that it can name a cache entry or a line of a ledger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache, lru_cache
from math import prod
from typing import Any, Literal

Dim3 = tuple[int, int, int]


_PLAIN = (str, int, float, bool, type(None))


@cache
def _field_names(noun: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(noun))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def plain(noun: Any, of_bytes: Callable[[bytes], Any] = _sha256) -> Any:
    """The JSON form of a noun: dataclasses become objects, tuples lists, bytes their SHA-256 or what ``of_bytes``
    makes of them."""
    if type(noun) in _PLAIN:
        return noun
    if is_dataclass(noun) and not isinstance(noun, type):
        return {name: plain(getattr(noun, name), of_bytes) for name in _field_names(type(noun))}
    if isinstance(noun, Enum):
        return noun.value
    if isinstance(noun, Mapping):
        return {str(key): plain(value, of_bytes) for key, value in noun.items()}
    if isinstance(noun, (tuple, list)):
        return [plain(item, of_bytes) for item in noun]
    return of_bytes(noun) if isinstance(noun, bytes) else noun


def content_id(*nouns: Any) -> str:
    """SHA-256 (hex) of nouns by content: equal content gives an equal id in every process."""
    return hashlib.sha256(_canonical(nouns).encode()).hexdigest()


def _fields(noun: Any) -> Any:
    """What the encoder does not know, one level of it: it asks again for what is below."""
    if is_dataclass(noun) and not isinstance(noun, type):
        return {name: getattr(noun, name) for name in _field_names(type(noun))}
    return plain(noun)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_fields).encode


# -- where and how a kernel runs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What code is generated for: a device kind and its architecture (``sm_90``, ``gfx942``, a CPU's name)."""

    device: Literal["cpu", "cuda", "hip"]
    arch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """One launch: blocks in the grid, threads in the block, dynamic shared memory in bytes.

    ``stack_bytes`` (of a thread) and ``carveout`` (the percentage of a multiprocessor's fast memory that is to be
    shared memory) are what the application asked for, None where it left them as they are.
    """

    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    cooperative: bool = False
    cluster: Dim3 | None = None
    stack_bytes: int | None = None
    carveout: int | None = None

    @property
    def threads_per_block(self) -> int:
        return prod(self.block)

    @property
    def blocks(self) -> int:
        return prod(self.grid)


# -- what was recorded ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One kernel parameter; ``offset`` and ``size`` in bytes within the argument block (CUDA's natural alignment).

    ``dtype`` is the NumPy name of a scalar, or of the elements a pointer points to; None where it is not known
    (structs, ``void*``).
    """

    name: str
    offset: int
    size: int
    kind: Literal["pointer", "scalar", "struct"]
    dtype: str | None = None
    const: bool = False
    restrict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One piece of device memory as the application had it.

    ``address`` is where the application saw it, ``nbytes`` its size, ``align`` the alignment replay keeps.
    ``shape``, ``dims`` and ``dtype`` say how to view it; ``whole_bytes`` is the size of the allocation it was cut from.
    """

    name: str
    address: int
    nbytes: int
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    dims: tuple[str, ...] = ()
    align: int = 256
    memory: Literal["device", "managed", "host", "pool"] = "device"
    whole_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Global:
    """A ``__device__`` or ``__constant__`` variable of the module, by its symbol."""

    symbol: str
    nbytes: int
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    constant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """An 8-byte pointer at ``offset`` in ``holder`` that points ``displacement`` bytes into ``allocation``.

    ``holder`` is the name of an allocation or global, or ``""`` for the argument block.
    """

    offset: int
    allocation: str
    displacement: int = 0
    holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayUnit:
    """One recorded launch: everything but the bytes of its memory, which the store reads.

    ``index`` counts units within the capture; ``occurrence`` counts launches of this kernel within the application
    (from 0); ``seconds`` is when it was launched, since the application's start; ``written`` names the allocations and
    globals that the recorded kernel changed.
    """

    index: int
    launch: LaunchConfig
    arguments: bytes
    pointers: tuple[Pointer, ...]
    allocations: tuple[Allocation, ...]
    globals: tuple[Global, ...] = ()
    written: tuple[str, ...] = ()
    occurrence: int = 0
    seconds: float | None = None
    stream: int = 0
    held_out: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the kernel's text is. ``main`` and ``files`` are paths relative to the application's root.

    ``linked`` names further translation units, each with its flags, that define what ``main`` only declares.
    ``language`` is ``llvm`` or ``ptx`` where only what a compiler made of the source is known: LLVM IR, or PTX text.

    ``span`` holds the first and last line (from 1) of the kernel's definition in ``main``, or of all of ``main`` where
    that includes the definition; ``files`` maps each path to its text's SHA-256.
    """

    root: str
    main: str
    span: tuple[int, int]
    files: tuple[tuple[str, str], ...]
    flags: tuple[str, ...] = ()
    linked: tuple[tuple[str, tuple[str, ...]], ...] = ()
    language: Literal["cuda", "hip", "llvm", "ptx"] = "cuda"


_WITHOUT_SOURCE = {
    "llvm": "with LLVM IR only: it can be tested and tuned, not rewritten",
    "ptx": "with PTX text only: it can be tested and its launch tuned, not rewritten",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One kernel of one application, with its replay units; the first unit is for the search, others are held out."""

    path: str
    application: str
    symbol: str
    demangled: str
    parameters: tuple[Parameter, ...]
    source: Source | None
    units: tuple[ReplayUnit, ...]
    image_format: Literal["cubin", "fatbin", "ptx", "hsaco"] | None = None
    command: tuple[str, ...] = ()
    recorded_on: tuple[tuple[str, str], ...] = ()
    content_hash: str = ""

    @property
    def name(self) -> str:
        """``application/kernel``, unique among the captures of a tree."""
        return f"{self.application}/{self.symbol}"

    @property
    def lacks(self) -> str:
        """What cannot be done for want of source, as part of a sentence; empty where there is one to rewrite."""
        if self.source is None:
            return "without source: it can be tested and timed, not rewritten"
        return _WITHOUT_SOURCE.get(self.source.language, "")


# -- what to run instead --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialization:
    """Which facts of a unit are compiled in; the values come from each unit, so a variant runs on every unit.

    ``arguments`` names scalar parameters that become constants; ``block`` and ``grid`` make the dimensions constants;
    ``noalias`` tells the compiler that distinct pointer arguments do not overlap, ``align`` their alignment. Both are
    checked against the unit's pointer table before they are used.
    """

    arguments: tuple[str, ...] = ()
    block: bool = False
    grid: bool = False
    noalias: bool = False
    align: bool = False


Pipeline = Literal["O0", "O1", "O2", "O3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """How IR becomes code: base pipeline, extra passes in order, tuning, specialization, launch bounds, registers.

    ``before`` and ``after`` name extra passes run around the base pipeline; ``tuning`` holds options of the pipeline
    itself, ``options`` LLVM's own command-line options, ``assembler`` those of ptxas, for CUDA only. ``fast_math`` adds
    nvcc's flag of that name to the source's own.
    ``Configuration()`` is the default pipeline.
    """

    pipeline: Pipeline = "O3"
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    tuning: tuple[tuple[str, int | bool], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    specialize: Specialization = Specialization()
    bound_threads: Literal["none", "max", "exact"] = "none"
    min_blocks: int | None = None
    max_registers: int | None = None
    assembler: tuple[tuple[str, str], ...] = ()
    fast_math: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRule:
    """Another block shape. The grid follows per axis, so that at least the recorded number of threads run.

    ``per_thread`` is for kernels in which one thread does the work of that many recorded ones along each axis.
    """

    block: Dim3
    per_thread: Dim3 = (1, 1, 1)

    def apply(self, recorded: LaunchConfig) -> LaunchConfig:
        threads = (g * b for g, b in zip(recorded.grid, recorded.block, strict=True))
        covered = (b * n for b, n in zip(self.block, self.per_thread, strict=True))
        grid = tuple(-(-n // c) for n, c in zip(threads, covered, strict=True))
        return replace(recorded, grid=(grid[0], grid[1], grid[2]), block=self.block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What to run instead of what was recorded; None means "as recorded".

    ``files`` replaces whole texts of source files by relative path; ``configuration`` None and ``files`` None together
    mean the recorded image where the device can load it, otherwise the recorded source through the default pipeline.
    ``image`` is machine code (a cubin) that another compiler made of ``files``: it is loaded, and nothing is built.
    """

    files: tuple[tuple[str, str], ...] | None = None
    configuration: Configuration | None = None
    launch: LaunchRule | None = None
    image: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A variant, who proposed it (``rules:hoist``, ``tpe``, ``baseline``) and from which candidates."""

    variant: Variant
    origin: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """Code for one target: ``image`` is an object file (CPU), PTX or cubin (CUDA), code object (HIP).

    ``facts`` holds what the compiler said of it (registers, spills, shared bytes, IR instructions); ``options`` are
    those with which the driver compiles PTX, named as ptxas names them.
    """

    target: Target
    symbol: str
    image: bytes
    format: Literal["object", "ptx", "cubin", "fatbin", "hsaco", "amdgcn"]
    facts: tuple[tuple[str, int], ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @property
    def sha256(self) -> str:
        options = "".join(f" --{name}={value}" for name, value in self.options)
        name = _remembered_sha256 if len(self.image) < _REMEMBERED_BYTES else _sha256_of_code
        return name(self.image, options)


_REMEMBERED_BYTES = 1 << 20


def _sha256_of_code(image: bytes, options: str) -> str:
    return _sha256(image + options.encode())


_remembered_sha256 = lru_cache(256)(_sha256_of_code)
"""An evaluation names its code several times."""


# -- what came of it ------------------------------------------------------------------------------------------------


class Level(Enum):
    """How far a verdict goes, each level costlier than the one before; a promotion needs all that the device offers."""

    SEEN = "seen"  # the launch that the search sees
    HELD_OUT = "held out"  # every other recorded launch
    PERTURBED = "perturbed"  # changed inputs, the recorded kernel being the oracle
    SANITIZED = "sanitized"  # every access checked, and races and barriers where the device can


class Status(Enum):
    """How a replay ended. Only MATCH may carry a measurement."""

    MATCH = "match"
    MISMATCH = "mismatch"
    BUILD_FAILED = "build-failed"
    UNSUPPORTED = "unsupported"
    LAUNCH_FAILED = "launch-failed"
    FAULT = "fault"
    TIMEOUT = "timeout"
    VACUOUS = "vacuous"
    TOO_FAST = "too-fast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one buffer differs from what was recorded; indices are element indices in the buffer's shape.

    ``count`` elements differ; ``first`` is the first of them, ``worst`` the one with the largest error; values are
    given as text so that 64-bit integers and NaN payloads stay exact. ``error`` is the worst absolute difference and
    ``limit`` what was allowed there (0 for exact comparison). ``writer`` says who wrote the first one, where that is
    known. ``picture`` shows where they lie, row by row: each
    character is a part of the buffer, ``.`` where nothing differs, else the tenths of it that do; empty where the
    device did not say.
    """

    buffer: str
    count: int
    elements: int
    first: tuple[int, ...]
    first_expected: str
    first_actual: str
    worst: tuple[int, ...]
    worst_expected: str
    worst_actual: str
    error: float
    limit: float
    writer: str = ""
    picture: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a variant did what the recorded kernel did; ``detail`` is one sentence for a person."""

    status: Status
    detail: str = ""
    differences: tuple[Difference, ...] = ()
    level: Level = Level.SEEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Every sample of one timing, in nanoseconds per launch, of the binary with this SHA-256.

    ``cut_ns`` is the longest sample of the rival that this was surely slower than, where it was cut off for it: such a
    time says "slower than that", and is compared with nothing else. None where it was timed to the end.
    """

    samples_ns: tuple[float, ...]
    binary: str
    conditions: tuple[tuple[str, str], ...] = ()
    cut_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one variant on one unit. Times are refused unless the result matched.

    ``stages`` gives the seconds spent per stage (frontend, optimize, load, verify, time); ``module`` is the SHA-256 of
    the optimized IR and ``binary`` that of the code which was verified.
    """

    capture: str
    unit: int
    variant: str
    target: Target
    verdict: Verdict
    measurement: Measurement | None = None
    module: str | None = None
    binary: str | None = None
    facts: tuple[tuple[str, int], ...] = ()
    stages: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.measurement is None:
            return
        if self.verdict.status is not Status.MATCH:
            raise ValueError(f"an outcome that is {self.verdict.status.value} cannot carry a measurement")
        if self.measurement.binary != self.binary:
            raise ValueError("the binary that was timed is not the binary that was verified")


def facts_of(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The facts of a binary or outcome as a dictionary."""
    return dict(pairs)
