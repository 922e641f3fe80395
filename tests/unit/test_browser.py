"""The report in a real browser: drawn whole and quickly, in light and dark, on a phone, sorted by keyboard."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench import report
from r3bench.ledger import Arm
from tests.unit import browser
from tests.unit.demo import GUARD, IMPROVED, PLAIN, contest
from tests.unit.report_case import large, poisoned

PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on PATH and none named by R3BENCH_CHROMIUM")


NARROW = replace(
    IMPROVED,
    kernel="demo/a_name_of_some_length",
    arms=(Arm(name="toolchain", comparison=replace(contest(16.323), low=16.314, high=16.331)),),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    with browser.Browser(PROGRAM or "", tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of a search, a guard, a large search, and a hostile one."""
    place = tmp_path_factory.mktemp("pages")
    documents = {
        "search": report.document("demo", [IMPROVED, PLAIN, NARROW]), "guard": GUARD, "large": large(),
        "hostile": poisoned(large(1)),
    }  # fmt: skip
    for name, document in documents.items():
        (place / f"{name}.html").write_text(report.html(document), encoding="utf-8")
    return place


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of pixels of an 8-bit RGB or RGBA image without interlacing (PNG, third edition)."""
    at, data, head = 8, b"", b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, chunk = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        head, data = (chunk if kind == b"IHDR" else head), (data + chunk if kind == b"IDAT" else data)
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", head[:10])
    assert depth == 8
    size = {2: 3, 6: 4}[colour]
    return width, height, _unfiltered(zlib.decompress(data), width * size, height, size)


def _unfiltered(raw: bytes, stride: int, height: int, size: int) -> list[bytes]:
    import numpy as np

    rows = [np.zeros(stride, np.int64)]
    for n in range(height):
        start = n * (stride + 1)
        kind, line = raw[start], np.frombuffer(raw[start + 1 : start + 1 + stride], np.uint8).astype(np.int64)
        rows.append(_row(kind, line, rows[-1], size))
    return [row.astype(np.uint8).tobytes() for row in rows[1:]]


def _row(kind: int, line: Any, above: Any, size: int) -> Any:
    if kind == 0:
        return line
    if kind == 2:
        return (line + above) & 255
    out = line.copy()
    for n in range(len(out)):
        left = int(out[n - size]) if n >= size else 0
        up, corner = int(above[n]), int(above[n - size]) if n >= size else 0
        out[n] = (out[n] + (left, 0, (left + up) // 2, _paeth(left, up, corner))[kind - 1]) & 255
    return out


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


def drawing(png: bytes) -> tuple[tuple[int, ...], Any]:
    """The background, which is the first pixel, and where something else was drawn: an array of rows and columns."""
    import numpy as np

    width, height, rows = pixels(png)
    image = np.frombuffer(b"".join(rows), np.uint8).reshape(height, width, -1)[..., :3].astype(int)
    return tuple(image[0, 0].tolist()), np.abs(image - image[0, 0]).max(axis=2) > 24


STRUCTURE = """(() => {
  const box = (e) => { const r = e.getBoundingClientRect(); return [Math.round(r.width), Math.round(r.height)] };
  return [...document.querySelectorAll('h1, h2, figure, svg, table, pre')].map(e => [e.tagName, ...box(e)]);
})()"""


CUT = """[...document.querySelectorAll('svg text')].filter(text => {
  const box = text.getBBox(), held = text.ownerSVGElement.viewBox.baseVal;
  return box.x < 0 || box.x + box.width > held.width;
}).map(text => text.textContent)"""


@pytest.mark.parametrize("name", ["search", "guard", "large"])
@pytest.mark.parametrize("width", [1200, 390])
def test_no_word_of_a_chart_is_cut(page: browser.Browser, folder: Path, name: str, width: int) -> None:
    page.open(folder / f"{name}.html", width=width)
    assert page.evaluate(CUT) == []


@pytest.mark.parametrize("name", ["search", "guard", "large", "hostile"])
@pytest.mark.parametrize("width", [1200, 390])
def test_everything_is_drawn_and_nothing_sticks_out(page: browser.Browser, folder: Path, name: str, width: int) -> None:
    page.console.clear()
    page.open(folder / f"{name}.html", width=width)
    assert page.console == [], "the content security policy lets our own style and script through"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for tag, wide, high in page.evaluate(STRUCTURE):
        assert wide > 0, tag
        assert high > 0, tag
    assert page.evaluate("typeof globalThis.alerted") == "undefined"


def test_light_and_dark_are_the_same_page_in_other_colours(page: browser.Browser, folder: Path) -> None:
    looks = {}
    for dark in (False, True):
        page.open(folder / "search.html", width=800, dark=dark)
        looks[dark] = page.evaluate(STRUCTURE), *drawing(page.screenshot(scale=0.15))
    (boxes, ground, drawn), (dark_boxes, dark_ground, dark_drawn) = looks[False], looks[True]
    assert boxes == dark_boxes
    assert ground == (0xFB, 0xFB, 0xFA)
    assert dark_ground == (0x14, 0x17, 0x1B)
    assert drawn.shape == dark_drawn.shape
    assert 0.02 < drawn.mean() < 0.5
    assert (drawn == dark_drawn).mean() > 0.9, "what is drawn in one is drawn in the other"


def test_charts_show_what_the_data_say(page: browser.Browser, folder: Path) -> None:
    page.open(folder / "large.html")
    counts = (
        "['.mark', '.whisker', '.cell', '.series', '.block', '.wrong'].map(c => document.querySelectorAll(c).length)"
    )
    marks, whiskers, cells, series, blocks, wrong = page.evaluate(counts)
    assert marks == 7 + 7 + 21 + 14, "two scatters, a forest and the memory roof"
    assert whiskers == 3 * 21 + 7
    assert series == 14
    assert blocks == 7 * 3 * 4
    assert cells > 7 * 40
    assert wrong == 7 * 3
    order = "[...document.querySelectorAll('.wide .mark')].slice(0, 3).map(m => m.cx.baseVal.value)"
    first, second, third = page.evaluate(order)
    assert first < second < third, "1.1x, 1.2x, 1.3x from left to right"


ORDER = "[...document.querySelectorAll('#kernels ~ .scroll tbody')[0].rows].map(r => r.cells[0].innerText)"


def test_a_table_is_sorted_by_keyboard_and_says_so(page: browser.Browser, folder: Path) -> None:
    page.open(folder / "large.html")
    first = page.evaluate(ORDER)
    page.evaluate("document.querySelector('#kernels ~ .scroll th button').focus()")
    page.press("Enter")
    assert page.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"
    assert page.evaluate(ORDER) == sorted(first)
    page.press("Enter")
    assert page.evaluate(ORDER) == sorted(first, reverse=True)
    page.press("Tab")
    page.press(" ")
    assert page.evaluate("document.querySelectorAll('[aria-sort]').length") == 1


def test_a_screen_reader_finds_names_and_roles(page: browser.Browser, folder: Path) -> None:
    page.open(folder / "search.html")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = Counter(node["role"]["value"] for node in nodes if "role" in node and not node["ignored"])
    assert {"banner", "navigation", "main", "table", "columnheader", "rowheader", "button", "contentinfo"} <= set(roles)
    for node in nodes:
        if node.get("role", {}).get("value") in ("image", "img", "button", "link", "navigation"):
            assert node["name"]["value"], node
