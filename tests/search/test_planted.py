"""The planted slow kernel computes what miniweather's own kernel computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kernels.miniweather import reference as ref
from r3bench import store
from tests.search import planted


def test_the_slow_copy_computes_the_tendencies_along_x(tmp_path: Path) -> None:
    capture = planted.record_slow(tmp_path)
    for unit in capture.units:
        state, tendency = unit.allocations[0], unit.allocations[-1]
        before, after = store.contents(capture, unit.index).before, store.expected(capture, unit.index)
        inner = before["state"].view("f8").reshape(state.shape)[:, 2:-2, 2:-2]
        _, nz, nx = inner.shape
        expected = ref.tendencies_x(inner, ref.background(nz, "thermal"), ref.time_step(nx, nz))
        actual = after["tendency"].view("f8").reshape(tendency.shape)
        np.testing.assert_allclose(
            actual, expected, rtol=1e-12, atol=8 * np.finfo(np.float64).eps * ref.P0 * nx / ref.WIDTH
        )


def test_the_best_kernel_copies(tmp_path: Path) -> None:
    capture = planted.record_best(tmp_path)
    assert [unit.held_out for unit in capture.units] == [False, True, True]
    for unit in capture.units:
        after = store.expected(capture, unit.index)
        assert np.array_equal(after["to"], after["from"])
