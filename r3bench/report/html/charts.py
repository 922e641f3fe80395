"""The report's charts, as SVG of our own. Colours come from the page's style sheet, so they follow light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import exp, isfinite
from typing import Any

from r3bench.report.html.elements import Markup, element, number
from r3bench.report.html.plot import Scale, around, chart, label, line, titled, x_axis, y_axis
from r3bench.report.words import duration, speedup
from r3bench.stats import Comparison, Predicted

NAME = 17  # characters of a name in a chart
ROW = 20  # of one in front of an interval
WIDTH = 430  # of a chart whose last tick is at 404


def times(value: float) -> str:
    return f"{value:g}x"


def short(name: str, room: int = NAME) -> str:
    return name if len(name) <= room else name[: room - 1] + "…"


# -- two times of every kernel ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel's time under two methods, in ns; ``kind`` is its decision; faster and slower have marks of their own."""

    name: str
    x_ns: float
    y_ns: float
    kind: str


def scatter(points: Sequence[Point], x_name: str, y_name: str) -> Markup:
    """Time under one method against time under another; below the diagonal the second is faster."""
    low, high = around([value for p in points for value in (p.x_ns, p.y_ns)], 1.4)
    x, y = Scale(low, high, 56, 404, True), Scale(low, high, 330, 26, True)
    marks = [x_axis(x, 330, 26, duration, x_name), y_axis(y, 56, 404, duration, y_name)]
    marks += [line(x(low), y(low), x(high), y(high), "diagonal")]
    marks += [label(398, 322, "faster", "zone", "end"), label(64, 40, "slower", "zone")]
    marks += [_point(x(p.x_ns), y(p.y_ns), p) for p in points]
    marks += _names([(x(p.x_ns), y(p.y_ns), short(p.name)) for p in points], 316)
    said = "; ".join(f"{p.name} {duration(p.x_ns)} to {duration(p.y_ns)}" for p in points[:20])
    return chart(f"{y_name} against {x_name}, logarithmic. {said}", WIDTH, 372, *marks)


def _point(x: float, y: float, point: Point) -> Markup:
    title = f"{point.name}: {duration(point.x_ns)} to {duration(point.y_ns)}, {point.kind}"
    mark = f"mark {point.kind}" if point.kind in ("faster", "slower") else "mark"
    return titled("circle", title, cx=x, cy=y, r=5, class_=mark)


def _names(places: Sequence[tuple[float, float, str]], bottom: float) -> Iterator[Markup]:
    """Names beside, above or below their points; one that would lie over another, or over a mark, is left to the
    title."""
    taken = [(x - 6, y, x + 6) for x, y, _ in places]
    for x, y, name in sorted(places):
        width = 6.5 * len(name)
        centred = min(x - width / 2, 409 - width)
        for start, middle in ((x + 9, y), (x - 9 - width, y), (centred, y - 14), (centred, y + 14)):
            inside = start > 56 and start + width < 410 and 26 < middle < bottom
            if inside and not any(abs(middle - b) < 12 and start < c and a < start + width for a, b, c in taken):
                taken.append((start, middle, start + width))
                yield label(start + width / 2, middle + 4, name, "name", "middle")
                break


# -- the memory roof --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """What a kernel must write in a launch, its time before and after in ns, and the device's bytes a second."""

    name: str
    nbytes: float
    before_ns: float
    after_ns: float
    speed: float

    @property
    def roof_ns(self) -> Predicted:
        """What writing alone takes, by the speed measured of the device."""
        return Predicted(self.nbytes / self.speed * 1e9)


