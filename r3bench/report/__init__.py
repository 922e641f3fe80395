"""Ledgers -> one JSON document; terminal table, Markdown and patches are renderings of it.

Nothing here can start a kernel. Everything that comes from kernels, compilers or file names is escaped where it is
shown. Files are written under a temporary name and renamed, so a reader sees the old report or the new one.
"""

from r3bench.report.documents import FORMAT, Document, checked, document, load, portable
from r3bench.report.files import add_run, write, write_application, write_document
from r3bench.report.html import html
from r3bench.report.patches import diff, mixed, moved_on, overlap, patch
from r3bench.report.prose import markdown
from r3bench.report.runs import Run, gather
from r3bench.report.terminal import applicable, below, left_out, noted, table
from r3bench.report.words import busy_line, device_line, file_name, places, work_line

__all__ = [
    "FORMAT",
    "Document",
    "Run",
    "add_run",
    "applicable",
    "below",
    "busy_line",
    "checked",
    "device_line",
    "diff",
    "document",
    "file_name",
    "gather",
    "html",
    "left_out",
    "load",
    "markdown",
    "mixed",
    "moved_on",
    "noted",
    "overlap",
    "patch",
    "places",
    "portable",
    "table",
    "work_line",
    "write",
    "write_application",
    "write_document",
]  # fmt: skip
