"""The options ``--r3-*`` and their ini twins ``r3_*``."""

from __future__ import annotations

from typing import Any

import pytest

OPTIONS = (
    # name, default, metavar, help; each is also the ini key r3_<name>
    ("device", "auto", "NAME", "device to replay on: auto, cuda or cpu"),
    (
        "server",
        "",
        "URL",
        "replay on the server of r3bench serve at unix:/path, tcp://127.0.0.1:PORT or tls://HOST:PORT",
    ),
    (
        "cluster",
        "",
        "URL",
        "replay on many devices: local:N, slurm:N, pbs:N, lsf:N, or a Dask scheduler at tls://HOST:PORT",
    ),
    (
        "gate",
        "",
        "PERCENT",
        "fail timing[...] and guard when a kernel is slower by more (default: guard 10 on a CPU, 1 on a GPU)",
    ),
    ("guard", "", "BASE", "compare each kernel with BASE, a commit or a folder: the items guard, and no others"),
    ("head", "working tree", "NAME", "guard: what reports call the side that is compared with BASE"),
    ("gate_ns", "50", "NS", "guard: and slower by more than so many nanoseconds a launch"),
    ("fail_on", "slower,wrong,rerecorded", "LIST", "guard: the answers that fail an item"),
    ("search", "full", "MODE", "how --r3-evolve searches: full, rules, llm, best-of-n or bo"),
    ("proposer", "rules", "WHO", "who proposes sources: rules, openai:URL, litellm:MODEL, recorded:FILE, files:DIR"),
    ("patience", "300", "S", "seconds to wait for one answer, tries and pauses included"),
    ("iterations", "200", "N", "sources proposed for each kernel, at most"),
    ("trials", "", "N", "configurations tried of each source (default: 30; 200 for bo, 1 for llm)"),
    ("race", "on", "on|off", "off: every source gets all its trials, and each is timed to the end"),
    (
        "slots",
        "0",
        "N",
        "slots for passes in any order: the search makes pipelines of its own (0: varies LLVM's)",
    ),
    ("islands", "4", "N", "islands of the archive"),
    ("population", "20", "N", "elites of each island"),
    ("migrate", "20", "N", "proposals after which the best of each island migrate"),
    ("axes", "instructions,distance", "LIST", "what spans the archive: also registers, shared, spills"),
    ("stale", "", "N", "programs that may join an island before a child is judged (default: a quarter of the elites)"),
    ("proposing", "4", "N", "answers awaited at once"),
    (
        "seconds",
        "10",
        "S",
        "time for the search of each kernel, which a run's kernels share; promotion takes 5 to 30 s a kernel on top",
    ),
    ("evaluations", "", "N", "configurations evaluated in the whole search, before promotion"),
    ("tokens", "", "N", "tokens that models may read and write in the whole search"),
    ("dollars", "", "USD", "what models may cost in the whole search"),
    ("gpu_minutes", "", "MIN", "time in which the search may keep a GPU busy, before promotion"),
    ("seed", "0", "N", "seed of the search and of the order of timings"),
    ("timeout", "10", "S", "seconds after which a replayed kernel counts as hanging"),
    ("reports", "reports", "DIR", "folder that reports and patches are written to"),
)

# What a number may be: whole or not, from, to.
NUMBERS: dict[str, tuple[type[int] | type[float], float, float]] = {
    "gate": (float, 0.1, 1000),
    "gate_ns": (float, 0, 1e12),
    "patience": (float, 0, 10_000_000),
    "iterations": (int, 0, 1_000_000),
    "trials": (int, 1, 100_000),
    "slots": (int, 0, 64),
    "islands": (int, 1, 1000),
    "population": (int, 1, 100_000),
    "migrate": (int, 1, 1_000_000),
    "stale": (int, 1, 100_000),
    "proposing": (int, 1, 1000),
    "seconds": (float, 0, 10_000_000),
    "evaluations": (int, 0, 1_000_000_000),
    "tokens": (int, 0, 10**15),
    "dollars": (float, 0, 1e9),
    "gpu_minutes": (float, 0, 1e9),
    "seed": (int, 0, 2**32 - 1),
    "timeout": (float, 0.1, 3600),
}
CHOICES = {
    "device": ("auto", "cuda", "cpu"),
    "search": ("full", "rules", "llm", "best-of-n", "bo"),
    "race": ("on", "off"),
}
ABSENT = {"device": ("hip",)}  # who asks for it is told that it is not part of this version, when a device is needed
AXES = ("instructions", "distance", "registers", "shared", "spills")

