"""CUDA C++ as text that can be read and edited: where a kernel is, what its parameters say, edits by byte range.

Nothing here knows what an edit means; :mod:`r3bench.rules` does. Positions are byte offsets into the UTF-8 text,
lines count from 1. tree-sitter reads on after an error, and where it loses the kernel itself the kernel is found by its
brackets, so a file that is strange elsewhere can still be edited here.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser, Query, QueryCursor, Tree

from r3bench.errors import BuildError

__all__ = [
    "Edit",
    "Function",
    "Node",
    "ParameterText",
    "apply",
    "captured",
    "defined_in",
    "file_of",
    "find_kernel",
    "functions",
    "kernels",
    "parse",
    "plain_name",
    "scoped_name",
    "span_of",
    "text_of",
    "tokens",
    "walk",
]

_LANGUAGE = Language(tree_sitter_cuda.language())
_HEADS = ("pointer_declarator", "array_declarator", "reference_declarator", "parenthesized_declarator")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes ``start`` up to ``end`` by ``text``; an insertion where both are equal."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterText:
    """One parameter as written. ``type`` is the text in front of ``*`` without const; ``name`` is empty if it has none.

    ``const`` says that what a pointer points to (or the value itself) is const. ``start`` and ``end`` are byte offsets
    of the whole declaration, ``name_at`` that of the name.
    """

    name: str
    text: str
    type: str
    pointer: bool
    const: bool
    restrict: bool
    volatile: bool
    reference: bool
    start: int
    end: int
    name_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function definition: ``span`` is its first and last line (from 1), ``broken`` says its body has errors."""

    name: str
    kernel: bool
    span: tuple[int, int]
    parameters: tuple[ParameterText, ...]
    node: Node
    body: Node
    broken: bool


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits made at once; insertions at one place keep their order. ValueError if edits overlap."""
    data, pieces, at = text.encode(), list[bytes](), 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < at or edit.end < edit.start or edit.end > len(data):
            raise ValueError(f"the edit of bytes {edit.start} to {edit.end} overlaps another or lies outside the text")
        pieces += (data[at : edit.start], edit.text.encode())
        at = edit.end
    return b"".join((*pieces, data[at:])).decode()


_recent: OrderedDict[str, Tree] = OrderedDict()
_RECENT = 64


def parse(text: str, like: str = "") -> Node:
    """The root of the syntax tree; its positions are bytes of the UTF-8 text.

    Texts that are mostly ``like`` another one take a quarter of the time.
    """
    return _tree(text, like).root_node


def _tree(text: str, like: str = "") -> Tree:
    """One of the recent trees, or a new one; several threads may ask."""
    tree = _recent.pop(text, None) or _parsed(text, like)
    _recent[text] = tree
    if len(_recent) > _RECENT:
        _recent.popitem(last=False)
    return tree


def _parsed(text: str, like: str) -> Tree:
    data = text.encode()
    if like and not (known := _tree(like)).root_node.has_error:
        tree = Parser(_LANGUAGE).parse(data, _edited(known, like.encode(), data))
        if not tree.root_node.has_error:  # how it reads on after an error depends on what it read before
            return tree
    return Parser(_LANGUAGE).parse(data)


def _edited(tree: Tree, before: bytes, after: bytes) -> Tree:
    """A copy of a tree of one text in which that part is marked which another text has in its own way."""
    start = _alike(before, after)
    end = _alike(before[start:][::-1], after[start:][::-1])
    old, new = len(before) - end, len(after) - end
    edited = tree.copy()
    edited.edit(start, old, new, _point(before, start), _point(before, old), _point(after, new))
    return edited


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with alike."""
    return bisect_left(range(min(len(one), len(other))), True, key=lambda n: one[: n + 1] != other[: n + 1])


def _point(text: bytes, at: int) -> tuple[int, int]:
    return text.count(b"\n", 0, at), at - (text.rfind(b"\n", 0, at) + 1)


