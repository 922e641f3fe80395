"""The source of a recorded kernel: named by the user, from compile_commands.json, or found in a tree by its name."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from r3bench import frontend, store, syntax, toolkit, worktree
from r3bench.errors import BuildError, RecordError
from r3bench.model import Parameter, Source
from r3bench.symbols import demangled
from r3bench.toolchain import codegen, irtext

SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx")
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".inl", ".inc")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_DEVICE_CODE = re.compile("__(?:global|device|constant)__|<<<")
_SYSTEM = ("/usr/", "/opt/", "/lib")
_MEANT = re.compile(
    r"-[DU].*|-{1,2}std=.*|-{1,2}use_fast_math|-ffast-math|-{1,2}ftz=.*|-{1,2}fmad=.*|-ffp-contract=.*|-{1,2}prec-\w+=.*"
)
_TIMEOUT_S = 120.0
_NAMES_PATH = ("-I", "-isystem", "-include")


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation unit: its file and the flags that say what its device code means, all paths absolute."""

    main: Path
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A kernel's source as a capture holds it, or the text that was made of it; no parameters where it has no types."""

    demangled: str
    parameters: tuple[Parameter, ...]
    source: Source
    texts: dict[str, str]
    ir: str | None


# -- which translation units ------------------------------------------------------------------------------------------


def named(files: Sequence[Path], flags: Sequence[str]) -> list[Translation]:
    """Translation units that the user named, with common flags."""
    return [Translation(path.resolve(), tuple(meant(flags, Path.cwd()))) for path in files]


