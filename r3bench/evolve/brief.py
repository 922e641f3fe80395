"""What is said once to whoever proposes: the task, the rules of an answer, the target, and the recorded launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from r3bench import store
from r3bench.compare import default_tolerance
from r3bench.evolve.opened import definitions, opened, shown, surroundings
from r3bench.evolve.sources import is_disjoint
from r3bench.model import Allocation, Capture, Parameter, ReplayUnit, Target
from r3bench.overrides import tolerances_text
from r3bench.rules.subject import Subject
from r3bench.space import unit_facts
from r3bench.syntax import file_of, scoped_name

LONG = 300  # lines of open functions from which on an answer is edits, not the whole
MOST_READ = 1 << 26  # bytes of recorded memory whose range of values is looked at
_CONTEXT_BYTES = 24_000

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """One kernel's static text, and what is needed to read an answer: the kernel's file and its name.

    ``kernel`` names the kernel among all captures. ``first`` holds every definition of the texts that the search begins
    with, of which ``static`` shows those that are open. ``subject`` is the first text as the rules take it.
    """

    kernel: str
    file: str
    name: str
    static: str
    first: frozenset[str]
    subject: Subject


def brief(
    capture: Capture,
    texts: Mapping[str, str],
    target: Target,
    *,
    baseline_ns: float | None = None,
    conditions: Iterable[tuple[str, str]] = (),
    ranges: Ranges = MappingProxyType({}),
    profile: Mapping[str, str] = MappingProxyType({}),
) -> Brief:
    """The static part of every prompt for this kernel: equal in every step of a search, and in a resumed one.

    ``conditions`` are those of the baseline's measurement as far as they stay the same, ``ranges`` the least and
    greatest value of each recorded array (:func:`value_ranges`), ``profile`` what the device tells of the recorded
    kernel and of itself. BuildError where the texts do not define the kernel.
    """
    assert capture.source is not None
    name = scoped_name(capture.demangled)
    file = file_of(texts, capture.source.main, name)
    code = shown(opened(texts, file, name))
    long = len(code.splitlines()) > LONG
    parts = (
        _TASK.format(name=name),
        _EDITS if long else _REWRITE,
        _listed("The target", _hardware(target, dict(conditions), baseline_ns)),
        _listed("The recorded launch", _launch(capture, ranges)),
        *([_listed("Measured there", (f"{name}: {value}" for name, value in profile.items()))] if profile else ()),
        "# The rest of the translation unit\n\n" + _fenced(_shortened(surroundings(texts, file, name))),
        "# Program p0\n\nThe open functions as the search began.\n\n" + _fenced(code),
    )
    return Brief(
        kernel=capture.name,
        file=file,
        name=name,
        static="\n".join(part.strip("\n") + "\n" for part in parts) + "\n",
        first=frozenset(text for whole in texts.values() for text, _ in definitions(whole)),
        subject=_subject(capture, texts, file, name),
    )


def _listed(head: str, lines: Iterable[str]) -> str:
    return f"# {head}\n\n" + "\n".join(f"- {line}" for line in lines)


def _subject(capture: Capture, texts: Mapping[str, str], file: str, name: str) -> Subject:
    unit, whole = capture.units[0], [p for p in capture.parameters if p.kind == "scalar" and "int" in (p.dtype or "")]
    return Subject(
        text=texts[file],
        kernel=name,
        context=tuple(text for path, text in texts.items() if path != file),
        disjoint=is_disjoint(capture),
        small=all(a.nbytes < 1 << 31 for unit in capture.units for a in unit.allocations),
        block=unit.launch.block,
        values=tuple((p.name, int(_value(p, unit))) for p in whole),
    )


_TASK = """\
# Task

Make the GPU kernel `{name}` faster. It was recorded in a real application: your version is compiled, run on the
recorded memory, compared with what the recorded kernel wrote, and timed. Launches that you do not see are checked, too.

- It must compute what it computes now for any input, up to rounding, and write all that it writes now, nothing else.
- The kernel's parameters stay as they are. Only the kernel and the device functions it calls are open.
- You may add device functions, constants and types. No new #include, #define, #if or predefined
  macro (constexpr does), no printf, no variable that outlives a launch.
- It must be right for the recorded number of threads and more: keep the checks of bounds.
- A compiler's passes, launch bounds and block shapes are tuned for you afterwards: change what a compiler cannot, such
  as memory traffic, the order of work, the arithmetic, the work of each thread, the use of shared memory.
"""
_REWRITE = """\
# Your answer

Programs are shown by what differs from program p0. Answer with one line that says what you
change and why it is faster, then one code block with each function that you change or add, in full:

CHANGE: <one sentence>
```cuda
<functions>
```
"""
_EDITS = """\
# Your answer

Programs are shown by what differs from program p0. Answer with one line that says what you
change and why it is faster, then edits of the open functions. Each SEARCH part repeats lines of the program that you
improve, as many as make the place unique:

CHANGE: <one sentence>
```
<<<<<<< SEARCH
<lines as they are>
=======
<lines as they are to be>
>>>>>>> REPLACE
```
"""
_REWRITE_LAUNCH = """
If each thread is to do the work of several recorded ones, or needs another block, add a line after CHANGE, with threads
per block and recorded threads per thread along x, y and z; the grid follows. A program that has such a line is shown
with it, and it stays as long as you give no other (per_thread=1x1x1 for a thread each, as recorded):

