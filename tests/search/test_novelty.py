"""What is new does not depend on which of several texts under way is judged first."""

from __future__ import annotations

from r3bench.evolve.novelty import Novelty
from r3bench.evolve.settings import Settings
from r3bench.evolve.sources import Source, make_source
from tests.search.fake_server import FAKE, TEXT, capture


def source(step: int, text: str = TEXT) -> Source:
    files = (("kernels.cu", text),)
    return make_source(capture(), FAKE, Settings(), step=step, rule="x", description="", files=files)


def test_a_twin_that_was_under_way_when_a_text_was_drawn_is_not_known_to_it() -> None:
    novelty, twin, drawn = Novelty(), source(3), source(7)
    assert novelty.same_text(drawn) is None
    novelty.add(twin)
    assert [novelty.same_text(drawn, last) for last in (0, 2, 3, 6)] == [None, None, twin, twin]
    assert novelty.same_text(drawn) is twin, "when it is judged, all before it are"


def test_white_space_and_comments_make_no_new_text() -> None:
    novelty, first = Novelty(), source(1)
    novelty.add(first)
    spaced = TEXT.replace("    for", "\n    // a remark\n\n\tfor").replace("= blockIdx", "=  /* here */ blockIdx")
    assert novelty.same_text(source(2, spaced)) is first
    assert novelty.same_text(source(3, TEXT.replace("k < 4", "k < 5"))) is None
