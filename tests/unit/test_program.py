"""Programs: to the ledger and back, and no number for what failed."""

from __future__ import annotations

import pytest

from r3bench.evolve.program import Program
from r3bench.nouns import decode, encode

TEXT = (("kernels.cu", "__global__ void k() {}"),)


def test_a_program_survives_the_ledger() -> None:
    program = Program(id="p3", files=TEXT, parent="p0", origin="rules:hoist", speedup=1.25, cell=(3, 0), step=3, lag=1)
    assert decode(Program, encode(program)) == program


def test_a_failure_carries_no_number_and_a_match_must() -> None:
    failed = Program(id="p1", files=TEXT, status="failed", detail="mismatch: out differs")
    assert decode(Program, encode(failed)) == failed
    with pytest.raises(ValueError, match="only a program that matched has a speedup"):
        Program(id="p2", files=TEXT, status="failed", speedup=1.0)
    with pytest.raises(ValueError, match="each that matched has one"):
        Program(id="p2", files=TEXT, status="matched")
