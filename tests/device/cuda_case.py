"""Kernels and units for tests of the CUDA device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from r3bench.model import Binary, Configuration, LaunchConfig, Target
from r3bench.remix import BuildRequest
from r3bench.space import UnitFacts
from r3bench.testing.contract import Case, case
from r3bench.toolchain import Compiler

TEXT = (Path(__file__).parent / "cuda_device.cu").read_text(encoding="utf-8")


def built(compiler: Compiler, symbol: str, target: Target, text: str = TEXT, **configuration: Any) -> Binary:
    """A kernel of cuda_device.cu, or of another text."""
    request = BuildRequest(
        files=(("k.cu", text),),
        main="k.cu",
        flags=(),
        symbol=symbol,
        target=target,
        configuration=Configuration(**configuration),
        facts=UnitFacts(launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)), parameters=()),
    )
    return compiler.submit(request).result(60).binary


def lone(n: int = 4) -> Case:
    return case({"x": np.ones(n)}, ["x"], block=(1, 1, 1))
