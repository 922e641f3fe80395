"""From IR and configuration to code: the stages of one build. Runs in compile workers only."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache

import llvmlite.binding as llvm

from r3bench import lowering, ptxtext
from r3bench.errors import BuildError, Unsupported
from r3bench.lowering import checked
from r3bench.model import Configuration, Global, Target
from r3bench.space import ASSEMBLER, DRIVERS
from r3bench.toolchain import amdgpu, assembler, codegen, irtext, libdevice, ocml, padding, passes
from r3bench.toolchain.job import Job, PrepareJob
from r3bench.toolchain.specialize import bound, parameter_count, specialize

_FORMATS = {"cpu": "object", "cuda": "ptx", "hip": "amdgcn"}
# Registers by which a kernel could tell one launch from another.
_OUTSIDE = re.compile(
    r"(?:nvvm\.read\.ptx\.sreg\.|asm [^\n]*%)"
    r"(clock(?:64|_hi|\.hi)?|globaltimer(?:_hi|_lo|\.hi|\.lo)?|gridid|n?smid|n?warpid|pm\d|envreg\d+)\b"
)
_VARIABLE = re.compile(
    r"^@[^=\n]+ = (?!external )(?:(?!addrspace)[\w()]+ )*?"
    r"(?:addrspace\(4\) externally_initialized constant|(?:addrspace\(1\) )?(?:externally_initialized )?(global)) ",
    re.MULTILINE,
)
_DECLARED = re.compile(r'^declare [^\n]*@"?([\w$.]+)"?\(', re.MULTILINE)


Stages = dict[str, float]


@contextmanager
def _stage(stages: Stages, name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    stages[name] = time.perf_counter() - start


@dataclass(slots=True)
class Prepared:
    """What passes begin with, and what is known of the source."""

    ir: str
    facts: tuple[tuple[str, int], ...] = ()
    globals: tuple[Global, ...] = ()
    stages: Stages = field(default_factory=dict)


@dataclass(slots=True)
class Product:
    """What a build leads to; ``code`` is what is known of the code for ``module``.

    ``image`` and ``code`` stay empty where the caller had code for that module already: another source may have led to
    it, which took other arguments.
    """

    module: str = ""
    image: bytes = b""
    format: str = "object"
    code: tuple[tuple[str, int], ...] = ()
    globals: tuple[Global, ...] = ()
    stages: Stages = field(default_factory=dict)


_machine = cache(codegen.machine)
"""Made once: workers are forked from a process that has built for the host."""
_ptxas, _assembles = cache(assembler.find), cache(assembler.available)
"""Looked for once, as what the parent's keys go by."""


# -- before the passes ----------------------------------------------------------------------------------------------


def prepare(job: PrepareJob) -> Prepared:
    """The kernel alone with the unit's facts in it, for a CPU lowered. PTX stays what it is."""
    if ptxtext.version(job.ir):
        return Prepared(job.ir)
    prepared = _specialized(job)
    if job.target.device == "cpu":
        _lower(prepared, job)
    return prepared


def _specialized(job: PrepareJob) -> Prepared:
    stages: Stages = {}
    with _stage(stages, "specialize"):
        ir = codegen.linked(job.ir, job.linked) if job.linked else job.ir
        isolated = _isolated(checked.instrument(ir) if job.checked else ir, job.symbol)
        ir = specialize(isolated, job.symbol, job.configuration, job.facts)
        reads = ((f"reads_{name}", 1) for name in sorted(set(_OUTSIDE.findall(ir))))
        facts = (("parameters", parameter_count(isolated, job.symbol)), *reads)
    return Prepared(ir, facts, stages=stages)


def _isolated(ir: str, symbol: str) -> str:
    try:
        return irtext.isolate(ir, symbol)
    except KeyError:
        kernels = sorted(item.name for item in irtext.items(ir) if item.is_kernel)
        there = ", ".join(kernels) or "none"
        raise BuildError(
            f"the source defines no kernel {symbol} (kernels: {there}); keep its name and signature"
        ) from None


def _lower(prepared: Prepared, job: PrepareJob) -> None:
    with _stage(prepared.stages, "lower"):
        lowered = lowering.lower(
            prepared.ir,
            job.symbol,
            triple=codegen.host_triple(),
            data_layout=str(_machine(job.target, 0).target_data),
            optimize=optimize_lightly,
        )
    prepared.ir, prepared.globals = lowered.ir, lowered.globals
    prepared.facts += (("shared_bytes", lowered.shared_bytes), ("argument_bytes", lowered.argument_bytes))
    prepared.facts += (("checked", 1),) if job.checked else ()


