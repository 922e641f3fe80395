"""The report as one HTML file: whole, small, self-contained, escaped, legible, and usable without a mouse."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from r3bench import report
from r3bench.ledger import Arm
from r3bench.report.html import charts
from r3bench.report.html.elements import VOID
from tests.unit.demo import GUARD, IMPROVED, PLAIN
from tests.unit.report_case import HOSTILE, large, poisoned

DRAWN = {"path", "line", "rect", "circle", "text"}


class Page(HTMLParser):
    """The elements of a page with their attributes; fails where they are not nested."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in ("style", "script"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


SEARCH = report.document("demo", [IMPROVED, PLAIN])


@pytest.fixture(scope="module", params=["search", "guard", "large"])
def page(request: pytest.FixtureRequest) -> Page:
    return Page(report.html({"search": SEARCH, "guard": GUARD, "large": large()}[request.param]))


def test_nothing_is_fetched_and_nothing_runs_but_our_own_script(page: Page) -> None:
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    for tag, attributes in page.found:
        assert tag not in {"link", "iframe", "object", "embed", "img", "form", "base"}
        assert not {"src", "style", "srcset", "action"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")


def test_links_lead_somewhere_and_ids_are_unique(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert (link["href"] or "")[1:] in ids


def test_charts_and_tables_speak(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == len(page.all("main")) == 1
    for picture in page.all("svg"):
        assert picture["role"] == "img"
        assert picture["aria-label"]
    for box in (attributes for _, attributes in page.found if attributes.get("tabindex") == "0"):
        assert box["role"] == "group"
        assert box["aria-label"]
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table")) >= 1


@pytest.mark.parametrize("document", [SEARCH, GUARD, large(1)], ids=["search", "guard", "large"])
def test_what_comes_from_elsewhere_stays_text(document: Any) -> None:
    wicked = Page(report.html(poisoned(document)))
    assert len(wicked.all("script")) == len(wicked.all("style")) == 1
    assert not wicked.all("img")
    assert not [name for _, attributes in wicked.found for name in attributes if name.startswith("on")]
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\u202e", "\ufffd")
    assert shown in wicked.text
    assert shown in next(iter(wicked.all("svg")), {"aria-label": shown})["aria-label"]  # type: ignore[operator]
    prose = re.sub("```bash\n.*?\n```\n|`[^`\n]*`", "", report.markdown(poisoned(document)))
    assert not re.search(r"(?<!\\)<(script|img|/)", prose.replace("</details>", "").replace("</summary>", ""))
    assert "```" not in prose


def test_a_large_search_is_below_half_a_megabyte() -> None:
    text = report.html(large())
    assert 100_000 < len(text.encode()) < 400_000
    assert len(report.markdown(large()).encode()) <= 60_000
    page = Page(text)
    captions = page.text
    for expected in (
        "Full search against bo",
        "Distance from the memory roof",
        "Archive",
        "p0 is the text that the search began with",
        "Wrong result in state",
        "Speedups and their intervals",
    ):
        assert expected in captions
    assert sum(name in DRAWN for name, _ in page.found) > 1000


def test_the_forest_shows_every_interval() -> None:
    text = report.html(SEARCH)
    for numbers in ("1.25x (1.24 to 1.26)", "1.75x (1.73 to 1.77)"):
        assert text.count(numbers) >= 5, "in the chart, its label and title, the table and the contest's words"
    assert "Times are CPU times (znver4); they say nothing about a GPU." in text


def test_ranked_times_stand_beside_the_ranked_time_of_the_baseline_not_that_of_a_contest() -> None:
    began = [[1, 0.1, 200.0, "baseline"], [2, 0.2, 150.0, "p1"]]
    drawn = charts.convergence({"full": began})
    (level,) = re.findall(r"<line x1=62 y1=([\d.]+) x2=404 y2=\1 class=unit>", drawn)
    assert re.search(rf'd="M[\d.]+ {level}H', drawn), "the curve begins on the baseline's line"
    assert ">baseline<" in drawn
    assert ">baseline<" not in charts.convergence({"bo": began[1:]})


def test_every_arm_has_a_name_in_the_chart() -> None:
    comparison = next(arm.comparison for arm in IMPROVED.arms)
    for name in get_args(get_type_hints(Arm)["name"]):
        kernel = replace(IMPROVED, arms=(*IMPROVED.arms, Arm(name=name, comparison=comparison)))
        assert report.html(report.document("demo", [kernel]))


def test_a_change_is_told_by_more_than_colour() -> None:
    text = report.html(SEARCH)
    assert "<span class=removed><i>-</i>" in text
    assert "<span class=added><i>+</i>" in text
    assert "<b>float</b>" in text


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(d * 2 for d in digits) if len(digits) == 3 else digits
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2, section 1.4.3."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def schemes() -> list[dict[str, str]]:
    style = (Path(report.__file__).parent / "html" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(blocks) == 2
    return [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in blocks]


@pytest.mark.parametrize("colours", schemes(), ids=["light", "dark"])
def test_text_is_legible_in_light_and_dark(colours: dict[str, str]) -> None:
    for ink in ("ink", "muted", "blue", "good", "bad", "violet", "gold"):
        for ground in ("page", "card"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for ground in ("add", "cut", "h0", "h1", "h2", "h3"):
        assert contrast(colours["ink"], colours[ground]) >= 4.5, ground
    for ink in ("blue", "good", "violet", "muted"):
        for ground in ("add", "cut"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for ground in ("h4", "h5"):
        assert contrast(colours["page"], colours[ground]) >= 4.5, ground
