"""Tables whose columns can be sorted by mouse and keyboard; without scripts they are tables all the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from r3bench.report.html.elements import Markup, element


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows, and the number it is sorted by where that is not its text; ``align`` right for numbers."""

    shown: str
    value: float | None = None

    def element(self, name: str = "td") -> Markup:
        numeric = self.value is not None
        given = {"data_v": f"{self.value:g}"} if numeric and f"{self.value:g}" != self.shown else {}
        return element(name, self.shown, class_="n" if numeric else None, **given)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Cell | str]]) -> Markup:
    """A sortable table; the first cell of a row is its heading."""
    heads = [element("th", element("button", name, type="button"), scope="col") for name in head]
    body = [element("tr", *_cells(row)) for row in rows]
    inner = element(
        "table", element("caption", caption), element("thead", element("tr", *heads)), element("tbody", *body)
    )
    return element("div", inner, class_="scroll", tabindex="0", role="group", aria_label=caption)


def _cells(row: Sequence[Cell | str]) -> Iterable[Markup]:
    for number, cell in enumerate(row):
        held = cell if isinstance(cell, Cell) else Cell(cell)
        yield element("th", held.shown, scope="row") if number == 0 else held.element()
