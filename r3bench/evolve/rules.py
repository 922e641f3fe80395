"""Source rewrites by rule: each emits CUDA C++ that compiles and computes what the kernel computed.

"The same" holds exactly for ``restrict``, ``cache``, ``hoist``, ``accumulate`` and ``unroll``, and up to the rounding
of other floating-point operations for ``reciprocal``, ``power`` and ``exponential``. What a rule cannot prove it
leaves alone; every proposal is verified by replay all the same. Pure: text in, texts out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import frexp

from r3bench.evolve.declared import FLOATS, Declared, declared
from r3bench.evolve.facts import Facts
from r3bench.evolve.motion import Rewrite, hoistable, share
from r3bench.evolve.names import Variable
from r3bench.evolve.reads import Needs
from r3bench.syntax import Edit, Function, Node, apply, find_kernel, functions, text_of, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An edited text: which rule (or chain, joined by ``+``) made it, and one sentence on what changed."""

    rule: str
    description: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a rule works on. ``disjoint`` says that the recorded pointer arguments never overlap; ``context`` holds the
    other files of the translation unit, read for their declarations only."""

    text: str
    kernel: str
    disjoint: bool = False
    context: tuple[str, ...] = ()

    def known(self) -> Declared:
        return declared(*self.context, self.text)

    def function(self, name: str = "") -> Function:
        """The kernel, or a device function of this text by name."""
        if not name:
            return find_kernel(self.text, self.kernel)
        return next(f for f in functions(self.text) if f.name == name and not f.kernel)

    def facts(self, name: str = "") -> Facts:
        """What is known of the kernel, or of a device function: there nothing says where its pointers lead."""
        return Facts(self.function(name), self.known(), self.disjoint and not name)

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
        return Subject(text=text, kernel=self.kernel, disjoint=self.disjoint, context=self.context)


Rule = Callable[[Subject], str]


def proposals(text: str, kernel: str, *, disjoint: bool = False, context: Sequence[str] = ()) -> list[Proposal]:
    """Every rule on its own, then the chains; each text once, none equal to the input.

    BuildError where the text does not define the kernel.
    """
    subject = Subject(text=text, kernel=kernel, disjoint=disjoint, context=tuple(context))
    find_kernel(text, kernel)
    made: dict[str, Proposal] = {}
    rule = _remembering()
    for chain in (*((name,) for name in RULES), *CHAINS):
        proposal = _chain(subject, chain, rule)
        if proposal is not None and proposal.text != text:
            made.setdefault(proposal.text, proposal)
    return list(made.values())


def _remembering() -> Callable[[str, Subject], str]:
    """Rules by name; what a rule made of a text once is not worked out again, for chains begin alike."""

    @functools.cache
    def apply_rule(name: str, subject: Subject) -> str:
        return RULES[name](subject)

    return apply_rule


def _chain(subject: Subject, names: Sequence[str], rule: Callable[[str, Subject], str]) -> Proposal | None:
    used, current = [], subject
    for name in names:
        text = rule(name, current)
        if text != current.text:
            used.append(name)
            current = current.edited(text)
    if not used:
        return None
    sentence = "; ".join(SENTENCES[name] for name in used)
    return Proposal(rule="+".join(used), description=sentence, text=current.text)


def _repeat(subject: Subject, once: Callable[[Facts, Rewrite], bool], *, where: str = "", rounds: int = 12) -> str:
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


# -- const and __restrict__ -------------------------------------------------------------------------------------------


def restrict(subject: Subject) -> str:
    """``const`` and ``__restrict__`` on pointers; the latter only where arguments are known to be disjoint."""
    facts, edits = subject.facts(), list[Edit]()
    pointers = [p for p in facts.function.parameters if p.pointer and not p.volatile and p.name]
    free = _signature_is_free(subject, facts)
    for parameter in pointers:
        variable = next(v for v in facts.variables if v.name == parameter.name)
        if free and not parameter.const and _only_read(facts, variable):
            edits.append(Edit(parameter.start, parameter.start, "const "))
        if subject.disjoint and not parameter.restrict:
            edits.append(Edit(parameter.name_at, parameter.name_at, "__restrict__ "))
    return apply(subject.text, edits)


def _signature_is_free(subject: Subject, facts: Facts) -> bool:
    """Whether const may be added: a C++ symbol spells its parameter types, and a prototype would contradict."""
    name = re.escape(facts.function.name)
    before = subject.text.encode()[: facts.function.body.start_byte].decode()
    own = re.findall(rf"\b{name}\s*\(", before)
    others = [m for text in subject.context for m in re.findall(rf"\b{name}\s*\([^;{{]*\)\s*;", text)]
    return len(own) == 1 and not others and _is_extern_c(subject, facts)


def _is_extern_c(subject: Subject, facts: Facts) -> bool:
    node: Node | None = facts.function.node
    if 'extern "C"' in text_of(facts.function.node).split("(")[0]:
        return True
    while node is not None:
        if node.type == "linkage_specification" and '"C"' in text_of(node).split("{")[0]:
            return True
        node = node.parent
    return False


def _only_read(facts: Facts, variable: Variable) -> bool:
    if not facts.movable or variable.sources or not facts.never_written(frozenset((variable,))):
        return False
    uses = [n for n in walk(facts.function.body) if facts.variable(n) is variable]
    return all(_reads_through(facts, use) for use in uses)


def _reads_through(facts: Facts, use: Node) -> bool:
    """Whether a pointer is only dereferenced here, or copied to a pointer to const."""
    inner = use
    for holder in facts.inside_out(use):
        if holder.type == "subscript_expression":
            argument = holder.child_by_field_name("argument")
            return argument is not None and argument.id == inner.id
        if holder.type == "pointer_expression":
            return text_of(holder).startswith("*")
        if holder.type == "init_declarator":
            return re.match(r"\s*(const\b|\w+\s+const\b)", text_of(facts.parent[holder.id])) is not None
        if holder.type not in ("parenthesized_expression", "binary_expression"):
            return holder.type == "argument_list" and text_of(facts.parent[holder.id]).startswith("__ldg")
        inner = holder
    return False


# -- loads and invariants ---------------------------------------------------------------------------------------------


def cache(subject: Subject) -> str:
    """Keep in a register what is loaded repeatedly from one place that nothing in between may write."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        loads = [n for n in walk(facts.function.body) if _is_load(facts, n)]
        return share(facts, rewrite, loads, lambda n: _load_name(n), loads_only=True)

    return _repeat(subject, once)


