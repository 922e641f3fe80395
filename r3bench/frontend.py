"""CUDA C++ source -> LLVM IR: the clang that comes with ziglang, with our own device prelude and no CUDA toolkit.

The IR is NVPTX IR as clang emits it before any optimization. It does not depend on the host: neither the host's
headers nor a CUDA toolkit is looked for. Math that is not a single operation calls libdevice by its names
(``__nv_expf``): a GPU links libdevice, the CPU device maps the names to the host's libm.

Only the device side is compiled. Host code in the same file is parsed, so it must be free of host libraries.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import posixpath
import re
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from r3bench import sealing, toolkit
from r3bench.errors import BuildError, Diagnostic, Unsupported
from r3bench.model import Parameter

PRELUDE = Path(__file__).parent / "prelude"
_MOST_ERRORS = 20
# Of the compiler's process: address space, and what it may write (its output is a file).
_LIMITS = {"as": 4 << 30, "fsize": 128 << 20, "core": 0, "nofile": 64}
_WRAPPER = "r3-instantiate.cu"


# -- the compiler ---------------------------------------------------------------------------------------------------


def find_compiler() -> Path:
    """The ``zig`` binary whose clang compiles kernels. Raises ImportError where the package ziglang is missing."""
    import ziglang

    return Path(ziglang.__file__).parent / "zig"


@functools.cache
def compiler_version() -> str:
    """For example ``clang version 22.1.8``."""
    done = subprocess.run([find_compiler(), "clang", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def _dialect(arch: str, debug: bool) -> list[str]:
    """clang's own front end rather than its driver, which would search the host for headers and a CUDA toolkit."""
    return [
        *(str(find_compiler()), "clang", "-cc1", "-fcuda-is-device", "-fcuda-allow-variadic-functions"),
        *("-triple", "nvptx64-nvidia-cuda", "-aux-triple", "x86_64-unknown-linux-gnu"),
        *("-target-cpu", arch, "-target-feature", "+ptx86", "-target-sdk-version=12.8"),
        *("-O3", "-disable-llvm-passes", "-mframe-pointer=none", "-fno-threadsafe-statics"),
        # Kernel names as nvcc gives them.
        "-fclang-abi-compat=17",
        *("-nostdsysteminc", "-nobuiltininc", "-isystem", str(PRELUDE / "include")),
        *("-w", "-ferror-limit", str(_MOST_ERRORS), "-fno-caret-diagnostics", "-fno-diagnostics-show-option"),
        "-fno-spell-checking",  # Its suggestions come from the prelude.
        *(("-debug-info-kind=standalone", "-dwarf-version=4") if debug else ()),
    ]


def _precompiled(dialect: Sequence[str], header: Path = PRELUDE / "prelude.h") -> Path | None:
    """The prelude parsed beforehand in this dialect (25 ms less per kernel; CUDA's own headers: half a second).

    None where that is not possible.
    """
    inputs = [*sorted(header.parent.glob("*.h")), find_compiler()]
    state = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in inputs]
    key = hashlib.sha256(json.dumps([dialect, state]).encode()).hexdigest()[:24]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "r3bench")
    target = cache / f"prelude-{key}.pch"
    if not target.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                built = Path(folder, target.name)
                command = [*dialect, "-x", "cuda", "-emit-pch", "-o", str(built), str(header)]
                subprocess.run(command, check=True, capture_output=True, timeout=60)
                built.replace(target)
        except (OSError, subprocess.SubprocessError):
            return None
    return target


# -- flags ----------------------------------------------------------------------------------------------------------

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


def _translated(flags: Sequence[str]) -> tuple[list[str], list[str]]:
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
            paths += [match[1], _inside(match[2] or next(rest, ""), flag)]
        elif flag in _SAME:
            dialect += _SAME[flag]
        elif re.fullmatch(r"-std=(c|gnu)\+\+\w\w", flag):
            dialect.append(flag)
        elif flag in _WITHOUT_EFFECT_NEXT:
            next(rest, "")
        elif not _WITHOUT_EFFECT.fullmatch(flag):
            raise BuildError(f"compiler flag {flag} is not known here: remove it from the capture's flags")
    return (dialect if any(f.startswith("-std=") for f in dialect) else [*dialect, "-std=c++17"]), paths


def _inside(path: str, where: str) -> str:
    """``path`` normalized; raises BuildError if it leads out of the source tree."""
    normal = posixpath.normpath(path)
    if not path or posixpath.isabs(normal) or normal.split("/")[0] == "..":
        raise BuildError(f"{where} leads out of the source tree: use paths relative to its root")
    return normal


# -- compiling ------------------------------------------------------------------------------------------------------


