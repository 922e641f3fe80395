"""The pytest plugin: options, collection of captures, items, fixtures. What they do is done elsewhere.

pytest loads this package in every run of an environment, so everything heavy is imported inside the functions that
need it.
"""

from __future__ import annotations

import pytest

from r3bench.plugin.checks import pytest_keyboard_interrupt, pytest_unconfigure
from r3bench.plugin.fixtures import pytest_generate_tests, r3_device, r3_replay, replay_unit
from r3bench.plugin.guards import Guards, check_guard
from r3bench.plugin.histories import Histories
from r3bench.plugin.items import (
    pytest_collect_directory,
    pytest_collect_file,
    pytest_collection_finish,
    pytest_collection_modifyitems,
)
from r3bench.plugin.options import check_options, option, pytest_addoption
from r3bench.plugin.searches import Searches
from r3bench.plugin.timings import Timings, pytest_runtest_makereport

__all__ = [
    "pytest_addoption",
    "pytest_collect_directory",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_keyboard_interrupt",
    "pytest_runtest_makereport",
    "pytest_unconfigure",
    "r3_device",
    "r3_replay",
    "replay_unit",
]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.args[:] = [inside_store(arg) for arg in config.args]
    config.addinivalue_line("markers", "r3_gate(percent, ns=0): what the guard calls slower for this item")
    check_options(config)
    check_guard(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Timings(), "r3bench-timings")
        config.pluginmanager.register(Searches(), "r3bench-searches")
        if option(config, "history"):
            config.pluginmanager.register(Histories(config), "r3bench-histories")
        if option(config, "guard"):
            config.pluginmanager.register(Guards(config), "r3bench-guards")


def inside_store(arg: str) -> str:
    """``x.zarr::item`` names an item of the file that the store's directory holds."""
    path, sep, item = arg.partition("::")
    return f"{path.rstrip('/')}/zarr.json{sep}{item}" if sep and path.rstrip("/").endswith(".zarr") else arg