def memory_roof(kernels: Sequence[Written]) -> Markup:
    """Time of a launch against the bytes that it must write; the line is writing alone."""
    low, high = around([kernel.nbytes for kernel in kernels], 2.0)
    speed = kernels[0].speed
    ends = [bound / speed * 1e9 for bound in (low, high)]
    bottom, top = around([*ends, *(ns for k in kernels for ns in (k.before_ns, k.after_ns))], 1.4)
    x, y = Scale(low, high, 56, 404, True), Scale(bottom, top, 230, 26, True)
    marks = [x_axis(x, 230, 26, size, "bytes written"), y_axis(y, 56, 404, duration, "time")]
    marks.append(line(x(low), y(ends[0]), x(high), y(ends[1]), "diagonal"))
    for kernel in kernels:
        at = x(kernel.nbytes)
        marks.append(line(at, y(kernel.before_ns), at, y(kernel.after_ns), "whisker faster"))
        share = Predicted(100 * kernel.roof_ns.value / kernel.after_ns)
        said = f"{kernel.name}: {share:.2g} % of the speed of writing alone"
        marks.append(titled("circle", kernel.name, cx=at, cy=y(kernel.before_ns), r=4, class_="mark"))
        if kernel.after_ns != kernel.before_ns:
            marks.append(titled("circle", said, cx=at, cy=y(kernel.after_ns), r=4, class_="mark faster"))
    marks += _names([(x(k.nbytes), y(k.after_ns), short(k.name)) for k in kernels], 216)
    said = "; ".join(
        f"{k.name} {duration(k.after_ns)}, writing alone predicted {duration(k.roof_ns.value)}" for k in kernels[:20]
    )
    return chart(f"Time against bytes written, logarithmic. {said}", WIDTH, 272, *marks)


def size(nbytes: float) -> str:
    """Bytes with their unit, in powers of 1000."""
    for limit, unit in ((1e3, "B"), (1e6, "kB"), (1e9, "MB"), (1e12, "GB")):
        if nbytes < limit:
            return f"{nbytes * 1e3 / limit:.3g} {unit}"
    return f"{nbytes / 1e12:.3g} TB"


# -- intervals --------------------------------------------------------------------------------------------------------


def forest(
    rows: Sequence[tuple[str, str, Comparison]], gate: float, value: Callable[[Comparison], str] = speedup
) -> Markup:
    """Speedups with their intervals, one below the other; the band around 1 is what the gate calls the same.

    A row is a name, what tells its rows apart, and the contest, of which ``value`` makes the words beside it.
    """
    bounds = [v for *_, c in rows for v in (c.low, c.high, c.speedup) if v and isfinite(v)]
    low, high = around([0.9, 1.15, *bounds], 1.05)
    x, bottom = Scale(low, min(high, 100.0), 152, 360, True), 18 + 26 * len(rows)
    left, right = x(1 / (1 + gate)), x(1 + gate)
    band = {"x": left, "y": 8.0, "width": right - left, "height": bottom - 8.0}
    marks = [titled("rect", f"within the gate of {gate:.0%}", class_="band", **band)]
    marks += [x_axis(x, bottom, 8, times, "speedup", 34), line(x(1), 8, x(1), bottom, "unit")]
    for row, (name, suffix, comparison) in enumerate(rows):
        marks += _interval(x, 24 + 26 * row, short(name, ROW - len(suffix)) + suffix, comparison, value(comparison))
    said = "; ".join(f"{name}{suffix} {value(c)} {c.decision.value}" for name, suffix, c in rows[:40])
    return chart(f"Speedups with intervals. {said}", 544, bottom + 42, *marks, class_="chart wide")


def _interval(x: Scale, y: float, name: str, comparison: Comparison, shown: str) -> Iterator[Markup]:
    kind = comparison.decision.value
    low, high = comparison.low or x.low, comparison.high or x.high
    yield label(144, y + 4, name, "name", "end")
    yield line(x(low), y, x(high), y, f"whisker {kind}")
    for end in (low, high):
        if x.low <= end <= x.high:
            yield line(x(end), y - 4, x(end), y + 4, f"whisker {kind}")
    yield titled(
        "circle", f"{name}: {shown}, {kind}", cx=x(comparison.speedup or 1), cy=y, r=4.5, class_=f"mark {kind}"
    )
    yield label(370, y + 4, shown)


# -- the blocks of a contest ------------------------------------------------------------------------------------------


def strip(comparison: Comparison, value: Callable[[Comparison], str] = speedup) -> Markup:
    """Every block's ratio in the order in which it was taken; the band is the interval, in the words of ``value``.

    Beside it stands its repetition.
    """
    contests = [comparison, *([comparison.repeat] if comparison.repeat is not None and comparison.repeat.d else [])]
    ratios = [exp(-d) for contest in contests for d in contest.d]
    low, high = around([*ratios, 1.0], 1.05)
    y = Scale(low, high, 92, 14, True)
    room = 340 / (len(ratios) + 3 * (len(contests) - 1) + 1)
    marks, start = [y_axis(y, 44, 396, times, ""), line(44, y(1), 396, y(1), "unit")], 48.0
    for number_, contest in enumerate(contests):
        where = "" if number_ == 0 else "again in a fresh process, "
        marks += _blocks(contest, y, start, room, where, value(contest))
        start += room * (len(contest.d) + 3)
    said = f"{len(comparison.d)} blocks from {min(ratios):.2f}x to {max(ratios):.2f}x"
    return chart(f"Speedup of every block: {said}.", 404, 104, *marks)


