"""The import rule: each module sits in a layer and imports from layers below; each package has its home.

This file is where the rule is written. A new module fails here until it is given its place.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "r3bench"

# Lowest first; a module may import from any line above its own, and a package from its own modules.
LAYERS = (
    ("errors", "locks", "parts", "sealing"),
    ("model", "symbols", "files"),
    ("nouns",),
    ("compare", "stats", "syntax", "ptxtext", "space", "toolkit", "calibration"),
    ("store", "worktree", "frontend", "lowering", "devices", "overrides", "rules"),
    ("remix", "commits", "recorder"),
    ("toolchain",),
    ("windows",),
    ("measure", "perturb", "original"),
    ("replay",),
    ("levels",),
    ("server",),
    ("cluster",),
    ("record", "ledger"),
    ("evolve", "report", "guard", "export"),
    ("history",),
    ("cli", "plugin", "testing"),
    ("__main__",),
)

HOMES = {
    "zarr": {"store"},
    "xarray": {"store"},
    "jsonschema": {"report.documents"},
    "numcodecs": {"store", "record.fatbin"},
    "google_crc32c": {"store"},
    "llvmlite": {"toolchain", "devices.cpu", "devices.cpu_worker"},
    "cuda": {"devices.cuda", "toolchain.jitlink", "record.images"},
    "ziglang": {"frontend"},
    "tree_sitter": {"syntax"},
    "tree_sitter_cuda": {"syntax"},
    "httpx": {"evolve.propose"},
    "litellm": {"evolve.propose"},
    "openai": {"evolve.propose"},
    "optuna": {"evolve.tuning"},
    "pytest": {"plugin", "testing"},
    "pytest_benchmark": {"plugin"},
    "tabulate": {"report", "cli"},
    "matplotlib": {"report.plots"},
    "distributed": {"cluster", "cli.worker"},
    "dask": {"cluster"},
    "msgpack": {"server.frames"},
    "numpy": {
        "store", "compare", "overrides", "stats", "measure", "perturb", "original", "replay", "levels", "server",
        "record", "devices", "evolve", "testing", "remix", "export",
        "history",
    },
}  # fmt: skip

HEAVY = ("numpy", "zarr", "xarray", "llvmlite", "optuna", "tree_sitter", "tabulate", "litellm", "httpx", "cupy", "dask")


def modules() -> list[str]:
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names.append(".".join(part for part in parts if part != "__init__"))
    return names


def file_of(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(module: str) -> Iterator[str]:
    """Every absolute module name that ``module`` imports, at any depth of its text."""
    for node in ast.walk(ast.parse(file_of(module).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} uses a relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(module: str) -> int:
    top = module.split(".")[0]
    for number, names in enumerate(LAYERS):
        if top in names:
            return number
    raise AssertionError(f"r3bench.{module} has no place in LAYERS")


def at_home(module: str, homes: set[str]) -> bool:
    return any(module == home or module.startswith(home + ".") for home in homes)


@pytest.mark.parametrize("module", [name for name in modules() if name])
def test_a_module_imports_only_from_layers_below(module: str) -> None:
    own = module.split(".")[0]
    known = set(modules())
    for name in imported(module):
        target = name.removeprefix("r3bench.")
        if name.startswith("r3bench.") and target in known and target.split(".")[0] != own:
            assert layer(target) < layer(module), f"r3bench.{module} imports r3bench.{target}, which is not below it"


@pytest.mark.parametrize("module", [name for name in modules() if name])
def test_third_party_packages_are_imported_at_home(module: str) -> None:
    for name in imported(module):
        package = name.split(".")[0]
        if package in sys.stdlib_module_names or package in {"r3bench", ""}:
            continue
        assert package in HOMES, f"r3bench.{module} imports {package}, which has no home"
        assert at_home(module, HOMES[package]), f"r3bench.{module} imports {package} away from its home"


def test_the_package_itself_imports_nothing_heavy() -> None:
    code = "import sys, r3bench.plugin, r3bench.cli; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & set(loaded)
