"""``r3bench history``: times of past runs, and where they changed."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r3bench.history import Series

_SUGGESTED = 8  # names of kernels


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "show times of past runs (pytest --r3-history) and where they changed"
    parser = commands.add_parser("history", help=text, description=f"{text}; 1 where there is none")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("reports/history"), help="default: %(default)s")
    parser.add_argument(
        "--kernel",
        metavar="GLOB",
        default="*",
        help="only kernels of this name: with or without its application and its unit",
    )
    parser.add_argument("--svg", metavar="FILE", type=Path, help="also draw them")
    parser.set_defaults(run=history)


def history(arguments: argparse.Namespace) -> int:
    """Print every kernel's times on every machine."""
    from tabulate import tabulate

    from r3bench import history as past
    from r3bench.files import write_text
    from r3bench.report.words import duration

    runs, damaged = past.read(arguments.folder)
    for path in damaged:
        print(f"r3bench: {path} is no run of r3bench: left out", file=sys.stderr)
    every = past.series(runs)
    found = [one for one in every if any(_fits(name, arguments.kernel) for name in _names(one.kernel))]
    if not found:
        print(f"r3bench: {_none(arguments, every)}", file=sys.stderr)
        return 1
    for machine in dict.fromkeys(one.machine for one in found):
        here = [one for one in found if one.machine == machine]
        rows = [
            (o.kernel, len(o.runs), duration(o.times_ns[0]), duration(o.times_ns[-1]), past.sparkline(o.times_ns))
            for o in here
        ]
        print(f"{machine}\n{tabulate(rows, headers=('kernel', 'runs', 'first', 'last', 'times'))}")
        for one in here:
            for change in one.changes:
                print(f"{one.kernel}: {past.change_line(one, change)}")
        print()
    if arguments.svg:
        write_text(arguments.svg, past.svg(found))
    return 0


def _none(arguments: argparse.Namespace, every: Sequence[Series]) -> str:
    """Why there is nothing to show."""
    if not every:
        return f"no runs in {arguments.folder}: write one with pytest --r3-history captures"
    known = list(dict.fromkeys(_names(one.kernel)[-1] for one in every))
    more = ", ..." if len(known) > _SUGGESTED else ""
    listed = ", ".join(known[:_SUGGESTED])
    return f"no kernel in {arguments.folder} fits {arguments.kernel!r}: there are times of {listed}{more}"


def _names(kernel: str) -> tuple[str, ...]:
    """What people call ``application/kernel[unit]``, the kernel alone last."""
    unit = re.compile(r"\[\d+\]$")
    bare = kernel.partition("/")[2] or kernel
    return kernel, unit.sub("", kernel), bare, unit.sub("", bare)


def _fits(name: str, pattern: str) -> bool:
    """Whether a name is one of a pattern's, or the pattern itself: the brackets of a unit are no set of characters."""
    return name == pattern or fnmatchcase(name, pattern)
