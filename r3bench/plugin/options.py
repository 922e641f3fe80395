"""The options ``--r3-*`` and their ini twins ``r3_*``."""

from __future__ import annotations

from typing import Any

import pytest

OPTIONS = (
    # name, default, metavar, help; each is also the ini key r3_<name>
    ("device", "auto", "NAME", "device to replay on: auto, cuda, cpu"),
    ("gate", "", "PERCENT", "fail timing[...] when the working tree is slower than recorded by more than this"),
    ("trials", "10", "N", "tuning trials for each source candidate of --r3-evolve"),
    ("seconds", "20", "S", "time for the search of one kernel, before promotion"),
    ("seed", "0", "N", "seed of the search and of the order of timings"),
    ("timeout", "10", "S", "seconds after which a replayed kernel counts as hanging"),
    ("reports", "reports", "DIR", "folder that reports and patches are written to"),
)

# Where no gate is given: 10 % for a processor that others use too, 1 % for a GPU that is timed by one process at once.
DEFAULT_GATES = {"cpu": 0.1, "cuda": 0.01, "hip": 0.01}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("r3bench", "record, remix, replay GPU kernels")
    group.addoption("--r3-evolve", action="store_true", default=None, help="search for faster kernels; writes reports")
    parser.addini("r3_evolve", "twin of --r3-evolve", type="bool", default=False)
    for name, default, metavar, text in OPTIONS:
        group.addoption(f"--r3-{name}", metavar=metavar, default=None, help=f"{text} (default: {default or 'off'})")
        parser.addini(f"r3_{name}", f"twin of --r3-{name}", default=default)
    parser.addini("r3_captures", "folders whose units the fixture replay_unit runs over", type="args", default=[])


def option(config: pytest.Config, name: str) -> Any:
    """The option --r3-NAME, or its ini twin where it is not given."""
    value = config.getoption(f"r3_{name}")
    return config.getini(f"r3_{name}") if value is None else value


def number(config: pytest.Config, name: str) -> float:
    """A numeric option; UsageError names it where it is not a number."""
    try:
        return float(str(option(config, name)).rstrip("%"))
    except ValueError:
        raise pytest.UsageError(f"--r3-{name} takes a number, not {option(config, name)!r}") from None


def gate(config: pytest.Config) -> float | None:
    """The gate as a fraction (0.05 for 5 %), or None where none was given."""
    return number(config, "gate") / 100 if option(config, "gate") else None
