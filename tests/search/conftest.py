"""Captures that :mod:`tests.search.fake_server` makes up hold no memory to look at."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r3bench.evolve.exploring.value_ranges", lambda capture: {})
