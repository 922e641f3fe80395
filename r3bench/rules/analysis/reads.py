"""What an expression needs: the variables and memories that its value depends on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from r3bench.rules.analysis.declared import INDEX_NAMES, Declared, is_pure, words
from r3bench.rules.analysis.dtypes import FLOATS
from r3bench.rules.analysis.names import Base, Names, Variable
from r3bench.syntax import Node, text_of, walk

_VALUES = words(
    """identifier number_literal parenthesized_expression binary_expression unary_expression conditional_expression
    cast_expression type_descriptor primitive_type type_identifier subscript_expression subscript_argument_list
    field_expression field_identifier call_expression argument_list pointer_expression comment true false
    template_function template_argument_list qualified_identifier namespace_identifier type_qualifier
    sized_type_specifier abstract_pointer_declarator"""
)
IRREGULAR = words(
    """goto_statement labeled_statement lambda_expression try_statement preproc_if preproc_ifdef preproc_else
    asm_statement gnu_asm_expression preproc_def preproc_function_def for_range_loop co_await_expression"""
)
"""What the analysis does not follow: nothing moves in a function that has one of these."""


@dataclass(frozen=True, eq=False)
class Needs:
    """What an expression's value depends on. ``safe`` says that computing it needlessly can do no harm."""

    variables: frozenset[Variable]
    reads: tuple[Base, ...]
    safe: bool


@dataclass(frozen=True)
class Summary:
    """What calling a device function of the file does: compute a value, perhaps reading through its pointers.

    ``safe`` says that a needless call does no harm (no memory access, no integer division).
    """

    reads: bool
    safe: bool


def needs(names: Names, node: Node) -> Needs | None:
    """None where the value is not a plain function of variables and memory (an unknown call, an assignment, ...)."""
    return _Reader(names).read(node)


def place(names: Names, node: Node) -> Base:
    """The memory that an lvalue (``p[i]``, ``*p``, ``p->f``, ``a[i][j].x``) lies in."""
    return _Reader(names).place(node)


def pointed(names: Names, node: Node) -> Base:
    """The memories that a pointer expression may point into."""
    return _Reader(names).pointed(node)


# -- calls and macros -----------------------------------------------------------------------------------------------


def summary(known: Declared, name: str) -> Summary | None:
    """What a device function of the file does; None where it may do more than compute a value."""
    if name not in known.summaries:
        known.summaries[name] = None  # while it is being worked out, so that recursion counts as unknown
        known.summaries[name] = _summarize(known, name)
    found = known.summaries[name]
    return found if isinstance(found, Summary) else None


def _summarize(known: Declared, name: str) -> Summary | None:
    function = known.functions.get(name)
    if function is None or function.broken or function.kernel or name in known.overloaded:
        return None
    if any(p.reference or p.volatile or "[" in p.text or p.text.count("*") > 1 for p in function.parameters):
        return None
    nodes = list(walk(function.body))
    if {n.type for n in nodes} & (IRREGULAR | {"string_literal"}) or "static" in text_of(function.body):
        return None
    names = Names(function, known)
    if not all(_stays_inside(names, node) for node in nodes):
        return None
    reads = any(p.pointer for p in function.parameters)
    return Summary(reads=reads, safe=not reads and not any(_may_trap(names, n) for n in nodes))


def _stays_inside(names: Names, node: Node) -> bool:
    """Whether a node of a device function writes no memory but its own and calls nothing unknown."""
    if node.type in ("assignment_expression", "update_expression"):
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        while target is not None and target.type == "field_expression" and "->" not in text_of(target):
            target = target.child_by_field_name("argument")
        if target is None or names.variable(target) is not None:
            return target is not None
        base = place(names, target)
        return base is not None and all(v.place == "array" for v in base)
    if node.type == "call_expression":
        return _is_known_call(names.known, text_of(node.child_by_field_name("function") or node))
    if node.type == "identifier" and names.variable(node) is None:
        return _is_fixed(names.known, text_of(node))
    return node.type not in ("new_expression", "delete_expression", "ERROR")


def _is_known_call(known: Declared, name: str) -> bool:
    bare = name.removeprefix("std::")
    cast = re.match(r"(static_cast|reinterpret_cast|const_cast)\s*<", name) or known.dtype(name)
    macro = known.macros.get(name)
    if macro is not None:
        return is_arithmetic(known, macro.body)
    return bool(cast) or is_pure(bare) or bare == "__ldg" or summary(known, name) is not None


