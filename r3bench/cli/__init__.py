"""The command line ``r3bench``: one module per command, each imported only as far as its arguments need."""

from __future__ import annotations

import argparse
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata

from r3bench.cli import (
    annotate,
    apply,
    calibrate,
    capture,
    doctor,
    export,
    guard,
    history,
    record,
    report,
    run,
    serve,
    worker,
)
from r3bench.errors import R3Error

COMMANDS = (annotate, apply, calibrate, capture, doctor, export, guard, history, record, report, run, serve, worker)

# Exit statuses: 0 done, 1 the answer is no (a command's help says which), 2 usage, 3 r3bench itself could not do it,
# 130 interrupted (ctrl-C), 141 nobody reads on (``r3bench ... | head``): as the shell says of what these end.
TROUBLE = 3
INTERRUPTED = 128 + signal.SIGINT
UNREAD = 128 + signal.SIGPIPE


def _version() -> str:
    try:
        return metadata.version("r3bench")
    except metadata.PackageNotFoundError:
        return "of a source tree"


def parser() -> argparse.ArgumentParser:
    """What the command line understands."""
    parser = argparse.ArgumentParser(prog="r3bench", description="Record, remix and replay GPU kernels.")
    parser.add_argument("--version", action="version", version=f"r3bench {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    for each in commands.choices.values():
        said = each.description or ""
        each.description = f"{said[:1].upper()}{said[1:].rstrip().removesuffix('.')}."
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error that stops it is one sentence on standard error, and status 3."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names that a terminal, or no encoding at all, can show
    try:
        try:
            return _run(arguments)
        finally:
            print(end="", flush=True)  # a reader that is gone is noticed here, not when Python ends
    except KeyboardInterrupt:
        print("r3bench: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _write_nowhere()
        return UNREAD
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _write_nowhere()
        print(f"r3bench: standard output takes no more ({error.strerror}): write it elsewhere", file=sys.stderr)
        return TROUBLE


def _write_nowhere() -> None:
    """What standard output still holds is dropped, instead of failing again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    given = parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except R3Error as error:
        print(f"r3bench: {error}", file=sys.stderr)
        return TROUBLE
