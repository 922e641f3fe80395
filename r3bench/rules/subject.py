"""What a rewriting rule works on, and how it is applied again and again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from r3bench.model import Dim3
from r3bench.rules.analysis.declared import Declared, declared
from r3bench.rules.analysis.facts import Facts
from r3bench.rules.motion import Rewrite
from r3bench.syntax import Function, find_kernel, functions, text_of, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a rule works on. ``context`` holds the other files of the translation unit, read for declarations only.

    Of the recorded launches it knows: ``disjoint``, that pointer arguments never overlap; ``small``, that no array has
    2^31 bytes or more; ``block`` and the ``values`` of whole-numbered scalar parameters, those of the first launch.
    """

    text: str
    kernel: str
    disjoint: bool = False
    context: tuple[str, ...] = ()
    small: bool = False
    block: Dim3 | None = None
    values: tuple[tuple[str, int], ...] = ()

    def known(self) -> Declared:
        return declared(*self.context, self.text)

    def function(self, name: str = "") -> Function:
        """The kernel, or a device function of this text by name."""
        if not name:
            return find_kernel(self.text, self.kernel)
        return next(f for f in functions(self.text) if f.name == name and not f.kernel)

    def facts(self, name: str = "") -> Facts:
        """What is known of the kernel, or of a device function: there nothing says where its pointers lead."""
        return _facts(self, name)

    def reachable(self) -> list[str]:
        """The device functions of this text that the kernel calls, directly or not."""
        own = {f.name: f for f in functions(self.text) if not f.kernel}
        found, pending = list[str](), [self.function()]
        while pending:
            called = [text_of(n) for n in walk(pending.pop().body) if n.type == "identifier"]
            new = [name for name in dict.fromkeys(called) if name in own and name not in found]
            found += new
            pending += [own[name] for name in new]
        return found

    def edited(self, text: str) -> Subject:
        return replace(self, text=text)


@lru_cache(maxsize=32)
def _facts(subject: Subject, name: str) -> Facts:
    """Remembered, for every rule begins with the same text."""
    return Facts(subject.function(name), subject.known(), subject.disjoint and not name)


def repeat(subject: Subject, once: Callable[[Facts, Rewrite], bool], *, where: str = "", rounds: int = 12) -> str:
    """Apply a rewrite to the kernel, then to the device functions it calls, until it finds nothing more.

    Each round reads the text anew; functions without the text ``where`` are not looked at.
    """
    for name in ("", *subject.reachable()):
        for _ in range(rounds):
            function = subject.function(name)
            if where not in text_of(function.node):
                break
            facts = subject.facts(name)
            rewrite = Rewrite(facts, subject.text)
            if not facts.movable or not once(facts, rewrite):
                break
            subject = subject.edited(rewrite.result())
    return subject.text


def indented(lines: str) -> str:
    """The lines four spaces further in, but for directives."""
    return re.sub(r"\n(?=[^\n#])", "\n    ", lines)