def _blocks(contest: Comparison, y: Scale, start: float, room: float, where: str, said: str) -> Iterator[Markup]:
    if contest.low is not None and contest.high is not None:
        top, width = y(contest.high), room * len(contest.d)
        yield titled("rect", f"{where}{said}", x=start, y=top, width=width,
                     height=max(y(contest.low) - top, 1.0), class_="band")  # fmt: skip
    places = [(start + room * (block + 0.5), y(exp(-d))) for block, d in enumerate(contest.d)]
    for order, first in (("AB", "baseline"), ("BA", "candidate")):
        own = [place for place, drawn in zip(places, contest.orders, strict=False) if drawn == order]
        path = "".join(f"M{number(x)} {number(at)}h0" for x, at in own)  # round ends make a dot of each
        if path:
            name = f"b{sha256(path.encode()).hexdigest()[:8]}"
            yield titled("g", f"{where}{first} first", element("path", id=name, d=path), class_="block")
        if path and order == "BA":
            yield element("use", href=f"#{name}", class_="hollow")


# -- how fast the best was found --------------------------------------------------------------------------------------

SERIES = 5  # colours for kinds of search


def convergence(curves: Mapping[str, Sequence[Sequence[Any]]]) -> Markup:
    """The best ranking time so far against evaluations, one line for each kind of search; the baseline's where a search
    began with it."""
    baseline_ns = next((curve[0][2] for curve in curves.values() if curve[0][3] == "baseline"), None)
    values = [point[2] for curve in curves.values() for point in curve] + ([baseline_ns] if baseline_ns else [])
    low, high = around(values, 1.1)
    most = max(point[0] for curve in curves.values() for point in curve)
    x, y = Scale(0, max(most, 1), 62, 404), Scale(low, high, 190, 26, True)
    marks = [x_axis(x, 190, 26, "{:g}".format, "evaluations"), y_axis(y, 62, 404, duration, "best so far, ranked")]
    if baseline_ns:
        marks += [
            line(62, y(baseline_ns), 404, y(baseline_ns), "unit"),
            label(400, y(baseline_ns) - 5, "baseline", anchor="end"),
        ]
    for number_, (name, curve) in enumerate(curves.items()):
        marks += _steps(curve, x, y, f"series s{number_ % SERIES}")
        if len(curves) > 1:
            marks.append(label(150 + 66 * number_, 16, short(name), f"legend s{number_ % SERIES}"))
    said = "; ".join(
        f"{name}: {duration(curve[-1][2])} after {curve[-1][0]} evaluations" for name, curve in curves.items()
    )
    return chart(f"Best ranked time so far. {said}.", WIDTH, 232, *marks)


def _steps(curve: Sequence[Sequence[Any]], x: Scale, y: Scale, class_: str) -> Iterator[Markup]:
    first = curve[0]
    path = f"M{number(x(first[0]))} {number(y(first[2]))}"
    path += "".join(f"H{number(x(point[0]))}V{number(y(point[2]))}" for point in curve[1:])
    yield titled("path", f"from {duration(first[2])} to {duration(curve[-1][2])}", d=path, class_=class_)
    for evaluations, seconds, ns, source in curve[-12:]:
        title = f"{duration(ns)} after {evaluations} evaluations, {seconds:.1f} s: {source}"
        yield titled("circle", title, cx=x(evaluations), cy=y(ns), r=2.6, class_=class_.replace("series", "dot"))


# -- the archive ------------------------------------------------------------------------------------------------------

SHADES = 6


