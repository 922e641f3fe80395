"""``r3bench guard``: base against head, by pytest's items ``guard``; head may be a commit that is not checked out."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from r3bench.commits import Commit, checked_out, open_tree, prefix, repository
from r3bench.errors import TreeError
from r3bench.worktree import WORKING_TREE, Folder, Tree

_HELP = """\
Compare every kernel of HEAD (default: the working tree) with BASE, a commit or a folder.

exit statuses: 0 nothing failed, 1 another test there failed, 2 usage, 3 it could not be told or nothing was measured,
10 a kernel is slower, 11 a kernel is wrong, 12 another answer of --fail-on
"""
_PASSED_ON = ("device", "gate", "gate-ns", "fail-on", "reports", "timeout")
# Pytest's statuses for usage and an interruption, as this command line has them.
_USAGE, _INTERRUPTED = 2, 130
_STATUSES = {4: _USAGE, 2: _INTERRUPTED}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "guard",
        help="compare every kernel with an earlier commit: still right, as fast?",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("base", metavar="BASE", help="a commit or a folder")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="a commit or a folder (default: the working tree)")
    parser.add_argument("--captures", metavar="PATH", nargs="+", default=["captures"], help="default: captures")
    for name in _PASSED_ON:
        parser.add_argument(f"--{name}", metavar=name.upper(), help=f"pytest's --r3-{name}")
    parser.set_defaults(run=guard)


def guard(arguments: argparse.Namespace) -> int:
    """Run pytest on the captures of head; its status, in this command line's terms."""
    here = Path.cwd()
    try:
        base = open_tree(arguments.base, here)
        head = open_tree(arguments.head, here) if arguments.head is not None else Folder(here)
    except TreeError as error:
        print(f"r3bench: {error}", file=sys.stderr)
        return _USAGE
    named = str(base.top) if isinstance(base, Folder) else base.name
    with head_of(head, here) as (folder, environment):
        given = {name: _given(arguments, name, elsewhere=folder != here) for name in _PASSED_ON}
        options = [f"--r3-{name}={value}" for name, value in given.items() if value is not None]
        sides = [f"--r3-guard={named}", *([f"--r3-head={head.name}"] if head.name != WORKING_TREE else [])]
        command = [sys.executable, "-m", "pytest", *sides, *options, *arguments.captures]
        done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=False)
    return _STATUSES.get(done.returncode, done.returncode)


def _given(arguments: argparse.Namespace, name: str, *, elsewhere: bool) -> str | None:
    """What pytest is told: of a folder of reports where it is, seen from ``elsewhere`` also of the usual one."""
    value: str | None = getattr(arguments, name.replace("-", "_"))
    if name == "reports" and (value or elsewhere):
        return str(Path(value or "reports").resolve())
    return value


@contextmanager
def head_of(head: Tree, here: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The folder of head, and what git must know to find commits from there."""
    if isinstance(head, Folder):
        yield head.top, {} if head.top == here else repository(here, head.top)
        return
    assert isinstance(head, Commit)
    with checked_out(head) as folder:
        yield folder / prefix(here), repository(here, folder)
