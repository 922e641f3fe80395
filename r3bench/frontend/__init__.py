"""CUDA C++ source -> LLVM IR: the clang that comes with ziglang, with our own device prelude and no CUDA toolkit.

The IR is NVPTX IR as clang emits it before any optimization. It does not depend on the host: neither the host's
headers nor a CUDA toolkit is looked for. Math that is not a single operation calls libdevice by its names
(``__nv_expf``): a GPU links libdevice, the CPU device maps the names to the host's libm.

Only the device side is compiled. Host code in the same file is parsed, so it must be free of host libraries.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from r3bench import toolkit
from r3bench.frontend.clang import (
    MOST_ERRORS,
    NAMED,
    PRELUDE,
    TIMELESS,
    Ahead,
    Compiler,
    compiler_version,
    dialect,
    find_compiler,
    precompiled,
)
from r3bench.frontend.diagnostics import diagnosed, failure
from r3bench.frontend.flags import inside, translated
from r3bench.frontend.signature import kernels, parameters, readable_name

__all__ = [
    "PRELUDE",
    "Ahead",
    "compile_ir",
    "compiler_version",
    "find_compiler",
    "included",
    "kernels",
    "parameters",
    "readable_name",
]


def compile_ir(
    files: Mapping[str, str],
    main: str,
    *,
    flags: Sequence[str] = (),
    arch: str = "sm_90",
    timeout_s: float = 30.0,
    debug: bool = False,
    instantiate: Sequence[str] = (),
    ahead: Ahead | None = None,
) -> str:
    """Unoptimized NVPTX IR (text) of the device side of ``main``, one of ``files`` (relative path -> text).

    ``flags`` are nvcc's or clang's; paths in them are relative to the root of ``files``. ``instantiate`` names
    template kernels that nothing in the source launches, for example ``"scale<float, 4>"``. ``debug`` keeps the types
    of parameters for :func:`parameters`. ``ahead`` may have a compiler waiting.

    Raises BuildError with up to 20 diagnostics in the given files, or Unsupported if the first error asks for a part
    of CUDA that the prelude does not have.
    """
    own, paths = translated([flag for flag in flags if flag != toolkit.FLAG])
    cudas = toolkit.FLAG in flags
    command, header, folders = _headers(cudas, arch, debug)
    command += own
    prelude = precompiled(command, header)
    rest = [*paths, "-x", "cuda", "-emit-llvm", "-o", "-", "-"]
    tree = {inside(path, f"source file {path}"): text for path, text in files.items()}
    # What the compiler reads includes the source, so that nothing in its command says which source that is. As a file
    # that is included, the source would be called ./k.cu.
    source = inside(main, f"source file {main}")
    if source in tree:
        # A byte order mark is one at the start of a file only.
        tree[source] = f'#line 1 "{source}"\n' + tree[source].removeprefix("\ufeff")
    text = "\n".join([NAMED, f'#include "{source}"', *(f"template __global__ decltype({n}) {n};" for n in instantiate)])
    places = tuple(path for flag, path in zip(paths[::2], paths[1::2], strict=True) if flag != "-include")
    done = None
    if prelude:
        asked = ((*command, "-include-pch", str(prelude), *rest), (prelude, *folders), places, timeout_s)
        done = (ahead.take(asked) if ahead else Compiler(asked)).compile(tree, text, main)
    if done is None or (done.returncode and not diagnosed(done, main, files)):
        # No precompiled prelude, or perhaps a damaged one.
        plain = Compiler(((*command, "-include", str(header), *rest), (*folders,), places, timeout_s))
        done = plain.compile(tree, text, main)
    if done.returncode:
        raise failure(main, diagnosed(done, main, files, prelude=not cudas), done.returncode)
    ir = _with_nvcc_names(done.stdout)
    return _with_nvcc_variables(ir) if cudas else ir


def _headers(cudas: bool, arch: str, debug: bool) -> tuple[list[str], Path, list[Path]]:
    """The dialect, what comes before a source, and the folders it is read from: CUDA's own headers, or the prelude."""
    if not cudas:
        return [*dialect(arch, debug), *TIMELESS], PRELUDE / "prelude.h", [PRELUDE]
    command = [*toolkit.arguments(find_compiler(), arch, debug), "-ferror-limit", str(MOST_ERRORS), *TIMELESS]
    return command, toolkit.HEADER, toolkit.folders(tuple(command))


def included(root: Path, main: str, flags: Sequence[str], timeout_s: float = 60.0) -> tuple[str, ...]:
    """Every file below ``root`` that ``main`` is made of; paths relative to it, sorted.

    ``flags`` are those of :func:`compile_ir`. Raises BuildError where the source cannot be preprocessed, or includes a
    file that lies elsewhere.
    """
    own, paths = translated([flag for flag in flags if flag != toolkit.FLAG])
    cudas = toolkit.FLAG in flags
    command, header, folders = _headers(cudas, "sm_90", False)
    command += [*own, "-include", str(header), *paths]
    command += ["-dependency-file", "-", "-MT", "x", "-x", "cuda", "-Eonly", main]
    done = Compiler(((*command,), (*folders,), (), timeout_s), root).compile({}, "", main)
    if done.returncode:
        raise failure(main, diagnosed(done, main, {main: ""}, prelude=not cudas), done.returncode)
    named = _of_rule(done.stdout.replace("\\\n", " ").partition(":")[2])
    found = {posixpath.normpath(name) for name in named if not Path(name).is_absolute()}
    return tuple(sorted(inside(name, f"{main} includes {name}, which") for name in found))


def _of_rule(written: str) -> Iterator[str]:
    """The files that a rule of make names, as clang writes them."""
    for name in re.findall(r"(?:\\[ #]|\S)+", written):
        yield re.sub(r"\\([ #])", r"\1", name).replace("$$", "$")


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
