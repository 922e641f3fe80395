"""Reading LLVM's textual IR: a module as its top-level items, a function as blocks of instructions.

Only what lowering needs is understood: names, types, operands as text. LLVM itself verifies what comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from r3bench.errors import BuildError

NAME = r'(?:"[^"]*"|[-\w$.]+)'
LOCAL = re.compile(rf"%{NAME}")
GLOBAL = re.compile(rf"@{NAME}")
QUOTED = re.compile(r'"[^"]*"')
_GLOBAL_LINE = re.compile(rf"(@{NAME}) = (.*)")
_TYPE_LINE = re.compile(rf"(%{NAME}) = type (.*)")
_GROUP_LINE = re.compile(r"attributes (#\d+) = \{(.*)\}")
_LABEL = re.compile(rf"({NAME}):(?:\s*;.*)?$")
_OPCODE = re.compile(rf"(?:(%{NAME}) = )?([a-z_0-9]+)")
_CALLEE = re.compile(rf"([@%]{NAME})\(")
_NUMBERED = re.compile(r"%(\d+)(?![-\w$.])")
_NUMBERED_LABEL = re.compile(r"^(\d+):", re.MULTILINE)
_EXPRESSION = re.compile(r"\b(?:getelementptr|ptrtoint|bitcast|trunc|add|sub|xor)\b.* \(.*\)$")
_OPENING, _CLOSING = "([{<", ")]}>"


@dataclass(slots=True)
class Block:
    """A basic block; ``lines`` are its instructions without indentation, a switch joined into one line."""

    label: str
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Parameter:
    """One parameter of a function: its type, its attributes as text, its name with ``%``."""

    type: str
    attributes: str
    name: str


@dataclass(slots=True)
class Function:
    """A function definition: ``before`` stands between ``define`` and the name, ``after`` follows the parameters."""

    name: str
    before: str
    parameters: list[Parameter]
    after: str
    blocks: list[Block]

    def lines(self) -> Iterator[str]:
        for block in self.blocks:
            yield from block.lines


@dataclass(slots=True)
class Module:
    """The top-level items of a module by name; names keep their sigil and quotes."""

    types: dict[str, str] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    declarations: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    metadata: list[str] = field(default_factory=list)
    assembly: bool = False


def read_module(text: str) -> Module:
    """Split a module's text into items; bodies of functions stay text until :func:`read_function` is asked."""
    module = Module()
    body: list[str] = []
    for line in text.splitlines():
        if body:
            body.append(line)
            if line == "}":
                module.functions[_callee_name(body[0])] = "\n".join(body)
                body = []
        elif line.startswith("define "):
            body = [line]
        elif line and line[0] not in "; $":
            _read_item(module, line)
    return module


def _read_item(module: Module, line: str) -> None:
    if line.startswith("declare "):
        module.declarations[_callee_name(line)] = line
    elif match := _GLOBAL_LINE.match(line):
        module.globals[match[1]] = unquoted(match[2])
    elif match := _TYPE_LINE.match(line):
        module.types[unquoted(match[1])] = unquoted(match[2])
    elif match := _GROUP_LINE.match(line):
        module.attributes[match[1]] = match[2]
    elif line[0] == "!":
        module.metadata.append(line)
    elif line.startswith("module asm"):
        module.assembly = True


def _callee_name(line: str) -> str:
    match = GLOBAL.search(line)
    if match is None:
        raise BuildError(f"the kernel's IR has a function without a name: {line[:80]}")
    return match[0]


def read_function(text: str, prefix: str) -> Function:
    """A function's header and blocks, every numbered value and label renamed to ``<prefix><number>``.

    LLVM wants numbers in order of definition; names may be moved freely. ``prefix`` differs between readings.
    """
    head, _, rest = text.partition("\n")
    start = head.index("(", head.index(_callee_name(head)))
    end = closing(head, start)
    parameters = _read_parameters(head[start + 1 : end])
    blocks = list(_read_blocks(_named(rest, prefix), _entry_label(parameters, prefix)))
    for parameter in parameters:
        parameter.name = _named(parameter.name, prefix)
    name = _callee_name(head)
    return Function(
        name, head[len("define ") : head.index(name)].strip(), parameters, head[end + 1 :].strip(" {"), blocks
    )


def _named(text: str, prefix: str) -> str:
    text = _NUMBERED_LABEL.sub(rf"{prefix}\1:", _NUMBERED.sub(rf"%{prefix}\1", text))
    return unquoted(text) if '"' in text else text


def unquoted(text: str) -> str:
    """Local names, names of types and labels without quotes, so that a suffix can be added to any of them."""
    text = re.sub(r'(c"[^"]*")|%"([^"]*)"', lambda match: match[1] or f"%{_escaped(match[2])}", text)
    return re.sub(r'^"([^"]*)":', lambda match: f"{_escaped(match[1])}:", text, flags=re.MULTILINE)


