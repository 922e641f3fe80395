"""A kernel's NVPTX IR as AMDGPU IR, for what can be read from its code: nothing here was ever run on AMD hardware.

Only what has an equal is translated: indices, barriers of a whole block, fences, atomics, shared memory, mathematics.
What has none (warps, which have 64 lanes on some of these GPUs, PTX in the source) is Unsupported, by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import prod

from r3bench.errors import Unsupported
from r3bench.lowering.ir import NAME, closing, split_list
from r3bench.lowering.nvvm import HELPERS, Helper
from r3bench.toolchain import ocml
from r3bench.toolchain.irtext import Item, items

TRIPLE = "amdgcn-amd-amdhsa"
ARCHES = ("gfx90a", "gfx942", "gfx1100")
"""Code is made for these: MI200, MI300, RX 7900."""

_SREG = "llvm.nvvm.read.ptx.sreg."
# Where HIP's code object version 5 has the counts of blocks (i32) and threads (i16) behind the kernel's arguments.
_COUNTS = {"nctaid": ("i32", 0), "ntid": ("i16", 12)}


def _index(name: str, axis: str) -> Helper:
    return Helper("i32", "", f"  %r = call i32 @llvm.amdgcn.{name}.id.{axis}()\n  ret i32 %r\n")


def _count(name: str, axis: str) -> Helper:
    kind, first = _COUNTS[name]
    offset = first + "xyz".index(axis) * (4 if kind == "i32" else 2)
    widened = "  %r = zext i16 %n to i32\n  ret i32 %r\n" if kind == "i16" else "  ret i32 %n\n"
    body = (
        "  %b = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()\n"
        f"  %p = getelementptr i8, ptr addrspace(4) %b, i32 {offset}\n  %n = load {kind}, ptr addrspace(4) %p\n"
    )
    return Helper("i32", "", body + widened)


def _fence(scope: str) -> Helper:
    return Helper("void", "", f"  fence {scope}seq_cst\n  ret void\n")


_BARRIER = Helper(
    "void",
    "i32 %n",
    '  fence syncscope("workgroup") release\n  call void @llvm.amdgcn.s.barrier()\n'
    '  fence syncscope("workgroup") acquire\n  ret void\n',
)
EQUALS = {
    **{f"{_SREG}tid.{axis}": _index("workitem", axis) for axis in "xyz"},
    **{f"{_SREG}ctaid.{axis}": _index("workgroup", axis) for axis in "xyz"},
    **{f"{_SREG}{name}.{axis}": _count(name, axis) for name in _COUNTS for axis in "xyz"},
    "llvm.nvvm.barrier.cta.sync.aligned.all": _BARRIER,
    "llvm.nvvm.membar.cta": _fence('syncscope("workgroup") '),
    "llvm.nvvm.membar.gl": _fence('syncscope("agent") '),
    "llvm.nvvm.membar.sys": _fence(""),
    "llvm.nvvm.isspacep.shared": Helper("i1", "ptr %p", "  %r = call i1 @llvm.amdgcn.is.shared(ptr %p)\n  ret i1 %r\n"),
    **{name: HELPERS[name] for name in HELPERS if name.startswith(("llvm.nvvm.prmt", "llvm.nvvm.mulhi."))},
}
"""NVVM's intrinsics that mean something on an AMD GPU, as functions of its own intrinsics, to be inlined."""

_OWN = """
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare void @llvm.amdgcn.s.barrier()
declare void @llvm.memcpy.p0.p4.i64(ptr, ptr addrspace(4), i64, i1)
declare i1 @llvm.amdgcn.is.shared(ptr)
""" + "".join(f"declare i32 @llvm.amdgcn.{name}.id.{axis}()\n" for name in ("workitem", "workgroup") for axis in "xyz")

_NVVM = re.compile(r"@(llvm\.nvvm\.[\w.]+)\(")
_LIBDEVICE = re.compile(r"@(__nv_\w+)\(")
_DECLARED = re.compile(r'^declare [^\n]*@"?([\w$.]+)"?\([^\n]*', re.MULTILINE)
_SCOPE = re.compile(r'syncscope\("(\w+)"\)')
_SCOPES = {"device": "agent", "block": "workgroup", "singlethread": "singlethread"}
_DROPPED = ("target ", "source_filename", "!llvm.module.flags", "!llvm.ident")
_DROPPED_DECLARATION = re.compile(r"declare [^\n]*@llvm\.(?:nvvm|lifetime)\.")


