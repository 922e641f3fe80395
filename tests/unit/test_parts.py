"""Work on large arrays, part by part in several threads: the same as on the whole."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from r3bench import compare, original, parts
from r3bench.compare import Buffer
from r3bench.parts import in_parts
from r3bench.store import in_memory


def buffer(nbytes: int) -> Buffer:
    return Buffer(name="x", nbytes=nbytes, dtype="float64", shape=(nbytes // 8,))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 7)


@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 50])
def test_every_element_is_in_one_part_and_in_order(size: int) -> None:
    values = np.arange(size)
    found = in_parts(lambda part: values[part].tolist(), size)
    assert [value for part in found for value in part] == values.tolist()
    assert all(1 <= len(part) <= 7 for part in found)


def test_several_threads_share_them() -> None:
    both = threading.Barrier(2, timeout=60)  # one thread alone would wait here in vain
    in_parts(lambda part: both.wait(), 14, 7)


def test_what_fails_in_a_part_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_parts(lambda part: 1 // (part.start - 7), 21)


@pytest.mark.parametrize("special", [(), (np.nan,), (np.inf, -np.inf, np.nan)])
def test_the_largest_finite_element_is_found_in_whatever_part(special: tuple[float, ...]) -> None:
    for at in range(40):
        values = np.linspace(-1, 1, 40)
        values[[(at + 3 + 9 * number) % 40 for number in range(len(special))]] = special
        values[at] = -5.0
        assert compare.largest(values.view(np.uint8), buffer(320)) == 5.0


def test_a_poison_repeats_its_values_to_the_end() -> None:
    values = np.arange(5, dtype=np.float64)
    data = original._repeated(values, buffer(107), in_memory)
    assert data.tobytes() == np.resize(values.view(np.uint8), 107).tobytes()
    assert not data.flags.writeable
