"""Integer index expressions as polynomials, so that two of them can be compared and subtracted.

``(k + 1) * nx + i`` is ``k*nx + nx + i``. Locals that keep their first value are spelled out by it, device functions
that only return an expression by that expression. What is no sum or product is an atom: known by its spelling alone.
Arithmetic is modulo the width of the expression's type, as that of the code is.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import Variable, holds
from r3bench.syntax import Function, Node, side, text_of

_MOST_TERMS = 32
_INTEGERS = ("int32", "uint32", "int64", "uint64")
_C_NAMES = {"int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long"}


@dataclass(frozen=True)
class Atom:
    """A part that is no sum or product: how it is spelled, and the variables that it needs."""

    text: str
    variables: frozenset[Variable]

    def __lt__(self, other: Atom) -> bool:
        return (self.text, sorted(map(id, self.variables))) < (other.text, sorted(map(id, other.variables)))


Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Polynomial:
    """Coefficients by monomial, a sorted tuple of atoms; the empty one is the constant. No coefficient is 0."""

    terms: Mapping[Monomial, int]

    @property
    def variables(self) -> frozenset[Variable]:
        """The variables that its value depends on."""
        return frozenset(v for monomial in self.terms for atom in monomial for v in atom.variables)

    def __add__(self, other: Polynomial) -> Polynomial:
        sums = {key: self.terms.get(key, 0) + other.terms.get(key, 0) for key in {*self.terms, *other.terms}}
        return Polynomial({key: value for key, value in sums.items() if value})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * number(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        total = Polynomial({})
        for one, first in self.terms.items():
            for two, second in other.terms.items():
                total += Polynomial({tuple(sorted(one + two)): first * second})
        return total

    def split(self, variable: Variable) -> tuple[Polynomial, Polynomial] | None:
        """``(a, b)`` of ``a * variable + b``, neither of which needs the variable; None where it is not linear."""
        slope, rest = dict[Monomial, int](), dict[Monomial, int]()
        for monomial, value in self.terms.items():
            others = tuple(atom for atom in monomial if atom.variables != {variable} or atom.text != variable.name)
            if len(others) < len(monomial) - 1 or any(variable in atom.variables for atom in others):
                return None
            (rest if len(others) == len(monomial) else slope)[others] = value
        return Polynomial(slope), Polynomial(rest)

    def put(self, variable: Variable, value: Polynomial) -> Polynomial | None:
        """The polynomial with a value in a variable's place; None where it is not linear in it."""
        parts = self.split(variable)
        return parts[0] * value + parts[1] if parts is not None else None

    def text(self, dtype: str) -> str:
        """The polynomial as an expression of an integer type."""
        wide = "(long long)" if dtype.endswith("64") else ""
        ordered = sorted(self.terms.items(), key=lambda term: (not term[0], [atom.text for atom in term[0]]))
        joined = " + ".join(_product(monomial, value, wide) for monomial, value in ordered) or "0"
        return f"({_C_NAMES[dtype]})({joined})".replace("+ -", "- ")


def _product(monomial: Monomial, value: int, wide: str) -> str:
    factors = [*([str(abs(value))] if abs(value) != 1 or not monomial else []), *(wide + a.text for a in monomial)]
    return ("-" if value < 0 else "") + " * ".join(factors)


def number(value: int) -> Polynomial:
    """A constant."""
    return Polynomial({(): value} if value else {})


def named(name: str, *variables: Variable) -> Polynomial:
    """A name by itself: that of a variable, or one that is new."""
    return Polynomial({(Atom(name, frozenset(variables)),): 1})


def multiple(of: Polynomial, unit: Polynomial) -> int | None:
    """``n`` where ``of == n * unit``; None where there is none."""
    if not of.terms:
        return 0
    key = next(iter(of.terms))
    if key not in unit.terms:
        return None
    quotient, rest = divmod(of.terms[key], unit.terms[key])
    return quotient if not rest and quotient and (unit * number(quotient)).terms == of.terms else None


def polynomial(
    facts: Facts, node: Node, *, within: Node | None = None, kept: Container[Variable] = ()
) -> Polynomial | None:
    """None where the expression is no integer, or its value no plain function of variables.

    Locals that are declared outside of ``within``, and those ``kept``, are left as they are.
    """
    if facts.dtype(node) not in _INTEGERS:
        return None
    found = _Expansion(facts, within or facts.function.body, kept).of(node)
    return found if found is not None and len(found.terms) <= _MOST_TERMS else None


