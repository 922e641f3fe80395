"""What the CPU device cannot run is refused by name when it is built; a deadlock is told instead of waited for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from r3bench.devices import Device, open_device
from r3bench.errors import DeviceFault, Unsupported
from r3bench.model import Configuration, LaunchConfig
from r3bench.remix import BuildRequest
from r3bench.space import UnitFacts
from r3bench.toolchain import Compiler
from tests.device.run_kernel import Runner

HEAD = 'extern "C" __global__ void k(int* p, int n) '


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(2) as opened:
        yield opened


@pytest.fixture(scope="module", params=[1, 2])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    opened = open_device("cpu", threads=request.param)
    yield opened
    opened.close()


# What is in the source, and words of the refusal.
REFUSED = {
    "printf": (HEAD + '{ printf("%d", n); }', "printf"),
    "malloc": (HEAD + "{ *p = *(int*)malloc(n); }", "malloc"),
    "new": (HEAD + "{ *p = *new int(n); }", "_Znwm"),
    "assembly": (HEAD + '{ asm("mov.u32 %0, %%laneid;" : "=r"(*p)); }', "PTX assembly"),
    "grid sync": ("#include <cooperative_groups.h>\n" + HEAD + "{}", "cooperative groups"),
    "tensor cores": ("#include <mma.h>\n" + HEAD + "{}", "wmma"),
    "a texture": (HEAD + "{ *p = tex1Dfetch<int>(0, n); }", "textures"),
    "a surface": (HEAD + "{ surf1Dwrite(n, 0, 0); }", "surfaces"),
    "asynchronous copies": (HEAD + "{ __pipeline_commit(); }", "asynchronous copies"),
    "clusters": (HEAD + "{ *p = __clusterRelativeBlockRank(); }", "clusters"),
    "CUB": ("#include <cub/cub.cuh>\n" + HEAD + "{}", "CUB"),
    "a function pointer": (HEAD + "{ int (*f)(int) = *(int (**)(int))p; *p = f(n); }", "function pointer"),
    "recursion": (
        "__device__ int f(int n) { return n ? n * f(n - 1) + f(n / 2) : 1; }" + HEAD + "{ *p = f(n); }",
        "itself",
    ),
    "a host function": ('extern "C" __device__ int getpid(); ' + HEAD + "{ *p = getpid(); }", "getpid"),
    "a register of the machine": (HEAD + "{ *p = __nvvm_read_ptx_sreg_pm0(); }", "pm0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_by_name(compiler: Compiler, name: str) -> None:
    text, words = REFUSED[name]
    request = BuildRequest(
        files=(("k.cu", text),),
        main="k.cu",
        flags=(),
        symbol="k",
        target=compiler.host,
        configuration=Configuration(),
        facts=UnitFacts(launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1))),
    )
    with pytest.raises(Unsupported) as refusal:
        compiler.submit(request).result(60)
    assert words in str(refusal.value)


BIT, T = "threadIdx.x & 1", "threadIdx.x"
DEADLOCKS = {
    "a lane of the mask waits at a barrier": f"if ({T} == 3) __syncthreads(); __ballot_sync(~0u, 1); __syncthreads();",
    "a mask without its caller": f"p[{T}] = __shfl_sync(2u, n, 0);",
    "masks that differ": f"p[{T}] = __ballot_sync({BIT} ? ~0u : 1u, 1);",
    "a collective in one branch only": f"if ({BIT}) p[{T}] = __any_sync(~0u, n); else __syncthreads();",
    "different collectives": f"if ({BIT}) p[{T}] = __any_sync(~0u, n); else p[{T}] = __match_any_sync(~0u, n);",
    "a warp at a collective for another": f"if ({T} < 32) {{ if ({BIT}) __syncwarp(); else __syncthreads(); }}",
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_a_deadlock_is_told(compiler: Compiler, device: Device, name: str) -> None:
    run = Runner(compiler, device, HEAD + f"{{ {DEADLOCKS[name]} p[{T}] += 1; }}")
    for order in device.orders:
        with pytest.raises(DeviceFault, match=r"k deadlocked: a barrier or a warp collective .* in block \(0, 0, 0\)"):
            run("k", (1,), (64,), np.zeros(64, np.int32), 1, order=order)
