"""The report's files. A reader sees the old or the new one; FileError where one cannot be written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from r3bench.files import write_text, writing
from r3bench.ledger import KernelResult
from r3bench.report import applied
from r3bench.report.documents import FORMAT, Document, document, portable
from r3bench.report.html import html
from r3bench.report.patches import patch
from r3bench.report.prose import markdown
from r3bench.report.runs import Run, gather
from r3bench.report.words import file_name, folder_name, words


def write(ledgers: Iterable[Path], folder: Path) -> list[Path]:
    """Write ``<folder>/<application>/`` for every application in the ledgers: ``report.json``, its renderings, and per
    improved kernel its patch and configuration. Returns the files; those of an older report of the same kernels go.
    """
    found, run = gather(ledgers)
    return [path for name, kernels in found.items() for path in write_application(name, kernels, folder, run)]


def write_application(
    application: str, kernels: Sequence[KernelResult], folder: Path, run: Run | None = None
) -> list[Path]:
    """The files of one application, as :func:`write` says."""
    place = folder / folder_name(application)
    kernels = [portable(kernel) for kernel in kernels]
    files: dict[str, str] = {}
    for result in kernels:
        name = file_name(result.kernel)
        files |= {f"{name}.patch": patch(result, kernels, place) or "", f"{name}.json": _configuration(result)}
    return [*write_document(_document(application, kernels, run, place), place), *_write(files, place)]


def _document(application: str, kernels: Sequence[KernelResult], run: Run | None, place: Path) -> Document:
    return {**document(application, kernels, run), **applied.kept(place, kernels)}


def add_run(place: Path, command: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    """Keep what a run of the application with a report's tuned kernels came to, and draw the report anew with it.

    ``rows`` are as :data:`r3bench.report.applied.HEAD` names them.
    """
    found, run = gather(sorted(place.glob("ledger/*.jsonl")))
    for application, results in found.items():
        kernels = [portable(kernel) for kernel in results]
        write_text(place / applied.NAME, applied.about(command, rows, notes, kernels))
        write_document(_document(application, kernels, run, place), place)


def write_document(document: Document, folder: Path) -> list[Path]:
    """Write ``report.json``, and ``report.md`` and ``report.html`` rendered from it, into a folder; the files."""
    return _write({name: render(document) for name, render in RENDERINGS.items()}, folder)


RENDERINGS = {
    "report.json": lambda document: json.dumps(document, indent=1, allow_nan=False) + "\n",
    "report.md": markdown,
    "report.html": html,
}


def _write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Files with their texts; one whose text is empty goes."""
    for name, text in files.items():
        if text:
            write_text(folder / name, text)
        else:
            with writing(folder / name):
                (folder / name).unlink(missing_ok=True)
    return [folder / name for name, text in files.items() if text]


def _configuration(result: KernelResult) -> str:
    """The configuration of a promoted candidate, with what it was tested for; empty where it is the default."""
    if result.configuration is None:
        return ""
    about = {
        "format": FORMAT,
        "kernel": result.kernel,
        "device": result.device,
        "target": result.target,
        "needs_patch": bool(result.changes),
        "use": "for r3bench's own compile pipeline; report.md says what of it can be done by hand",
        "settings": list(result.settings),
        "evidence": {arm.name: words(arm.comparison) for arm in result.arms},
    }
    return json.dumps({**about, **json.loads(result.configuration)}, indent=1) + "\n"