def compile_ir(
    files: Mapping[str, str],
    main: str,
    *,
    flags: Sequence[str] = (),
    arch: str = "sm_90",
    timeout_s: float = 30.0,
    debug: bool = False,
    instantiate: Sequence[str] = (),
) -> str:
    """Unoptimized NVPTX IR (text) of the device side of ``main``, one of ``files`` (relative path -> text).

    ``flags`` are nvcc's or clang's; paths in them are relative to the root of ``files``. ``instantiate`` names
    template kernels that nothing in the source launches, for example ``"scale<float, 4>"``. ``debug`` keeps the types
    of parameters for :func:`parameters`.

    Raises BuildError with up to 20 diagnostics in the given files, or Unsupported if the first error asks for a part
    of CUDA that the prelude does not have.
    """
    own, paths = _translated([flag for flag in flags if flag != toolkit.FLAG])
    cudas = toolkit.FLAG in flags
    dialect, header, folders = _headers(cudas, arch, debug)
    dialect += own
    prelude = _precompiled(dialect, header)
    with tempfile.TemporaryDirectory(prefix="r3-") as root:
        source = _write(Path(root), files, main, instantiate)
        rest = [*paths, "-x", "cuda", "-emit-llvm", "-o", "-", source]
        done = None
        if prelude:
            done = _run([*dialect, "-include-pch", str(prelude), *rest], [prelude, *folders], root, timeout_s, main)
        if done is None or (done.returncode and not _diagnosed(done, main, files)):
            # No precompiled prelude, or perhaps a damaged one.
            done = _run([*dialect, "-include", str(header), *rest], folders, root, timeout_s, main)
    if done.returncode:
        raise _failure(main, _diagnosed(done, main, files, prelude=not cudas), done.returncode)
    ir = _with_nvcc_names(done.stdout)
    return _with_nvcc_variables(ir) if cudas else ir


def _headers(cudas: bool, arch: str, debug: bool) -> tuple[list[str], Path, list[Path]]:
    """The dialect, what comes before a source, and the folders it is read from: CUDA's own headers, or the prelude."""
    if not cudas:
        return _dialect(arch, debug), PRELUDE / "prelude.h", [PRELUDE]
    dialect = [*toolkit.arguments(find_compiler(), arch, debug), "-ferror-limit", str(_MOST_ERRORS)]
    return dialect, toolkit.HEADER, toolkit.folders(tuple(dialect))


def included(root: Path, main: str, flags: Sequence[str], timeout_s: float = 60.0) -> tuple[str, ...]:
    """Every file below ``root`` that ``main`` is made of, with CUDA's own headers; paths relative to it, sorted.

    Raises BuildError where the source cannot be preprocessed, or includes a file that lies elsewhere.
    """
    own, paths = _translated([flag for flag in flags if flag != toolkit.FLAG])
    dialect, header, folders = _headers(True, "sm_90", False)
    command = [*dialect, *own, "-include", str(header), *paths]
    rest = ["-dependency-file", "-", "-MT", "x", "-x", "cuda", "-Eonly", main]
    done = _run([*command, *rest], [*folders, root], str(root), timeout_s, main)
    if done.returncode:
        raise _failure(main, _diagnosed(done, main, {main: ""}, prelude=False), done.returncode)
    named = done.stdout.replace("\\\n", " ").partition(":")[2].split()
    found = {posixpath.normpath(name) for name in named if not Path(name).is_absolute()}
    return tuple(sorted(_inside(name, f"{main} includes {name}, which") for name in found))


