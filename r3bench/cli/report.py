"""``r3bench report``: draw a report anew from ledgers or from its JSON document; nothing is run."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r3bench.errors import LedgerError

FORMATS = ("terminal", "markdown", "html", "json")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "draw a report anew from a ledger, a folder of a run's report, or a report.json"
    parser = commands.add_parser("report", help=text, description=text)
    parser.add_argument("place", type=Path, metavar="LEDGER|FOLDER", help="what a search or a guard wrote")
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what is printed (default: terminal)")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="also write report.json, report.md and report.html; of several applications into a folder each",
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="also write plots as PDF; needs r3bench[plots]")
    parser.set_defaults(run=report)


def report(arguments: argparse.Namespace) -> int:
    """Print every document that the place holds in one format."""
    found = list(documents(arguments.place))
    for document in found:
        print(_rendered(document, arguments.format, _folder(arguments.place)), end="")
        below = document["application"] if len(found) > 1 else ""
        _write(document, arguments, below)
    return 0


def _write(document: Any, arguments: argparse.Namespace, below: str) -> None:
    """Files and plots of a document; those of several applications lie in a folder each."""
    from r3bench.report import write_document

    if arguments.into is not None:
        write_document(document, arguments.into / below)
    if arguments.plots is not None:
        from r3bench.report.plots import write_plots

        write_plots(document, arguments.plots / below)


def documents(place: Path) -> Iterator[Any]:
    """The documents of a ledger, of a folder that holds ledgers or a report, or of a report's file."""
    from r3bench.report import checked, document, gather, load

    if place.name.endswith(".json"):
        yield load(place)
        return
    ledgers = [place] if place.is_file() else sorted((*place.glob("*.jsonl"), *place.glob("ledger/*.jsonl")))
    if not ledgers and (place / "report.json").is_file():
        yield load(place / "report.json")
        return
    if not ledgers:
        raise LedgerError(f"{place} holds no ledger and no report.json; name what a search or a guard wrote")
    found, run = gather(ledgers)
    if not found:
        why = f" ({run.damage[0]})" if run.damage else ""
        raise LedgerError(f"the ledgers of {place} hold no result that can be drawn{why}; search again")
    for application, kernels in found.items():
        yield checked(document(application, kernels, run), place)


def _folder(place: Path) -> Path:
    """Where the patches of a place lie: ledgers have a folder of their own below it."""
    folder = (place if place.is_dir() else place.parent).resolve()
    return folder.parent if folder.name == "ledger" else folder


def _rendered(document: Any, form: str, folder: Path) -> str:
    from r3bench.report import below, device_line, noted, table
    from r3bench.report.documents import result_of
    from r3bench.report.files import RENDERINGS
    from r3bench.report.words import warnings

    if form == "terminal":
        searched = document["kind"] == "search"
        lines = (
            table(document, shutil.get_terminal_size().columns),
            document["guard"]["sentence"] if not searched else "",
            *warnings(document),
            device_line(document["device"], document["target"]),
            *(noted([result_of(entry) for entry in document["kernels"]]) if searched else ()),
            *(below(document, folder, Path.cwd()) if searched else ()),
        )
        return "".join(f"{line}\n" for line in lines if line)
    return RENDERINGS["report.md" if form == "markdown" else f"report.{form}"](document)
