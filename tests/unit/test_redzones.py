"""What lies beside a buffer: nothing that a kernel which goes on past its end could be right with."""

from __future__ import annotations

import numpy as np
import pytest

from r3bench.devices.contents import redzone_pattern


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_no_redzone_holds_what_a_kernel_makes_of_another(dtype: str) -> None:
    one, other = (redzone_pattern(at, 4096).view(dtype) for at in (4096, 3 * 4096))
    for made in (one, one + one, one - one, one // 2 + one, -one):
        assert not (made == other).any()


@pytest.mark.parametrize(("dtype", "least"), [("float16", 30), ("float32", 1e9), ("float64", 1e70)])
def test_what_is_read_there_shows_in_a_sum(dtype: str, least: float) -> None:
    found = redzone_pattern(4096, 4096).view(dtype).astype(np.float64)
    assert np.isfinite(found).all()
    assert (np.abs(found) > least).all()
