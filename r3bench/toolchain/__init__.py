"""LLVM IR and a configuration make a binary: specialization, passes, code generation, in processes that may die.

::

    compiler.py    Compiler: requests in, futures of Built out; the cache          (parent)
    pool.py        the compile server and its workers, seen from outside           (parent)
    cache.py       results by content, in memory and on disk                       (parent)
    wire.py        the messages in between
    worker.py      the compile server: forks workers, one LLVM option set each     (child)
    largepages.py  LLVM's code where forked workers have it at once                (child)
    build.py       the stages of one build                                         (child)
    irtext.py, specialize.py    IR as text: one kernel, with a unit's facts compiled in
    passes.py, codegen.py          llvmlite: optimization, emission
    bitcode.py, libdevice.py, ocml.py    device mathematics of NVIDIA's and AMD's libraries
    amdgpu.py                      the same kernel for AMD GPUs, to be read and not run
"""

from __future__ import annotations

from r3bench.remix import BuildRequest
from r3bench.space import UnitFacts
from r3bench.toolchain.amdgpu import ARCHES as AMD_GPUS
from r3bench.toolchain.compiler import Built, Compiler

__all__ = ["AMD_GPUS", "BuildRequest", "Built", "Compiler", "UnitFacts"]
