"""What of a translation unit is open to edits: a kernel and the device functions that it reaches, in whichever file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from r3bench.syntax import Edit, Function, Node, apply, captured, find_kernel, functions, parse, text_of

FILE_LINE = re.compile(r"^// file: (.*?)[ \t\r]*\n", re.MULTILINE)
"""What stands in front of each file's functions where several files are shown."""

_WRAPPERS = ("template_declaration", "linkage_specification")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One open function: its text with the comment right above it, at the bytes ``start`` to ``end`` of its file."""

    path: str
    name: str
    parameters: str
    kernel: bool
    start: int
    end: int
    text: str


def opened(files: Mapping[str, str], file: str, kernel: str) -> tuple[Item, ...]:
    """The open functions of a translation unit, by file and place, last those of the kernel's ``file``.

    BuildError where that does not define the kernel.
    """
    return _opened(tuple(sorted(files.items())), file, kernel)


@lru_cache(maxsize=256)
def _opened(files: tuple[tuple[str, str], ...], file: str, kernel: str) -> tuple[Item, ...]:
    own = find_kernel(dict(files)[file], kernel, file=file)
    everything = [(path, function) for path, text in files for function in functions(text) if not function.kernel]
    found = [(file, own), *_reached(own, everything)]
    items = [_item(path, dict(files)[path], function) for path, function in found]
    return tuple(sorted(items, key=lambda item: (item.path == file, item.path, item.start)))


def _reached(kernel: Function, everything: list[tuple[str, Function]]) -> Iterator[tuple[str, Function]]:
    pending, seen = [kernel], {kernel.name}
    while pending:
        named = set(map(text_of, captured(pending.pop().node, "(identifier) @found"))) - seen
        seen |= named
        new = [(path, function) for path, function in everything if function.name in named]
        yield from new
        pending += [function for _, function in new]


def _item(path: str, text: str, function: Function) -> Item:
    start, end = span(function.node)
    return Item(
        path=path,
        name=function.name,
        parameters=parameters(function),
        kernel=function.kernel,
        start=start,
        end=end,
        text=text.encode()[start:end].decode(),
    )


def parameters(function: Function) -> str:
    """The types of a function's parameters: what tells overloads apart."""
    return ", ".join(p.type + ("*" if p.pointer else "") for p in function.parameters)


def whole(node: Node) -> Node:
    """A definition with the ``template <...>`` or ``extern "C"`` in front of it."""
    while node.parent is not None and node.parent.type in _WRAPPERS:
        node = node.parent
    return node


def span(node: Node) -> tuple[int, int]:
    """The bytes of a definition with what stands in front of it, and the comment right above."""
    first = last = whole(node)
    while (above := first.prev_named_sibling) is not None and _belongs(above, first):
        first = above
    return first.start_byte, last.end_byte


def _belongs(above: Node, below: Node) -> bool:
    alone = above.prev_named_sibling is None or above.prev_named_sibling.end_point.row < above.start_point.row
    return above.type == "comment" and alone and above.end_point.row + 1 == below.start_point.row


def definitions(text: str) -> Iterator[tuple[str, Node]]:
    """The outermost definitions of a text, those in namespaces and in ``extern "C" { }`` one by one: each as written,
    with the comment right above it, and its node."""
    data = text.encode()
    for node in _outer(parse(text)):
        start, end = span(node)
        following = node.next_sibling
        semicolon = ";" if following is not None and following.type == ";" else ""  # no part of a type's node
        yield data[start:end].decode().rstrip("\n") + semicolon, node


def _outer(root: Node) -> Iterator[Node]:
    for node in root.named_children:
        if node.type in ("namespace_definition", "declaration_list"):
            yield from _outer(node)
        elif node.type == "linkage_specification" and node.named_children[-1].type == "declaration_list":
            yield from _outer(node.named_children[-1])
        elif node.type not in ("comment", "namespace_identifier"):
            yield node


def shown(items: Iterable[Item]) -> str:
    """The open functions as one text; each file's begin with ``// file: <path>`` where there are several files."""
    files: dict[str, list[str]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item.text)
    heads = [f"// file: {path}\n" if len(files) > 1 else "" for path in files]
    return "\n\n".join(head + "\n\n".join(texts) for head, texts in zip(heads, files.values(), strict=True)) + "\n"


def surroundings(files: Mapping[str, str], file: str, kernel: str) -> str:
    """The rest of the translation unit: bodies of other functions left out, each open function as a comment."""
    named = opened(files, file, kernel)
    return "\n".join(
        f"// file: {path}\n{_around(text, [item for item in named if item.path == path])}"
        for path, text in sorted(files.items(), key=lambda pair: (pair[0] == file, pair[0]))
    )


def _around(text: str, items: list[Item]) -> str:
    edits = [Edit(item.start, item.end, f"/* open: {item.name} */") for item in items]
    for function in functions(text):
        start, end = function.body.start_byte, function.body.end_byte
        if not any(item.start <= start < item.end for item in items):
            edits.append(Edit(start, end, "{ ... }"))
    return apply(text, _outermost(edits))


def _outermost(edits: list[Edit]) -> list[Edit]:
    """Without those that lie inside another one (functions of a struct in a function)."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
    return kept
