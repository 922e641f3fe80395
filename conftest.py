"""Points pytest at captures/ and sets the defaults of our own tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests run where a CUDA device is, and say elsewhere why they did not."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    from r3bench.devices import survey

    cuda = next(status for status in survey() if status.name == "cuda")
    if not cuda.usable:
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason=f"no CUDA device: {cuda.detail}"))