# A comment, a preprocessor line, any other token.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|(^[ \t]*\#(?:[^\n\\]|\\.)*)|("(?:\\.|[^"\\\n])*"|\w+|[^\s\w])""", re.DOTALL | re.MULTILINE
)


@lru_cache(maxsize=256)
def tokens(text: str) -> tuple[str, ...]:
    """The tokens of a text in order, without comments; a preprocessor line is one token, its spaces made single."""
    return tuple(token or " ".join(line.split()) for line, token in _TOKEN.findall(text) if token or line)


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, named ones only, in the order of the text."""
    pending = [node]
    while pending:
        item = pending.pop()
        yield item
        pending.extend(reversed(item.named_children))


def captured(node: Node, pattern: str) -> list[Node]:
    """The nodes from this one on down that a pattern of tree-sitter's queries captures as ``found``, in the order of
    :func:`walk`, which is slower."""
    found = QueryCursor(_query(pattern)).captures(node).get("found", [])
    return sorted(found, key=lambda node: (node.start_byte, -node.end_byte))


@cache
def _query(pattern: str) -> Query:
    return Query(_LANGUAGE, pattern)


def side(node: Node, name: str) -> Node:
    """A part of a node that is always there."""
    child = node.child_by_field_name(name)
    assert child is not None
    return child


def is_field(above: Node, node: Node, name: str) -> bool:
    """Whether a node is this part of the one above it."""
    child = above.child_by_field_name(name)
    return child is not None and child.id == node.id


def text_of(node: Node) -> str:
    """The text of a node."""
    return (node.text or b"").decode()


def plain_name(demangled: str) -> str:
    """``ns::scale<float>(float*)`` -> ``scale``: a kernel's name as its definition spells it."""
    return scoped_name(demangled).rpartition("::")[2]


def scoped_name(demangled: str) -> str:
    """``ns::scale<float>(float*)`` -> ``ns::scale``: a kernel's name with those of the namespaces around it."""
    head = re.sub(r"(\(anonymous namespace\)|_GLOBAL__N_\w*)::", "", demangled).split("(", 1)[0]
    while (bare := re.sub(r"<[^<>]*>", "", head)) != head:
        head = bare
    return head.split()[-1] if head.split() else ""


@lru_cache(maxsize=64)
def functions(text: str) -> tuple[Function, ...]:
    """Every function defined in the text, in order; those inside of functions only where the text has errors."""
    root = parse(text)
    nodes = walk(root) if root.has_error else _outside_bodies(root)
    found = (_function(node) for node in nodes if node.type == "function_definition")
    return tuple(function for function in found if function is not None)


def _outside_bodies(root: Node) -> Iterator[Node]:
    """As :func:`walk`, but for what is in the body of a function."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(child for child in reversed(node.named_children) if child.type != "compound_statement")


def kernels(text: str) -> tuple[str, ...]:
    """Names of the ``__global__`` functions that the text defines, in order."""
    return tuple(function.name for function in functions(text) if function.kernel)


def find_kernel(text: str, name: str, *, file: str = "the source") -> Function:
    """The definition of a kernel by its name: of several the one in its namespaces, else the first. BuildError where
    the text defines none."""
    found = _kernel(text, name)
    if found is None:
        others = ", ".join(kernels(text)) or "none"
        raise BuildError(f"{file} does not define the kernel {name} (it defines: {others}): restore its definition")
    return found


def span_of(text: str, name: str) -> tuple[int, int]:
    """The first and last line of a kernel's definition; all lines where it comes from a header or a macro."""
    found = _kernel(text, name)
    return found.span if found is not None else (1, max(1, text.count("\n")))


def file_of(files: Mapping[str, str], main: str, kernel: str) -> str:
    """The file that :func:`defined_in` finds a kernel in."""
    return defined_in(files, main, kernel)[0]