def _is_load(facts: Facts, node: Node) -> bool:
    if node.type not in ("subscript_expression", "pointer_expression") or text_of(node).startswith("&"):
        return False
    above = facts.parent[node.id]
    if above.type == "subscript_expression" and _is_field(above, node, "argument"):
        return False
    return not _is_target(facts, node)


def _is_field(above: Node, node: Node, name: str) -> bool:
    child = above.child_by_field_name(name)
    return child is not None and child.id == node.id


def _is_target(facts: Facts, node: Node) -> bool:
    """Whether a place is written, or its address taken, here."""
    inner = node
    for holder in facts.inside_out(node):
        if holder.type in ("assignment_expression",):
            return _is_field(holder, inner, "left")
        if holder.type in ("update_expression",):
            return True
        if holder.type == "pointer_expression":
            return text_of(holder).startswith("&")
        if holder.type not in ("parenthesized_expression", "field_expression"):
            return False
        inner = holder
    return False


def _load_name(node: Node) -> str:
    name = next((text_of(n) for n in walk(node) if n.type == "identifier"), "value")
    return f"{name}_value"


def hoist(subject: Subject) -> str:
    """Compute loop invariants and repeated subexpressions (index arithmetic) once, in front."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        found = [n for n in walk(facts.function.body) if hoistable(facts, n)]
        return share(facts, rewrite, found, lambda n: _value_name(facts, n))

    return _repeat(subject, once)


def _value_name(facts: Facts, node: Node) -> str:
    return "offset" if (facts.dtype(node) or "").endswith(("int32", "int64")) else "invariant"


# -- divisions and powers ---------------------------------------------------------------------------------------------


def reciprocal(subject: Subject) -> str:
    """Multiply by the reciprocal where a divisor is constant or used again."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        found = [n for n in walk(facts.function.body) if _is_division(facts, n)]
        literal = [n for n in found if _is_constant(facts, _side(n, "right"))]
        if literal:
            return _by_constants(facts, rewrite, literal)
        divisors = {_side(n, "right").id: n for n in found}
        return share(
            facts,
            rewrite,
            [_side(n, "right") for n in found],
            lambda n: "inverse_" + (re.sub(r"\W+", "_", text_of(n)).strip("_") if len(text_of(n)) < 16 else "value"),
            division=lambda n: divisors[n.id],
        )

    return _repeat(subject, once, where="/")


