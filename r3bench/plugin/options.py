"""The options ``--r3-*`` and their ini twins ``r3_*``."""

from __future__ import annotations

from typing import Any

import pytest

OPTIONS = (
    # name, default, metavar, help; each is also the ini key r3_<name>
    ("device", "auto", "NAME", "device to replay on: auto, cuda or cpu"),
    ("gate", "", "PERCENT", "fail timing[...] and guard when a kernel is slower by more than this"),
    ("guard", "", "BASE", "compare each kernel with BASE, a commit or a folder: the item guard"),
    ("head", "working tree", "NAME", "guard: what reports call the side that is compared with BASE"),
    ("gate_ns", "50", "NS", "guard: and slower by more than so many nanoseconds a launch"),
    ("fail_on", "slower,wrong", "LIST", "guard: the answers that fail an item"),
    ("trials", "10", "N", "tuning trials for each source candidate of --r3-evolve"),
    ("seconds", "20", "S", "time for the search of one kernel, before promotion"),
    ("seed", "0", "N", "seed of the search and of the order of timings"),
    ("timeout", "10", "S", "seconds after which a replayed kernel counts as hanging"),
    ("reports", "reports", "DIR", "folder that reports and patches are written to"),
)

# What a number may be: whole or not, from, to.
NUMBERS: dict[str, tuple[type[int] | type[float], float, float]] = {
    "gate": (float, 0.1, 1000),
    "gate_ns": (float, 0, 1e12),
    "trials": (int, 1, 100_000),
    "seconds": (float, 1, 1_000_000),
    "seed": (int, 0, 2**32 - 1),
    "timeout": (float, 0.1, 3600),
}
DEVICES = ("auto", "cuda", "hip", "cpu")

# Where no gate is given: 10 % for a processor that others use too, 1 % for a GPU that is timed by one process at once.
DEFAULT_GATES = {"cpu": 0.1, "cuda": 0.01, "hip": 0.01}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("r3bench", "record, remix, replay GPU kernels")
    group.addoption("--r3-evolve", action="store_true", default=None, help="search for faster kernels; writes reports")
    parser.addini("r3_evolve", "twin of --r3-evolve", type="bool", default=False)
    group.addoption("--r3-history", action="store_true", default=None, help="keep this run's times in reports/history")
    parser.addini("r3_history", "twin of --r3-history", type="bool", default=False)
    for name, default, metavar, text in OPTIONS:
        group.addoption(flag(name), metavar=metavar, default=None, help=f"{text} (default: {default or 'off'})")
        parser.addini(f"r3_{name}", f"twin of --r3-{name}", default=default)
    parser.addini("r3_gates", "gates of single kernels: lines such as 'app/halo_* = 10% 500ns'", "linelist", default=[])
    parser.addini("r3_captures", "folders whose units the fixture replay_unit runs over", type="args", default=[])


def flag(name: str) -> str:
    """An option as it is written on the command line."""
    return f"--r3-{name.replace('_', '-')}"


def option(config: pytest.Config, name: str) -> Any:
    """The option of this name, or its ini twin where it is not given."""
    value = config.getoption(f"r3_{name}")
    return config.getini(f"r3_{name}") if value is None else value


def number(config: pytest.Config, name: str) -> float:
    """A numeric option; UsageError says what it takes."""
    kind, least, most = NUMBERS[name]
    given = option(config, name)
    try:
        value = kind(str(given).rstrip("%"))
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        what = "a whole number" if kind is int else "a number"
        raise pytest.UsageError(f"{flag(name)} takes {what} from {least:g} to {most:g}, not {given!r}")
    return value


def gate(config: pytest.Config) -> float | None:
    """The gate as a fraction (0.05 for 5 %), or None where none was given."""
    return number(config, "gate") / 100 if option(config, "gate") else None


def check_options(config: pytest.Config) -> None:
    """UsageError for a value that no run could use; whether a device is there is asked when it is needed."""
    for name in NUMBERS:
        if option(config, name) != "":
            number(config, name)
    if option(config, "device") not in DEVICES:
        raise pytest.UsageError(f"--r3-device takes {', '.join(DEVICES)}, not {option(config, 'device')!r}")


def check_device(config: pytest.Config) -> None:
    """UsageError where the device that was asked for cannot be used here."""
    from r3bench.devices import survey

    found = next((each for each in survey() if each.name == option(config, "device")), None)
    if found is not None and not found.usable:
        raise pytest.UsageError(f"device {found.name} cannot be used: {found.detail}; {found.remedy}")


def check_reports(config: pytest.Config) -> None:
    """UsageError where reports could not be written."""
    folder = config.rootpath / str(option(config, "reports"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"--r3-reports: {folder} cannot be made ({error.strerror}); name another") from None