def _is_fixed(known: Declared, name: str) -> bool:
    """Whether a name from outside a function has one value all the time that a thread runs."""
    macro = known.macros.get(name)
    if macro is not None:
        return macro.parameters is not None or is_arithmetic(known, macro.body)
    bare = name.removeprefix("std::")
    fixed = name in known.constants or name in known.functions or name in (*INDEX_NAMES, "warpSize")
    return fixed or is_pure(bare) or name == "__ldg" or known.dtype(name) is not None


def _may_trap(names: Names, node: Node) -> bool:
    if node.type not in ("binary_expression", "assignment_expression"):
        return False
    operator = node.child_by_field_name("operator")
    if operator is None or text_of(operator) not in ("/", "%", "/=", "%="):
        return False
    left = names.dtype(node.child_by_field_name("left") or node)
    right = node.child_by_field_name("right")
    constant = right is not None and bool(names.constant(right))
    return not constant and left not in FLOATS and (right is None or names.dtype(right) not in FLOATS)


def is_arithmetic(known: Declared, body: str, depth: int = 0) -> bool:
    """Whether a macro's text is arithmetic only: no memory access, no assignment, no unknown call."""
    writes = r"\[|->|&(?!&)|\+\+|--|[^=<>!]=[^=]|;|\"|(^|[(,=?:+\-*/%])\s*\*"
    if depth > 6 or re.search(writes, re.sub(r"&&", " ", body)):
        return False
    inner = [known.macros[n].body for n in re.findall(r"\b[A-Za-z_]\w*\b", body) if n in known.macros]
    called = [c for c in re.findall(r"\b([A-Za-z_]\w*)\s*\(", body) if c not in known.macros]
    return all(is_arithmetic(known, b, depth + 1) for b in inner) and all(_is_value(known, c) for c in called)


def _is_value(known: Declared, name: str) -> bool:
    found = summary(known, name)
    return is_pure(name) or known.dtype(name) is not None or (found is not None and not found.reads)


# -- expressions ----------------------------------------------------------------------------------------------------


