"""Sources that an application compiled while it ran (CuPy's RawKernel and RawModule, and whoever else calls NVRTC)."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from r3bench import frontend, syntax, toolkit
from r3bench.errors import BuildError, RecordError
from r3bench.record.dump import Launched
from r3bench.record.sources import Found, Unit, found_in, meant
from r3bench.symbols import demangled

# As CuPy is to behave while it is recorded: what it finds compiled on disk it does not compile.
ENVIRONMENT = {"CUPY_CACHE_IN_MEMORY": "1"}

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^<>"]+)[>"]', re.MULTILINE)
_HEADERS = "include"


def find(launched: Launched) -> tuple[Found | None, str]:
    """The source of a kernel, that of the very image first, and why there is none where none of them will do."""
    name, reasons = syntax.plain_name(demangled(launched.kernel)), []
    for source in _programs(launched, name):
        options = source.with_suffix(".options").read_text("utf-8", "replace").splitlines()
        texts, flags = _translation(f"{name}.nvrtc.cu", source.read_text("utf-8", "replace"), options)
        for way in (flags, (*flags, toolkit.FLAG)):
            try:
                unit = Unit(Path(), f"{name}.nvrtc.cu", way, texts, _ir(texts, f"{name}.nvrtc.cu", way))
                if launched.kernel in frontend.kernels(unit.typed_ir):
                    return found_in(unit, symbol=launched.kernel, top=Path()), ""
            except (BuildError, RecordError) as failure:
                reasons.append(str(failure))
    return None, "; ".join(dict.fromkeys(reasons))


def _ir(texts: dict[str, str], main: str, flags: Sequence[str]) -> str:
    return frontend.compile_ir(texts, main, flags=flags, debug=True, timeout_s=120.0)


def _programs(launched: Launched, name: str) -> list[Path]:
    """Programs of the process that name the kernel; first those that gave the image which it was launched from."""
    image = launched.image.read_bytes() if launched.image is not None else b""
    programs = [p for p in sorted(launched.path.parent.glob("nvrtc-*.cu")) if name in p.read_text("utf-8", "replace")]
    return sorted(programs, key=lambda program: not _gave(program, image))


def _gave(program: Path, image: bytes) -> bool:
    made = program.with_suffix(".image")
    return bool(image) and made.is_file() and made.read_bytes().startswith(image)


def _translation(main: str, text: str, options: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The texts, with the headers that the options lead to, and the flags that say what they mean.

    Kernels that were asked for by name are instantiated at the end of the text.
    """
    words = [line.removeprefix("option ") for line in options if line.startswith("option ")]
    names = [line.removeprefix("instantiate ") for line in options if line.startswith("instantiate ")]
    wanted = [f"template __global__ decltype({name}) {name};\n" for name in names if "<" in name]
    flags = tuple(meant(words, Path.cwd()))
    folders = [Path(flag.partition("=")[2]) for flag in flags if flag.startswith("-I=")]
    headers = dict(_headers(text, folders))
    kept = tuple(flag for flag in flags if not flag.startswith(("-I", "-isystem", "-include")))
    include = (f"-I={_HEADERS}",) if headers else ()
    return {main: "".join([text.rstrip("\n") + "\n", *wanted]), **headers}, (*kept, *include)


def _headers(text: str, folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """What a text includes from these folders, and what that includes; a toolkit's own headers are everywhere."""
    waiting, seen = [("", text)], set[str]()
    while waiting:
        includer, content = waiting.pop()
        for name in _INCLUDE.findall(content):
            for path in (posixpath.normpath(posixpath.join(posixpath.dirname(includer), name)), name):
                place = next((folder / path for folder in folders if (folder / path).is_file()), None)
                if place is None or path in seen or path.startswith("..") or _of_toolkit(path):
                    continue
                seen.add(path)
                waiting.append((path, place.read_text("utf-8", "replace")))
                yield f"{_HEADERS}/{path}", waiting[-1][1]


def _of_toolkit(path: str) -> bool:
    cuda = toolkit.cuda_folder()
    return cuda is not None and any(os.path.isfile(cuda / part / path) for part in ("include", "include/cccl"))
