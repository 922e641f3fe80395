"""``r3bench capture``: look at captures, compare them, replay them against themselves, make them smaller."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from r3bench.cli import values

if TYPE_CHECKING:
    from r3bench.devices import Device
    from r3bench.model import Capture, LaunchConfig, Source
    from r3bench.record.verification import Verified
    from r3bench.replay import Builder

# Replays of what was redacted.
_AGAIN = 3


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "show, diff, verify, shrink or redact captures"
    parser = commands.add_parser("capture", help=text, description=text)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    shown = actions.add_parser("show", help="print what captures hold")
    shown.set_defaults(run=show)
    compared = actions.add_parser("diff", help="say how two captures differ; 1 if they do")
    compared.add_argument("one", type=Path)
    compared.add_argument("other", type=Path)
    compared.set_defaults(run=diff)
    checked = actions.add_parser("verify", help="replay recorded launches against themselves; 1 if one is not repeated")
    checked.add_argument(
        "--runs", type=values.positive, default=10, metavar="N", help="replays of each unit (default: 10)"
    )
    checked.add_argument("--times", action="store_true", help="time the first unit, beside what it took when recorded")
    checked.set_defaults(run=verify)
    smaller = actions.add_parser("shrink", help="copy a capture without the memory that its kernel does not use")
    smaller.set_defaults(run=shrink)
    harmless = actions.add_parser("redact", help="copy a capture with other numbers and without paths, for sharing")
    harmless.set_defaults(run=redact)
    for action in (shown, checked):
        action.add_argument("captures", type=Path, nargs="+", help="captures, or folders of them")
    for action in (smaller, harmless):
        action.add_argument("capture", type=Path)
        action.add_argument("out", type=Path, help="the new capture (.zarr or .zarr.zip)")
    for action in (checked, smaller, harmless):
        action.add_argument("--device", default="auto", help="where to replay (default: auto)")


def _opened(paths: list[Path]) -> Iterator[Capture]:
    from r3bench import store
    from r3bench.errors import CaptureError

    found = store.find(paths)
    if not found:
        raise CaptureError(f"no capture below {', '.join(map(str, paths))}: name a .zarr or a folder that holds some")
    return map(store.open_capture, found)


def show(arguments: argparse.Namespace) -> int:
    for capture in _opened(arguments.captures):
        print("\n".join(_shown(capture)), end="\n\n")
    return 0


def _shown(capture: Capture) -> Iterator[str]:
    yield f"{capture.path}: {capture.demangled} ({capture.symbol}) of {capture.application}"
    if capture.command:
        yield f"  command: {shlex.join(capture.command)}"
    if source := capture.source:
        linked = "".join(f", linked with {main}" for main, _ in source.linked)
        yield f"  source: {_defined(capture, source)}{linked}"
    if capture.lacks:
        yield f"  recorded {capture.lacks}"
    recorded_on = ", ".join(f"{name} {value}" for name, value in capture.recorded_on)
    yield "  image: " + "; ".join(filter(None, (capture.image_format or "none", recorded_on)))
    for p in capture.parameters:
        kind = " ".join(filter(None, ("const" if p.const else "", p.kind, p.dtype)))
        yield f"  parameter {p.name}: {kind} at {p.offset}, {p.size} bytes"
    for unit in capture.units:
        grid, block = (" x ".join(map(str, size)) for size in (unit.launch.grid, unit.launch.block))
        held = "held out" if unit.held_out else "for the search"
        yield f"  unit {unit.index}: launch {unit.occurrence}, grid {grid}, block {block}{_more(unit.launch)}, {held}"
        for allocation in unit.allocations:
            cut = f" of {allocation.whole_bytes}" if allocation.whole_bytes else ""
            what = "written" if allocation.name in unit.written else "not written"
            yield f"    {allocation.name}: {allocation.nbytes}{cut} bytes of {allocation.memory} memory, {what}"
        for variable in unit.globals:
            what = "constant" if variable.constant else "written" if variable.symbol in unit.written else "not written"
            yield f"    variable {variable.symbol}: {variable.nbytes} bytes, {what}"


def _defined(capture: Capture, source: Source) -> str:
    """The file and the lines of the kernel's definition; those that were recorded where no text defines it."""
    from r3bench import store, syntax
    from r3bench.errors import BuildError, CaptureError

    file, (first, last) = source.main, source.span
    try:
        name = syntax.scoped_name(capture.demangled)
        file, kernel = syntax.defined_in(store.sources(capture), source.main, name)
        first, last = kernel.span
    except (BuildError, CaptureError):
        pass
    included = f", which {source.main} includes" if file != source.main else ""
    return f"{file}, lines {first} to {last}{included}"


