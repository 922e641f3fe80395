"""Markdown's building blocks: what comes from elsewhere is escaped, what is long is folded, the whole is bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from r3bench.report.words import one_line

LIMIT = 60_000  # bytes; a comment on a pull request holds 65,536 characters
ROWS = 10  # of a table before the rest is folded


def escape(text: str, most: int = 300) -> str:
    """Text from elsewhere, harmless in Markdown: one line, no markup, no table cell ended, at most ``most`` characters.

    It is cut between words where it has any. Nobody is mentioned by it: ``@`` is written as an entity.
    """
    short = one_line(text)
    if len(short) > most:
        head = short[: most - 1]
        short = (head.rsplit(" ", 1)[0] if " " in head[most // 2 :] else head) + "…"
    return re.sub(r"([\\`*_{}\[\]<>#|~!$])", r"\\\1", short.replace("&", "&amp;")).replace("@", "&#64;")


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are escaped."""
    lines = [head, ["---"] * len(head), *([escape(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short_grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of at most ten rows, and the others folded below it."""
    yield grid(head, rows[:ROWS])
    if rows[ROWS:]:
        yield ""
        yield from folded(f"{len(rows) - ROWS} more", [grid(head, rows[ROWS:])])


def folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines that are shown on a click; the summary is escaped."""
    yield f"<details><summary>{escape(summary)}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def code(text: str) -> str:
    """Text as code within a line."""
    return f"`{one_line(text).replace('`', '')}`"


def command(line: str) -> str:
    """A command to copy; it is one line and cannot end its fence."""
    return f"```bash\n{one_line(line).replace('```', '')}\n```"


def bounded(head: str, sections: Iterable[str], rest: str) -> str:
    """Head and as many sections as fit into 60 kB; where some do not, ``rest`` says where they are."""
    parts, size = [head], len(head.encode(errors="replace")) + len(rest.encode(errors="replace")) + 2
    for section in sections:
        size += len(section.encode(errors="replace")) + 2
        if size > LIMIT:
            parts.append(rest)
            break
        parts.append(section)
    return "\n\n".join(parts) + "\n"