# Where no gate is given: 10 % for a processor that others use too, 1 % for a GPU that is timed by one process at once.
DEFAULT_GATES = {"cpu": 0.1, "cuda": 0.01, "hip": 0.01}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("r3bench", "record, remix, replay GPU kernels")
    group.addoption("--r3-evolve", action="store_true", default=None, help="search for faster kernels; writes reports")
    parser.addini("r3_evolve", "twin of --r3-evolve", type="bool", default=False)
    group.addoption("--r3-history", action="store_true", default=None, help="keep this run's times in reports/history")
    parser.addini("r3_history", "twin of --r3-history", type="bool", default=False)
    group.addoption(
        "--r3-resume", action="store_true", default=None, help="go on with the searches whose ledgers are there"
    )
    parser.addini("r3_resume", "twin of --r3-resume", type="bool", default=False)
    group.addoption(
        "--r3-fast-math", action="store_true", default=None, help="let configurations round otherwise (CUDA only)"
    )
    parser.addini("r3_fast_math", "twin of --r3-fast-math", type="bool", default=False)
    group.addoption(
        "--r3-allow-unsealed",
        action="store_true",
        default=None,
        help="take sources from a proposer where this system cannot seal what compiles and runs them",
    )
    parser.addini("r3_allow_unsealed", "twin of --r3-allow-unsealed", type="bool", default=False)
    for name, default, metavar, text in OPTIONS:
        told = "" if "(default:" in text else f" (default: {default or 'off'})"
        group.addoption(flag(name), metavar=metavar, default=None, help=text + told)
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
    may_be_empty = {name for name, default, *_ in OPTIONS if not default}
    for name in NUMBERS:
        if option(config, name) != "" or name not in may_be_empty:
            number(config, name)
    for name, values in CHOICES.items():
        if option(config, name) not in (*values, *ABSENT.get(name, ())):
            raise pytest.UsageError(f"{flag(name)} takes {', '.join(values)}, not {option(config, name)!r}")
    if not set(axes(config)) <= set(AXES) or not axes(config):
        raise pytest.UsageError(f"--r3-axes takes some of {', '.join(AXES)}, not {option(config, 'axes')!r}")


def axes(config: pytest.Config) -> tuple[str, ...]:
    """The axes of the archive, each once."""
    return tuple(dict.fromkeys(name.strip() for name in str(option(config, "axes")).split(",")))


def check_proposer(config: pytest.Config) -> None:
    """UsageError for a proposer that does not exist, or whose sources this system could not seal; whether it answers is
    asked when it is needed."""
    from r3bench import sealing
    from r3bench.errors import ModelError
    from r3bench.evolve.propose import check_proposers

    try:
        found = check_proposers(str(option(config, "proposer")))
    except ModelError as error:
        raise pytest.UsageError(f"--r3-proposer: {error}") from None
    others = [kind for _, kind, _ in found if kind != "rules"]
    if others and sealing.missing() and not option(config, "allow_unsealed"):
        raise pytest.UsageError(
            f"--r3-proposer {others[0]}: its sources could do to this system what you can ({sealing.state()}): "
            "let it be rules, or give --r3-allow-unsealed as well"
        )


def check_server(config: pytest.Config) -> None:
    """UsageError for an address that is none; whether a server answers is asked when it is needed."""
    from r3bench.errors import ServiceError

    if option(config, "server") and option(config, "cluster"):
        raise pytest.UsageError("--r3-server and --r3-cluster exclude each other: leave one out")
    if option(config, "history") and option(config, "cluster"):
        raise pytest.UsageError("--r3-history keeps times of one device: leave it out, or --r3-cluster")
    for name, check in (("server", _check_address), ("cluster", _check_cluster)):
        try:
            if option(config, name):
                check(config, str(option(config, name)))
        except ServiceError as error:
            raise pytest.UsageError(f"--r3-{name}: {error}") from None


def _check_address(config: pytest.Config, address: str) -> None:
    from r3bench.server import addresses

    if addresses.parse(address).scheme != "unix":
        addresses.token()


def _check_cluster(config: pytest.Config, text: str) -> None:
    from r3bench.cluster import addresses
    from r3bench.errors import ServiceError

    if isinstance(addresses.parse(text), addresses.Start) and hasattr(config, "workerinput"):
        raise ServiceError("each worker of pytest-xdist would start one: leave out -n, or give the address of one")


def check_device(config: pytest.Config) -> None:
    """UsageError where the device that was asked for cannot be used here."""
    from r3bench.devices import survey

    found = next((each for each in survey() if each.name == option(config, "device")), None)
    if found is not None and not found.usable:
        raise pytest.UsageError(f"device {found.name} cannot be used: {found.detail}; {found.remedy}")


def check_reports(config: pytest.Config) -> None:
    """UsageError where reports could not be written, or would be written into a capture."""
    given = str(option(config, "reports"))
    if not given.strip():
        raise pytest.UsageError(f"--r3-reports takes a folder, not {given!r}")
    folder = (config.rootpath / given).resolve()
    for place in (folder, *folder.parents):
        if (place / "zarr.json").exists():
            raise pytest.UsageError(f"--r3-reports: {folder} lies in the store {place}; name a folder of its own")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"--r3-reports: {folder} cannot be made ({error.strerror}); name another") from None
