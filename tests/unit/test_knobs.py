"""Every knob of the search space changes the optimized module of some kernel in knobs.cu."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from r3bench.model import Configuration, LaunchConfig, Target
from r3bench.space import EXTRA_PASSES, OPTIONS, TUNING, Options, UnitFacts
from r3bench.toolchain import BuildRequest, Compiler

TEXT = (Path(__file__).parent / "knobs.cu").read_text()
KERNELS = ("series", "smooth", "convolve", "machine", "branches", "matrix", "mixed", "table", "either")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(2, cache=tmp_path_factory.mktemp("cache")) as made:
        yield made


def target(compiler: Compiler, device: str) -> Target:
    return compiler.host if device == "cpu" else Target(device="cuda", arch="sm_90")


def module(compiler: Compiler, kernel: str, device: str, configuration: Configuration) -> str:
    request = BuildRequest(
        files=(("knobs.cu", TEXT),),
        main="knobs.cu",
        flags=(),
        symbol=kernel,
        target=target(compiler, device),
        configuration=configuration,
        facts=UnitFacts(launch=LaunchConfig(grid=(4, 1, 1), block=(64, 1, 1))),
    )
    return compiler.submit(request).result().module


def differs(compiler: Compiler, device: str, changed: Configuration, base: Configuration | None = None) -> bool:
    base = base or Configuration()
    return any(module(compiler, k, device, changed) != module(compiler, k, device, base) for k in KERNELS)


OPTION_VALUES = [
    pytest.param(device, options, id=f"{device}-{knob}-{value}")
    for device, knobs in OPTIONS.items()
    for knob, values in knobs.items()
    for value, options in values.items()
    if options
]
TUNING_VALUES = [
    pytest.param(device, name, value, id=f"{device}-{name}-{value}")
    for device, knobs in TUNING.items()
    for name, values in knobs.items()
    for value in values[1:]
]


BEFORE_ON_CUDA = {"sroa", "instruction_combine"}
AFTER_UNROLLING = {"simplify_cfg", "jump_threading"}


@pytest.mark.parametrize("name", EXTRA_PASSES)
def test_each_extra_pass_changes_code(compiler: Compiler, name: str) -> None:
    if name in BEFORE_ON_CUDA:
        assert differs(compiler, "cuda", Configuration(before=(name,)))
    elif name in AFTER_UNROLLING:
        unrolled = Configuration(after=("loop_unroll",))
        assert differs(compiler, "cpu", Configuration(after=("loop_unroll", name)), unrolled)
    else:
        assert differs(compiler, "cpu", Configuration(after=(name,)))


def test_the_order_of_extra_passes_changes_code(compiler: Compiler) -> None:
    one, other = (
        Configuration(after=("loop_unroll", "simplify_cfg")),
        Configuration(after=("simplify_cfg", "loop_unroll")),
    )
    assert differs(compiler, "cpu", one, other)
    assert differs(compiler, "cuda", one, other)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("pipeline", ["O0", "O1", "O2"])
def test_each_pipeline_changes_code(compiler: Compiler, device: str, pipeline: str) -> None:
    assert differs(compiler, device, Configuration(pipeline=pipeline))  # type: ignore[arg-type]


@pytest.mark.parametrize(("device", "name", "value"), TUNING_VALUES)
def test_each_tuning_option_changes_code(compiler: Compiler, device: str, name: str, value: int) -> None:
    assert differs(compiler, device, Configuration(tuning=((name, value),)))


@pytest.mark.parametrize(("device", "options"), OPTION_VALUES)
def test_each_llvm_option_changes_code(compiler: Compiler, device: str, options: Options) -> None:
    assert differs(compiler, device, Configuration(options=options))