def _write(root: Path, files: Mapping[str, str], main: str, instantiate: Sequence[str]) -> str:
    """Writes the source tree and returns the file to compile."""
    for path, text in files.items():
        target = root / _inside(path, f"source file {path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    source = _inside(main, f"source file {main}")
    if not instantiate:
        return source
    # A file of its own keeps the lines of the user's.
    lines = [f"template __global__ decltype({name}) {name};" for name in instantiate]
    wrapper = root / _WRAPPER
    wrapper.write_text("\n".join([f'#include "{source}"', *lines]))
    return wrapper.name


def _run(
    command: Sequence[str], read: Sequence[Path], root: str, timeout_s: float, main: str
) -> subprocess.CompletedProcess[str]:
    """Run the compiler, sealed: of this machine's files it can open those in ``root`` and ``read``, and itself."""
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        _ending() as (ended, theirs),
    ):
        process = sealing.started(
            command,
            read=[*read, Path(root)],
            limits=_LIMITS | {"cpu": int(timeout_s) + 2},
            cwd=root,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            stdin=nothing,
            stdout=output,
            stderr=errors,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        try:
            if not select.select([ended], [], [], timeout_s)[0]:
                raise BuildError(f"{main}: the compiler took longer than {timeout_s:g} s and was stopped")
        finally:
            process.kill()
            process.wait()
        return subprocess.CompletedProcess(command, process.returncode, _content(output), _content(errors))


@contextmanager
def _ending() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A pipe that can be read, as ended, once no process holds its other end."""
    ours, theirs = os.pipe()
    with open(ours, "rb", 0) as ended, open(theirs, "wb", 0) as held:
        yield ended, held


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _with_nvcc_names(ir: str) -> str:
    """clang marks the name of a ``static __global__`` function as local (``_ZL1kv``); nvcc does not (``_Z1kv``)."""
    local = [symbol for symbol in kernels(ir) if symbol.startswith("_ZL")]
    for symbol in local:
        ir = re.sub(rf"\b{re.escape(symbol)}\b", "_Z" + symbol.removeprefix("_ZL"), ir)
    return ir


_STATIC_VARIABLE = re.compile(r"^@(_Z[\w.$]+) = internal (addrspace\([14]\)) (?!externally)", re.MULTILINE)


def _with_nvcc_variables(ir: str) -> str:
    """nvcc calls a ``static __device__`` variable ``v`` what clang calls ``_ZL1v``, and the driver finds it by that."""
    for symbol, space in _STATIC_VARIABLE.findall(ir):
        plain = re.fullmatch(r"_ZL\d+(\w+)", symbol)
        name = plain[1] if plain else re.sub(r"(?<=\w)L(?=\d)", "", symbol)
        ir = ir.replace(f"@{symbol} = internal {space} ", f"@{symbol} = {space} externally_initialized ")
        ir = re.sub(rf"@{re.escape(symbol)}\b", f"@{name}", ir)
    return ir


# -- errors ---------------------------------------------------------------------------------------------------------

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


def _failure(main: str, errors: Sequence[_Error], status: int) -> BuildError:
    if not errors:
        return BuildError(f"{main}: {_ended(status)}")
    kind = Unsupported if errors[0].missing else BuildError
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return kind(f"{errors[0].diagnostic}{more}", tuple(error.diagnostic for error in errors))


def _ended(status: int) -> str:
    """What became of a compiler that said nothing about the source."""
    if status == -signal.SIGXFSZ:
        return f"the compiler wrote more than {_LIMITS['fsize'] >> 20} MiB and was stopped"
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return f"the compiler failed without naming a place in the source ({how})"


def _diagnosed(
    done: subprocess.CompletedProcess[str], main: str, files: Mapping[str, str], *, prelude: bool = True
) -> list[_Error]:
    return list(_errors(done.stderr, main, {posixpath.normpath(path) for path in files}, prelude))


def _errors(stderr: str, main: str, files: set[str], prelude: bool) -> Iterator[_Error]:
    """Errors at the user's places: one found inside the prelude is moved to the first note in the user's files."""
    pending: str | None = None
    for match in filter(None, map(_MESSAGE.match, stderr.splitlines())):
        if match["kind"] != "note":
            pending = match["text"]
        if pending is not None and match["file"] == _WRAPPER:
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


# -- what the IR says of its kernels --------------------------------------------------------------------------------

_DEFINITION = re.compile(r'^define [^@\n]*\bptx_kernel\b[^@\n]*@("[^"]+"|[\w.$]+)\((.*?)\) ([^)\n]*)\{$', re.MULTILINE)


def kernels(ir: str) -> tuple[str, ...]:
    """The symbols of all kernels defined in ``ir``, in order."""
    return tuple(match[1].strip('"') for match in _DEFINITION.finditer(ir))


def readable_name(ir: str, symbol: str) -> str:
    """A kernel's name as its author wrote it, for example ``ns::scale<float, 4>``; ``ir`` compiled with ``debug``."""
    types = _DebugInfo(ir)
    subprogram = types.fields(types.subprogram(symbol))
    names, scope = [_text(subprogram["name"])], subprogram.get("scope", "")
    while "name" in (outer := types.fields(scope)):
        names.append(_text(outer["name"]))
        scope = outer.get("scope", "")
    return "::".join(reversed(names))


def parameters(ir: str, symbol: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel, in order; ``ir`` must have been compiled with ``debug=True``.

    bfloat16 elements are given as ``uint16``, since NumPy has no such type; elements of structs that hold one type
    only (``float4``, ``half2``) as that type. Raises KeyError if ``ir`` defines no such kernel, ValueError if it was
    compiled without ``debug``.
    """
    types = _DebugInfo(ir)
    arguments = types.arguments(symbol)
    out: list[Parameter] = []
    end = 0
    for index, (text, node) in enumerate(zip(arguments, types.parameter_nodes(symbol), strict=True)):
        kind, size = types.kind(node), types.nbytes(node)
        by_value = re.search(r"\bbyval\(.*\) align (\d+)", text)
        align = int(by_value[1]) if by_value else size
        offset = -(-end // align) * align
        end = offset + size
        name = text.rsplit("%", 1)[1].strip('"')
        out.append(
            Parameter(
                name=f"arg{index}" if name.isdigit() else name,
                offset=offset,
                size=size,
                kind=kind,
                dtype=None if kind == "struct" else types.dtype(types.pointee(node) if kind == "pointer" else node),
                const=kind == "pointer" and types.is_const(types.pointee(node)),
                restrict=bool(re.search(r"\bnoalias\b", text)),
            )
        )
    return tuple(out)


_NODE = re.compile(r"^(!\d+) = (?:distinct )?!(?:(DI\w+)\((.*)\)|\{(.*)\})$", re.MULTILINE)
_FIELD = re.compile(r'(\w+): ("(?:[^"\\]|\\.)*"|!\{.*?\}|[^,]+)')
_QUALIFIERS = {"DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type", "DW_TAG_typedef"}
_POINTERS = {"DW_TAG_pointer_type", "DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}
_STRUCTS = {"DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"}
_ENCODINGS = {
    "DW_ATE_float": "float",
    "DW_ATE_signed": "int",
    "DW_ATE_signed_char": "int",
    "DW_ATE_unsigned": "uint",
    "DW_ATE_unsigned_char": "uint",
    "DW_ATE_UTF": "uint",
}


def _text(quoted: str) -> str:
    return quoted.strip('"')


class _DebugInfo:
    """The debug information of a module's text; a node is named as in the text (``!12``)."""

    def __init__(self, ir: str) -> None:
        self._nodes = {name: (kind or "", body or items or "") for name, kind, body, items in _NODE.findall(ir)}
        self._definitions = {match[1].strip('"'): match for match in _DEFINITION.finditer(ir)}

    def fields(self, node: str) -> dict[str, str]:
        return dict(_FIELD.findall(self._nodes.get(node, ("", ""))[1]))

    def _items(self, node: str) -> list[str]:
        return [item.strip() for item in self._nodes[node][1].split(",")]

    def arguments(self, symbol: str) -> list[str]:
        """The text of each argument in the definition."""
        return re.findall(r"(?:\([^()]*\)|[^,()])+", self._definitions[symbol][2])

    def subprogram(self, symbol: str) -> str:
        attached = re.search(r"!dbg (!\d+)", self._definitions[symbol][3])
        if not attached:
            raise ValueError(f"{symbol}: the IR has no types of parameters: compile it with debug=True")
        return attached[1]

    def parameter_nodes(self, symbol: str) -> list[str]:
        signature = self.fields(self.fields(self.subprogram(symbol))["type"])
        return self._items(signature["types"])[1:]

    def _plain(self, node: str) -> dict[str, str]:
        """The type without typedefs and qualifiers."""
        fields = self.fields(node)
        while fields.get("tag") in _QUALIFIERS:
            fields = self.fields(fields["baseType"])
        return fields

    def is_const(self, node: str) -> bool:
        fields = self.fields(node)
        while fields.get("tag") in _QUALIFIERS:
            if fields["tag"] == "DW_TAG_const_type":
                return True
            fields = self.fields(fields["baseType"])
        return False

    def kind(self, node: str) -> Literal["pointer", "scalar", "struct"]:
        tag = self._plain(node).get("tag")
        return "pointer" if tag in _POINTERS else "struct" if tag in _STRUCTS else "scalar"

    def pointee(self, node: str) -> str:
        return self._plain(node)["baseType"]

    def nbytes(self, node: str) -> int:
        return int(self._plain(node)["size"]) // 8

    def dtype(self, node: str) -> str | None:
        """NumPy's name of the type, or of the one type that all members have; None if there is no such name."""
        fields = self._plain(node)
        tag = fields.get("tag")
        if tag in _POINTERS:
            return "uint64"
        if tag in _STRUCTS:
            members = {self.dtype(member) for member in self._members(fields)}
            return members.pop() if len(members) == 1 else None
        if "encoding" in fields:
            return _basic(fields)
        return self.dtype(fields["baseType"]) if "baseType" in fields else None

    def _members(self, struct: dict[str, str]) -> list[str]:
        items = [self.fields(item) for item in self._items(struct["elements"])]
        return [
            item["baseType"]
            for item in items
            if item.get("tag") in ("DW_TAG_member", "DW_TAG_inheritance")
            and "DIFlagStaticMember" not in item.get("flags", "")
        ]


def _basic(fields: dict[str, str]) -> str | None:
    if fields["encoding"] == "DW_ATE_boolean":
        return "bool"
    prefix = "uint" if _text(fields["name"]) == "__bf16" else _ENCODINGS.get(fields["encoding"])
    return f"{prefix}{fields['size']}" if prefix else None
