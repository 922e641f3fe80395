"""docs/options.md, made from the options themselves: python tests/unit/options_page.py > docs/options.md"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from r3bench import cli
from r3bench.plugin import options

if TYPE_CHECKING:
    import pytest

HEAD = """\
# Options

## pytest

Each has a twin in pytest's configuration: `--r3-gate-ns` is `r3_gate_ns` in `pytest.ini` or in `pyproject.toml`, in the
section `tool.pytest.ini_options`. Pytest's own options, and those of pytest-benchmark and pytest-xdist, work as for any
test. An item's marker `r3_gate(percent, ns=0)` is the guard's gate for it.
"""


class Recorder:
    """Takes what the plugin adds to pytest's options: how each is written, and its help."""

    def __init__(self) -> None:
        self.options: list[tuple[str, str]] = []
        self.ini: list[tuple[str, str]] = []

    def getgroup(self, name: str, description: str) -> Recorder:
        return self

    def addoption(self, name: str, **given: str) -> None:
        self.options.append((f"`{name} {given['metavar']}`" if "metavar" in given else f"`{name}`", given["help"]))

    def addini(self, name: str, help: str, *_: str, **given: Any) -> None:
        if not help.startswith("twin of"):
            self.ini.append((f"`{name}` (configuration only)", help))


def page() -> str:
    """The whole page."""
    found = Recorder()
    options.pytest_addoption(cast("pytest.Parser", found))
    return "\n".join([HEAD, *_table(("option", "meaning"), [*found.options, *found.ini]), "", *_commands()]) + "\n"


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---|---|"
    for name, text in rows:
        yield f"| {name.replace('|', chr(92) + '|')} | {text.replace('|', chr(92) + '|')} |"


def _commands() -> Iterator[str]:
    yield "## The command line"
    (commands,) = (a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction))
    texts = {action.dest: action.help or "" for action in commands._choices_actions}
    for name, parser in commands.choices.items():
        yield f"\n### `r3bench {name}`\n\n{texts[name][:1].upper()}{texts[name][1:]}.\n"
        rows = [(_shown(action), action.help or "") for action in parser._actions if action.dest != "help"]
        yield from _table(("argument", "meaning"), rows) if rows else ()


def _shown(action: argparse.Action) -> str:
    names = {"choices": "|".join(map(str, action.choices or ())), "metavar": action.metavar or action.dest.upper()}
    value = names["choices"] or str(names["metavar"])
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    return f"`{action.option_strings[0]}`" if action.nargs == 0 else f"`{action.option_strings[0]} {value}`"


if __name__ == "__main__":
    print(page(), end="")
