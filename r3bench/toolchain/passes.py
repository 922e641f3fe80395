"""Optimization of a module by llvmlite's pass managers. Runs in compile workers only."""

from __future__ import annotations

import llvmlite.binding as llvm

from r3bench.errors import BuildError
from r3bench.model import Configuration
from r3bench.space import PASSES

TUNING = ("loop_unrolling", "loop_vectorization", "slp_vectorization", "loop_interleaving", "inlining_threshold")


def check(configuration: Configuration) -> None:
    """BuildError for a pass or tuning option that does not exist."""
    for name in (*configuration.before, *configuration.after):
        if name not in PASSES:
            raise BuildError(f"there is no pass {name!r}; choose from {', '.join(sorted(PASSES))}")
    for name, _ in configuration.tuning:
        if name not in TUNING:
            raise BuildError(f"there is no tuning option {name!r}; choose from {', '.join(TUNING)}")


def run(module: llvm.ModuleRef, machine: llvm.TargetMachine, configuration: Configuration) -> None:
    """The passes before, the base pipeline with its tuning, the passes after."""
    check(configuration)
    _run_single(module, machine, configuration.before)
    builder = llvm.create_pass_builder(machine, _tuning(configuration))
    builder.getModulePassManager().run(module, builder)
    _run_single(module, machine, configuration.after)


def run_light(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """O2 without what the real pipeline decides: no unrolling, no vectorization. Everything that can be is inlined."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = options.loop_vectorization = False
    options.slp_vectorization = options.loop_interleaving = False
    options.inlining_threshold = 1_000_000
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def strip_names(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Drop names of values and of internal symbols, and debug information: what is left decides the code."""
    _run_single(module, machine, ("strip_symbols",))


def _run_single(module: llvm.ModuleRef, machine: llvm.TargetMachine, names: tuple[str, ...]) -> None:
    if not names:
        return
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    manager = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)


def _tuning(configuration: Configuration) -> llvm.PipelineTuningOptions:
    """clang's own settings for this level, then those of the configuration."""
    level = int(configuration.pipeline[1])
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = level > 1
    for name, value in configuration.tuning:
        setattr(options, name, value)
    return options
