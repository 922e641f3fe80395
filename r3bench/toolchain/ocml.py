"""AMD's device mathematics (``__ocml_exp_f64`` ...) in place of CUDA's: bitcode of ROCm or of Triton's wheel."""

from __future__ import annotations

import functools
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite.binding as llvm

from r3bench.errors import Unsupported
from r3bench.toolchain import bitcode

_SUFFIX = {"": "f64", "f": "f32"}
_INTRINSICS = {
    **{name: name for name in ("fabs", "floor", "ceil", "trunc", "rint", "nearbyint", "round", "fma", "copysign")},
    "sqrt": "sqrt",
    "fmin": "minnum",
    "fmax": "maxnum",
}
_SAME = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "cospi", "erf", "erfc"),
    *("erfcinv", "erfcx", "erfinv", "exp", "exp10", "exp2", "expm1", "fdim", "fmod", "hypot", "ilogb", "j0", "j1"),
    *("ldexp", "lgamma", "log", "log10", "log1p", "log2", "logb", "nextafter", "pow", "rcbrt", "remainder", "rhypot"),
    *("rsqrt", "scalbn", "sin", "sinh", "sinpi", "tan", "tanh", "tgamma", "y0", "y1"),
)
_OTHER = {
    "powi": "pown",
    "normcdf": "ncdf",
    "normcdfinv": "ncdfinv",
    "cyl_bessel_i0": "i0",
    "cyl_bessel_i1": "i1",
    "norm3d": "len3",
    "norm4d": "len4",
    "rnorm3d": "rlen3",
    "rnorm4d": "rlen4",
}
_FAST = ("sin", "cos", "exp", "exp10", "log", "log2", "log10")
EQUALS = {
    **{f"__nv_{name}{end}": f"llvm.{to}.{_SUFFIX[end]}" for name, to in _INTRINSICS.items() for end in _SUFFIX},
    **{f"__nv_{name}{end}": f"__ocml_{name}_{_SUFFIX[end]}" for name in _SAME for end in _SUFFIX},
    **{f"__nv_{name}{end}": f"__ocml_{to}_{_SUFFIX[end]}" for name, to in _OTHER.items() for end in _SUFFIX},
    **{f"__nv_fast_{name}f": f"__ocml_native_{name}_f32" for name in _FAST},
}
"""Functions of libdevice, and what computes the same on an AMD GPU, with the same parameters."""

_DECLARED = re.compile(r"^declare [^\n]*@(__ocml_\w+)\(", re.MULTILINE)
_CONTROL = re.compile(r"^@__oclc_(\w+) = external [^\n]*constant (i\d+)", re.MULTILINE)


@functools.cache
def find() -> Path | None:
    """ocml.bc of ROCm (ROCM_PATH, HIP_PATH, /opt/rocm) or of an installed Triton."""
    return bitcode.found(_places())


def _places() -> Iterator[Path]:
    for top in (*(os.environ.get(name) for name in ("ROCM_PATH", "HIP_PATH")), "/opt/rocm"):
        if top:
            yield Path(top) / "amdgcn/bitcode/ocml.bc"
    yield Path(sysconfig.get_paths()["purelib"]) / "triton/backends/amd/lib/ocml.bc"


def link(module: llvm.ModuleRef, ir: str, context: llvm.ContextRef, arch: str) -> None:
    """Give every ``__ocml_*`` function that ``ir`` declares its definition; Unsupported where it cannot be had."""
    wanted = tuple(sorted(set(_DECLARED.findall(ir))))
    if not wanted:
        return
    path = find()
    if path is None:
        raise Unsupported(f"{wanted[0]} is in AMD's device library (ocml.bc), which is not here; set ROCM_PATH")
    missing = bitcode.link(module, context, path, wanted, _controlled(arch))
    if missing:
        raise Unsupported(f"{path} has no {missing[0]}; use a newer ROCm")


def preload() -> None:
    """Read the library now, where it is here: processes forked from this one have no files."""
    path = find()
    if path is not None:
        bitcode.library(path)


@functools.cache
def _controlled(arch: str) -> Callable[[str], str]:
    """What makes the library's switches constants: exact, with denormals, for this processor."""
    major, minor, step = int(arch[3:-2]), int(arch[-2], 16), int(arch[-1], 16)
    known = {
        "ISA_version": 1000 * major + 100 * minor + step,
        "ABI_version": 500,
        "correctly_rounded_sqrt32": 1,
        "wavefrontsize64": int(major < 10),
    }
    return functools.partial(
        _CONTROL.sub,
        lambda found: f"@__oclc_{found[1]} = internal addrspace(4) constant {found[2]} {known.get(found[1], 0)}",
    )
