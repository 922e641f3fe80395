"""NVPTX IR of one kernel, made into IR of the host that LLVM's passes can optimize, still with CUDA's calls in it.

Afterwards every device function can be inlined into the kernel, and nothing but these names is CUDA's: reads of
thread and block indices, barriers and warp collectives, and ``r3.*`` functions for the places of shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from r3bench.errors import BuildError
from r3bench.lowering import allow, libdevice, nvvm
from r3bench.lowering.formulas import Definitions
from r3bench.lowering.ir import (
    GLOBAL,
    NAME,
    QUOTED,
    Function,
    Module,
    Parameter,
    callee,
    closing,
    read_function,
    read_module,
    result_and_opcode,
)
from r3bench.lowering.layout import Argument, arguments
from r3bench.lowering.memory import SHARED, Variables, place_variables

KERNEL = "@r3.kernel"
_SPACE = re.compile(r" addrspace\(\d+\)")
_SCOPE = re.compile(r' syncscope\("[^"]*"\)')
_POINTERS = re.compile(r"(@llvm\.[\w.]*?)((?:\.p\d+)+)(?=[.(])")
_SOURCE = re.compile(r", !(?:srcloc|annotation|nosanitize) !\d+")
_SCOPES = re.compile(r", !(?:alias\.scope|noalias) !\d+")
_GROUP_DROPPED = re.compile(r'"[^"]*"(?:="[^"]*")?|\b(?:noinline|optnone|alwaysinline|norecurse|optsize|minsize)\b')
_LINKAGE = re.compile(
    r"\b(?:internal|private|linkonce_odr|linkonce|weak_odr|weak|external|available_externally|dso_local|hidden|protected"
    r"|local_unnamed_addr|unnamed_addr|ptx_kernel|ptx_device|fastcc)\b\s*"
)
_ALIAS = re.compile(r"noalias ")


@dataclass(slots=True)
class Prepared:
    """The host module before optimization, and what was learned while writing it."""

    text: str
    arguments: list[Argument]
    variables: Variables
    suspends: bool


def prepare(ir: str, symbol: str, *, triple: str, data_layout: str) -> Prepared:
    """Rewrite the part of ``ir`` that kernel ``symbol`` reaches. Unsupported and BuildError name what is refused."""
    module = read_module(ir)
    kernel = _find(module, symbol)
    allow.check_module(module, symbol)
    reached = _reachable(module, kernel)
    functions = [read_function(module.functions[name], "r3.n") for name in reached if name in module.functions]
    texts = {function.name: "\n".join(function.lines()) for function in functions}
    for function in functions:
        allow.check_function(f"{function.before} {function.after}", function.lines(), set(texts), symbol)
    for text in texts.values():
        allow.check_addresses(text, set(texts), symbol)
    variables = place_variables(module, reached, symbol)
    suspends = any(name in nvvm.SUSPENDS for name in reached)
    writer = _Writer(module, variables, keep_alias=not suspends)
    return Prepared(
        writer.module_text(functions, kernel, triple, data_layout),
        arguments(_parameters(functions, kernel), module.types),
        variables,
        suspends,
    )


def _find(module: Module, symbol: str) -> str:
    for name in (f"@{symbol}", f'@"{symbol}"'):
        if name in module.functions:
            return name
    raise BuildError(
        f"there is no kernel {symbol} in the module; it defines {', '.join(sorted(module.functions)) or 'none'}"
    )


def _parameters(functions: Iterable[Function], kernel: str) -> list[Parameter]:
    return next(function.parameters for function in functions if function.name == kernel)


def _reachable(module: Module, kernel: str) -> list[str]:
    """Functions, variables and declarations that the kernel leads to, in the order they are met."""
    waiting, seen = [kernel], {kernel: None}
    while waiting:
        name = waiting.pop()
        text = module.functions.get(name) or module.globals.get(name, "")
        for found in GLOBAL.findall(text):
            if found not in seen:
                seen[found] = None
                waiting.append(found)
    return list(seen)


@dataclass(slots=True)
class _Writer:
    """Writes the host module; ``entry`` collects what a function must compute before its first instruction."""

    module: Module
    variables: Variables
    keep_alias: bool
    definitions: Definitions = field(default_factory=libdevice.definitions)
    declared: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def module_text(self, functions: list[Function], kernel: str, triple: str, data_layout: str) -> str:
        self.renamed = {function.name: f"@r3.f{n}" for n, function in enumerate(functions)} | {kernel: KERNEL}
        bodies = [self._function(function, function.name == kernel) for function in functions]
        for name, (kind, _) in nvvm.PLACES.items():
            self.declared[name] = f"declare {kind} {name}() nounwind willreturn speculatable memory(none)"
        parts = [
            f'target datalayout = "{data_layout}"',
            f'target triple = "{triple}"',
            *(f"{name} = type {text}" for name, text in self.module.types.items()),
            *self.variables.definitions,
            *bodies,
            *self.definitions.texts.values(),
            *(text for name, text in self.declared.items() if name not in self.definitions.texts),
            *self._attribute_groups(),
            *_metadata(self.module.metadata),
        ]
        return "\n".join(parts) + "\n"

    def _attribute_groups(self) -> Iterator[str]:
        for name, text in self.module.attributes.items():
            yield f"attributes {name} = {{ {_GROUP_DROPPED.sub('', text)} }}"

    # -- functions ----------------------------------------------------------------------------------------------

    def _function(self, function: Function, is_kernel: bool) -> str:
        entry = _Entry(self.variables)
        blocks = []
        for block in function.blocks:
            lines = [self._instruction(line, entry) for line in block.lines]
            blocks.append((block.label, lines))
        head = self._kernel_head(function, entry) if is_kernel else self._function_head(function)
        first, lines = blocks[0]
        blocks[0] = (first, [*entry.lines, *lines])
        body = "\n".join(f"{label}:\n" + "\n".join(f"  {line}" for line in lines) for label, lines in blocks)
        return f"{head} {{\n{body}\n}}"

    def _function_head(self, function: Function) -> str:
        before = _SPACE.sub("", _result(function.before))
        parameters = ", ".join(f"{_SPACE.sub('', p.type)} {self._attributes(p)} {p.name}" for p in function.parameters)
        name = self.renamed[function.name]
        return f"define internal {before} {name}({parameters}) alwaysinline {_groups(function.after)}"

    def _kernel_head(self, function: Function, entry: _Entry) -> str:
        placed = arguments(function.parameters, self.module.types)
        parameters = []
        for parameter, argument in zip(function.parameters, placed, strict=True):
            if argument.by_value:
                known = f"align {argument.align} dereferenceable({argument.size})"
                parameters.append(f"ptr noalias readonly {known} {parameter.name}.r3in")
                entry.copy_in(parameter.name, argument)
            else:
                parameters.append(f"{_SPACE.sub('', parameter.type)} {self._attributes(parameter)} {parameter.name}")
        return f"define void {KERNEL}({', '.join(parameters)}) {_groups(function.after)}"

    def _attributes(self, parameter: Parameter) -> str:
        return parameter.attributes if self.keep_alias else _ALIAS.sub("", f"{parameter.attributes} ").strip()

    # -- instructions -------------------------------------------------------------------------------------------

    def _instruction(self, line: str, entry: _Entry) -> str:
        if " addrspace(" in line:
            line = _SPACE.sub("", line)
        if "syncscope" in line:
            line = _SCOPE.sub("", line)
        if "addrspacecast ptr" in line:
            line = line.replace("addrspacecast ptr", "bitcast ptr")
        if ", !" in line:
            line = _SOURCE.sub("", line)
            line = line if self.keep_alias else _SCOPES.sub("", line)
        if "@" in line:
            line = entry.expand(line)
            if result_and_opcode(line)[1] == "call":
                line = self._call(line)
        return line

    def _call(self, line: str) -> str:
        line = re.sub(r"\b(?:fastcc|ptx_device) ", "", line)
        name = callee(line)
        if name is None:
            raise BuildError(f"the kernel's IR has a call that cannot be read: {line[:80]}")
        if name in self.renamed:
            return line.replace(f"{name}(", f"{self.renamed[name]}(")
        plain = name[1:]
        if plain in nvvm.HELPERS:
            symbol = f"@r3.{plain.removeprefix('llvm.')}"
            self.definitions.texts.setdefault(symbol, nvvm.HELPERS[plain].text(symbol))
            if "readcyclecounter" in nvvm.HELPERS[plain].body:
                self.declared["@llvm.readcyclecounter"] = "declare i64 @llvm.readcyclecounter()"
            return line.replace(f"{name}(", f"{symbol}(")
        if libdevice.known(plain):
            if name not in self.definitions.texts:
                libdevice.define(plain, self.definitions)
            return line
        self._declare(name)
        return _POINTERS.sub(_default_space, line)

    def _declare(self, name: str) -> None:
        text = _POINTERS.sub(_default_space, _SPACE.sub("", self.module.declarations[name]))
        self.declared[callee(text) or name] = text


def _metadata(lines: Iterable[str]) -> Iterator[str]:
    """Numbered nodes only; those about source places and functions become empty."""
    for line in lines:
        name, _, node = line.partition(" = ")
        if name[1:].isdigit():
            gone = "!DI" in node or "@" in QUOTED.sub('""', node)
            yield f"{name} = !{{}}" if gone else line


def _default_space(match: re.Match[str]) -> str:
    return match[1] + re.sub(r"\d+", "0", match[2])


def _result(before: str) -> str:
    """Attributes and type of a function's result, without linkage, visibility and calling convention."""
    return _LINKAGE.sub("", before)


