"""The report's files. Each is written under a temporary name and renamed, so a reader sees the old or the new one."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from r3bench.ledger import KernelResult
from r3bench.report.documents import FORMAT, applications, document, portable
from r3bench.report.patches import patch
from r3bench.report.prose import markdown
from r3bench.report.words import file_name, words


def write(ledger: Path, folder: Path) -> list[Path]:
    """Write ``<folder>/<application>/`` for every application in a ledger: ``report.json``, ``report.md`` and per
    improved kernel its patch and configuration. Returns the files; those of an older report of the same kernels go.
    """
    found, damaged = applications(ledger)
    written = []
    for application, kernels in found.items():
        written += write_application(application, kernels, folder, damaged)
    return written


def write_application(application: str, kernels: Sequence[KernelResult], folder: Path, damaged: int = 0) -> list[Path]:
    """The files of one application, as :func:`write` says."""
    place = folder / re.sub(r"[^\w.-]", "_", application)
    place.mkdir(parents=True, exist_ok=True)
    kernels = [portable(kernel) for kernel in kernels]
    report = json.dumps(document(application, kernels, damaged), indent=1, allow_nan=False) + "\n"
    files = {"report.json": report, "report.md": markdown(kernels, application)}
    for result in kernels:
        name = file_name(result)
        files |= {f"{name}.patch": patch(result, application, kernels) or "", f"{name}.json": _configuration(result)}
    written = []
    for name, text in files.items():
        path = place / name
        if text:
            write_text(path, text)
            written.append(path)
        else:
            path.unlink(missing_ok=True)
    return written


def _configuration(result: KernelResult) -> str:
    """The configuration of a promoted candidate, with what it was tested for; empty where it is the default."""
    if result.configuration is None:
        return ""
    about = {
        "format": FORMAT,
        "kernel": result.kernel,
        "device": result.device,
        "target": result.target,
        "needs_patch": result.after is not None,
        "use": "for r3bench's own compile pipeline; report.md says what of it can be done by hand",
        "settings": list(result.settings),
        "evidence": {arm.name: words(arm.comparison) for arm in result.arms},
    }
    return json.dumps({**about, **json.loads(result.configuration)}, indent=1) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(text.encode())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
