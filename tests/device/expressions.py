"""C++ expressions evaluated for arrays on a device, and how far off their values are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.device.run_kernel import Array, Runner

CTYPES = {"float": "f4", "double": "f8", "int": "i4", "unsigned": "u4", "long long": "i8", "unsigned long long": "u8"}


def evaluate(
    build: Callable[..., Runner],
    result: str,
    expressions: Sequence[str],
    head: str = "",
    flags: Sequence[str] = (),
    **inputs: Array,
) -> list[Array]:
    """Each C++ expression of the named inputs, for all of their elements; ``result`` is its C++ type."""
    names = {dtype: ctype for ctype, dtype in CTYPES.items()}
    parameters = "".join(f"const {names[a.dtype.str[1:]]}* {n}_, " for n, a in inputs.items())
    loads = "".join(f"auto {name} = {name}_[i]; " for name in inputs)
    stores = "".join(f"out[{n} * n + i] = {text}; " for n, text in enumerate(expressions))
    text = f"{head}\n__global__ void k({parameters}{result}* out, int n) {{\n"
    text += f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; {loads}\n{stores} }}"
    n = len(next(iter(inputs.values())))
    out = np.zeros((len(expressions), n), CTYPES[result])
    return list(build(text, flags)("k", (-(-n // 64),), (64,), *inputs.values(), out, n)[-1])


def errors_in_ulp(actual: Array, exact: Array) -> Array:
    """Distance in units in the last place of the exact value's own binade, of ``actual``'s type."""
    with np.errstate(over="ignore", invalid="ignore"):
        spacing = np.spacing(np.abs(exact).astype(actual.dtype))
        return np.abs(actual.astype("g") - exact.astype("g")) / spacing.astype("g")


def assert_close(actual: Array, exact: Array, ulp: float, what: str) -> None:
    errors = errors_in_ulp(actual, exact)
    assert errors.max() <= ulp, f"{what}: {float(errors.max()):.1f} ulp, {actual[errors.argmax()]}"
