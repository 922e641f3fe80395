"""``r3bench doctor``: what can be used here and what to do about the rest."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata

from r3bench.errors import R3Error

# Distribution, what installs it ("" = r3bench alone), and what it is for.
PACKAGES = (
    ("pytest", "", "runs captures as tests"),
    ("pytest-benchmark", "", "timing table, JSON, comparison, histogram"),
    ("zarr", "", "captures"),
    ("xarray", "", "captures as datasets"),
    ("llvmlite", "", "LLVM: passes and code generation"),
    ("ziglang", "", "clang: kernel source to LLVM IR"),
    ("optuna", "", "Bayesian optimization (TPE)"),
    ("tree-sitter-cuda", "", "source rewrites by rule"),
    ("jsonschema", "", "reports: what does not fit is told"),
    ("msgpack", "", "r3bench serve and its clients"),
    ("httpx", "r3bench[openai]", "language models by OpenAI's protocol"),
    ("litellm", "r3bench[llm]", "language models of any provider"),
    ("pytest-xdist", "pytest-xdist", "pytest -n"),
    ("matplotlib", "r3bench[plots]", "plots of a report for publication"),
    ("distributed", "r3bench[cluster]", "many devices: pytest --r3-cluster"),
    ("clang-tidy", "r3bench[toolkit]", "clang's CUDA headers, for sources that include CUDA's own"),
)

Row = tuple[str, str, str, str]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "say which compiler, devices and packages are usable, and how to get the rest"
    commands.add_parser("doctor", help=text, description=text).set_defaults(run=doctor)


def package_rows() -> list[Row]:
    rows = []
    for name, source, purpose in PACKAGES:
        try:
            rows.append(("package", name, metadata.version(name), purpose))
        except metadata.PackageNotFoundError:
            remedy = f"optional; pip install '{source}'" if source else "reinstall r3bench"
            rows.append(("package", name, "missing", f"{purpose}; {remedy}"))
    return rows


def compiler_row() -> Row:
    from r3bench import frontend

    try:
        return "compiler", "clang", frontend.compiler_version(), "kernel source to LLVM IR"
    except R3Error as error:
        return "compiler", "clang", "unusable", str(error)


def seal_row() -> Row:
    from r3bench import sealing

    state, _, why = sealing.state().partition(": ")
    purpose = "files, network and processes are out of reach of kernels and of what compiles them"
    return "seal", "Landlock, seccomp", state, why or purpose


def device_rows() -> list[Row]:
    from r3bench.devices import survey

    return [
        (
            "device",
            status.name,
            "usable" if status.usable else "unusable",
            f"{status.detail}; {status.remedy}".rstrip("; "),
        )
        for status in survey()
    ]


def tool_rows() -> list[Row]:
    """NVIDIA's tools that watch a launch on a GPU."""
    from r3bench.devices.cuda import sanitizer, watched

    found = (
        (
            "compute-sanitizer",
            sanitizer.find(),
            "checked launches before a gain is claimed; pip install 'r3bench[cuda]'",
        ),
        ("ncu", watched.find("ncu"), "hardware counters for whoever proposes; part of a CUDA toolkit"),
    )
    return [("tool", name, "there" if path else "not here", f"on a GPU: {purpose}") for name, path, purpose in found]


def doctor(arguments: argparse.Namespace) -> int:
    """Print what is usable; 1 when not even the CPU device and the compiler are."""
    from tabulate import tabulate

    rows = [compiler_row(), seal_row(), *device_rows(), *tool_rows(), *package_rows()]
    print(f"r3bench {metadata.version('r3bench')} on Python {platform.python_version()}, {platform.platform()}\n")
    print(tabulate(rows, headers=("what", "name", "state", "detail"), maxcolwidths=[None, None, None, 78]))
    needed = {"clang", "cpu"} | {name for name, source, _ in PACKAGES if not source}
    return int(any(row[1] in needed and row[2] in {"unusable", "missing"} for row in rows))
