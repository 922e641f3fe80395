"""The checked build: every access to memory asks a function of the CPU device first whether it may be made.

``instrument`` works on the front end's IR with debug information, before anything else has seen it: there every access
stands where the source has it. A call ``__r3_check`` in front gives the address, the bytes, the alignment, a text (kind
of access, file and line, name of the array), the array itself where the access names it (so that shared and local
arrays are told apart), the block's shared memory, and who asks. Debug information is dropped then.

Kinds of access differ in their first letter, by which driver.c tells whether shared memory must have been written
before: not what is ``fetched``, since a copy of a struct takes what lies between its fields along, and who sets a field
of a few bits takes its neighbours. Pointers that are ``passed`` to functions that do not ask may be written through.

A local array is treated like shared memory, with notes behind it of what was written, unless its address is kept or
chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from r3bench.lowering.ir import NAME, Module, call_arguments, callee, closing, leading_type, read_module, split_list
from r3bench.lowering.ir import unquoted as plain
from r3bench.lowering.layout import size_and_align

CHECK = "@__r3_check"
_ASKS = ", ".join(f"i32 %r3c.{who}.{axis}" for who in ("tid", "ctaid") for axis in "xyz")
_READS = [
    f"  %r3c.{who}.{axis} = call i32 @llvm.nvvm.read.ptx.sreg.{who}.{axis}()"
    for who in ("tid", "ctaid")
    for axis in "xyz"
]
_SHARED = [
    "  %r3c.dynamic = call i32 @llvm.nvvm.read.ptx.sreg.dynamic_smem_size()",
    "  %r3c.total = call i32 @llvm.nvvm.read.ptx.sreg.total_smem_size()",
    "  %r3c.shared = call ptr @__r3_shared()",
]
_EXTENTS = [
    "  %r3c.extent = zext i32 %r3c.dynamic to i64",
    "  %r3c.bytes = zext i32 %r3c.total to i64",
]
_DEFINED = re.compile(rf"^(@{NAME}) = .*?\b(?:global|constant) ")
_ACCESS = re.compile(rf"^  (?:(%{NAME}) = )?(load|store|atomicrmw|cmpxchg|call|tail call|getelementptr|alloca)\b ?(.*)")
_OF_BITS = re.compile(r"  %bf\.load\S* = load ")
_WORDS = re.compile(
    r"^(?:(?:atomic|volatile|weak|inbounds|nuw|nusw|inrange\([^)]*\)"
    r"|xchg|add|sub|and|or|xor|nand|[uf]?max|[uf]?min|fadd|fsub|u\w+_\w+) )+"
)
_ATTRIBUTES = re.compile(
    r"^ptr(?: (?!(?:addrspacecast|getelementptr|bitcast|null|undef|poison)\b)[a-z]\w*(?:\([^()]*\)| \d+)?)* "
)
_FILL = "@llvm.memset.p0.i64"
_LIFETIME = re.compile(r" call void @llvm\.lifetime\.")
_AT = re.compile(r"!dbg (!\d+)")
_LOCATION = re.compile(r"^(!\d+) = (?:distinct )?!DILocation\(line: (\d+), .*?scope: (!\d+)", re.MULTILINE)
_SCOPE = re.compile(r"^(!\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlock\w*)\(.*?\bfile: (!\d+)", re.MULTILINE)
_FILE = re.compile(r'^(!\d+) = !DIFile\(filename: "((?:[^"\\]|\\.)*)"', re.MULTILINE)
_VARIABLE = re.compile(r'^(!\d+) = (?:distinct )?!DIGlobalVariable\(name: "([^"]*)"', re.MULTILINE)
_EXPRESSION = re.compile(r"^(!\d+) = !DIGlobalVariableExpression\(var: (!\d+)", re.MULTILINE)
_OF_PRELUDE = re.compile(r"@_ZL?\d+(atomic[A-Z]\w*?|__ld\w*?|__st\w*?)(?:I|P|\(|E)")


@dataclass(frozen=True, slots=True)
class _Object:
    """An array that accesses name: what it is called, its address as a value, its bytes (None: dynamic shared memory).

    ``sure`` says that every index into it so far is a constant, which clang has seen; ``noted`` that it is a local
    array with notes behind it of what was written.
    """

    name: str
    address: str
    nbytes: int | None
    sure: bool
    noted: bool = False


def instrument(ir: str) -> str:
    """The module with a check in front of each access of a function with debug information, and without the latter."""
    return _Instrumentation(ir, read_module(ir)).text()


@dataclass(slots=True)
class _Instrumentation:
    ir: str
    module: Module
    asking: set[str] = field(init=False)
    places: dict[str, str] = field(default_factory=dict)
    variables: dict[str, _Object] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    noted: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.asking = {n for n, text in self.module.functions.items() if " !dbg " in text.partition("\n")[0]}

    def text(self) -> str:
        files = dict(_FILE.findall(self.ir))
        scopes = {scope: files.get(file, "") for scope, file in _SCOPE.findall(self.ir)}
        self.places = {at: f"{scopes.get(scope, '')}:{line}" for at, line, scope in _LOCATION.findall(self.ir)}
        self.variables = dict(self._variables())
        lines = list(self._lines())
        constants = [
            f'{name} = private unnamed_addr constant [{len(text.encode()) + 1} x i8] c"{_quoted(text)}"'
            for text, name in self.texts.items()
        ]
        declared = [
            f"declare void {CHECK}(ptr, i64, i32, ptr, ptr, i64, ptr, i64, i32, i32, i32, i32, i32, i32) nounwind",
            *(_declaration(line) for line in (*_READS, *_SHARED) if f"{callee(line)}(" not in self._declared()),
            *([] if f"{_FILL}(" in self._declared() else [f"declare void {_FILL}(ptr, i8, i64, i1 immarg)"]),
        ]
        return "\n".join([*lines, *constants, *declared]) + "\n"

    def _declared(self) -> str:
        return "\n".join(self.module.declarations.values())

    def _variables(self) -> Iterator[tuple[str, _Object]]:
        names, variables = dict(_VARIABLE.findall(self.ir)), dict(_EXPRESSION.findall(self.ir))
        for line in self.ir.splitlines():
            if match := _DEFINED.match(line):
                space = re.search(r"addrspace\((\d+)\)", line[: match.end()])
                shared = space is not None and space[1] == "3"
                kind = plain(leading_type(line[match.end() :]))
                attached = _AT.search(line)
                name = names.get(variables.get(attached[1], ""), "") if attached else ""
                dynamic = shared and "external" in line[: match.end()]
                nbytes = None if dynamic else size_and_align(kind, self.module.types)[0]
                cast = f"addrspacecast (ptr {space[0]} {match[1]} to ptr)" if space else match[1]
                yield match[1], _Object(name or match[1][1:], cast, nbytes, False)

    # -- functions --------------------------------------------------------------------------------------------------

    def _lines(self) -> Iterator[str]:
        body: list[str] = []
        for line in self.ir.splitlines():
            if body or line.startswith("define "):
                body.append(line)
                if line == "}":
                    yield from self._function(body)
                    body = []
            elif line[:1] == "!" and "= distinct !{" in line:  # a loop, which tells where it is written
                yield re.sub(r", (!\d+)", lambda node: "" if node[1] in self.places else node[0], line)
            elif not line.startswith("!llvm.dbg"):  # its nodes go with it
                yield _without_debug(line)

    def _function(self, body: list[str]) -> Iterator[str]:
        checks = " !dbg " in body[0]
        known = dict(_parameters(body[0], self.module.types)) if checks else {}
        self.noted = dict(_plain_arrays(body, self.module.types)) if checks else {}
        written: list[str] = []
        for line in body[1:]:
            if line.lstrip().startswith("#dbg"):
                continue
            if checks:
                written += self._checks(line, known)
            written += self._with_notes(_without_debug(line))
        yield _without_debug(body[0])
        first = 1 if written and re.match(rf"{NAME}:", written[0]) else 0
        yield from written[:first]
        if checks:
            yield from [*_READS, *_SHARED, *_EXTENTS]
        yield from written[first:]

    def _with_notes(self, line: str) -> Iterator[str]:
        """A local array with room for notes behind it, none of which is set yet; it lives as long as its function."""
        match = _ACCESS.match(line)
        name = match[1] if match is not None and match[2] == "alloca" else None
        if name in self.noted:
            nbytes, kind = self.noted[name], leading_type(line.partition(" = alloca ")[2])
            yield line.replace(kind, f"{{ {kind}, [{nbytes} x i8] }}", 1)
            notes = f"%r3c.notes.{list(self.noted).index(name)}"
            yield f"  {notes} = getelementptr i8, ptr {name}, i64 {nbytes}"
            yield f"  call void {_FILL}(ptr {notes}, i8 0, i64 {nbytes}, i1 false)"
        elif not (_LIFETIME.search(line) and any(each in self.noted for each in re.findall(rf"%{NAME}", line))):
            yield line

    def _checks(self, line: str, known: dict[str, _Object]) -> Iterator[str]:
        match = _ACCESS.match(line)
        if match is None:
            return
        name, opcode, rest = match[1], match[2].split()[-1], _WORDS.sub("", match[3])
        at = _AT.search(line)
        place = self.places.get(at[1], "") if at else ""
        if opcode == "alloca" and name:
            nbytes = size_and_align(plain(leading_type(rest)), self.module.types)[0]
            known[name] = _Object(name[1:], name, nbytes, True, name in self.noted)
        elif opcode == "getelementptr" and name:
            base = self._object(split_list(rest)[1], known)
            if base:
                sure = base.sure and all(re.fullmatch(r"i\d+ \d+.*", index) for index in _indices(rest))
                known[name] = replace(base, sure=sure)
        elif opcode == "call":
            yield from self._call(line, place, known)
        elif opcode != "getelementptr":
            parts = split_list(rest)
            kind, pointer = parts[:2] if opcode in ("load", "store") else parts[1::-1]
            align = re.search(r", align (\d+)", rest)
            nbytes = size_and_align(plain(leading_type(kind)), self.module.types)[0]
            yield from self._check(_access(opcode, line), pointer, nbytes, int(align[1]) if align else 1, place, known)

    def _call(self, line: str, place: str, known: Mapping[str, _Object]) -> Iterator[str]:
        operands, name = call_arguments(line), callee(line) or ""
        if name.startswith(("@llvm.memcpy", "@llvm.memmove", "@llvm.memset")):
            count = re.fullmatch(r"i\d+ (\d+)", operands[2])
            if not count:
                yield from self._check("passed", operands[0], 0, 1, place, known)
                return
            both = (("wrote", operands[0]), ("fetched", operands[1]))
            for access, pointer in both[: 1 if "memset" in name else 2]:
                align = re.search(r"\balign (\d+) ", pointer)
                yield from self._check(access, pointer, int(count[1]), int(align[1]) if align else 1, place, known)
        elif (match := _OF_PRELUDE.match(name + "(")) and operands and operands[0].startswith("ptr"):
            result = re.sub(r"\b(noundef|nonnull|signext|zeroext|range\([^)]*\)) ", "", line.split(" call ", 1)[1])
            kind = plain(leading_type(result)) if not result.startswith("void ") else plain(leading_type(operands[-1]))
            nbytes = size_and_align(kind, self.module.types)[0]
            written = match[1].startswith(("atomicExch", "__st"))
            access = "wrote" if written else "changed" if match[1].startswith("atomic") else "read"
            yield from self._check(access, operands[0], nbytes, nbytes, place, known)
        elif not re.match(r"@llvm\.(?!nvvm)", name):
            for pointer in operands:
                if pointer.startswith("ptr ") and " byval(" not in pointer:
                    target = self._object(pointer, known)
                    if name not in self.asking or (target is not None and target.noted):
                        yield from self._check("passed", pointer, 0, 1, place, known)

    def _check(
        self, access: str, pointer: str, nbytes: int, align: int, place: str, known: Mapping[str, _Object]
    ) -> Iterator[str]:
        address, target = _operand(pointer), self._object(pointer, known)
        skipped = target is not None and target.sure and not target.noted
        if not pointer.startswith("ptr") or pointer.startswith("ptr addrspace(") or skipped:
            return
        base, extent, named = ("null", "0", "") if target is None else (target.address, str(target.nbytes), target.name)
        if target and target.nbytes is None:
            extent = "%r3c.extent"
        text = f"{access}|{place}|{named}"
        constant = self.texts.setdefault(text, f"@__r3c.{len(self.texts)}")
        what = f"ptr {address}, i64 {nbytes}, i32 {align}, ptr {constant}, ptr {base}, i64 {extent}"
        notes = f"ptr {base}, i64 {extent}" if target and target.noted else "ptr %r3c.shared, i64 %r3c.bytes"
        yield f"  call void {CHECK}({what}, {notes}, {_ASKS})"

    def _object(self, pointer: str, known: Mapping[str, _Object]) -> _Object | None:
        """The array a pointer is known to lead into."""
        value = _operand(pointer)
        if value in known:
            return known[value]
        found = re.findall(rf"@{NAME}", value)
        return self.variables.get(found[0]) if len(found) == 1 else None


def _plain_arrays(body: list[str], types: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Local arrays with their bytes whose address is nothing but accessed, or passed to a function."""
    arrays, leads_to = dict[str, int](), dict[str, str]()
    for line in (each for each in body[1:] if not each.lstrip().startswith("#dbg")):
        match = _ACCESS.match(line)
        opcode = match[2].split()[-1] if match else ""
        if match and match[1] and opcode == "alloca" and match[3].startswith("["):
            arrays[match[1]] = size_and_align(plain(leading_type(match[3])), types)[0]
            leads_to[match[1]] = match[1]
            continue
        used = [name for name in re.findall(rf"%{NAME}", line) if name in leads_to]
        if used and match and match[1] and opcode == "getelementptr":
            leads_to[match[1]] = leads_to[used[0]]
        kept = opcode == "store" and _operand_of_value(match[3] if match else "") in leads_to
        if kept or (used and opcode not in ("load", "store", "call", "getelementptr")):
            for name in used:
                arrays.pop(leads_to[name], None)
    yield from arrays.items()