def _groups(after: str) -> str:
    return " ".join(re.findall(r"#\d+", after))


_CONSTANT = re.compile(
    r"\b(getelementptr|addrspacecast|ptrtoint|bitcast|trunc|add|sub|xor)"
    r"((?: (?:inbounds|nusw|nuw|nsw|inrange\([^)]*\)))*) \("
)
_MENTION = re.compile(rf"@{NAME}(?!\()")


@dataclass(slots=True)
class _Entry:
    """Instructions for a function's entry: addresses of variables, constant expressions that mention them, copies."""

    variables: Variables
    lines: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)

    def copy_in(self, name: str, argument: Argument) -> None:
        """A struct passed by value is the kernel's own to change: work on a copy, which LLVM drops where it never does
        and the original is known to be as large and as well aligned."""
        copied = f"ptr align {argument.align} {name}, ptr align {argument.align} {name}.r3in"
        self.lines[:0] = [
            f"{name} = alloca {argument.type}, align {argument.align}",
            f"call void @llvm.memcpy.p0.p0.i64({copied}, i64 {argument.size}, i1 false)",
        ]

    def expand(self, line: str) -> str:
        """The line with every variable that has no fixed address, alone or inside a constant expression, as a value."""
        while match := _CONSTANT.search(line):
            end = closing(line, match.end() - 1)
            line = (
                line[: match.start()] + self._expression(match[1], match[2], line[match.end() : end]) + line[end + 1 :]
            )
        return _MENTION.sub(lambda match: self.address(match[0]), line)

    def _expression(self, opcode: str, flags: str, inside: str) -> str:
        inside = self.expand(inside)
        if opcode == "addrspacecast":
            return inside.removeprefix("ptr ").rsplit(" to ", 1)[0]
        if opcode in ("add", "sub", "xor"):
            kind, left, right = re.fullmatch(r"(\S+) (\S+), \S+ (\S+)", inside).groups()  # type: ignore[union-attr]
            inside = f"{kind} {left}, {right}"
        return self._value(f"{opcode}{flags} {inside}")

    def address(self, name: str) -> str:
        """The value that holds a variable's address; other names stay as they are."""
        if (offset := self.variables.offsets.get(name)) is not None:
            return self._value(f"getelementptr i8, ptr {self._value(f'call ptr {SHARED}()')}, i64 {offset}")
        if slot := self.variables.slots.get(name):
            return self._value(f"load ptr, ptr {slot}, align 8, !invariant.load !{self.variables.empty}")
        return name

    def _value(self, text: str) -> str:
        if text not in self.known:
            self.known[text] = f"%r3.a{len(self.known)}"
            self.lines.append(f"{self.known[text]} = {text}")
        return self.known[text]