def _side(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    assert child is not None
    return child


def _is_division(facts: Facts, node: Node) -> bool:
    """A floating-point division that is neither folded by the compiler nor a reciprocal already."""
    if node.type != "binary_expression" or text_of(_side(node, "operator")) != "/":
        return False
    left, right = _side(node, "left"), _side(node, "right")
    result, divisor = facts.dtype(node), facts.dtype(right)
    if result not in FLOATS or _is_constant(facts, left) or _is_power_of_two(facts, right):
        return False
    return divisor == result or (divisor in ("int32", "uint32") and result == "float64")


def _is_power_of_two(facts: Facts, node: Node) -> bool:
    value = facts.real(node)
    return value is not None and abs(frexp(value)[0]) == 0.5


def _is_constant(facts: Facts, node: Node) -> bool:
    needs = facts.needs(node)
    fields = any(n.type == "field_expression" for n in walk(node))
    return needs is not None and not needs.variables and not needs.reads and not fields


def _by_constants(facts: Facts, rewrite: Rewrite, found: list[Node]) -> bool:
    """``a / 12`` -> ``a * (1.0 / 12)``; the innermost ones first where divisions nest."""
    chosen: list[Node] = []
    for node in reversed(found):
        if not any(node.start_byte <= other.start_byte and other.end_byte <= node.end_byte for other in chosen):
            chosen.append(node)
            rewrite.replace(_side(node, "right"), f"({one(facts, node)} / {text_of(_side(node, 'right'))})")
            rewrite.replace(_side(node, "operator"), "*")
    return bool(chosen)


def one(facts: Facts, node: Node) -> str:
    """The number one in the type of a floating-point expression."""
    return "1.0f" if facts.dtype(node) == "float32" else "1.0"


_POWERS: Mapping[str, str] = {
    "2": "({0} * {0})", "3": "({0} * {0} * {0})", "4": "(({0} * {0}) * ({0} * {0}))", "1": "({0})",
    "-1": "({1} / {0})", "-2": "({1} / ({0} * {0}))", "0.5": "{2}({0})", "1.5": "({0} * {2}({0}))",
}  # fmt: skip


def power(subject: Subject) -> str:
    """``pow`` with a small constant exponent as multiplications; a division by ``sqrt`` as ``rsqrt``."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        for node in reversed(list(walk(facts.function.body))):
            made = _power(facts, rewrite, node) or _root(facts, node)
            if made is not None:
                rewrite.replace(node, made)
                return True
        return False

    return _repeat(subject, once, where="(", rounds=40)


def _power(facts: Facts, rewrite: Rewrite, node: Node) -> str | None:
    name, arguments = _call(node)
    if name not in ("pow", "powf") or len(arguments) != 2:
        return None
    base, exponent = arguments
    single = name == "powf" or (facts.dtype(base), facts.dtype(exponent)) == ("float32", "float32")
    if not single and facts.dtype(base) != "float64":
        return None
    written = re.sub(r"(\.0*)?[fF]?$", "", text_of(exponent)) if "." in text_of(exponent) else text_of(exponent)
    pattern = _POWERS.get(re.sub(r"[fF]$", "", written))
    if pattern is None or facts.needs(base) is None:
        return None
    text = _named(facts, rewrite, base) or f"({text_of(base)})"
    if single and facts.dtype(base) != "float32":
        text = f"(float){text}"
    return pattern.format(text, "1.0f" if single else "1.0", "sqrtf" if single else "sqrt")


def exponential(subject: Subject) -> str:
    """``pow`` with a constant exponent that is no integer as ``exp(y * log(x))``: the same for every x but in rounding.

    A negative base gives NaN either way (minus infinity too), zero and infinity the same limits.
    """

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        found = [n for n in walk(facts.function.body) if _is_broken_power(facts, n)]
        for node in found[-1:]:
            name, (base, exponent) = _call(node)
            end = "f" if name == "powf" or facts.dtype(node) == "float32" else ""
            rewrite.replace(node, f"exp{end}(({text_of(exponent)}) * log{end}({text_of(base)}))")
        return bool(found)

    return _repeat(subject, once, where="pow")


def _is_broken_power(facts: Facts, node: Node) -> bool:
    name, arguments = _call(node)
    if name not in ("pow", "powf") or len(arguments) != 2:
        return False
    exponent = facts.real(arguments[1]) if facts.dtype(arguments[1]) in FLOATS else None
    kinds = {facts.dtype(a) for a in arguments}
    return exponent is not None and not exponent.is_integer() and len(kinds) == 1 and None not in kinds


def _named(facts: Facts, rewrite: Rewrite, base: Node) -> str | None:
    """A short text for a base: itself, or a name declared in front where that computes nothing needlessly."""
    if base.type in ("identifier", "number_literal", "subscript_expression"):
        return text_of(base)
    needs = facts.needs(base)
    step = next(iter(facts.steps(base, needs)), None) if needs is not None else None
    if step is None or not facts.always(step.statement, base):
        return None
    name = rewrite.fresh("base")
    rewrite.before(step.statement, f"const {facts.c_type(base)} {name} = {text_of(base)};")
    return name


def _root(facts: Facts, node: Node) -> str | None:
    if node.type != "binary_expression" or text_of(_side(node, "operator")) != "/":
        return None
    name, arguments = _call(_side(node, "right"))
    if name not in ("sqrt", "sqrtf") or len(arguments) != 1 or facts.dtype(node) != facts.dtype(_side(node, "right")):
        return None
    inverse = "rsqrt" if facts.dtype(node) == "float64" else "rsqrtf"
    if facts.dtype(node) not in FLOATS:
        return None
    return f"{text_of(_side(node, 'left'))} * {inverse}({text_of(arguments[0])})"


def _call(node: Node) -> tuple[str, list[Node]]:
    if node.type != "call_expression":
        return "", []
    return text_of(_side(node, "function")).removeprefix("std::"), _side(node, "arguments").named_children


# -- loops ------------------------------------------------------------------------------------------------------------


def accumulate(subject: Subject) -> str:
    """Sum in a register what a loop adds up in memory, and store it once behind the loop."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        loops = [n for n in walk(facts.function.body) if n.type == "for_statement"]
        return any(_accumulate(facts, rewrite, loop) for loop in loops)

    return _repeat(subject, once, where="for")


def _accumulate(facts: Facts, rewrite: Rewrite, loop: Node) -> bool:
    if any(n.type == "return_statement" for n in walk(loop)) or any(e.fence for e in facts.effects(loop)):
        return False
    for node in walk(loop):
        target = node.child_by_field_name("left") if node.type == "assignment_expression" else None
        if target is not None and target.type == "subscript_expression" and _lives_in_loop(facts, loop, target):
            name = rewrite.fresh(_load_name(target).removesuffix("_value") + "_sum")
            text = text_of(target)
            for same in _same_places(facts, loop, target):
                rewrite.replace(same, name)
            rewrite.before(loop, f"{facts.c_type(target)} {name} = {text};")
            rewrite.after(loop, f"{text} = {name};")
            return True
    return False


def _same_places(facts: Facts, loop: Node, target: Node) -> list[Node]:
    return [n for n in walk(loop) if n.type == target.type and facts.key(n) == facts.key(target)]


def _lives_in_loop(facts: Facts, loop: Node, target: Node) -> bool:
    """Whether one place is all the loop touches of its memory, and it surely touches it."""
    needs = facts.needs(target)
    if needs is None or not facts.always(loop, target) or needs.reads[0] is None:
        return False
    base = needs.reads[0]
    if any(v.place == "array" for v in base):
        return False
    index = Needs(needs.variables, needs.reads[1:], True)
    same = {n.id for n in _same_places(facts, loop, target)}
    if any(facts.kills(e, index) for e in facts.effects(loop)):
        return False
    return _read_back(facts, loop, target) and all(
        n.id in same or not facts.overlap(_memory(facts, n), base) for n in walk(loop) if _touches(facts, n)
    )


def _read_back(facts: Facts, loop: Node, target: Node) -> bool:
    """Whether the place is really accumulated: read as well as written in the loop."""
    holder = facts.parent[target.id]
    compound = text_of(_side(holder, "operator")) != "=" if holder.child_by_field_name("operator") else False
    return compound or len(_same_places(facts, loop, target)) > 1


def _touches(facts: Facts, node: Node) -> bool:
    if node.type == "call_expression":
        return any(e.memory and e.node.id == node.id for e in facts.effects(node))
    pointer = node.type in ("subscript_expression", "pointer_expression") and not text_of(node).startswith("&")
    return pointer or (node.type == "field_expression" and "->" in text_of(node))


def _memory(facts: Facts, node: Node) -> frozenset[Variable] | None:
    needs = facts.needs(node) if node.type != "call_expression" else None
    return needs.reads[0] if needs is not None and needs.reads else None


def unroll(subject: Subject) -> str:
    """``#pragma unroll`` in front of every loop with a constant, small number of rounds."""
    return _pragma(subject, lambda facts, loop: "#pragma unroll" if 1 < (facts.trips(loop) or 0) <= 32 else "")


def unroll_by_4(subject: Subject) -> str:
    """``#pragma unroll 4`` in front of innermost counting loops whose number of rounds is not constant."""

    def line(facts: Facts, loop: Node) -> str:
        inner = [n for n in walk(loop) if n.type.endswith("_statement") and n.id != loop.id and _is_loop(n)]
        counts = facts.trips(loop) is None and not inner and loop.type == "for_statement"
        return "#pragma unroll 4" if counts else ""

    return _pragma(subject, line)


def _is_loop(node: Node) -> bool:
    return node.type in ("for_statement", "while_statement", "do_statement")


def _pragma(subject: Subject, line: Callable[[Facts, Node], str]) -> str:
    facts, data, edits = subject.facts(), subject.text.encode(), list[Edit]()
    for loop in walk(facts.function.body):
        text = line(facts, loop) if loop.type == "for_statement" else ""
        start = data.rfind(b"\n", 0, loop.start_byte) + 1
        indent = data[start : loop.start_byte].decode()
        previous = loop.prev_named_sibling
        taken = previous is not None and previous.type == "preproc_call" and "unroll" in text_of(previous)
        if text and not taken:
            lead = f"{text}\n{indent}" if not indent.strip() else f"\n{text}\n"
            edits.append(Edit(loop.start_byte, loop.start_byte, lead))
    return apply(subject.text, edits)


RULES: Mapping[str, Rule] = {
    "restrict": restrict,
    "reciprocal": reciprocal,
    "power": power,
    "exponential": exponential,
    "cache": cache,
    "hoist": hoist,
    "accumulate": accumulate,
    "unroll": unroll,
    "unroll4": unroll_by_4,
}
SENTENCES: Mapping[str, str] = {
    "restrict": "const and __restrict__ on pointers that are only read or do not overlap in any recorded launch",
    "reciprocal": "divisions by constants and repeated divisors became multiplications by the reciprocal",
    "power": "pow with a small exponent became multiplications, division by sqrt became rsqrt",
    "exponential": "pow with a fractional exponent became exp of log",
    "cache": "values loaded more than once are kept in registers",
    "hoist": "loop invariants and repeated index arithmetic are computed once",
    "accumulate": "sums are kept in a register instead of memory",
    "unroll": "loops with a constant number of rounds are unrolled",
    "unroll4": "innermost loops are unrolled by four",
}
_ARITHMETIC = ("power", "exponential", "reciprocal")
_MEMORY = ("accumulate", "cache", "hoist")
CHAINS: tuple[tuple[str, ...], ...] = (
    _ARITHMETIC,
    ("restrict", *_MEMORY),
    ("restrict", *_ARITHMETIC, *_MEMORY),
    ("restrict", *_ARITHMETIC, *_MEMORY, "unroll", "unroll4"),
)
