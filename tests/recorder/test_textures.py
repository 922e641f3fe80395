"""Kernels that use textures or surfaces, told by the code that nvcc makes of them."""

from __future__ import annotations

import subprocess

import pytest

from r3bench.record import fatbin, textures
from r3bench.record.images import find_nvcc

PARAMETERS = "const cudaTextureObject_t *in, float *out, int x, float u"
USES = {
    "fetches": "out[0] = tex1Dfetch<float>(*in, x)",
    "filters": "out[0] = tex2D<float>(*in, u, u + 1)",
    "levels": "out[0] = tex2DLod<float>(*in, u, u + 1, u)",
    "gradients": "out[0] = tex2DGrad<float>(*in, u, u + 1, make_float2(u, u), make_float2(u, x))",
    "gathers": "*(float4 *)out = tex2Dgather<float4>(*in, u, u + 1, 0)",
    "layers": "out[0] = tex2DLayered<float>(*in, u, u + 1, x)",
    "reads": "out[0] = surf2Dread<float>(*in, x, x + 1)",
    "writes": "surf3Dwrite(u, *in, x, x + 1, x)",
}
OTHERS = {
    "plain": "out[x] = u * x + sqrtf(u) + out[*in]",
    "synchronizes": "__syncthreads(); atomicAdd(&out[3], u); out[9] = __shfl_xor_sync(~0u, u, 1) + __popc(x)",
    "prints": 'printf("%d", x); if (x == 7) __trap()',
}


@pytest.fixture(scope="module", params=["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "ptx"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    if find_nvcc() is None:
        pytest.skip("nvcc is not here")
    folder, arch = tmp_path_factory.mktemp("code"), request.param
    kernels = (f'extern "C" __global__ void {n}({PARAMETERS}) {{ {body}; }}\n' for n, body in (USES | OTHERS).items())
    (folder / "k.cu").write_text("#include <cstdio>\n" + "".join(kernels))
    kind = "ptx" if arch == "ptx" else "cubin"
    command = [str(find_nvcc()), f"-{kind}", f"-arch={'sm_90' if arch == 'ptx' else arch}", "k.cu", "-o", "k"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return (folder / "k").read_bytes(), kind


def test_the_code_tells(image: tuple[bytes, str]) -> None:
    assert [kernel for kernel in USES | OTHERS if textures.used(*image, kernel, 75)] == list(USES)


def test_other_instructions_are_not_read(image: tuple[bytes, str]) -> None:
    assert [kernel for kernel in USES if textures.used(*image, kernel, 61)] == (list(USES) if image[1] == "ptx" else [])


@pytest.mark.parametrize("data", [b"", b"\x7fELF", bytes(400)])
def test_what_cannot_be_read_has_none(data: bytes) -> None:
    assert list(fatbin.sections(data)) == []
    assert not textures.used(data, "cubin", "plain", 90)
