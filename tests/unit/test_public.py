"""What ``import r3bench`` promises."""

from __future__ import annotations

import pytest

import r3bench


def test_every_public_name_is_there_and_sorted() -> None:
    assert r3bench.__all__ == sorted(r3bench.__all__)
    for name in r3bench.__all__:
        assert getattr(r3bench, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        r3bench.nothing  # noqa: B018
