"""``r3bench record -- ./app args``: record launches of an unmodified application, and write captures."""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from r3bench.cli.progress import Bar
from r3bench.cli.values import nbytes, numbers, pattern, positive, ranks
from r3bench.errors import NotRecordable

if TYPE_CHECKING:
    from r3bench.model import Capture
    from r3bench.record.application import Plan
    from r3bench.record.dump import Launched
    from r3bench.record.sources import Found

# Captures written at a time: one is packed, by all cores, while another one's source is compiled or reaches the disk.
_AT_ONCE = 2
Refused = Counter[tuple[str, str]]
_ADDED = ("launches", "recorded", "conditional", "gpu_seconds", "timed")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "record launches of an unmodified CUDA application as captures; 1 if nothing was recorded"
    parser = commands.add_parser("record", help=text, description=text)
    fitting: dict[str, Any] = {"type": pattern, "action": "append", "default": [], "metavar": "REGEX"}
    parser.add_argument("--out", type=Path, help="folder for the captures (default: captures/<application>)")
    parser.add_argument("--application", help="name of the application (default: that of its program)")
    parser.add_argument("--kernel", **fitting, help="only kernels whose symbol fits")
    parser.add_argument("--exclude", **fitting, help="no kernels whose symbol fits")
    parser.add_argument("--launch", type=numbers, default=(), metavar="N[,M...]", help="these launches of each kernel")
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="every Nth launch of each kernel")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="not the first N launches of each kernel")
    parser.add_argument("--max-per-kernel", type=positive, metavar="N", help="launches of each kernel (default: 2)")
    parser.add_argument("--distinct", action="store_true", help="only launches with other dimensions or scalars")
    parser.add_argument("--max-bytes", type=nbytes, metavar="SIZE", help="stop recording at this size (500M, 20G)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="longest wait for the device")
    parser.add_argument(
        "--ranks", type=ranks, default="0", metavar="N[,M...]|all", help="ranks of a parallel run (default: 0)"
    )
    parser.add_argument("--source", type=Path, action="append", default=[], metavar="FILE", help="kernels are in here")
    parser.add_argument(
        "--flags", type=shlex.split, default="", help="how --source is compiled: -I, -D, -std, --use_fast_math ..."
    )
    parser.add_argument("--compile-commands", type=Path, metavar="JSON", help="what the application is compiled from")
    parser.add_argument("--tree", type=Path, metavar="FOLDER", help="look for the kernels' names in sources below it")
    parser.add_argument("--list", action="store_true", help="record nothing; list kernels by their time on the GPU")
    parser.add_argument("command", nargs="+", help="the application and its arguments, after --")
    parser.set_defaults(run=record, refuse=parser.error)


def record(arguments: argparse.Namespace) -> int:
    from r3bench.record import application, dump

    name = arguments.application or Path(arguments.command[0]).name
    out = arguments.out or Path("captures", name)
    with _beside(out, arguments.refuse) as place:
        folder = Path(place)
        status, _ = application.run(arguments.command, plan(arguments, folder))
        processes = dump.coverage(folder)
        if not processes:
            print(f"r3bench: nothing was recorded: {_nothing(arguments.command[0], status)}", file=sys.stderr)
            return 1
        if status:
            print(f"r3bench: {arguments.command[0]} {_ended(status)}; what it had recorded by then is kept")
        if arguments.list:
            print(profile(processes))
            return 0
        written, refused = _convert(arguments, folder, name, out)
    print(coverage(processes, refused))
    return int(not written)


def _beside(out: Path, refuse: Callable[[str], NoReturn]) -> tempfile.TemporaryDirectory[str]:
    """A folder for what is recorded on the disk of the captures."""
    if out.exists() and not out.is_dir():
        refuse(f"argument --out: {out} is no folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=".recording-", dir=out.parent)
    except OSError as error:
        refuse(f"argument --out: nothing can be written beside {out} ({error.strerror})")


def _ended(status: int) -> str:
    if status < 0:
        return f"ended with signal {-status} ({signal.strsignal(-status)})"
    return f"ended with status {status}"


def _nothing(program: str, status: int) -> str:
    """Why no process told of any kernel."""
    if status:
        return f"{program} {_ended(status)} before any kernel was seen"
    return (
        f"no CUDA kernel of {program} was seen: it loads no CUDA driver, launches nothing, is not of --ranks, or is "
        "linked statically, which preloading cannot look into"
    )


def _convert(arguments: argparse.Namespace, folder: Path, name: str, out: Path) -> tuple[int, Refused]:
    """Write a capture for each kernel, several at a time, with a line about each; how many there are, and how many
    launches by kernel and reason no capture can hold."""
    from r3bench.record import conversion, dump

    groups, refused, written = conversion.grouped(list(dump.launches(folder))), Refused(), 0
    with Bar("launches", sum(map(len, groups))) as bar, ThreadPoolExecutor(_AT_ONCE) as threads:

        def converted(group: list[Launched], kernel: str) -> str:
            found, why = _source(arguments, group[0])
            place = out / f"{kernel}.zarr"
            try:
                return _written(conversion.write(place, name, arguments.command, group, found, bar.step), why)
            except NotRecordable as reason:
                refused[group[0].kernel, str(reason)] += len(group)
                return ""

        for line in filter(None, threads.map(converted, groups, conversion.file_names(groups))):
            bar.say(line)
            written += 1
    return written, refused


def _written(capture: Capture, why: str) -> str:
    lack = f"; recorded {capture.lacks} ({why})" if capture.lacks else ""
    return f"{capture.path}: {len(capture.units)} launches of {capture.demangled}{lack}"


def _source(arguments: argparse.Namespace, launched: Launched) -> tuple[Found | None, str]:
    """The kernel's source among what the user named, or what was made of it, and why there is none to rewrite."""
    from r3bench.record import generated, nvrtc

    found, why = _named_source(arguments, launched)
    if found is None:
        found, said = nvrtc.find(launched)
        why = said or why
    return found or generated.find(launched), why


def _named_source(arguments: argparse.Namespace, launched: Launched) -> tuple[Found | None, str]:
    from r3bench.record import conversion, sources

    candidates = sources.named(arguments.source, arguments.flags)
    if arguments.compile_commands:
        candidates += sources.listed(arguments.compile_commands)
    if not candidates and not arguments.tree:
        return None, "none was named by --source, --compile-commands or --tree"
    found, why = sources.find(launched.kernel, candidates, Path.cwd(), arguments.tree)
    if found and [(p.offset, p.size) for p in found.parameters] != conversion.places(launched):
        return None, f"{found.source.main} defines it with other parameters than the application's"
    return found, why


def plan(arguments: argparse.Namespace, folder: Path) -> Plan:
    from r3bench.record.application import Plan
    from r3bench.record.fatbin import packed_variables

    program = Path(shutil.which(arguments.command[0]) or arguments.command[0])
    given: dict[str, Any] = {"max_per_kernel": arguments.max_per_kernel or len(arguments.launch) or 2}
    if arguments.max_bytes is not None:
        given["max_bytes"] = arguments.max_bytes
    return Plan(
        folder=folder,
        kernels=tuple(arguments.kernel),
        excluded=tuple(arguments.exclude),
        launches=arguments.launch,
        every=arguments.every,
        skip=arguments.skip,
        distinct=arguments.distinct,
        timeout_s=arguments.timeout,
        profile=arguments.list,
        variables=tuple(f"{'c' if constant else 'd'} {name}" for name, constant in packed_variables(program)),
        ranks=arguments.ranks,
        **given,
    )


def profile(processes: list[dict[str, Any]]) -> str:
    """Kernels by their time on the GPU, what a faster one can bring at most (Amdahl), and whether it is recordable."""
    from tabulate import tabulate

    from r3bench.stats import Predicted
    from r3bench.symbols import demangled

    kernels = sorted((k for k in _merged(processes) if k["launches"]), key=lambda k: -k["gpu_seconds"])
    total = sum(k["gpu_seconds"] for k in kernels) or 1.0
    rows = [
        (
            demangled(k["kernel"]),
            k["launches"],
            f"{1e3 * k['gpu_seconds']:.3f}",
            f"{1e6 * k['gpu_seconds'] / k['launches']:.2f}",
            f"{100 * k['gpu_seconds'] / total:.1f}",
            f"{Predicted(1 / max(1 - k['gpu_seconds'] / total, 1e-3)):.2f}x",
            " ".join(map(str, k["grid"])),
            " ".join(map(str, k["block"])),
            "; ".join(f"no: {why}" for why in k["reasons"]) or "yes",
        )
        for k in kernels
    ]
    heads = ("kernel", "launches", "GPU ms", "us each", "% of GPU", "at most", "last grid", "last block", "recordable")
    return str(tabulate(rows, headers=heads, disable_numparse=True))


def coverage(processes: list[dict[str, Any]], refused: Refused) -> str:
    """Every launch: recorded, skipped as not asked for, or not recorded and why; ``refused`` as _convert has it."""
    from tabulate import tabulate

    from r3bench.symbols import demangled

    rows = []
    for kernel in _merged(processes):
        for (name, why), count in refused.items():
            if name == kernel["kernel"]:
                kernel["recorded"] -= count
                kernel["reasons"][why] += count
        missed = [f"{count} not recorded: {why}" for why, count in kernel["reasons"].items()]
        if kernel["conditional"]:
            missed.append(f"{kernel['conditional']} times a conditional node launched it or not")
        skipped = kernel["launches"] - kernel["recorded"] - sum(kernel["reasons"].values())
        rows.append((demangled(kernel["kernel"]), kernel["launches"], kernel["recorded"], skipped, "; ".join(missed)))
    if unknown := sum(process["unknown"] for process in processes):
        rows.append(("(unknown function)", unknown, 0, 0, "the driver does not say what it is"))
    return str(tabulate(rows, headers=("kernel", "launches", "recorded", "skipped", "remarks")))


def _merged(processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kernels that were launched, or may have been, of all processes and modules, by symbol."""
    found: dict[str, dict[str, Any]] = {}
    kernels = (kernel for process in processes for kernel in process["kernels"])
    for kernel in (kernel for kernel in kernels if kernel["launches"] or kernel["conditional"]):
        same = found.setdefault(kernel["kernel"], {**kernel, **dict.fromkeys(_ADDED, 0), "reasons": Counter()})
        same.update({name: same[name] + kernel[name] for name in _ADDED})
        same["reasons"].update(kernel["reasons"])
    return list(found.values())