def _more(launch: LaunchConfig) -> str:
    """What a launch has beside a grid and a block."""
    found = (
        (launch.shared_bytes, f"{launch.shared_bytes} bytes of shared memory"),
        (launch.cooperative, "cooperative"),
        (launch.cluster, f"clusters of {' x '.join(map(str, launch.cluster or ()))}"),
        (launch.stack_bytes, f"{launch.stack_bytes} bytes of stack"),
        (launch.carveout is not None, f"{launch.carveout} % of fast memory shared"),
    )
    return "".join(f", {words}" for there, words in found if there)


def diff(arguments: argparse.Namespace) -> int:
    from r3bench import store
    from r3bench.record.verification import compared
    from r3bench.replay import read_material

    one, other = store.open_capture(arguments.one), store.open_capture(arguments.other)
    both = range(min(len(one.units), len(other.units)))
    lines = list(compared(one, other, [(read_material(one, i), read_material(other, i)) for i in both]))
    print("\n".join(lines) or "the captures hold the same")
    return int(bool(lines))


def verify(arguments: argparse.Namespace) -> int:
    from r3bench.devices import open_device
    from r3bench.record.times import times
    from r3bench.report.words import disturbed
    from r3bench.toolchain import Compiler

    with closing(open_device(arguments.device)) as device, Compiler() as compiler:
        good, conditions = True, device.conditions()
        for capture in _opened(arguments.captures):
            same = _verified(capture, device, compiler, arguments.runs)
            if same and arguments.times:
                print(f"{capture.path}, unit 0: {times(capture, device, compiler)}", flush=True)
            good = good and same
    if arguments.times and (line := disturbed([conditions])):
        print(line)
    return int(not good)


def _verified(capture: Capture, device: Device, compiler: Builder, runs: int) -> bool:
    """Whether every unit is repeated bit by bit, with a line about each."""
    from r3bench.record.verification import verify as verified

    good = True
    for found in verified(capture, device, compiler, runs):
        print(f"{capture.path}, unit {found.unit}: {_said(found)}", flush=True)
        good = good and found.exact == found.runs and not found.vacuous
    return good


def _said(found: Verified) -> str:
    if found.failure:
        return found.failure
    if found.vacuous:
        return "vacuous: the launch changed nothing, so any kernel would match"
    noise = "; ".join(
        f"{each.buffer} differed {each.runs} times, in {each.difference.count} of {each.difference.elements} elements, "
        f"by {each.difference.error:g}"
        for each in found.noise
    )
    return f"{found.exact} of {found.runs} replays bit by bit as recorded" + (f" ({noise})" if noise else "")


def shrink(arguments: argparse.Namespace) -> int:
    from r3bench import store
    from r3bench.devices import open_device
    from r3bench.record import reduction
    from r3bench.toolchain import Compiler

    capture = store.open_capture(arguments.capture)
    with closing(open_device(arguments.device)) as device, Compiler() as compiler:
        smaller = reduction.shrink(capture, arguments.out, device, compiler)
    before, after = (
        sum(reduction.nbytes(store.contents(c, unit.index).before) for unit in c.units) for c in (capture, smaller)
    )
    left = f"{after} bytes that are not zero instead of {before}" if after < before else "all of it is needed"
    print(f"{smaller.path}: {left}")
    return 0


def redact(arguments: argparse.Namespace) -> int:
    from r3bench import store
    from r3bench.devices import open_device
    from r3bench.record import reduction
    from r3bench.toolchain import Compiler

    with closing(open_device(arguments.device)) as device, Compiler() as compiler:
        made = reduction.redact(store.open_capture(arguments.capture), arguments.out, device, compiler)
        print(f"{made.path}: other numbers, no command, no folder; its sources' texts are as they were")
        return int(not _verified(made, device, compiler, _AGAIN))