LAUNCH: block=256x1x1 per_thread=4x1x1
"""
_REWRITE += _REWRITE_LAUNCH
_EDITS += _REWRITE_LAUNCH


# -- the target -------------------------------------------------------------------------------------------------------

# CUDA C++ Programming Guide, "Technical specifications per compute capability": threads and blocks per multiprocessor,
# KiB of shared memory per multiprocessor and per block. All have 64 Ki registers and at most 255 per thread.
_CAPABILITIES = {
    "sm_70": (2048, 32, 96, 96), "sm_75": (1024, 16, 64, 64), "sm_80": (2048, 32, 164, 163),
    "sm_86": (1536, 16, 100, 99), "sm_87": (1536, 16, 164, 163), "sm_89": (1536, 24, 100, 99),
    "sm_90": (2048, 32, 228, 227), "sm_100": (2048, 32, 228, 227), "sm_120": (1536, 24, 100, 99),
}  # fmt: skip
_STEADY = ("device", "processor", "cuda", "cores", "threads")  # conditions that stay the same during a search


def _hardware(target: Target, conditions: Mapping[str, str], baseline_ns: float | None) -> Iterator[str]:
    if target.device == "cpu":
        yield f"CPU {target.arch}: the threads of a block run as lanes of vector code, blocks in parallel on the cores"
        yield "shared memory is ordinary memory; what costs is loads, stores, divisions and calls of math functions"
    else:
        yield f"{target.device} {target.arch}"
    if target.arch in _CAPABILITIES:
        threads, blocks, per_sm, per_block = _CAPABILITIES[target.arch]
        yield "65536 registers per multiprocessor, at most 255 per thread; warps of 32"
        yield f"at most {threads} threads and {blocks} blocks per multiprocessor, 1024 threads per block"
        yield f"{per_sm} KiB shared memory per multiprocessor, at most {per_block} KiB per block (48 KiB static)"
    yield from (f"{name}: {conditions[name]}" for name in _STEADY if name in conditions)
    if baseline_ns is not None:
        yield f"the recorded kernel takes {_two_digits(baseline_ns / 1000)} us"


def _two_digits(value: float) -> str:
    """A number that is the same when it is measured again, as nearly as two digits can be."""
    return f"{float(f'{value:.2g}'):g}"


# -- the launch -------------------------------------------------------------------------------------------------------


def _launch(capture: Capture, ranges: Ranges) -> Iterator[str]:
    unit = capture.units[0]
    facts = unit_facts(capture.parameters, unit, unit.launch)
    launch = unit.launch
    yield f"grid {_shape(launch.grid)}, block {_shape(launch.block)}, {launch.shared_bytes} bytes of shared memory"
    alignments, pointers = dict(facts.alignments), {p.offset: p for p in unit.pointers if p.holder == ""}
    memories = {allocation.name: allocation for allocation in unit.allocations}
    for parameter in capture.parameters:
        pointer = pointers.get(parameter.offset)
        if parameter.kind == "scalar":
            yield _scalar(parameter, capture.units)
        elif pointer is not None and pointer.allocation in memories:
            memory = memories[pointer.allocation]
            use = _written(capture, memory) if memory.name in unit.written else "only read"
            yield _array(parameter.name, memory, alignments.get(parameter.name), ranges, use)
    if is_disjoint(capture):
        yield "no two pointer arguments lead to the same memory, in any recorded launch"
    else:
        yield "pointer arguments may lead to the same memory"


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in shape)


def _scalar(parameter: Parameter, units: Iterable[ReplayUnit]) -> str:
    values = dict.fromkeys(_value(parameter, unit) for unit in units)
    first, *others = values
    also = f" (other recorded launches: {', '.join(others)})" if others else " in every recorded launch"
    return f"{parameter.name}: {parameter.dtype} = {first}{also}"


def _value(parameter: Parameter, unit: ReplayUnit) -> str:
    data = unit.arguments[parameter.offset : parameter.offset + parameter.size]
    return str(np.frombuffer(data, parameter.dtype)[0]) if parameter.dtype is not None else data.hex()


def _written(capture: Capture, memory: Allocation) -> str:
    """That an array is written, and how exactly where no file beside the capture says otherwise."""
    tolerance = default_tolerance(memory.dtype)
    known = tolerance.kind == "float" and tolerances_text(capture) is None
    return f"written, each value within {tolerance.rtol:g} of itself" if known else "written"


def _array(name: str, memory: Allocation, align: int | None, ranges: Ranges, use: str) -> str:
    shape = _shape(memory.shape) if memory.shape else f"{memory.nbytes} bytes"
    dims = f" ({', '.join(memory.dims)})" if memory.dims else ""
    aligned = f", aligned to {align} bytes" if align else ""
    low, high = ranges.get(memory.name, (None, None))
    values = f", values from {low:.4g} to {high:.4g}" if low is not None and high is not None else ""
    return f"{name}: {memory.dtype}[{shape}]{dims}{aligned}{values}, {use}"


def value_ranges(capture: Capture) -> dict[str, tuple[float, float]]:
    """Least and greatest value before the launch of every recorded array of numbers that is not too large to look at.

    CaptureError where the capture cannot be read.
    """
    unit, found = capture.units[0], dict[str, tuple[float, float]]()
    if sum(allocation.nbytes for allocation in unit.allocations) > MOST_READ:
        return found
    before = store.contents(capture, unit.index).before
    for allocation in unit.allocations:
        values = before[allocation.name].view(allocation.dtype)
        finite = values[np.isfinite(values)] if values.dtype.kind in "fiu" else values[:0]
        if finite.size:
            found[allocation.name] = float(finite.min()), float(finite.max())
    return found


# -- the rest ---------------------------------------------------------------------------------------------------------


def _fenced(code: str) -> str:
    return f"```cuda\n{code}```\n"


def _shortened(text: str) -> str:
    """The text with its middle left out where it is too long to be of use."""
    if len(text) <= _CONTEXT_BYTES:
        return text
    half = _CONTEXT_BYTES // 2
    return f"{text[:half]}\n/* ... {len(text) - 2 * half} characters left out ... */\n{text[-half:]}"