class _Reader:
    """Collects what one expression needs."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.variables: set[Variable] = set()
        self.reads: list[Base] = []
        self.safe = True

    def read(self, node: Node) -> Needs | None:
        if not self._value(node):
            return None
        return Needs(frozenset(self.variables), tuple(self.reads), self.safe and not self.reads)

    def _value(self, node: Node) -> bool:
        if node.type not in _VALUES:
            return False
        special = {
            "identifier": self._identifier,
            "call_expression": self._call,
            "subscript_expression": self._memory,
            "pointer_expression": self._memory,
            "field_expression": self._field,
            "binary_expression": self._binary,
        }.get(node.type)
        return special(node) if special is not None else self._all(node.named_children)

    def _all(self, nodes: Iterable[Node]) -> bool:
        return all(self._value(n) for n in nodes)

    def _identifier(self, node: Node) -> bool:
        variable, name = self.names.variable(node), text_of(node)
        if variable is not None:
            self.variables.add(variable)
            return not (variable.volatile or variable.reference or (variable.escaped and variable.place != "array"))
        known = self.names.known
        if name in known.constants or name in (*INDEX_NAMES, "warpSize"):
            return True
        macro = known.macros.get(name)
        return macro is not None and macro.parameters is None and self._macro(node, macro.body)

    def _macro(self, at: Node, body: str) -> bool:
        """A macro of arithmetic only; the names in it are looked up where it is used."""
        if not is_arithmetic(self.names.known, body):
            return False
        return all(self._free_name(at, n) for n in re.findall(r"(?<![\w.])[A-Za-z_]\w*\b", body))

    def _free_name(self, at: Node, name: str) -> bool:
        known = self.names.known
        if name in known.macros:
            return self._macro(at, known.macros[name].body)
        matching = [v for v in self.names.variables if v.name == name]
        self.variables.update(matching)
        if matching:
            return not any(v.volatile or v.reference or v.escaped for v in matching)
        return name not in known.variables

    def _binary(self, node: Node) -> bool:
        self.safe = self.safe and not _may_trap(self.names, node)
        return self._all(node.named_children)

    def _call(self, node: Node) -> bool:
        callee, listed = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if callee is None or listed is None:
            return False
        name, known = text_of(callee).removeprefix("std::"), self.names.known
        if name == "__ldg" and listed.named_child_count == 1:
            return self._through(listed.named_children[0])
        macro = known.macros.get(name)
        if macro is not None:
            body = re.sub("|".join(rf"\b{re.escape(p)}\b" for p in macro.parameters or ()) or r"$^", "0", macro.body)
            return bool(macro.parameters) and self._macro(node, body) and self._all(listed.named_children)
        if re.match(r"static_cast\s*<[^*&]*>$", name) or known.dtype(name) or is_pure(name):
            return self._all(listed.named_children)
        return self._helper(name, listed.named_children)

    def _helper(self, name: str, arguments: list[Node]) -> bool:
        """A device function of the file: its pointer arguments are read through."""
        found, function = summary(self.names.known, name), self.names.known.functions.get(name)
        if found is None or function is None or len(function.parameters) != len(arguments):
            return False
        self.safe = self.safe and found.safe
        pairs = zip(function.parameters, arguments, strict=True)
        return all(self._through(a) if p.pointer else self._value(a) for p, a in pairs)

    def _through(self, pointer: Node) -> bool:
        """A pointer whose target is read, with the names and indices in it."""
        if not self._load(pointed(self.names, pointer)):
            return False
        if pointer.type == "pointer_expression" and text_of(pointer).startswith("&"):
            inner = pointer.child_by_field_name("argument")
            return inner is not None and self._all(inner.named_children)
        return self._value(pointer)

    def _memory(self, node: Node) -> bool:
        if text_of(node).startswith("&"):
            return False
        return self._load(self.place(node)) and self._all(node.named_children)

    def _field(self, node: Node) -> bool:
        owner = node.child_by_field_name("argument")
        if owner is None:
            return False
        if "->" in text_of(node)[owner.end_byte - node.start_byte :]:
            return self._load(self.pointed(owner)) and self._value(owner)
        return self._value(owner)

    def _load(self, base: Base) -> bool:
        self.reads.append(base)
        return base is None or not any(v.volatile for v in base)

    # -- memories --

    def place(self, node: Node) -> Base:
        """The memory that an lvalue (``p[i]``, ``*p``, ``p->f``, ``a[i][j].x``) lies in."""
        if node.type == "parenthesized_expression":
            return self.place(node.named_children[0])
        inner = node.child_by_field_name("argument")
        if inner is None:
            return self.pointed(node)
        if node.type == "field_expression" and "->" not in text_of(node)[inner.end_byte - node.start_byte :]:
            return self.place(inner)
        return self.pointed(inner)

    def pointed(self, node: Node, depth: int = 0) -> Base:
        """The memories that a pointer expression may point into."""
        if depth > 6:
            return None
        if node.type == "identifier":
            return self._pointed_by(node, depth)
        if node.type == "binary_expression":
            sides = [n for s in ("left", "right") if (n := node.child_by_field_name(s)) is not None]
            pointers = [s for s in sides if self._is_pointer(s)]
            return self.pointed(pointers[0], depth + 1) if len(pointers) == 1 else None
        if node.type == "pointer_expression" and text_of(node).startswith("&"):
            inner = node.child_by_field_name("argument")
            return self.place(inner) if inner is not None else None
        if node.type == "subscript_expression":
            inner = node.child_by_field_name("argument")
            root = inner
            while root is not None and root.type == "subscript_expression":
                root = root.child_by_field_name("argument")
            variable = self.names.variable(root) if root is not None else None
            nested = variable is not None and variable.place in ("array", "shared") and not variable.pointer
            return self.pointed(root, depth + 1) if nested and root is not None else None
        if node.type in ("parenthesized_expression", "cast_expression"):
            return self.pointed(node.child_by_field_name("value") or node.named_children[-1], depth + 1)
        return None

    def _pointed_by(self, node: Node, depth: int) -> Base:
        variable = self.names.variable(node)
        if variable is None or variable.reference or (variable.escaped and variable.place != "array"):
            return None
        if variable.place in ("array", "shared") and not variable.pointer:
            return frozenset((variable,))
        if variable.place == "parameter" and not variable.sources:
            return frozenset((variable,)) if variable.pointer else None
        if not variable.pointer and "auto" not in variable.written_type:
            return None
        bases = [self.pointed(s, depth + 1) for s in variable.sources]
        if variable.place == "parameter":
            bases.append(frozenset((variable,)))
        known = [b for b in bases if b is not None]
        return frozenset(v for b in known for v in b) if known and len(known) == len(bases) else None

    def _is_pointer(self, node: Node) -> bool:
        while node.type in ("parenthesized_expression", "binary_expression", "cast_expression"):
            if node.type == "binary_expression":
                return any(self._is_pointer(n) for n in node.named_children)
            node = node.child_by_field_name("value") or node.named_children[-1]
        variable = self.names.variable(node) if node.type == "identifier" else None
        if variable is None:
            return node.type in ("pointer_expression",) and text_of(node).startswith("&")
        return variable.pointer or variable.place in ("array", "shared") or "auto" in variable.written_type
