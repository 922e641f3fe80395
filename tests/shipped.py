"""PTX that is shipped beside its source, made anew by our own compiler."""

from __future__ import annotations

import re
from pathlib import Path

import llvmlite.binding as llvm

from r3bench import frontend
from r3bench.model import Configuration, Target
from r3bench.toolchain import codegen, passes

ARCH, PTX_VERSION = "sm_75", 70


def ptx(source: Path) -> str:
    """What the .ptx file beside a source must hold."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Target(device="cuda", arch=ARCH)
    machine = codegen.machine(target, PTX_VERSION)
    ir = frontend.compile_ir({source.name: source.read_text(encoding="utf-8")}, source.name, arch=ARCH)
    ir = re.sub(r'"target-features"="[^"]*"', f'"target-features"="+ptx{PTX_VERSION},+{ARCH}"', ir)
    module = codegen.parse(ir)
    passes.run(module, machine, Configuration())
    return codegen.emit(module, machine, target).decode()
