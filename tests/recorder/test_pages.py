"""The kernel that hashes pages on the device: what is shipped is made of its source, and it tells pages apart."""

from __future__ import annotations

import re
from pathlib import Path

import llvmlite.binding as llvm

from r3bench import frontend, recorder
from r3bench.model import Configuration, Target
from r3bench.toolchain import codegen, passes

SOURCE = Path(recorder.__file__).with_name("pages.cu")
ARCH, PTX_VERSION = "sm_75", 70


def ptx() -> str:
    """pages.cu through our own compiler: what pages.ptx must hold."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Target(device="cuda", arch=ARCH)
    machine = codegen.machine(target, PTX_VERSION)
    ir = frontend.compile_ir({"pages.cu": SOURCE.read_text(encoding="utf-8")}, "pages.cu", arch=ARCH)
    ir = re.sub(r'"target-features"="[^"]*"', f'"target-features"="+ptx{PTX_VERSION},+{ARCH}"', ir)
    module = codegen.parse(ir)
    passes.run(module, machine, Configuration())
    return codegen.emit(module, machine, target).decode()


def test_the_shipped_code_is_made_of_the_source() -> None:
    shipped = SOURCE.with_suffix(".ptx").read_text(encoding="utf-8")
    assert shipped == ptx(), "run python tests/recorder/test_pages.py"


if __name__ == "__main__":
    SOURCE.with_suffix(".ptx").write_text(ptx(), encoding="utf-8")
