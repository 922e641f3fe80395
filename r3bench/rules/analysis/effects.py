"""Every write of a function: what it may change, and where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from r3bench.rules.analysis.declared import is_pure
from r3bench.rules.analysis.names import Base, Names, Variable
from r3bench.rules.analysis.reads import place, pointed, summary
from r3bench.syntax import Node, text_of, walk

_FENCES = re.compile(r"__(syncthreads|syncwarp|threadfence|barrier|nanosleep|syncthreads_\w+|threadfence_\w+)")
_WARP = re.compile(r"__(shfl|any|all|ballot|match|reduce|activemask|vote)\w*")
_SILENT = re.compile(r"(static_cast|const_cast|reinterpret_cast)\b.*|make_\w+|__ldg|assert|clock|clock64", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Effect:
    """A write at ``node``: of a variable, of a memory (``base``), or of everything other threads can see."""

    node: Node
    variable: Variable | None = None
    base: Base = None
    memory: bool = False
    fence: bool = False


def effects(names: Names) -> list[Effect]:
    """Every effect in the function's body, in the order of the text; addresses taken are marked on the variables."""
    return _Effects(names).read()


class _Effects:
    """Collects the effects of one function."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.found: list[Effect] = []

    def read(self) -> list[Effect]:
        for node in walk(self.names.function.body):
            self._note(node)
        return self.found

    def _add(self, node: Node, **what: Any) -> None:
        self.found.append(Effect(node, **what))

    def _note(self, node: Node) -> None:
        if node.type == "assignment_expression":
            self._write(node, node.child_by_field_name("left"))
        elif node.type == "update_expression":
            self._write(node, node.child_by_field_name("argument"))
        elif node.type == "init_declarator":
            self._declared(node)
        elif node.type == "declaration":
            for head in node.children_by_field_name("declarator"):
                if head.type != "init_declarator":
                    self._declared(head)
        elif node.type == "call_expression":
            self._called(node)
        elif node.type == "identifier":
            self._expanded(node, text_of(node))
        elif node.type in ("new_expression", "delete_expression", "ERROR"):
            self._add(node, memory=True)

    def _declared(self, head: Node) -> None:
        """A name begins its life where it is declared: nothing that uses it moves in front of that."""
        name = next((n for n in walk(head) if n.type == "identifier"), None)
        variable = self.names.variable(name)
        if variable is not None:
            self._add(head, variable=variable)
            self._clobber(head, variable)

    def _clobber(self, node: Node, variable: Variable) -> None:
        if variable.place == "array":
            self._add(node, base=frozenset((variable,)), memory=True)

    def _write(self, node: Node, target: Node | None) -> None:
        while target is not None and (
            target.type == "parenthesized_expression" or (target.type == "field_expression" and _is_member(target))
        ):
            target = target.child_by_field_name("argument") or target.named_children[0]
        variable = self.names.variable(target)
        if variable is None:
            self._add(node, base=place(self.names, target) if target is not None else None, memory=True)
            return
        self._add(node, variable=variable)
        if variable.reference or variable.escaped:
            self._add(node, memory=True)

    def _expanded(self, node: Node, name: str) -> None:
        """A macro that writes: it may write every variable that it names, and all that other threads can see."""
        if self.names.variable(node) is None and name in self.names.known.macros and not self._is_silent(name):
            named = self.names.known.spelled_out(name)
            self._add(node, memory=True)
            self._add(node, fence=True)
            for variable in self.names.variables:
                if variable.name in named:
                    self._add(node, variable=variable)
                    self._clobber(node, variable)

    def _called(self, node: Node) -> None:
        callee, listed = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        name = text_of(callee).removeprefix("std::") if callee is not None else ""
        arguments = listed.named_children if listed is not None else []
        if self._is_silent(name):
            return
        if name.startswith("atomic") and arguments:
            self._add(node, base=pointed(self.names, arguments[0]), memory=True)
        elif _FENCES.fullmatch(name):
            self._add(node, fence=True)
        else:
            self._unknown(node, arguments)

    def _unknown(self, node: Node, arguments: Iterable[Node]) -> None:
        """A call of anything: it may write what it is given, and all that other threads can see."""
        self._add(node, memory=True)
        self._add(node, fence=True)
        for argument in arguments:
            for name in walk(argument):
                variable = self.names.variable(name)
                if variable is not None:
                    variable.escaped = variable.escaped or variable.place == "array"
                    self._add(node, variable=variable)
                    self._clobber(node, variable)

    def _is_silent(self, name: str) -> bool:
        """Whether calling this writes nothing and orders nothing."""
        known = self.names.known
        macro = known.macros.get(name)
        if macro is not None:
            writes = re.search(r"\+\+|--|[^=<>!]=[^=]|;", macro.body)
            return writes is None and all(self._is_silent(c) for c in re.findall(r"\b([A-Za-z_]\w*)\s*\(", macro.body))
        plain = is_pure(name) or known.dtype(name) or _WARP.fullmatch(name) or _SILENT.fullmatch(name)
        return bool(plain) or summary(known, name) is not None


def _is_member(node: Node) -> bool:
    operator = node.child_by_field_name("operator")
    return operator is not None and text_of(operator) == "."