def translate(ir: str, symbol: str, data_layout: str) -> str:
    """The module of one kernel for AMD GPUs; Unsupported where something in it has no equal there."""
    for reason in _without_equal(ir):
        raise Unsupported(f"{symbol}: {reason}")
    kept = [part for part in items(ir) if not part.text.startswith(_DROPPED)]
    kept = [part for part in kept if not _DROPPED_DECLARATION.match(part.text)]
    text = "\n".join(_function(part) if part.is_function else part.text for part in kept)
    text = _SCOPE.sub(lambda found: f'syncscope("{_SCOPES[found[1]]}")', _globals_placed(text, kept))
    text = _PTX_ONLY.sub("", _THREADS.sub(_threads, text))
    text = _LIBDEVICE.sub(lambda found: f"@{ocml.EQUALS[found[1]]}(", text)
    used = sorted(set(_NVVM.findall(text)))
    text = _NVVM.sub(lambda found: f"@{_own(found[1])}(", text)
    head = f'target datalayout = "{data_layout}"\ntarget triple = "{TRIPLE}"'
    return _declared_once("\n".join((head, text, *(EQUALS[name].text(f"@{_own(name)}") for name in used), _OWN)))


def _declared_once(text: str) -> str:
    """The kernel may have declared what is declared here, and two functions may have one equal."""
    seen: set[str] = set()

    def first(found: re.Match[str]) -> str:
        again = found[1] in seen
        seen.add(found[1])
        return "" if again else found[0]

    return _DECLARED.sub(first, text)


def _own(intrinsic: str) -> str:
    return intrinsic.replace("llvm.nvvm.", "r3.")


def _without_equal(ir: str) -> Iterator[str]:
    if re.search(r"\bcall [^\n]*\basm ", ir):
        yield "PTX in its source has no equal there"
    known = EQUALS.keys() | ocml.EQUALS.keys()
    for name in sorted(set(_DECLARED.findall(ir)) - known):
        if name.startswith("llvm.nvvm.") or not name.startswith("llvm."):
            yield f"{name} has no equal there"
    if re.search(r"@llvm\.nvvm\.barrier\.cta\.sync\.aligned\.all\((?!i32 0\)|i32\))", ir):
        yield "barriers by number have no equal there"
    for scope in sorted(set(_SCOPE.findall(ir)) - _SCOPES.keys()):
        yield f"the scope {scope} has no equal there"


# -- address spaces: AMD's stack and constants have their own -------------------------------------------------------

_ALLOCA = re.compile(rf"^(\s+)(%{NAME}) = alloca ([^\n!]*?)(?:, ![^\n]*)?$", re.MULTILINE)
_LIFETIME = re.compile(rf"(@llvm\.lifetime\.(?:start|end))\.p0\(ptr [^%\n]*(%{NAME})\)")
_GENERIC = re.compile(rf"(@{NAME}) = ((?:(?!addrspace|constant\b|global\b)\S+ )*)(constant|global) ")


def _function(part: Item) -> str:
    line, body = part.text.split("\n", 1)
    if part.is_kernel:
        line, body = _kernel(line, body)
    body = _LIFETIME.sub(lambda found: f"{found[1]}.p5(ptr addrspace(5) {_prefixed(found[2], 'stack')})", body)
    return f"{line}\n{_ALLOCA.sub(_on_stack, body)}"


def _on_stack(found: re.Match[str]) -> str:
    place = _prefixed(found[2], "stack")
    return (
        f"{found[1]}{place} = alloca {found[3]}, addrspace(5)\n"
        f"{found[1]}{found[2]} = addrspacecast ptr addrspace(5) {place} to ptr"
    )


def _prefixed(name: str, prefix: str) -> str:
    return f'%"r3.{prefix}.{name[1:].strip(chr(34))}"'