def defined_in(files: Mapping[str, str], main: str, kernel: str) -> tuple[str, Function]:
    """The file of a translation unit that defines a kernel, the main one or one that it includes, and the definition.

    BuildError where none of them does.
    """
    paths = (main, *sorted(files.keys() - {main}))
    found = {path: function for path in paths if (function := _kernel(files[path], kernel)) is not None}
    if not found:
        written = "restore its definition, or write it out where a macro makes it"
        raise BuildError(f"{main}, with the files that it includes, does not define the kernel {kernel}: {written}")
    return next((each for each in found.items() if _scoped(each[1]) == kernel), next(iter(found.items())))


def _kernel(text: str, name: str) -> Function | None:
    plain = name.rpartition("::")[2]
    own = [function for function in functions(text) if function.kernel and function.name == plain]
    return next((f for f in own if _scoped(f) == name), None) or next(iter(own), None) or _by_brackets(text, plain)


def _scoped(function: Function) -> str:
    """A function's name with those of the namespaces around it."""
    names, node = [function.name], function.node.parent
    while node is not None:
        if node.type == "namespace_definition" and (name := node.child_by_field_name("name")) is not None:
            names.insert(0, text_of(name))
        node = node.parent
    return "::".join(names)


# -- one function -----------------------------------------------------------------------------------------------------


def _function(node: Node) -> Function | None:
    declarator = node.child_by_field_name("declarator")
    body = node.child_by_field_name("body")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    if declarator is None or body is None or body.type != "compound_statement":
        return None
    name, listed = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("parameters")
    if name is None or listed is None:
        return None
    head = (node.text or b"")[: body.start_byte - node.start_byte].decode()
    return Function(
        name=text_of(name).split("::")[-1],
        kernel="__global__" in head,
        span=(node.start_point.row + 1, node.end_point.row + 1),
        parameters=tuple(_parameter(child) for child in listed.named_children if "parameter" in child.type),
        node=node,
        body=body,
        broken=body.has_error,
    )


def _parameter(node: Node) -> ParameterText:
    text, parts = text_of(node), list(walk(node))
    name = next((n for n in parts if n.type == "identifier"), None)
    name_at = name.start_byte if name is not None else node.end_byte
    head = (node.text or b"")[: name_at - node.start_byte].decode()
    pointee, star, own = head.partition("*")
    kind = node.child_by_field_name("type")
    nested = any(n.type in _HEADS[1:] for n in parts) or own.count("*") > 0
    return ParameterText(
        name=text_of(name) if name is not None else "",
        text=text,
        type=text_of(kind) if kind is not None else "",
        pointer=bool(star) and not nested,
        const=bool(re.search(r"\bconst\b", pointee)),
        restrict=bool(re.search(r"\b(__restrict__|__restrict|restrict)\b", head)),
        volatile=bool(re.search(r"\bvolatile\b", head)),
        reference="&" in head,
        start=node.start_byte,
        end=node.end_byte,
        name_at=name_at,
    )


# -- where the tree lost the kernel ---------------------------------------------------------------------------------

_SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", lambda c: " " * len(c[0].encode()), match[0])


def _by_brackets(text: str, name: str) -> Function | None:
    """Parse only the kernel, the rest blanked out (so positions stay), found by counting brackets."""
    plain = _SKIPPED.sub(_blank, text).encode()
    for start in re.finditer(rb"\b__global__\b[^;{}]*?\b" + re.escape(name).encode() + rb"\s*\(", plain):
        closing = _closing(plain, start.end() - 1, b"()")
        opening = re.compile(rb"\s*\{").match(plain, closing)
        end = _closing(plain, opening.end() - 1, b"{}") if opening else -1
        if opening is None or end < 0:
            continue
        masked = re.sub(rb"[^\n]", b" ", plain[: start.start()]) + text.encode()[start.start() : end]
        found = [f for f in functions(masked.decode()) if f.name == name]
        if found:
            return found[0]
    return None


def _closing(text: bytes, start: int, pair: bytes) -> int:
    """One past the bracket that closes the one at ``start``; -1 where none does."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == pair[0]) - (text[at] == pair[1])
        if depth == 0:
            return at + 1
    return -1
