"""The rules by which one thread does the work of several: grid-stride loops and thread coarsening.

They take a kernel that finds its element by ``blockIdx * blockDim + threadIdx``, checks it against a bound and shares
nothing within a block. The new text is right for the recorded launch, too, where the further rounds find nothing to do;
it pays off under the launch that the rule asks for (``per_thread`` of :class:`r3bench.model.LaunchRule`). A kernel that
was launched with fewer threads than its bound, on purpose, would do more than before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from r3bench.rules.analysis.declared import is_pure, words
from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import Variable
from r3bench.rules.analysis.polynomials import is_settled
from r3bench.rules.motion import Rewrite
from r3bench.rules.subject import Subject, indented
from r3bench.syntax import Edit, Node, apply, side, text_of, walk

SHARING = re.compile(r"__shared__|__sync\w*|\w+_sync\b|cooperative_groups|warpSize|\bclock\w*\(|__nanosleep")
_NESTS = words("for_statement while_statement do_statement")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, eq=False)
class Index:
    """Where a thread's element along one axis is declared: ``int i = blockIdx.x * blockDim.x + threadIdx.x - 1;``.

    ``thread`` is the part that numbers threads, ``value`` all of the initial value; ``bound`` is the text of what the
    index stays below wherever the kernel touches memory, None where nothing says so.
    """

    axis: str
    variable: Variable
    declaration: Node
    value: Node
    thread: Node
    bound: str | None

    @property
    def name(self) -> str:
        return self.variable.name

    @property
    def kind(self) -> str:
        """The declared type, without const."""
        head = side(self.declaration, "declarator")
        written = text_of(self.declaration).encode()[: head.start_byte - self.declaration.start_byte].decode()
        return " ".join(re.sub(r"\bconst\b", " ", written).split())


def indices(facts: Facts) -> Iterator[Index]:
    """Every index of this kind that the kernel's body declares and never changes."""
    for statement in facts.function.body.named_children:
        heads = statement.children_by_field_name("declarator") if statement.type == "declaration" else []
        if len(heads) != 1 or heads[0].type != "init_declarator":
            continue
        variable, value = facts.variable(heads[0].child_by_field_name("declarator")), side(heads[0], "value")
        thread = next((n for n in walk(value) if _axis(n) is not None), None)
        if variable is not None and thread is not None and is_settled(facts, variable):
            axis = _axis(thread)
            assert axis is not None
            yield Index(axis, variable, statement, value, thread, _bound(facts, variable))


def _axis(node: Node) -> str | None:
    """``x`` of ``blockIdx.x * blockDim.x + threadIdx.x``, in any order and with casts; None for anything else."""
    if node.type != "binary_expression" or text_of(side(node, "operator")) != "+":
        return None
    plain = re.sub(r"\((?:unsigned|int|long|size_t|\s)+\)|[()]|\s", "", text_of(node))
    for axis in "xyz":
        block, size, thread = (f"{name}.{axis}" for name in ("blockIdx", "blockDim", "threadIdx"))
        products = (f"{block}*{size}", f"{size}*{block}")
        if plain in {f"{p}+{thread}" for p in products} | {f"{thread}+{p}" for p in products}:
            return axis
    return None


# -- guards -----------------------------------------------------------------------------------------------------------


def _bound(facts: Facts, variable: Variable) -> str | None:
    """The bound in ``if (i >= n || ...) return;``, or in an ``if (i < n && ...)`` around the rest of the body."""
    statements = facts.function.body.named_children
    for number, statement in enumerate(statements):
        if _touches_memory(facts, statement) and statement.type != "if_statement":
            return None
        if statement.type != "if_statement" or statement.child_by_field_name("alternative") is not None:
            continue
        leaves = is_return(side(statement, "consequence"))
        last = all(n.type == "comment" for n in statements[number + 1 :])
        if leaves or last:
            for part in terms(condition(statement), "||" if leaves else "&&"):
                bound = _compared(facts, variable, part, (">=", "<=") if leaves else ("<", ">"))
                if bound is not None:
                    return bound
        if _touches_memory(facts, statement):
            return None
    return None


def _touches_memory(facts: Facts, node: Node) -> bool:
    """Whether a part of the kernel reads or writes memory, or calls what may do so."""
    calls = (side(n, "function") for n in walk(node) if n.type == "call_expression")
    reads = any(n.type in ("subscript_expression", "pointer_expression") for n in walk(node))
    return reads or any(e.memory for e in facts.effects(node)) or any(not is_pure(text_of(callee)) for callee in calls)


def condition(statement: Node) -> Node:
    inner = side(statement, "condition")
    while inner.type in ("condition_clause", "parenthesized_expression") and inner.named_child_count == 1:
        inner = inner.named_children[0]
    return inner


def is_return(node: Node) -> bool:
    inner = node.named_children if node.type == "compound_statement" else [node]
    return len(inner) == 1 and inner[0].type == "return_statement"


def terms(condition: Node, operator: str) -> Iterator[Node]:
    """The terms of a chain of ``||`` or ``&&``."""
    if condition.type == "binary_expression" and text_of(side(condition, "operator")) == operator:
        yield from terms(side(condition, "left"), operator)
        yield from terms(side(condition, "right"), operator)
    elif condition.type == "parenthesized_expression" and condition.named_child_count == 1:
        yield from terms(condition.named_children[0], operator)
    else:
        yield condition


