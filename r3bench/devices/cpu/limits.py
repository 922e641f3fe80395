"""What is refused before anything runs: launches beyond a GPU's limits, objects that need or lack something."""

from __future__ import annotations

from r3bench.devices.cpu.available import check_available
from r3bench.devices.cpu.elf import Symbols, read_symbols
from r3bench.devices.cpu.provided import CHECKS, IGNORED, NAMES
from r3bench.errors import LaunchError
from r3bench.model import Binary, LaunchConfig, ReplayUnit, Target, facts_of

# Those of compute capability 9.0, so that what runs here can run there.
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_STATIC_SHARED_BYTES = 48 << 10
MAX_SHARED_BYTES = 227 << 10


def check_launch(binary: Binary, launch: LaunchConfig) -> None:
    """LaunchError if a GPU would refuse this launch of this binary."""
    what = f"{binary.symbol} cannot be launched with"
    for name, dims, most in (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK)):
        if any(not 1 <= n <= limit for n, limit in zip(dims, most, strict=True)):
            raise LaunchError(f"{what} {name} {dims}: each dimension must be from 1 to {most}")
    if launch.threads_per_block > MAX_THREADS:
        raise LaunchError(f"{what} {launch.threads_per_block} threads per block: the limit is {MAX_THREADS}")
    if launch.cluster is not None:
        raise LaunchError(f"{what} clusters of blocks: the CPU device has none")
    static = facts_of(binary.facts).get("shared_bytes", 0)
    if static > MAX_STATIC_SHARED_BYTES:
        raise LaunchError(f"{what} {static} bytes of static shared memory: the limit is {MAX_STATIC_SHARED_BYTES}")
    if not 0 <= launch.shared_bytes <= MAX_SHARED_BYTES - static:
        total = f"{static} bytes of static and {launch.shared_bytes} of dynamic shared memory"
        raise LaunchError(f"{what} {total}: the limit is {MAX_SHARED_BYTES} together")


def check_unit(binary: Binary, symbols: Symbols, unit: ReplayUnit) -> None:
    """LaunchError if the binary takes other arguments than the unit has, or larger device variables."""
    wanted = facts_of(binary.facts).get("argument_bytes", len(unit.arguments))
    if wanted != len(unit.arguments):
        raise LaunchError(f"{binary.symbol} takes {wanted} bytes of arguments, but the unit has {len(unit.arguments)}")
    variables = symbols.variables
    for held in unit.globals:
        if held.symbol in variables and variables[held.symbol].nbytes > held.nbytes:
            sizes = f"{variables[held.symbol].nbytes} bytes, but {held.nbytes} were recorded"
            raise LaunchError(f"{binary.symbol} has a device variable {held.symbol} of {sizes}")


def check_binary(binary: Binary, target: Target) -> Symbols:
    """The symbols of a binary that can be loaded here, otherwise LaunchError."""
    if binary.format != "object" or binary.target != target:
        made = f"{binary.format} code for {binary.target.device} {binary.target.arch}"
        raise LaunchError(f"{binary.symbol} is {made}; the CPU device loads objects for {target.arch}")
    try:
        symbols = read_symbols(binary.image)
    except ValueError as error:
        raise LaunchError(f"{binary.symbol} cannot be loaded: {error}") from error
    checks = CHECKS if facts_of(binary.facts).get("checked") else frozenset()
    if unknown := sorted(symbols.undefined - NAMES - IGNORED - checks):
        raise LaunchError(f"{binary.symbol} calls {', '.join(unknown)}, which the CPU device does not provide")
    check_available(sum(held.nbytes for held in symbols.variables.values()), f"{binary.symbol} with its variables")
    if missing := sorted({"r3_run_block", "r3_frame_bytes"} - symbols.defined.keys()):
        raise LaunchError(f"{binary.symbol} cannot be loaded: its object does not define {', '.join(missing)}")
    return symbols
