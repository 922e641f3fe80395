"""What charts are made of: scales, axes, marks. Every mark can carry a title, which a pointer resting on it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from r3bench.report.html.elements import Markup, element, join, number

_STEPS = (1.0, 2.0, 5.0)
_FINE = (1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic or linear map from values ``low`` to ``high`` onto coordinates ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The coordinate of a value; what lies outside is put at the edge."""
        value = min(max(value, self.low), self.high)
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self, room: float) -> list[float]:
        """Round values in the range, at least ``room`` apart."""
        found: list[float] = []
        for value in self._decades() if self.log else self._even():
            inside = self.low <= value <= self.high
            if inside and (not found or abs(self(value) - self(found[-1])) >= room):
                found.append(value)
        return found

    def _decades(self) -> Iterable[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        span = self.high / self.low
        steps = _FINE if span < 8 else _STEPS if span < 300 else _STEPS[:1]
        return (round(step * 10.0**power, 12) for power in powers for step in steps)

    def _even(self) -> Iterable[float]:
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in (*_STEPS, 10.0) if s * power >= rough)
        first = math.ceil(self.low / step)
        return (round(step * n, 12) for n in range(first, math.floor(self.high / step) + 1))


def around(values: Sequence[float], room: float = 1.15) -> tuple[float, float]:
    """A range for a logarithmic scale that holds these positive values with some room."""
    return min(values) / room, max(values) * room


def chart(label: str, width: float, height: float, *marks: str, class_: str = "chart") -> Markup:
    """A picture of the size given, in CSS pixels; ``label`` tells its message to those who do not see it."""
    box = f"0 0 {number(width)} {number(height)}"
    return element(
        "svg", *marks, viewBox=box, width=width, height=height, role="img", aria_label=label, class_=class_
    )  # fmt: skip


def figure(caption: str, *content: str, note: str = "") -> Markup:
    """Content below its caption; wide content scrolls in it, by keyboard too."""
    said = [element("span", note, class_="note")] if note else []
    box = element("div", *content, class_="scroll", tabindex="0", role="group", aria_label=caption)
    return element("figure", element("figcaption", element("b", caption), *said), box)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def label(x: float, y: float, content: str, class_: str | None = None, anchor: str | None = None) -> Markup:
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


def titled(mark: str, title: str, *children: str, class_: str, **at: float | str) -> Markup:
    """A mark with its title."""
    return element(mark, element("title", title), *children, class_=class_, **at)


def _grid(lines: Iterable[str]) -> Markup:
    return element("path", d="".join(lines), class_="grid")


def x_axis(scale: Scale, y: float, top: float, form: Callable[[float], str], name: str, room: float = 48) -> Markup:
    """Ticks below ``y``, grid lines up to ``top``, the axis' name at its end."""
    ticks = scale.ticks(room)
    marks: list[str] = [_grid(f"M{number(scale(v))} {number(top)}V{number(y)}" for v in ticks)]
    marks += [label(scale(v), y + 16, form(v), anchor="middle") for v in ticks]
    marks.append(label((scale.start + scale.end) / 2, y + 34, name, anchor="middle"))
    return join(marks)


def y_axis(scale: Scale, x: float, right: float, form: Callable[[float], str], name: str) -> Markup:
    """Ticks left of ``x``, grid lines to ``right``, the axis' name above."""
    ticks = scale.ticks(15)
    marks: list[str] = [_grid(f"M{number(x)} {number(scale(v))}H{number(right)}" for v in ticks)]
    marks += [label(x - 6, scale(v) + 4, form(v), anchor="end") for v in ticks]
    marks.append(label(x - 6, min(scale.start, scale.end) - 10, name))
    return join(marks)