def heat_map(archive: Mapping[str, Any]) -> Markup:
    """The best speedup of every cell that any island filled, on the first two axes; the darker the faster."""
    best = _best_cells(archive["cells"])
    edges = [*archive["edges"], []][:2]
    columns, rows = (len(edge) + 1 for edge in edges)
    size = min(34.0, 350 / columns)
    left, bottom = 56.0, 24 + size * rows
    low, top = (end(cell["speedup"] for cell in best.values()) for end in (min, max))
    marks = [_empty(left, 24, size, columns, rows)]
    for (column, row), cell in best.items():
        at = left + size * column, bottom - size * (row + 1)
        shade = min(int(SHADES * (cell["speedup"] - low) / (top - low + 1e-9)), SHADES - 1)
        marks += _cell(cell, *at, size - 1, shade, len(best) <= 30)
    x, y = [*archive["axes"], ""][:2]
    marks += [
        *_edges(edges[0], left + size, bottom + 15, size, 0),
        *_edges(edges[1], left - 6, bottom - size + 4, 0, -size),
    ]
    marks += [label(left + size * columns / 2, bottom + 33, x, anchor="middle"), label(4, 13, y)]
    said = f"{len(best)} of {columns * rows} cells are filled, the best {top:.2f}x"
    return chart(f"The archive's best programs by {x} and {y}: {said}.", WIDTH, bottom + 42, *marks)


def _empty(left: float, top: float, size: float, columns: int, rows: int) -> Markup:
    """The lines between the cells."""
    lines = [f"M{number(left + size * n)} {number(top)}v{number(size * rows)}" for n in range(columns + 1)]
    lines += [f"M{number(left)} {number(top + size * n)}h{number(size * columns)}" for n in range(rows + 1)]
    return element("path", d="".join(lines), class_="grid")


def _cell(cell: Mapping[str, Any], x: float, y: float, size: float, shade: int, told: bool) -> Iterator[Markup]:
    title = f"{cell['id']}, {cell['origin']}, island {cell['island']}: {cell['speedup']:.2f}x"
    side = number(size)
    yield titled(
        "path", title, d=f"M{number(x + 0.5)} {number(y + 0.5)}h{side}v{side}h-{side}z", class_=f"cell h{shade}"
    )
    if told and size >= 28:
        yield label(x + size / 2, y + size / 2 + 4, f"{cell['speedup']:.2f}", f"in h{shade}", "middle")


def _best_cells(cells: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], Mapping[str, Any]]:
    best: dict[tuple[int, int], Mapping[str, Any]] = {}
    for cell in cells:
        place = (cell["cell"][0], cell["cell"][1] if len(cell["cell"]) > 1 else 0)
        if place not in best or cell["speedup"] > best[place]["speedup"]:
            best[place] = cell
    return best


def _edges(edges: Sequence[float], x: float, y: float, dx: float, dy: float) -> Iterator[Markup]:
    every = -(-len(edges) // 8) if edges else 1
    for number_, edge in list(enumerate(edges))[::every]:
        yield label(x + dx * number_, y + dy * number_, f"{edge:.4g}", anchor="middle" if dx else "end")


# -- wrong results ----------------------------------------------------------------------------------------------------


def error_picture(difference: Mapping[str, Any]) -> Markup:
    """Where a buffer differs from what was recorded: each square is a part of it, stronger where more differs."""
    rows = difference["picture"][:32]
    columns = max(map(len, rows))
    marks = [titled("rect", "the buffer", x=0, y=0, width=columns, height=len(rows), class_="buffer")]
    for share, digits in enumerate(("0123", "456", "789")):
        path = "".join(f"M{start} {row}h{end - start}" for row, start, end in _runs(rows, digits))
        if path:
            title = f"{digits[0]}0 to {int(digits[-1]) + 1}0 % of the elements"
            marks.append(titled("path", title, d=path, class_=f"wrong w{share}", transform="translate(0 .5)"))
    said = f"{difference['count']} of {difference['elements']} elements of {difference['buffer']} differ"
    size = min(10.0, 330 / columns)
    scaled = element("g", *marks, transform=f"scale({size:g})")
    return chart(said, size * columns, size * len(rows), scaled)


def _runs(rows: Sequence[str], digits: str) -> Iterator[tuple[int, int, int]]:
    """Row, start and end of everything in the rows that consists of these digits."""
    for row, found in enumerate(rows):
        yield from ((row, run.start(), run.end()) for run in re.finditer(f"[{digits}]+", found))
