"""How the worker calls CUDA's driver: results instead of tuples, errors raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda


class CudaError(Exception):
    """A call of the driver failed; ``code`` is the driver's CUresult."""

    def __init__(self, code: int, name: str, call: str) -> None:
        super().__init__(f"{call}: {name}")
        self.code, self.name, self.call = code, name, call


def call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """What a function of the driver gives besides its error: None, one value or a tuple."""
    error, *values = function(*arguments)
    if error != cuda.CUresult.CUDA_SUCCESS:
        raise CudaError(int(error), error.name, function.__name__)
    return values[0] if len(values) == 1 else tuple(values) or None


def try_call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """The same, None where the call fails."""
    try:
        return call(function, *arguments)
    except CudaError:
        return None


def attribute(name: str, device: Any) -> int:
    """A number about a device, by the end of its CU_DEVICE_ATTRIBUTE_ name."""
    return int(call(cuda.cuDeviceGetAttribute, getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))


def function_attribute(name: str, function: Any) -> int:
    """A number about a loaded kernel, by the end of its CU_FUNC_ATTRIBUTE_ name."""
    return int(call(cuda.cuFuncGetAttribute, getattr(cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}"), function))