def _operand_of_value(rest: str) -> str:
    """What a store stores."""
    return split_list(_WORDS.sub("", rest))[0].rpartition(" ")[2]


def _access(opcode: str, line: str) -> str:
    """What an instruction does to memory. Who sets a field of a few bits reads its neighbours, written or not."""
    if opcode == "load":
        return "fetched" if _OF_BITS.match(line) else "read"
    return "wrote" if opcode == "store" or " xchg " in line else "changed"


def _operand(pointer: str) -> str:
    """A pointer operand without its type, attributes and what follows it."""
    rest = _ATTRIBUTES.sub("", pointer)
    if rest[0] in "%@":
        match = re.match(rf"[%@]{NAME}", rest)
        return match[0] if match else rest
    return rest[: closing(rest, rest.index("(")) + 1] if "(" in rest else rest.split(" ")[0]


def _indices(rest: str) -> list[str]:
    return [part for part in split_list(rest)[2:] if not part.startswith("!")]


def _parameters(head: str, types: Mapping[str, str]) -> Iterator[tuple[str, _Object]]:
    """The structs that a kernel takes by value."""
    start = head.index("(", head.index("@"))
    for part in split_list(head[start + 1 : closing(head, start)]):
        if match := re.match(r"ptr .*?byval\(", part):
            kind = plain(part[match.end() : closing(part, match.end() - 1)])
            name = part.rsplit(" ", 1)[1]
            yield name, _Object(name[1:], name, size_and_align(kind, types)[0], True)


def _without_debug(line: str) -> str:
    return re.sub(r",? !dbg !\d+", "", line) if "!dbg" in line else line


def _declaration(read: str) -> str:
    return f"declare {leading_type(read.partition('call ')[2])} {callee(read)}()"


def _quoted(text: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else _escaped(c) for c in text) + "\\00"


def _escaped(character: str) -> str:
    return "".join(f"\\{byte:02X}" for byte in character.encode())
