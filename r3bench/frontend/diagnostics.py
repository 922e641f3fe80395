"""What clang said of a source, as errors at places in the user's files."""

from __future__ import annotations

import posixpath
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from r3bench.errors import BuildError, Diagnostic, Unsupported
from r3bench.frontend.clang import GENERATED, LIMITS

_MESSAGE = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?P<column>\d+): (?P<kind>fatal error|error|note): (?P<text>.*)$"
)
_ABSENT = re.compile(
    r"(?:use of undeclared identifier|unknown type name|no template named|no member named) '(?P<name>[^']+)'|"
    r"(?P<scope>)'(?P<header>[^']+)' file not found"
)
# Parts of CUDA that the prelude does not have, by the names that ask for them.
_UNSUPPORTED = (
    (r"cooperative_groups.*|cg", "cooperative groups"),
    (r"tex\dD.*|tex1Dfetch.*|texCubemap.*|texture.*|cudaTexture.*|cuda_texture_types\.h", "textures"),
    (r"surf\dD.*|surfCubemap.*|surface.*|cudaSurface.*", "surfaces"),
    (r"nvcuda|wmma|mma\.h|__[hib]?mma_.*|__wmma.*", "tensor-core (wmma) operations"),
    (r"cub|cub/.*", "the CUB library"),
    (r"thrust|thrust/.*", "the Thrust library"),
    (r"cuda|cuda/.*|nv/.*", "the libcu++ library"),
    (r"curand.*", "the cuRAND library"),
    (r"cu(blas|fft|sparse|solver|dnn|tensor|rt).*|nvtx.*|nvToolsExt.*", "a CUDA host library"),
    (r"cuda_pipeline.*|__pipeline_.*|__memcpy_async.*", "asynchronous copies"),
    (r"cuda_fp[468].*|__nv_fp[468].*", "8-bit and smaller floating-point types"),
    (r"__v(abs|add|avg|cmp|hadd|max|min|neg|sad|set|sub|ib)\w*", "SIMD-in-a-word intrinsics"),
    (r"__cluster\w*|__getClusterIdx|cluster", "thread block clusters"),
    (r"cuda[A-Z]\w*|cu[A-Z]\w*", "this function or type of the CUDA host API"),
    (r"__(nvvm|nv|shfl|any|all|ballot|ld|st)\w*", "this intrinsic"),
)
_CXX_HEADERS = re.compile(r"[a-z_]+|(sys|bits|unistd|pthread|time|omp|signal)(/.*)?\.h")


@dataclass(frozen=True)
class _Error:
    diagnostic: Diagnostic
    missing: str | None


def failure(main: str, errors: Sequence[_Error], status: int) -> BuildError:
    if not errors:
        return BuildError(f"{main}: {_ended(status)}")
    kind = Unsupported if errors[0].missing else BuildError
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return kind(f"{errors[0].diagnostic}{more}", tuple(error.diagnostic for error in errors))


def _ended(status: int) -> str:
    """What became of a compiler that said nothing about the source."""
    if status == -signal.SIGXFSZ:
        return f"the compiler wrote more than {LIMITS['fsize'] >> 20} MiB and was stopped"
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return f"the compiler failed without naming a place in the source ({how})"


def diagnosed(
    done: subprocess.CompletedProcess[str], main: str, files: Mapping[str, str], *, prelude: bool = True
) -> list[_Error]:
    return list(_errors(done.stderr, main, {posixpath.normpath(path) for path in files}, prelude))


def _errors(stderr: str, main: str, files: set[str], prelude: bool) -> Iterator[_Error]:
    """Errors at the user's places: one found inside the prelude, or behind the end of the source, is moved to the first
    note in the user's files. The source is included in line 1 of what is generated, kernels are asked for behind it."""
    pending: str | None = None
    for match in filter(None, map(_MESSAGE.match, stderr.splitlines())):
        if match["kind"] != "note":
            pending = match["text"]
        if pending is not None and match["file"] == GENERATED and match["line"] != "1":
            yield _Error(Diagnostic(main, 1, 1, f"cannot be instantiated as asked: {pending}"), None)
            pending = None
        if pending is None or (file := posixpath.normpath(match["file"])) not in files:
            continue
        missing = _missing(pending) if prelude else None
        place = Diagnostic(file, int(match["line"]), int(match["column"]), missing or pending)
        yield _Error(place, missing)
        pending = None


def _missing(message: str) -> str | None:
    """A sentence that names the part of CUDA or of the host's libraries which the prelude lacks, or None."""
    if not (match := _ABSENT.search(message)):
        return None
    name = match["name"] or match["header"]
    for pattern, what in _UNSUPPORTED:
        if re.fullmatch(pattern, name):
            return f"'{name}' needs {what}, which the device prelude does not have"
    if match["header"] and _CXX_HEADERS.fullmatch(name):
        return f"<{name}> is a header of the host's libraries: keep kernels in a file that does not include it"
    return None
