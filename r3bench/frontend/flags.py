"""nvcc's and clang's flags as arguments of clang's own front end."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from r3bench.errors import BuildError

_FAST_MATH = ("-DR3_FAST_MATH", "-D__USE_FAST_MATH__", "-fdenormal-fp-math-f32=preserve-sign", "-fapprox-func")
_SAME = {
    "-use_fast_math": _FAST_MATH,
    "-ffast-math": _FAST_MATH,
    "-ftz=true": ("-fdenormal-fp-math-f32=preserve-sign",),
    "-fmad=false": ("-ffp-contract=off",),
    "-ffp-contract=off": ("-ffp-contract=off",),
}
# nvcc's and clang's flags that say nothing about what device code means, or that the configuration decides.
_WITHOUT_EFFECT = re.compile(
    r"-(O[0-3s]?|g|G|lineinfo|generate-line-info|w|W.*|c|dc|m64|rdc=.*|arch=.*|gpu-architecture=.*|code=.*|gencode=.*|"
    r"generate-code=.*|cuda-gpu-arch=.*|maxrregcount=.*|expt-.*|extended-lambda|default-stream=.*|fPIC|"
    r"(ftz|prec-div|prec-sqrt|fmad)=(true|false)|ffp-contract=(fast|on)|x=?cu|Xcompiler=.*|Xptxas=.*)"
)
_WITHOUT_EFFECT_NEXT = {"-Xcompiler", "-Xptxas", "-gencode", "-generate-code", "-arch", "-x", "-ccbin"}


def translated(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """nvcc's or clang's flags as arguments of clang's front end: those of the dialect, and those that name paths.

    Raises BuildError for flags that cannot be honoured.
    """
    dialect: list[str] = []
    paths: list[str] = []
    rest = iter(flags)
    for flag in rest:
        flag = flag[1:] if flag.startswith("--") else flag
        if match := re.fullmatch(r"(-[DU]) ?(.*)", flag):
            dialect += [match[1], match[2] or next(rest, "")]
        elif match := re.fullmatch(r"(-I|-isystem|-include)[= ]?(.*)", flag):
            paths += [match[1], inside(match[2] or next(rest, ""), flag)]
        elif flag in _SAME:
            dialect += _SAME[flag]
        elif re.fullmatch(r"-std=(c|gnu)\+\+\w\w", flag):
            dialect.append(flag)
        elif flag in _WITHOUT_EFFECT_NEXT:
            next(rest, "")
        elif not _WITHOUT_EFFECT.fullmatch(flag):
            raise BuildError(f"compiler flag {flag} is not known here: remove it from the capture's flags")
    return (dialect if any(f.startswith("-std=") for f in dialect) else [*dialect, "-std=c++17"]), paths


def inside(path: str, where: str) -> str:
    """``path`` normalized; raises BuildError if it leads out of the source tree."""
    normal = posixpath.normpath(path)
    if not path or posixpath.isabs(normal) or normal.split("/")[0] == "..":
        raise BuildError(f"{where} leads out of the source tree: use paths relative to its root")
    return normal