def _kernel(line: str, body: str) -> tuple[str, str]:
    """By-value structs lie among an AMD kernel's arguments; as in CUDA it works on a copy."""
    opening = line.index("(", line.index("@"))
    end = closing(line, opening)
    parameters, copies = [], []
    for parameter in split_list(line[opening + 1 : end]):
        at = parameter.find("byval(")
        if at >= 0:
            kind, name = parameter[at + 6 : closing(parameter, at + 5)], parameter.split()[-1]
            parameter = f"ptr addrspace(4){parameter[3:].replace('byval(', 'byref(', 1)}"
            copy = _prefixed(name, "copy")
            body = _renamed(body, name, copy)
            copies += [
                f"  {copy} = alloca {kind}, align {_alignment(parameter)}",
                f"  call void @llvm.memcpy.p0.p4.i64(ptr {copy}, ptr addrspace(4) {name},"
                f" i64 ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i64), i1 false)",
            ]
        parameters.append(parameter)
    head = line[:opening].replace("ptx_kernel", "amdgpu_kernel")
    label, colon, rest = body.partition(":\n") if re.match(rf"{NAME}:\n", body) else ("", "", body)
    return f"{head}({', '.join(parameters)}{line[end:]}", "\n".join([f"{label}{colon}", *copies, rest])


def _alignment(parameter: str) -> int:
    found = re.search(r"\balign (\d+)", parameter)
    return int(found[1]) if found else 1


def _renamed(text: str, name: str, by: str) -> str:
    """References to a name replaced, but not its definition at the begin of a line."""
    return re.sub(rf"(?<!^){re.escape(name)}(?![-\w$.])", by.replace("\\", r"\\"), text, flags=re.MULTILINE)


def _globals_placed(text: str, parts: list[Item]) -> str:
    """Variables in no address space get one, and what reads them the generic address."""
    for found in filter(None, (_GENERIC.match(part.text) for part in parts)):
        space = 4 if found[3] == "constant" else 1
        text = _renamed(text, found[1], f"addrspacecast (ptr addrspace({space}) {found[1]} to ptr)")
        text = text.replace(found[0], f"{found[1]} = {found[2]}addrspace({space}) {found[3]} ", 1)
    return text


# -- attributes -----------------------------------------------------------------------------------------------------

_PTX_ONLY = re.compile(r'"target-(?:cpu|features)"="[^"]*"|"nvvm\.(?:minctasm|maxnreg)"="[^"]*"')
_THREADS = re.compile(r'"nvvm\.(?:maxntid|reqntid)"="([\d,]+)"')


def _threads(found: re.Match[str]) -> str:
    """Launch bounds: the most threads of a block."""
    return f'"amdgpu-flat-work-group-size"="1,{prod(map(int, found[1].split(",")))}"'


# -- what the code says of itself -----------------------------------------------------------------------------------

_METADATA = {
    "vgprs": "vgpr_count",
    "agprs": "agpr_count",
    "sgprs": "sgpr_count",
    "vgpr_spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
    "shared_bytes": "group_segment_fixed_size",
    "scratch_bytes": "private_segment_fixed_size",
}
# The first that fits: matrix, then where memory is, then by unit.
_KINDS = (
    ("matrix", re.compile(r"v_(?:mfma|smfmac|wmma|swmmac)_")),
    ("shared", re.compile("ds_")),
    ("scratch", re.compile("(?:scratch|buffer)_(?:load|store)")),
    ("memory", re.compile("global_|flat_")),
    ("scalar_memory", re.compile("s_(?:buffer_)?load_")),
    ("vector", re.compile("v_")),
    ("scalar", re.compile("s_")),
)
_INSTRUCTION = re.compile(r"^\t([a-z]+_\w+)", re.MULTILINE)


def counts(assembly: str) -> Iterator[tuple[str, int]]:
    """Registers, spills and memory by the code object's metadata; instructions, all and by kind.

    Source: LLVM's "User Guide for AMDGPU Backend", code object metadata.
    """
    for name, key in _METADATA.items():
        found = re.search(rf"^\s+(?:- )?\.{key}:\s+(\d+)$", assembly, re.MULTILINE)
        yield name, int(found[1]) if found else 0
    code = assembly[: assembly.index(".section\t.rodata")]
    mnemonics = _INSTRUCTION.findall(code)
    kinds = Counter(next((kind for kind, pattern in _KINDS if pattern.match(name)), "other") for name in mnemonics)
    yield "instructions", len(mnemonics)
    yield from ((f"code_{kind}", kinds[kind]) for kind in sorted(kinds))
