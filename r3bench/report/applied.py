"""What the unmodified application gained with tuned kernels in place: kept beside a report that says so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from r3bench.errors import LedgerError
from r3bench.ledger import KernelResult

NAME = "in-application.json"
TITLE = "In the unmodified application"
HEAD = ("", "own ms", "tuned ms", "speedup", "in single turns")


def about(
    command: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str], kernels: Iterable[KernelResult]
) -> str:
    """The file's text: the command, rows as :data:`HEAD` names them, sentences, and which kernels were in place."""
    words = [Path(word).name if word.startswith("/") else word for word in command]
    return json.dumps({"command": words, "rows": list(rows), "notes": list(notes), "of": _of(kernels)}, indent=1) + "\n"


def kept(place: Path, kernels: Iterable[KernelResult]) -> dict[str, Any]:
    """The document's part, empty where the application never ran with the kernels that now stand in the report."""
    try:
        found = json.loads((place / NAME).read_bytes())
        of, part = found["of"], {name: found[name] for name in ("command", "rows", "notes")}
        texts = [*part["command"], *part["notes"], *(cell for row in part["rows"] for cell in row)]
        if not all(isinstance(text, str) for text in texts) or any(len(row) != len(HEAD) for row in part["rows"]):
            raise ValueError("no such table is written by r3bench")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LedgerError(
            f"{place / NAME} cannot be read ({error}): remove it, or run the application again"
        ) from error
    return {"in_application": part} if of == _of(kernels) else {}


def _of(kernels: Iterable[KernelResult]) -> dict[str, str]:
    improved = [kernel for kernel in kernels if kernel.status == "improved"]
    return {
        k.kernel: hashlib.sha256("\0".join(_decided(k)).encode(errors="surrogatepass")).hexdigest()[:24]
        for k in improved
    }


def _decided(kernel: KernelResult) -> tuple[str, ...]:
    return str(kernel.after), *(change.after for change in kernel.others), str(kernel.configuration)
