"""The rule that lets a compiler see the values that a launch always has."""

from __future__ import annotations

import re

from r3bench.rules.subject import Subject, indented
from r3bench.syntax import Edit, apply, text_of

_MOST_LINES = 150  # of a body that is written twice


def expose(subject: Subject) -> str:
    """A copy of the body for the recorded sizes, in which they are constants; others take the body as it is."""
    facts = subject.facts()
    body, inner = facts.function.body, text_of(facts.function.body)[1:-1]
    declared = {v.name for v in facts.variables if v.place != "parameter"}
    fixed = {v.name: v for v in facts.variables if facts.is_fixed(v) and not v.pointer and not v.reference}
    chosen = [(n, v) for n, v in subject.values if n in fixed and n not in declared and re.search(rf"\b{n}\b", inner)]
    if not chosen or not facts.movable or "__shared__" in inner or inner.count("\n") > _MOST_LINES:
        return subject.text
    test = " && ".join(f"{name} == {value}" for name, value in chosen)
    constants = "".join(f"\n        constexpr {fixed[n].written_type} {n} = {value};" for n, value in chosen)
    copy = indented(inner.rstrip())
    first = f"\n    if ({test}) {{{constants}{copy}\n        return;\n    }}"
    return apply(subject.text, [Edit(body.start_byte + 1, body.start_byte + 1, first)])
