"""The names of one function: what each identifier stands for, what type an expression has, what holds what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from r3bench.rules.analysis.declared import Declared, words
from r3bench.rules.analysis.dtypes import C_NAMES, expression_type
from r3bench.syntax import Function, Node, text_of, walk

LOOPS = words("for_statement while_statement do_statement for_range_loop")
_DECLARATORS = words(
    "identifier init_declarator array_declarator pointer_declarator reference_declarator function_declarator"
)

_PLACES = words("field_expression parenthesized_expression subscript_expression")


@dataclass(eq=False)
class Variable:
    """A name inside the function. ``written_type`` is the text of its type, or of what it points to; ``volatile``: what
    it names may change without this thread, as one number in shared memory does."""

    name: str
    written_type: str
    place: str  # "parameter", "local", "array", "shared"
    pointer: bool = False
    reference: bool = False
    restrict: bool = False
    const: bool = False
    volatile: bool = False
    escaped: bool = False
    node: Node | None = None
    sources: list[Node] = field(default_factory=list)

    @property
    def private(self) -> bool:
        """Whether only this thread can reach its storage, and only by its name."""
        return self.place == "array" and not self.escaped


Base = frozenset[Variable] | None
"""The memories a pointer may point into; None: any."""


def is_block(node: Node) -> bool:
    return node.type == "compound_statement"


def holds(node: Node, inner: Node) -> bool:
    """Whether a node covers another one of the same text."""
    return node.start_byte <= inner.start_byte and inner.end_byte <= node.end_byte


class Names:
    """Every identifier of a function resolved by C++'s scopes, and the parent of every node."""

    def __init__(self, function: Function, known: Declared) -> None:
        self.function = function
        self.known = known
        self.variables: list[Variable] = []
        self.parent: dict[int, Node] = {}
        self._named: dict[int, Variable] = {}
        self._scopes: list[dict[str, Variable]] = [{}]
        self._link(function.node)
        self._read()

    def _link(self, node: Node) -> None:
        for child in node.children:
            self.parent[child.id] = node
            self._link(child)

    def variable(self, node: Node | None) -> Variable | None:
        """The variable that an identifier stands for; None for anything else."""
        return self._named.get(node.id) if node is not None else None

    def inside_out(self, node: Node) -> Iterator[Node]:
        """The ancestors of a node, from its parent to the function's body."""
        while node.id != self.function.body.id and node.id in self.parent:
            node = self.parent[node.id]
            yield node

    def dtype(self, node: Node) -> str | None:
        """The arithmetic type of an expression."""
        return expression_type(node, self.known, self._written_type)

    def _written_type(self, node: Node) -> str | None:
        variable = self.variable(node)
        return variable.written_type if variable is not None else None

    def constant(self, node: Node) -> int | None:
        """The value of an integer constant expression; None where it is not one or names a variable in here."""
        return None if self._names_variable(node) else self.known.constant(text_of(node))

    def real(self, node: Node) -> float | None:
        """The value of a constant expression as a float; None as for :meth:`constant`."""
        return None if self._names_variable(node) else self.known.real(text_of(node))

    def _names_variable(self, node: Node) -> bool:
        return not self.known.spelled_out(text_of(node)).isdisjoint(v.name for v in self.variables)

    def c_type(self, node: Node) -> str:
        """The type to declare a copy of an expression's value with."""
        return C_NAMES.get(self.dtype(node) or "", "auto")

    def key(self, node: Node) -> tuple[object, ...]:
        """Equal for two expressions that spell the same computation with the same variables."""
        if node.child_count == 0:
            variable = self.variable(node)
            return (id(variable),) if variable is not None else (text_of(node),)
        return tuple(part for child in node.children if child.type != "comment" for part in self.key(child))

    def _read(self) -> None:
        for p in self.function.parameters:
            variable = Variable(
                name=p.name, written_type=p.type, place="parameter", pointer=p.pointer, reference=p.reference,
                restrict=p.restrict, const=p.const, volatile=p.volatile,
            )  # fmt: skip
            self._add(variable)
        self._visit(self.function.body)
        for node in walk(self.function.body):
            self._note(node)

    def _note(self, node: Node) -> None:
        """The values that pointer variables get, and addresses that are taken of variables."""
        if node.type == "assignment_expression":
            operator, right = node.child_by_field_name("operator"), node.child_by_field_name("right")
            variable = self.variable(node.child_by_field_name("left"))
            if variable is not None and right is not None and (operator is None or text_of(operator) == "="):
                variable.sources.append(right)
        elif node.type == "pointer_expression" and text_of(node).startswith("&"):
            self._note_address(node)
        elif node.type == "declaration" and any(n.type == "reference_declarator" for n in walk(node)):
            for name in walk(node):
                if (variable := self.variable(name)) is not None:
                    variable.escaped = True

    def _note_address(self, node: Node) -> None:
        target = node.child_by_field_name("argument")
        while target is not None and target.type in _PLACES:
            target = target.child_by_field_name("argument") or target.named_children[0]
        call = next((n for n in self.inside_out(node) if n.type == "call_expression"), None)
        passing = call is not None and text_of(call).startswith(("atomic", "__ldg"))
        variable = self.variable(target)
        if variable is not None and not variable.pointer and not passing:
            variable.escaped = True

    def _add(self, variable: Variable) -> None:
        self._scopes[-1][variable.name] = variable
        self.variables.append(variable)

    def _visit(self, node: Node) -> None:
        if node.type == "identifier":
            self._use(node)
            return
        scoped = is_block(node) or node.type in (*LOOPS, "if_statement", "switch_statement")
        if scoped:
            self._scopes.append({})
        for child in node.named_children:
            if node.type == "declaration" and child.type in _DECLARATORS:
                self._declare(node, child)
            else:
                self._visit(child)
        if scoped:
            self._scopes.pop()

    def _use(self, node: Node) -> None:
        for scope in reversed(self._scopes):
            if (variable := scope.get(text_of(node))) is not None:
                self._named[node.id] = variable
                return

    def _declare(self, declaration: Node, declarator: Node) -> None:
        value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
        if declaration.child_by_field_name("value") is not None and value is None:
            value = declaration.child_by_field_name("value")
        shape = declarator.child_by_field_name("declarator") if declarator.type == "init_declarator" else declarator
        name = next((n for n in walk(shape or declarator) if n.type == "identifier"), None)
        if name is None:
            return
        for part in walk(shape or declarator):
            if part.type == "identifier" and part.id != name.id:
                self._use(part)
        if value is not None:
            self._visit(value)
        variable = _variable(declaration, shape or declarator, name)
        if value is not None:
            variable.sources.append(value)
        self._add(variable)
        self._named[name.id] = variable


def _variable(declaration: Node, shape: Node, name: Node) -> Variable:
    kinds = {n.type for n in walk(shape)}
    kind = declaration.child_by_field_name("type")
    prefix = (declaration.text or b"")[: name.start_byte - declaration.start_byte].decode()
    array, shared = "array_declarator" in kinds, "__shared__" in prefix
    return Variable(
        name=text_of(name),
        written_type=text_of(kind) if kind is not None else "",
        place="shared" if shared else "array" if array else "local",
        pointer="pointer_declarator" in kinds,
        reference="reference_declarator" in kinds,
        const="const" in prefix.split("*")[0],
        volatile="volatile" in prefix or (shared and not array),
        restrict="restrict" in prefix,
        node=declaration,
    )