def listed(database: Path) -> list[Translation]:
    """The CUDA translation units of a compile_commands.json; RecordError where it is none."""
    try:
        entries = json.loads(database.read_bytes())
        return [_entry(entry) for entry in entries if str(entry["file"]).endswith(SUFFIXES)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{database} is no compile_commands.json ({error}): make one with CMake or Bear") from error


def _entry(entry: dict[str, Any]) -> Translation:
    folder = Path(entry["directory"])
    words = entry["arguments"] if "arguments" in entry else shlex.split(entry["command"])
    return Translation((folder / entry["file"]).resolve(), tuple(meant(words[1:], folder)))


def in_tree(tree: Path, symbol: str) -> list[Translation]:
    """Source files below a folder that define a kernel, or another part of device code, of this plain name, or include
    a file that does, and headers that do: those first that are compiled by themselves and have the name."""
    name = re.escape(syntax.plain_name(demangled(symbol)))
    head = re.compile(rf"__(?:global|device|constant)__[^;{{}}]*?\b{name}\s*[(=;\[]", re.DOTALL)
    texts, included = _below_tree(tree)
    defining = {path for path, text in texts.items() if head.search(text)}
    found, new = set(defining), defining
    while new:
        names = {path.name for path in new}
        new = {path for path in included.keys() - found if not names.isdisjoint(included[path])}
        found |= new

    def order(path: Path) -> tuple[bool, bool, bool, Path]:
        return path.suffix == ".cuh", path not in defining, re.search(rf"\b{name}\b", texts.get(path, "")) is None, path

    return [Translation(path.resolve()) for path in sorted(found, key=order) if path.suffix in SUFFIXES]


@lru_cache(maxsize=1)
def _below_tree(tree: Path) -> tuple[dict[Path, str], dict[Path, frozenset[str]]]:
    """Of a folder's files of C++ the texts that have device code or launch it, and for each the names, without their
    folders, of the files that it includes. Read once for all kernels."""
    files = (path for path in tree.rglob("*") if path.suffix in (*SUFFIXES, *_HEADERS) and path.is_file())
    texts, included = dict[Path, str](), dict[Path, frozenset[str]]()
    for path in files:
        text = path.read_text("utf-8", "replace")
        included[path] = frozenset(PurePosixPath(name).name for name in _INCLUDE.findall(text))
        if _DEVICE_CODE.search(text):
            texts[path] = text
    return texts, included


def meant(words: Sequence[str], folder: Path) -> Iterator[str]:
    """The flags that say what device code means, with absolute paths; those of linkers and hosts are left out."""
    rest = iter(words)
    for word in rest:
        option = next((name for name in _NAMES_PATH if word.startswith(name)), "")
        if option:
            path = word.removeprefix(option).removeprefix("=") or next(rest, "")
            yield f"{option}={os.path.normpath(folder / path)}"
        elif word in ("-D", "-U"):
            yield word + next(rest, "")
        elif _MEANT.fullmatch(word):
            yield word


# -- one kernel -------------------------------------------------------------------------------------------------------


def find(
    symbol: str, candidates: Sequence[Translation], top: Path, tree: Path | None = None
) -> tuple[Found | None, str]:
    """The kernel's source from the first translation unit that defines it, and why none does where none does.

    After the candidates the sources of a ``tree`` are looked at. ``top`` is the repository: sources below it are named
    relative to it.
    """
    reasons = []
    for translation in _defining(symbol, candidates, tree):
        try:
            if symbol in frontend.kernels(compiled(translation).typed_ir):
                return found_in(*_whole(symbol, translation, candidates, tree), symbol=symbol, top=top), ""
        except (BuildError, RecordError) as failure:
            reasons.append(f"{translation.main.name}: {failure}")
    return None, "; ".join(reasons) or "no source that was given defines it"


def _defining(symbol: str, candidates: Sequence[Translation], tree: Path | None) -> Iterator[Translation]:
    """Where to look: first the candidates whose own text has the name, since each that is looked at is compiled."""
    name = syntax.plain_name(demangled(symbol))
    yield from sorted(candidates, key=lambda each: not _mentions(each.main, name))
    yield from in_tree(tree, symbol) if tree is not None else ()


def _mentions(path: Path, name: str) -> bool:
    return path.is_file() and name in path.read_text("utf-8", "replace")


def _whole(symbol: str, first: Translation, candidates: Sequence[Translation], tree: Path | None) -> list[Unit]:
    """A kernel's translation unit with those that define what it only declares (nvcc -rdc=true), below one root."""
    chosen = [first]
    while missing := irtext.undefined([compiled(each).typed_ir for each in chosen], symbol):
        others = (each for each in _defining(missing[0], candidates, tree) if each not in chosen)
        more = next((each for each in others if irtext.defines(compiled(each).typed_ir, missing[0])), None)
        if more is None:
            raise RecordError(f"it needs {missing[0]}, which no source that was given defines")
        chosen.append(more)
    if len(chosen) == 1:
        return [compiled(first)]
    root = Path(os.path.commonpath([_root(each) for each in chosen]))
    return [compiled(each, root) for each in chosen]


@dataclass(frozen=True)
class Unit:
    """A translation unit, compiled: paths relative to ``root``."""

    root: Path
    main: str
    flags: tuple[str, ...]
    texts: dict[str, str]
    typed_ir: str

    @cached_property
    def ir(self) -> str:
        """What a capture keeps: without what tells types and lines. Compiled once for all kernels of the unit."""
        return frontend.compile_ir(self.texts, self.main, flags=self.flags, timeout_s=_TIMEOUT_S)


@lru_cache(maxsize=64)
def compiled(translation: Translation, root: Path | None = None) -> Unit:
    """With CUDA's own headers or, where they are not here, with the prelude, which files of device code alone take."""
    root, lack = root or _root(translation), toolkit.missing()
    main = translation.main.relative_to(root).as_posix()
    flags = (*_relative(translation.flags, root), *(() if lack else (toolkit.FLAG,)))
    try:
        texts = _texts(root, frontend.included(root, main, flags))
        ir = frontend.compile_ir(texts, main, flags=flags, debug=True, timeout_s=_TIMEOUT_S)
    except BuildError as failure:
        if not lack:
            raise
        raise RecordError(f"{failure}; {lack}") from failure
    return Unit(root, main, flags, texts, ir)


def found_in(unit: Unit, *others: Unit, symbol: str, top: Path) -> Found:
    """What a capture holds of a kernel that a unit defines, with others that are linked to it."""
    texts = {path: text for each in (*others, unit) for path, text in each.texts.items()}
    name = frontend.readable_name(unit.typed_ir, symbol)
    source = Source(
        root=_below(unit.root, top),
        main=unit.main,
        span=syntax.span_of(unit.texts[unit.main], syntax.scoped_name(name)),
        files=tuple((path, store.text_sha256(text)) for path, text in texts.items()),
        flags=unit.flags,
        linked=tuple((each.main, each.flags) for each in others),
    )
    irs = [each.ir for each in (unit, *others)]
    ir = codegen.linked(irs[0], irs[1:]) if others else irs[0]
    return Found(name, frontend.parameters(unit.typed_ir, symbol), source, texts, ir)


def _root(translation: Translation) -> Path:
    """The folder that holds the main file, every folder of headers that is not the system's, and what is included in
    quotes from other folders of the checkout."""
    paths = [translation.main.parent, *(path.parent for path in _quoted(translation.main))]
    for flag in translation.flags:
        option, _, path = flag.partition("=")
        if option in _NAMES_PATH and not path.startswith(_SYSTEM):
            paths.append(Path(path) if option != "-include" else Path(path).parent)
    return Path(os.path.commonpath(paths))


def _quoted(main: Path) -> set[Path]:
    """The files of its checkout that a file includes in quotes, beside itself, and what those include so."""
    top, found, pending = worktree.checkout(main), set[Path](), [main]
    while pending and top is not None:
        includer = pending.pop()
        names = worktree.INCLUDE.findall(includer.read_text("utf-8", "replace"))
        paths = {Path(os.path.normpath(includer.parent / name)) for name in names} - found
        pending += (new := [path for path in paths if path.is_relative_to(top) and path.is_file()])
        found.update(new)
    return found


def _relative(flags: Sequence[str], root: Path) -> Iterator[str]:
    """Flags with paths relative to the root; folders of the system are looked into anyway."""
    for flag in flags:
        option, _, path = flag.partition("=")
        if option not in _NAMES_PATH:
            yield flag
        elif Path(path).is_relative_to(root):
            yield f"{option}={PurePosixPath(Path(path).relative_to(root).as_posix())}"


def _texts(root: Path, paths: Sequence[str]) -> dict[str, str]:
    try:
        return {path: (root / path).read_bytes().decode() for path in paths}  # with their own ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"a source file below {root} cannot be read as UTF-8 text: {error}") from error


def _below(root: Path, top: Path) -> str:
    """Where the root lies in the repository; empty where it does not."""
    relative = root.relative_to(top).as_posix() if root.is_relative_to(top) else "."
    return "" if relative == "." else relative