def _escaped(name: str) -> str:
    return "r3.q." + re.sub(r"[^\w.]", lambda match: f"-{ord(match[0]):x}-", name)


def _entry_label(parameters: list[Parameter], prefix: str) -> str:
    numbered = sum(1 for parameter in parameters if parameter.name[1:].isdigit())
    return f"{prefix}{numbered}"


def _read_parameters(text: str) -> list[Parameter]:
    parameters = []
    numbered = 0
    for part in split_list(text):
        kind = leading_type(part)
        names = LOCAL.findall(part[len(kind) :])
        named = bool(names) and part.endswith(names[-1])
        name = names[-1] if named else f"%{numbered}"
        numbered += 0 if named and not name[1:].isdigit() else 1
        attributes = part[len(kind) : -len(name)] if named else part[len(kind) :]
        parameters.append(Parameter(unquoted(kind), unquoted(attributes.strip()), name))
    return parameters


def _read_blocks(text: str, entry: str) -> Iterator[Block]:
    block = Block(entry)
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("  "):
            line = line.strip()
            if line.startswith("switch ") and not line.endswith("]"):
                line = " ".join([line, *_until_bracket(lines)])
            if not line.startswith("#dbg"):
                block.lines.append(without_debug(line))
        elif match := _LABEL.match(line):
            if block.lines:
                yield block
            block = Block(match[1])
    yield block


def _until_bracket(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line.strip()
        if line.lstrip().startswith("]"):
            return


def without_debug(line: str) -> str:
    """The instruction without its source location."""
    if "!dbg" in line:
        return re.sub(r",? !dbg !\d+", "", line)
    return line


# -- one instruction ------------------------------------------------------------------------------------------------


def result_and_opcode(line: str) -> tuple[str | None, str]:
    """What an instruction defines (None for nothing) and its opcode; ``tail call`` is ``call``."""
    match = _OPCODE.match(line)
    if match is None:
        raise BuildError(f"the kernel's IR has an instruction that cannot be read: {line[:80]}")
    opcode = match[2]
    return match[1], "call" if opcode in ("tail", "musttail", "notail") else opcode


def callee(line: str) -> str | None:
    """The function a call names (``@f``), a value for an indirect call (``%f``), None for anything else.

    The first name with an opening parenthesis right behind it is the callee: attributes and types before it have none.
    """
    match = _CALLEE.search(line)
    return match[1] if match else None


def call_arguments(line: str) -> list[str]:
    """The operands of a call, each with its type."""
    match = _CALLEE.search(line)
    if match is None:
        return []
    start = match.end() - 1
    return split_list(line[start + 1 : closing(line, start)])


def operand(argument: str) -> str:
    """The value of a typed operand: its last word, or the constant expression that ends it."""
    match = _EXPRESSION.search(argument)
    return match[0] if match else argument.rsplit(" ", 1)[-1]


def successors(line: str) -> list[str]:
    """Labels a terminator names, in order."""
    return [name[1:] for name in re.findall(rf"label (%{NAME})", line)]


def incoming(line: str) -> list[tuple[str, str]]:
    """The (value, predecessor) pairs of a phi."""
    start = line.index("[", line.index(" phi ") + 5 + len(phi_type(line)))
    pairs = (split_list(part.strip()[1:-1]) for part in split_list(_without_metadata(line[start:])))
    return [(value.strip(), label.strip()[1:]) for value, label in pairs]


def phi_type(line: str) -> str:
    rest = line[line.index(" phi ") + 5 :]
    rest = re.sub(r"^(?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast) )+", "", rest)
    return leading_type(rest)


def _without_metadata(line: str) -> str:
    at = line.find(", !")
    return line if at < 0 else line[:at]


# -- text -----------------------------------------------------------------------------------------------------------


def closing(text: str, opening: int) -> int:
    """The index of the bracket that closes the one at ``opening``; brackets in quotes do not count."""
    depth, quoted = 0, False
    for index in range(opening, len(text)):
        char = text[index]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
            if depth == 0:
                return index
    raise BuildError(f"the kernel's IR has unbalanced brackets: {text[:80]}")


def split_list(text: str) -> list[str]:
    """The parts of a comma-separated list, commas inside brackets or quotes left alone."""
    if not any(bracket in text for bracket in '([{<"'):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts, depth, quoted, start = [], 0, False, 0
    for index, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return parts if parts[-1] or len(parts) > 1 else []


def leading_type(text: str) -> str:
    """The LLVM type that ``text`` starts with."""
    if text[0] in "[{<":
        return text[: closing(text, 0) + 1]
    match = re.match(rf"ptr addrspace\(\d+\)|%{NAME}|[a-z][a-z0-9_]*", text)
    if match is None:
        raise BuildError(f"the kernel's IR has a type that cannot be read: {text[:80]}")
    return match[0]
