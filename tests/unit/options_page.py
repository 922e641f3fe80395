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
test. An item's marker `r3_gate(percent, ns=0)` is the guard's gate for it; all gates are in one
[table](measuring.md#gates).
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
    for name, parser, text in _choices(cli.parser()):
        yield f"\n### `r3bench {name}`\n\n{_sentence(text)}\n"
        inner = [(f"`{action}{_places(one)}`", what) for action, one, what in _choices(parser)]
        rows = [(_shown(action), _help(parser, action)) for action in parser._actions if _is_plain(action)]
        yield from _table(("argument", "meaning"), [*inner, *rows]) if inner or rows else ()


def _choices(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """The commands of a parser: name, its own parser, help."""
    for actions in (a for a in parser._actions if isinstance(a, argparse._SubParsersAction)):
        texts = {action.dest: action.help or "" for action in actions._choices_actions}
        yield from ((name, one, texts[name]) for name, one in actions.choices.items())


def _places(parser: argparse.ArgumentParser) -> str:
    return "".join(f" {_shown(action).strip('`')}" for action in parser._actions if _is_plain(action))


def _is_plain(action: argparse.Action) -> bool:
    hidden = action.dest == "help" or action.help == argparse.SUPPRESS
    return not hidden and not isinstance(action, argparse._SubParsersAction)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an argument as argparse prints it."""
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith("?") else ".")


def _shown(action: argparse.Action) -> str:
    names = {"choices": "|".join(map(str, action.choices or ())), "metavar": action.metavar or action.dest.upper()}
    value = names["choices"] or str(names["metavar"])
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    return f"`{action.option_strings[0]}`" if action.nargs == 0 else f"`{action.option_strings[0]} {value}`"


if __name__ == "__main__":
    print(page(), end="")
