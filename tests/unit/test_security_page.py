"""SECURITY.md claims nothing that no test shows: every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = (TOP / "SECURITY.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 20
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (TOP / path).exists() or (name and f"def {name}(" not in (TOP / path).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_every_cheat_that_the_page_names_is_in_the_table() -> None:
    table = (TOP / "tests/cheats/table.py").read_text(encoding="utf-8")
    named = re.findall(r"\*([^*`|]+)\*", " ".join(PAGE.replace("**", "").split()))
    assert len(named) == 6
    assert [name for name in named if f'name="{name}"' not in table] == []