def _compared(facts: Facts, variable: Variable, part: Node, operators: tuple[str, str]) -> str | None:
    """``n`` of ``i >= n`` or ``n <= i`` (or with the other two operators), where nothing changes it."""
    if part.type != "binary_expression":
        return None
    left, right, operator = side(part, "left"), side(part, "right"), text_of(side(part, "operator"))
    if operator == operators[1]:
        left, right = right, left
    elif operator != operators[0]:
        return None
    needs = facts.needs(right)
    fixed = needs is not None and not needs.reads and all(facts.is_fixed(v) for v in needs.variables)
    text = text_of(right) if right.child_count == 0 else f"({text_of(right)})"
    return text if fixed and facts.variable(left) is variable else None


# -- the rules --------------------------------------------------------------------------------------------------------


def stride(subject: Subject) -> str:
    """A grid-stride loop along x: any number of threads does all the work."""

    def head(index: Index, fresh: Callable[[str], str]) -> str:
        step = f"{index.name} += blockDim.x * gridDim.x"
        return f"for ({index.kind} {index.name} = {text_of(index.value)}; {index.name} < {index.bound}; {step}) {{"

    return _wrapped(subject, "x", head)


def coarsen(subject: Subject, count: int) -> str:
    """Each thread does ``count`` elements along x, a grid apart, so that neighbours stay neighbours."""

    def head(index: Index, fresh: Callable[[str], str]) -> str:
        part = fresh("part")
        value = f"{text_of(index.value)} + {part} * (int)(blockDim.x * gridDim.x)"
        return _counted(part, count, f"{index.kind} {index.name} = {value};")

    return _wrapped(subject, "x", head)


def rows(subject: Subject, count: int) -> str:
    """Each thread does ``count`` elements next to each other along y."""

    def head(index: Index, fresh: Callable[[str], str]) -> str:
        part = fresh("row")
        start, end = (at - index.value.start_byte for at in (index.thread.start_byte, index.thread.end_byte))
        value = text_of(index.value).encode()
        thread = f"(({text_of(index.thread)}) * {count} + {part})".encode()
        whole = (value[:start] + thread + value[end:]).decode()
        return _counted(part, count, f"{index.kind} {index.name} = {whole};")

    return _wrapped(subject, "y", head)


def _counted(part: str, count: int, first: str) -> str:
    return f"#pragma unroll\n    for (int {part} = 0; {part} < {count}; {part}++) {{\n        {first}"


def _wrapped(subject: Subject, axis: str, head: Callable[[Index, Callable[[str], str]], str]) -> str:
    """The body from an index's declaration on in a loop: ``head`` opens it and declares the index anew."""
    facts = subject.facts()
    index = next((i for i in indices(facts) if i.axis == axis and i.bound is not None), None)
    if index is None or not _is_independent(facts, index):
        return subject.text
    body, declaration = facts.function.body, index.declaration
    start, end = declaration.end_byte, body.end_byte - 1
    returns = [n for n in walk(body) if n.type == "return_statement" and n.start_byte > start]
    moved = apply(subject.text, [Edit(n.start_byte, n.end_byte, "continue;") for n in returns])
    grown = len(moved.encode()) - len(subject.text.encode())
    inside = moved.encode()[start : end + grown].decode().rstrip()
    line = subject.text.encode()[: declaration.start_byte].decode().rpartition("\n")[2]
    gap = "\n    " if line.strip() else ""  # a pragma begins a line
    new = f"{gap}{head(index, Rewrite(facts, subject.text).fresh)}{indented(inside)}\n    }}\n"
    return apply(subject.text, [Edit(declaration.start_byte, end, new)])


def _is_independent(facts: Facts, index: Index) -> bool:
    """Whether what follows the index can be done for several elements one after the other."""
    body, start = facts.function.body, index.declaration.start_byte
    if not facts.movable or SHARING.search(text_of(body)) or any(e.fence for e in facts.effects(body)):
        return False
    after = [e for e in facts.effects(body) if e.node.start_byte >= start]
    declared = {v for v in facts.variables if v.node is not None and v.node.start_byte >= start}
    kept = all(e.variable is None or e.variable in declared for e in after)
    returns = [n for n in walk(body) if n.type == "return_statement" and n.start_byte > start]
    nested = any(holder.type in _NESTS for n in returns for holder in facts.inside_out(n))
    return kept and not nested and not _uses_elsewhere(facts, index)


def _uses_elsewhere(facts: Facts, index: Index) -> bool:
    """Whether the place in the grid along this axis, or the grid's size, is used besides for the index."""
    own = range(index.value.start_byte, index.value.end_byte)
    fields = [n for n in walk(facts.function.body) if n.type == "field_expression" and n.start_byte not in own]
    named = {_SPACE.sub("", text_of(n)) for n in fields}
    return bool(named & {f"threadIdx.{index.axis}", f"blockIdx.{index.axis}", f"gridDim.{index.axis}"})