class _Expansion:
    """Expands the expressions of one function; ``given`` holds what the parameters of an inlined one stand for."""

    def __init__(
        self,
        facts: Facts,
        within: Node,
        kept: Container[Variable] = (),
        given: Mapping[Variable, Polynomial] | None = None,
        depth: int = 0,
    ) -> None:
        self.facts = facts
        self.within = within
        self.kept = kept
        self.given = given
        self.depth = depth

    def of(self, node: Node) -> Polynomial | None:
        value = self.facts.constant(node)
        if value is not None:
            return number(value)
        if node.type == "parenthesized_expression" and node.named_child_count == 1:
            return self.of(node.named_children[0])
        if node.type == "binary_expression":
            return self._binary(node)
        if node.type == "unary_expression" and text_of(node).startswith("-"):
            inner = self.of(node.named_children[-1])
            return inner * number(-1) if inner is not None else None
        if node.type == "identifier" and (variable := self.facts.variable(node)) is not None:
            return self._variable(node, variable)
        return self._call(node) or self._atom(node)

    def _binary(self, node: Node) -> Polynomial | None:
        operator = text_of(node.child_by_field_name("operator") or node)
        if operator not in ("+", "-", "*"):
            return self._atom(node)
        left, right = (self._side(node, name) for name in ("left", "right"))
        if left is None or right is None or len(left.terms) * len(right.terms) > _MOST_TERMS**2:
            return None
        return left + right if operator == "+" else left - right if operator == "-" else left * right

    def _side(self, node: Node, name: str) -> Polynomial | None:
        child = node.child_by_field_name(name)
        return self.of(child) if child is not None else None

    def _variable(self, node: Node, variable: Variable) -> Polynomial | None:
        if self.given is not None:
            return self.given.get(variable)
        if self.depth < 8 and self._is_spelled_out(variable):
            self.depth += 1
            found = self.of(variable.sources[0])
            self.depth -= 1
            if found is not None and all(is_kept(self.facts, v) for v in found.variables):
                return found
        return self._atom(node)

    def _is_spelled_out(self, variable: Variable) -> bool:
        inside = variable.node is not None and holds(self.within, variable.node) and variable not in self.kept
        return inside and is_settled(self.facts, variable) and self.facts.dtype(variable.sources[0]) in _INTEGERS

    def _atom(self, node: Node) -> Polynomial | None:
        needs = self.facts.needs(node)
        if self.given is not None or needs is None or needs.reads:
            return None
        text = " ".join(text_of(node).split())
        text = text if node.child_count == 0 or node.type in ("field_expression", "call_expression") else f"({text})"
        return Polynomial({(Atom(text, needs.variables),): 1})

    def _call(self, node: Node) -> Polynomial | None:
        """A device function whose body is one ``return``, with what it is given in place of its parameters."""
        if node.type != "call_expression" or self.depth > 4:
            return None
        callee, listed = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        function = self.facts.known.functions.get(text_of(callee)) if callee is not None else None
        value = _returned(function) if function is not None else None
        if function is None or value is None or listed is None:
            return None
        arguments = [self.of(argument) for argument in listed.named_children]
        inner = Facts(function, self.facts.known, False)
        names = [v for v in inner.variables if v.place == "parameter"]
        if len(names) != len(arguments) or any(inner.known.dtype(v.written_type) not in _INTEGERS for v in names):
            return None
        given = {v: a for v, a in zip(names, arguments, strict=True) if a is not None}
        return _Expansion(inner, function.body, (), given, self.depth + 1).of(value)


def _returned(function: Function) -> Node | None:
    statements = [n for n in function.body.named_children if n.type != "comment"]
    one = len(statements) == 1 and statements[0].type == "return_statement" and statements[0].named_child_count == 1
    return statements[0].named_children[0] if one else None


def is_settled(facts: Facts, variable: Variable) -> bool:
    """Whether a local keeps the one value that it is declared with."""
    writes = [e for e in facts.effects(facts.function.body) if e.variable is variable]
    plain = not (variable.pointer or variable.reference or variable.escaped or variable.volatile)
    return variable.place == "local" and plain and len(writes) == 1 and len(variable.sources) == 1


def is_kept(facts: Facts, variable: Variable) -> bool:
    """Whether a variable has one value where it can be named: a parameter, a local, or a loop's counter in a round."""
    return facts.is_fixed(variable) or is_settled(facts, variable) or _is_counter(facts, variable)


def counted(facts: Facts, loop: Node) -> Variable | None:
    """The counter of a loop that counts upwards (:meth:`Facts.counter`)."""
    if facts.counter(loop) is None:
        return None
    head = side(side(loop, "initializer"), "declarator")
    return facts.variable(side(head, "declarator"))


def _is_counter(facts: Facts, variable: Variable) -> bool:
    loop = facts.parent.get(variable.node.id) if variable.node is not None else None
    return loop is not None and loop.type == "for_statement" and counted(facts, loop) is variable
