"""The recorder's own kernels: what is shipped is made of their source, and pages are told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from r3bench import Session, recorder
from tests.shipped import ptx

SOURCE = Path(recorder.__file__).with_name("own.cu")


def test_the_shipped_code_is_made_of_the_source() -> None:
    shipped = SOURCE.with_suffix(".ptx").read_text(encoding="utf-8")
    assert shipped == ptx(SOURCE), "run python -m tests.recorder.test_own_kernels"


def test_the_library_holds_the_shipped_code() -> None:
    assert SOURCE.with_suffix(".ptx").read_bytes() in recorder.library().read_bytes()


def test_pages_are_told_apart_and_pointers_in_them_found() -> None:
    """On the CPU device: five pages and a part of one, of which one is zeros, twice with changes between."""
    with Session("pages", SOURCE.parent, "cpu") as session:
        module = session.module("own.cu")
        words = np.arange(1, 5 * 512 + 101, dtype=np.uint64)
        words[1024:1536] = 0
        known = [session.array(name, np.zeros(64)) for name in ("first", "passed over", "last")]
        words[1] = known[0].address + 8
        words[-1] = known[2].address + 512  # one past its end
        words[600] = known[1].address - 1
        spans = np.array([[a.address, a.address + 512] for a in known], np.uint64)
        low, span = int(spans[0, 0]), int(spans[-1, 1] - spans[0, 0])
        at, table = session.array("at", words.view(np.uint8)), session.array("spans", spans.reshape(-1))
        digests = [session.array(f"digests{i}", np.zeros(12, np.uint64)) for i in range(3)]
        flags = [session.array(f"flags{i}", np.zeros(6, np.uint8)) for i in range(2)]
        marks = session.array("marks", np.zeros(3, np.uint8))
        for i, reached in enumerate((3, 0)):
            arguments = [at, words.nbytes, digests[i + 1], digests[i], flags[i], table, reached, low, span, marks]
            session.launch(module, "r3_pages", 1, 256, arguments)
            words[:512] = 0
            words[2000] += 1
            at.values[:] = words.view(np.uint8)
    assert marks.values.tolist() == [1, 0, 1]
    assert [each.values.tolist() for each in flags] == [[3, 3, 0, 3, 3, 3], [2, 1, 0, 3, 1, 1]]
    pairs = [tuple(pair) for pair in digests[1].values.reshape(6, 2)]
    assert pairs[2] == (0, 0)
    assert len(set(pairs)) == 6


if __name__ == "__main__":
    SOURCE.with_suffix(".ptx").write_text(ptx(SOURCE), encoding="utf-8")
