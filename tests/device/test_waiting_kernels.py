"""Random kernels with barriers and collectives anywhere agree with an interpreter, forward and in full reverse."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from lowered import Kernel, compiled
from waiting_kernels import VARIABLES, Generator, Writer, expected

from r3bench.devices.cpu.wire import ORDERS

SHAPES = ((64, 1), (40, 1), (33, 2), (8, 8), (5, 13), (1, 1))
BLOCKS = 2


@pytest.mark.parametrize("seed", range(8))
def test_random_kernel(seed: int) -> None:
    random, shape = Random(seed), SHAPES[seed % len(SHAPES)]
    threads = shape[0] * shape[1]
    program = Generator(random, threads, most=4).program()
    x, n = [random.randrange(200) for _ in range(64)], random.randrange(5)
    results, totals = expected(program, x, n, BLOCKS, threads)
    kernel = Kernel(compiled(Writer(threads).text(program)), "k")
    for order in ORDERS:
        out, total = np.zeros((BLOCKS * threads, VARIABLES + 1), np.uint32), np.zeros(BLOCKS, np.uint32)
        assert kernel((BLOCKS,), shape, np.array(x, np.uint32), out, total, np.uint32(n), order=order) == 0
        assert total.tolist() == totals
        for got, right in zip(out.tolist(), results, strict=True):
            assert got[: len(right)] == right  # a thread that left has written one number only
