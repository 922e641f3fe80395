"""What a guard found, in every rendering."""

from __future__ import annotations

from r3bench import report
from r3bench.nouns import encode
from r3bench.report import guards
from r3bench.stats import identical
from tests.search.fake_server import comparison
from tests.unit.demo import GUARD, GUARDED


def test_what_differs_in_the_code_for_each_gpu_is_shown() -> None:
    text = report.markdown(GUARD).replace("\\_", "_")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "| " in line]
    for row in (
        ["code for", "what", "base", "head"],
        ["sm_90", "registers", "20", "24"],
        ["gfx90a", "vector", "5", "9"],
        ["gfx90a", "shared", "-", "1"],
        ["gfx1100", "vgprs", "-", "8"],
    ):
        assert row in rows
    assert not [row for row in rows if row[:2] in (["gfx90a", "vgprs"], ["sm_90", "load"])]  # the same on both sides


def test_a_guard_is_shown_worst_first_with_its_evidence() -> None:
    lines = report.table(GUARD, 100).splitlines()
    assert " ".join(lines[2].split()) == "demo/k slower 1.250x slower (1.238 to 1.262) 1 us 1.25 us"
    assert max(map(len, report.table(GUARD, 50).splitlines())) <= 50
    wide = {**GUARD, "guard": {**GUARD["guard"], "kernels": [{**GUARDED, "kernel": "an_application/tendencies"}]}}
    assert report.table(wide, 70).splitlines()[2].split()[:4] == ["tendencies", "slower", "1.250x", "slower"]
    assert "(1.238 to 1.262)" in report.table(wide, 70)
    text = report.markdown(GUARD)
    assert text.startswith("<!-- r3bench: guard demo -->\n## 1 of 2 kernels is slower than main: k 1.25x\n")
    assert f"working tree against main (0123456789ab). {guards.LAUNCH} Times are CPU times" in text
    assert "pytest --r3-guard main captures/demo" in text
    assert "- its capture changed" in text
    assert r"\<script\> does not build" in text
    assert "<b>" not in text


def test_what_is_noted_of_several_kernels_of_a_guard_is_said_once_with_their_names() -> None:
    reason = "no code for AMD GPUs from base and head: it calls pow"
    kernels = [
        {**GUARDED, "kernel": f"demo/{name}", "notes": notes, "missing": [reason], "fails": False}
        for name, notes in (("one", ["its own"]), ("two", []))
    ]
    document = {**GUARD, "guard": {**GUARD["guard"], "kernels": kernels}}
    assert guards.shared_notes(kernels) == [f"demo/one, demo/two: {reason}"]
    assert [guards.own_notes(kernel, kernels) for kernel in kernels] == [["its own"], []]
    for text in (report.markdown(document), report.html(document)):
        assert text.count("it calls pow") == 1
        assert text.count("its own") == 1
        assert text.count(guards.LAUNCH) == 1
    assert report.markdown(document).index("it calls pow") < report.markdown(document).index("To reproduce:")


def test_a_kernel_is_told_of_by_the_name_that_people_write() -> None:
    found = [{**GUARDED, "kernel": f"demo/{symbol}", "notes": []} for symbol in ("_Z5scalePfi", "same")]
    found[1] |= {"verdict": "identical", "notes": ["its capture changed"]}
    assert list(guards.told(found)) == [f"demo/scale: {GUARDED['detail']}", "demo/same: its capture changed"]


def test_a_guard_says_a_ratio_in_one_way() -> None:
    texts = (report.table(GUARD, 100), report.markdown(GUARD), report.html(GUARD))
    assert all("1.250x slower" in text for text in texts)
    assert not any("0.80x" in text for text in texts)


def test_what_is_the_same_is_called_neither_slower_nor_faster() -> None:
    near = {**GUARDED, "verdict": "same", "detail": "", "comparison": encode(comparison(1 / 1.02)), "fails": False}
    small = {**near, "comparison": encode(comparison(1 / 1.25))}  # but by less than an absolute gate
    document = {
        **GUARD,
        "guard": {**GUARD["guard"], "sentence": "no kernel was found slower", "kernels": [near, small]},
    }
    assert guards.row(near)[1:3] == ["same", "1.020x the time (1.010 to 1.030)"]
    assert guards.row(small)[1:3] == ["same", "1.250x the time (1.238 to 1.262)"]
    for text in (report.table(document), report.markdown(document), report.html(document)):
        assert "1.020x slower" not in text
        assert "1.020x the time (1.010 to 1.030)" in text
    assert "- same, 1.020x the time (1.010 to 1.030) at" in report.markdown(document)


def test_what_was_not_timed_is_said_once() -> None:
    same = {**GUARDED, "verdict": "identical", "detail": "the same machine code, nothing was timed", "fails": False}
    kernels = [{**same, "comparison": encode(identical(0.05, "b"))}]
    document = {**GUARD, "guard": {**GUARD["guard"], "kernels": kernels}}
    for text in (report.markdown(document), report.html(document)):
        assert text.count("nothing was timed") == 1
        assert guards.LAUNCH not in text


def test_a_long_guard_stays_a_comment() -> None:
    long = {**GUARDED, "detail": "word " * 400, "kernel": "demo/" + "k" * 200}
    text = report.markdown({**GUARD, "guard": {**GUARD["guard"], "kernels": [long] * 90}})  # type: ignore[dict-item]
    assert len(text.encode()) <= 60_000
    assert "<summary>80 more</summary>" in text
    assert text.count("<details>") == text.count("</details>")
    assert text.endswith("The evidence of the other kernels is in report.html.\n")
