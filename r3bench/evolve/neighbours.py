"""Which other kernels of a file an edit reaches through the device functions they share."""

from __future__ import annotations

from r3bench.rules.subject import Subject
from r3bench.syntax import kernels, text_of


def changed_kernels(before: str, after: str, own: str) -> tuple[str, ...]:
    """The kernels besides ``own`` whose text, or that of a device function they call, differs; in the file's order."""
    both = [name for name in kernels(before) if name != own and name in kernels(after)]
    return tuple(name for name in both if _code(before, name) != _code(after, name))


def _code(text: str, kernel: str) -> list[str]:
    """A kernel and the device functions of its file that it reaches, as written."""
    subject = Subject(text=text, kernel=kernel)
    return [text_of(subject.function(name).node) for name in ("", *subject.reachable())]