def optimize_lightly(ir: str) -> str:
    """O2 without unrolling and vectorization, for NVPTX or host IR: text in, text out."""
    module = codegen.parse(ir)
    target = (
        Target(device="cuda", arch="sm_90")
        if "nvptx" in module.triple
        else Target(device="cpu", arch=codegen.host_cpu())
    )
    passes.run_light(module, _machine(target, 80))
    return str(module)


# -- passes and code ------------------------------------------------------------------------------------------------


def build(job: Job, known: Callable[[str], bool]) -> Product:
    """Optimize what was prepared, and emit code unless the optimized module is ``known``."""
    product = Product()
    if version := ptxtext.version(job.ir):
        _assemble_only(product, job, version)
        return product
    made, ir = _machine(job.target, job.ptx_version), job.ir
    if job.target.device == "cuda":
        ir = _for_cuda(ir, job)
    elif job.target.device == "hip":
        ir = amdgpu.translate(ir, job.symbol, str(made.target_data))
    with _stage(product.stages, "optimize"):
        module = _optimized(ir, job, made)
        text = codegen.normalized(module)
        if job.padded:
            cuda = job.target.device == "cuda"
            text = padding.in_kernel(text, job.symbol) if cuda else padding.before_functions(text)
            module = codegen.parse(text)
        if job.target.device == "cuda":
            product.globals = tuple(_variables(text, made))
        product.module = codegen.sha256(text)
    if not known(product.module):
        with _assembler(job) as assemble:
            with _stage(product.stages, "emit"):
                product.image = codegen.emit(module, made, job.target)
                product.code = codegen.facts(text, product.image, job.target, job.ptx_version)
            product.format = _FORMATS[job.target.device]
            if assemble is not None:
                _assemble(product, assemble)
    return product


def _optimized(ir: str, job: Job, made: llvm.TargetMachine) -> llvm.ModuleRef:
    module, context = codegen.parsed(ir)
    if job.target.device == "cuda":
        libdevice.link(module, ir, context)
    elif job.target.device == "hip":
        ocml.link(module, ir, context, job.target.arch)
    passes.run(module, made, job.configuration)
    passes.strip_names(module, made)
    return module


# -- CUDA -----------------------------------------------------------------------------------------------------------


def _for_cuda(ir: str, job: Job) -> str:
    refused = sorted(name for name in _DECLARED.findall(ir) if not irtext.SUPPLIED.match(name))
    if refused:
        raise Unsupported(f"kernel {job.symbol} calls {refused[0]}, which the source does not define")
    ir = bound(ir, job.symbol, job.configuration, job.facts)
    return re.sub(r'"target-features"="[^"]*"', f'"target-features"="+ptx{job.ptx_version},+{job.target.arch}"', ir)


def _assemble_only(product: Product, job: Job, version: int) -> None:
    """What can be made of PTX text: machine code with other options of the assembler."""
    if job.target.device != "cuda":
        raise Unsupported(f"of {job.symbol} only PTX text was recorded, which runs on an NVIDIA GPU only")
    if replace(job.configuration, assembler=()) != Configuration():
        raise BuildError(f"of {job.symbol} only PTX text was recorded, which no pass or specialization can change")
    product.module, product.image, product.format = codegen.sha256(job.ir), job.ir.encode(), "ptx"
    product.code = codegen.facts("", product.image, job.target, version)
    with _assembler(job) as assemble:
        if assemble is not None:
            _assemble(product, assemble)


@contextmanager
def _assembler(job: Job) -> Iterator[assembler.Assemble | None]:
    """What makes machine code of PTX; None where that is not wanted, or cannot be had: the driver compiles PTX, too."""
    if job.target.device != "cuda":
        yield None
        return
    options = job.configuration.assembler
    assembling = job.assemble and _assembles()
    assembler.check(options, ASSEMBLER if assembling else DRIVERS)
    if not assembling:
        yield None
        return
    with assembler.started(_ptxas(), job.symbol, job.target.arch, options) as assemble:
        yield assemble


def _assemble(product: Product, assemble: assembler.Assemble) -> None:
    with _stage(product.stages, "assemble"):
        product.image, facts = assemble(product.image)
    product.format = "cubin"
    # What ptxas says of shared memory includes the padding between variables.
    product.code = tuple({**dict(product.code), **dict(facts)}.items())


def _variables(ir: str, made: llvm.TargetMachine) -> Iterator[Global]:
    """The ``__device__`` and ``__constant__`` variables with their sizes, those static to a file or a function too.

    Not those in constant memory that nobody can fill: they are the kernel's own tables.
    """
    if not _VARIABLE.search(ir):
        return
    for variable in codegen.parse(ir).global_variables:
        found = _VARIABLE.match(str(variable))
        if found:
            size = made.target_data.get_abi_size(variable.global_value_type)
            yield Global(symbol=variable.name or "a static one", nbytes=size, constant=found[1] is None)
