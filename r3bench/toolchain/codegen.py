"""From a module's text to code: target machines, emission, and what can be counted. Runs in compile workers only."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import llvmlite.binding as llvm

from r3bench.errors import BuildError
from r3bench.model import Target
from r3bench.toolchain import amdgpu

CUDA_TRIPLE = "nvptx64-nvidia-cuda"
_WIDE = re.compile(r"^\+(?=avx512|avx10)")
_OPERATION = re.compile(r"^  (?:%[\w.]+ = )?(?:tail |musttail |notail )?([a-z]\w*)", re.MULTILINE)


def host_cpu() -> str:
    return str(llvm.get_host_cpu_name())


def host_features() -> str:
    """What the host has, without AVX-512: where LLVM 22 takes a masked load out of another instruction, it forgets the
    mask, and code reads memory that the kernel does not."""
    features = str(llvm.get_host_cpu_features().flatten()).split(",")
    return ",".join(_WIDE.sub("-", feature) for feature in features)


def host_triple() -> str:
    return str(llvm.get_process_triple())


def machine(target: Target, ptx_version: int) -> llvm.TargetMachine:
    """The target machine code is generated with."""
    if target.device == "cuda":
        return _nvptx(target.arch, ptx_version)
    if target.device == "hip":
        made = llvm.Target.from_triple(amdgpu.TRIPLE)
        return made.create_target_machine(cpu=target.arch, opt=3, reloc="pic", codemodel="default")
    features = host_features() if target.arch == host_cpu() else ""
    made = llvm.Target.from_triple(host_triple())
    # Position independent: the object is linked wherever the loader has room.
    return made.create_target_machine(cpu=target.arch, features=features, opt=3, reloc="pic", codemodel="small")


def _nvptx(arch: str, ptx_version: int) -> llvm.TargetMachine:
    made = llvm.Target.from_triple(CUDA_TRIPLE)
    return made.create_target_machine(cpu=arch, features=f"+ptx{ptx_version}", opt=3, codemodel="default")


def parse(ir: str) -> llvm.ModuleRef:
    """A module from its text; BuildError where LLVM refuses it."""
    return parsed(ir)[0]


def parsed(ir: str) -> tuple[llvm.ModuleRef, llvm.ContextRef]:
    """A module in a context of its own, so that type names never depend on what was compiled before."""
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(ir, context)
        module.verify()
    except RuntimeError as error:
        raise BuildError(f"LLVM refused the kernel's IR: {_first_line(str(error))}") from error
    return module, context


def linked(ir: str, others: Sequence[str]) -> str:
    """One module of several translation units; BuildError where they do not go together."""
    module, context = parsed(ir)
    for other in others:
        try:
            module.link_in(llvm.parse_assembly(other, context))
        except RuntimeError as error:
            raise BuildError(f"the translation units do not link: {_first_line(str(error))}") from error
    return str(module)


def _first_line(text: str) -> str:
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.startswith("LLVM IR parsing error")
    ]
    return lines[0] if lines else text.strip()


def normalized(module: llvm.ModuleRef) -> str:
    """The text of a module whose names are stripped, without the lines that only say where it came from."""
    dropped = ("; ModuleID", "source_filename", "!llvm.ident")
    return "\n".join(line for line in str(module).splitlines() if line and not line.startswith(dropped)) + "\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def emit(module: llvm.ModuleRef, made: llvm.TargetMachine, target: Target) -> bytes:
    """Machine code of a module, which cannot be emitted again: text for a GPU, an object for a CPU."""
    if target.device == "cpu":
        return bytes(made.emit_object(module))
    return str(made.emit_assembly(module)).encode()


def facts(ir: str, image: bytes, target: Target, ptx_version: int) -> tuple[tuple[str, int], ...]:
    """Counts of the optimized IR (instructions, each opcode) and of the code."""
    opcodes = Counter(_OPERATION.findall(ir))
    counted = (("ir_instructions", sum(opcodes.values())), *((f"op_{name}", opcodes[name]) for name in sorted(opcodes)))
    return (*counted, *_code_facts(image, target, ptx_version))


def _code_facts(image: bytes, target: Target, ptx_version: int) -> Iterator[tuple[str, int]]:
    if target.device == "cuda":
        text = image.decode()
        yield "ptx_version", ptx_version
        yield "ptx_instructions", len(re.findall(r"^\t(?!\.)[^\n]*;$", text, re.MULTILINE))
        yield "shared_bytes", _shared_bytes(text)
        return
    if target.device == "hip":
        yield from amdgpu.counts(image.decode())
        return
    sections = llvm.ObjectFileRef.from_data(image).sections()
    yield "code_bytes", sum(section.size() for section in sections if section.is_text())


def _shared_bytes(ptx: str) -> int:
    """Static shared memory, without the padding that ptxas may add between variables."""
    widths = re.findall(r"^\s*(?:\.visible )?\.shared [^\n]*?\.b(\d+) [\w$.]+(?:\[(\d+)\])?", ptx, re.MULTILINE)
    return sum(int(bits) // 8 * int(count or 1) for bits, count in widths)
