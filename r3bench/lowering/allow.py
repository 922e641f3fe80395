"""What a kernel's IR may contain. Everything that is not listed is refused by name, before anything is compiled.

The IR comes from source that a person or a language model wrote. On the CPU device it becomes code of a process of this
machine, so nothing may reach beyond the kernel's own memory: no assembly, no external or indirect call, no
constructor, no pointer made from an integer, no section, alias or personality.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from r3bench.errors import Unsupported
from r3bench.lowering import libdevice, nvvm
from r3bench.lowering.ir import NAME, QUOTED, Module, callee, result_and_opcode

# fmt: off
_OPCODES = frozenset((
    "ret", "br", "switch", "unreachable", "fneg", "add", "fadd", "sub", "fsub", "mul", "fmul", "udiv", "sdiv",
    "fdiv", "urem", "srem", "frem", "shl", "lshr", "ashr", "and", "or", "xor", "extractelement", "insertelement",
    "shufflevector", "extractvalue", "insertvalue", "alloca", "load", "store", "fence", "cmpxchg", "atomicrmw",
    "getelementptr", "trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp",
    "ptrtoint", "ptrtoaddr", "bitcast", "addrspacecast", "icmp", "fcmp", "phi", "select", "freeze", "call",
))
# fmt: on
# fmt: off
_INTRINSICS = frozenset((
    "memcpy", "memmove", "memset", "memcpy.inline", "memset.inline", "lifetime.start", "lifetime.end",
    "invariant.start", "invariant.end", "assume", "expect", "expect.with.probability", "ctpop", "ctlz", "cttz",
    "bswap", "bitreverse", "fshl", "fshr", "umin", "umax", "smin", "smax", "abs", "scmp", "ucmp", "uadd.sat",
    "sadd.sat", "usub.sat", "ssub.sat", "ushl.sat", "sshl.sat", "uadd.with.overflow", "sadd.with.overflow",
    "usub.with.overflow", "ssub.with.overflow", "umul.with.overflow", "smul.with.overflow", "sqrt", "fabs", "floor",
    "ceil", "trunc", "rint", "nearbyint", "round", "roundeven", "lrint", "llrint", "lround", "llround", "fma",
    "fmuladd", "minnum", "maxnum", "minimum", "maximum", "minimumnum", "maximumnum", "copysign", "canonicalize",
    "exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh",
    "cosh", "tanh", "pow", "ldexp", "frexp", "is.fpclass", "fptosi.sat", "fptoui.sat", "trap", "ubsantrap",
    "is.constant", "objectsize", "experimental.noalias.scope.decl", "sideeffect", "donothing", "vector.reduce.add",
    "vector.reduce.mul", "vector.reduce.and", "vector.reduce.or", "vector.reduce.xor", "vector.reduce.fadd",
    "vector.reduce.smax", "vector.reduce.smin", "vector.reduce.umax", "vector.reduce.umin", "vector.reduce.fmax",
    "vector.reduce.fmin", "arithmetic.fence", "ptrmask", "launder.invariant.group", "strip.invariant.group",
))
# fmt: on
_MANGLING = re.compile(r"(?:\.(?:p\d+|v\d+(?:i\d+|f\d+|bf16|p\d+)|i\d+|f\d+|bf16))+$")
_FORBIDDEN = re.compile(
    r"(?<![@%\w.$-])(asm|inttoptr|blockaddress|dso_local_equivalent|no_cfi|ptrauth|musttail)(?![\w.$-])"
)
_HEADER = re.compile(r"(?<![@%\w.$-])(personality|section|gc|prefix|prologue|partition|naked|ifunc)(?![\w.$-])")
_VALUE = re.compile(rf"@{NAME}(?![-\w$.(])")
_OTHERS = {"__assertfail", "__r3_check", "__r3_shared"}
_REASONS = {
    "asm": "PTX assembly",
    "inttoptr": "a pointer made from an integer (inttoptr)",
    "llvm.global_ctors": "a constructor of a global variable",
    "llvm.global_dtors": "a destructor of a global variable",
    "vprintf": "printf",
    "malloc": "malloc",
    "free": "free",
    "cudaLaunchDeviceV2": "dynamic parallelism",
    "cudaGetParameterBufferV2": "dynamic parallelism",
}


def refuse(what: str, where: str) -> Unsupported:
    """The error for a construct that the CPU device cannot run, by the name a person knows it under."""
    name = what.lstrip("@").strip('"')
    return Unsupported(f"{where} uses {_REASONS.get(name, name)}, which the CPU device does not support")


def check_module(module: Module, kernel: str) -> None:
    """Refuse constructors and module-level assembly wherever they are."""
    if module.assembly:
        raise refuse("asm", kernel)
    for name in ("@llvm.global_ctors", "@llvm.global_dtors"):
        if name in module.globals and not re.search(r"\bzeroinitializer\b|\[\s*\]", module.globals[name]):
            raise refuse(name, kernel)


def check_global(name: str, definition: str, kernel: str) -> None:
    """Refuse aliases, sections and address tricks in the initializer of a variable that is used."""
    plain = QUOTED.sub('""', definition)
    if re.match(r"(?:\w+ )*(alias|ifunc)\b", plain):
        raise refuse(f"the alias {name}", kernel)
    for pattern in (_FORBIDDEN, _HEADER):
        if match := pattern.search(plain):
            raise refuse(match[1], kernel)
    if re.search(r"\bthread_local\b|\bextern_weak\b", plain):
        raise refuse(f"the variable {name} (thread_local or weak)", kernel)


def check_function(head: str, lines: Iterable[str], defined: set[str], kernel: str) -> None:
    """Refuse any instruction, callee or header word that is not known to be harmless."""
    if match := _HEADER.search(QUOTED.sub('""', head)):
        raise refuse(match[1], kernel)
    for line in lines:
        _check_instruction(line, defined, kernel)


def _check_instruction(line: str, defined: set[str], kernel: str) -> None:
    _, opcode = result_and_opcode(line)
    plain = QUOTED.sub('""', line) if '"' in line else line
    if match := _FORBIDDEN.search(plain):
        raise refuse(match[1], kernel)
    if opcode not in _OPCODES:
        raise refuse(f"the instruction {opcode}", kernel)
    if opcode == "call":
        _check_call(line, defined, kernel)


def _check_call(line: str, defined: set[str], kernel: str) -> None:
    name = callee(line)
    if name is None or name[0] == "%":
        raise refuse("an indirect call (function pointer or virtual function)", kernel)
    if name not in defined and not known(name):
        raise refuse(name, kernel)
    if re.search(r"\)[^\"]*\[ \"", line) and not name.startswith("@llvm.assume"):
        raise refuse("a call with operand bundles", kernel)


def known(name: str) -> bool:
    """Whether lowering knows what a function without a definition does."""
    plain = name.lstrip("@").strip('"')
    if plain.startswith("llvm.nvvm."):
        return nvvm.known(plain)
    if plain.startswith("llvm."):
        return _MANGLING.sub("", plain.removeprefix("llvm.")) in _INTRINSICS
    return plain in _OTHERS or libdevice.known(plain)


def check_addresses(text: str, functions: set[str], kernel: str) -> None:
    """Refuse a function's address as a value: it could only serve an indirect call."""
    for name in _VALUE.findall(text):
        if name in functions:
            raise Unsupported(
                f"{kernel} takes the address of the function {name[1:]}, which the CPU device does not support"
            )
