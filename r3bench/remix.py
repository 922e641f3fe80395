"""Capture and change make a build request and a launch. Pure: no input, no output.

It also says which block shapes a kernel may run with. A kernel is *block-shape-agnostic* when all it does with its
place in the grid is ``blockIdx * blockDim + threadIdx`` per axis, with no shared memory, barrier, warp collective or
``gridDim``: then any block shape with at least as many threads per axis computes the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from r3bench import ptxtext
from r3bench.errors import CaptureError
from r3bench.model import Capture, Configuration, Dim3, LaunchConfig, ReplayUnit, Target, Variant
from r3bench.space import UnitFacts, unit_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """Everything that decides a binary: source texts by path, flags, kernel, target, configuration and facts.

    ``linked`` names further translation units, each with its flags, that define what ``main`` only declares.

    ``checked`` asks for code that checks every access to memory and says where in the source it was; for a CPU only.
    ``padded`` asks for another binary of equal work, to time against the one without.
    """

    files: tuple[tuple[str, str], ...]
    main: str
    flags: tuple[str, ...]
    symbol: str
    target: Target
    configuration: Configuration
    facts: UnitFacts
    linked: tuple[tuple[str, tuple[str, ...]], ...] = ()
    checked: bool = False
    padded: bool = False


def launch_for(unit: ReplayUnit, variant: Variant) -> LaunchConfig:
    """The launch of a variant on a unit: as recorded, or by the variant's rule."""
    return variant.launch.apply(unit.launch) if variant.launch else unit.launch


def build_request(
    capture: Capture, texts: Mapping[str, str], unit: ReplayUnit, variant: Variant, target: Target
) -> BuildRequest:
    """What to build for a variant on a unit: ``texts`` by path, with the variant's own texts in their place.

    CaptureError where the capture holds no source, or the texts do not include the main file.
    """
    source = capture.source
    if source is None:
        raise CaptureError(
            f"{capture.path} holds no source of {capture.symbol}, so it cannot be rebuilt; record it again"
        )
    files = {**texts, **dict(variant.files or ())}
    if source.main not in files:
        raise CaptureError(f"{capture.path} names {source.main} as the source of {capture.symbol}, which is missing")
    configuration = variant.configuration or Configuration()
    added = ("-use_fast_math",) if configuration.fast_math else ()
    return BuildRequest(
        files=tuple(sorted(files.items())),
        main=source.main,
        flags=(*source.flags, *added),
        linked=tuple((main, (*flags, *added)) for main, flags in source.linked),
        symbol=capture.symbol,
        target=target,
        configuration=configuration,
        facts=unit_facts(capture.parameters, unit, launch_for(unit, variant)),
    )


# -- which block shapes are legal -----------------------------------------------------------------------------------

MAX_THREADS = 1024
WARP = 32

_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_SPACE = re.compile(r"\s*([^\w\s])\s*")
_CAST = re.compile(
    r"\((?:unsigned|signed|int|long|short|size_t|u?int(?:32|64)_t)(?:\s+(?:int|long))*\)(?=\(*(?:block|thread))"
)
_ROUND_ONE = re.compile(r"(?<!\w)\(((?:block|thread)\w+\.[xyz])\)")
_BEFORE, _AFTER = r"(?<![-*/%])", r"(?![*/%])"
_PRODUCT = re.compile(rf"{_BEFORE}(?:blockIdx\.([xyz])\*blockDim\.\1|blockDim\.([xyz])\*blockIdx\.\2){_AFTER}")
_ROUND_PRODUCT = re.compile(r"(?<!\w)\((r3_product_[xyz])\)")
_SUM = re.compile(rf"{_BEFORE}(?:r3_product_([xyz])\+threadIdx\.\1|threadIdx\.([xyz])\+r3_product_\2)\b{_AFTER}")
_FORBIDDEN = re.compile(
    r"\b(threadIdx|blockIdx|blockDim|gridDim|warpSize|__shared__|__syncthreads\w*|__syncwarp|__\w+_sync|__activemask"
    r"|__nvvm_\w+|__builtin_nvptx\w*|cooperative_groups|asm|__asm__|r3_product_[xyz])\b"
)
_BOUNDS = re.compile(r"__launch_bounds__\s*\(([^()]*)\)")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\\n|\\.)*)", re.MULTILINE)
_BRACE = re.compile(r"\s*(?:const|noexcept|->\s*\w+)?\s*\{")
_BRACKETS = {"()": re.compile(r"[()]"), "{}": re.compile(r"[{}]")}
_FUNCTION = re.compile(r"\b(?!(?:if|for|while|switch|catch)\b)(\w+)\s*\(")


def legal_blocks(capture: Capture, unit: ReplayUnit, texts: Mapping[str, str]) -> tuple[Dim3, ...]:
    """Block shapes this kernel may run with, the recorded one first; only that one where in doubt."""
    recorded = unit.launch.block
    if unit.launch.shared_bytes or unit.launch.cooperative or unit.launch.cluster:
        return (recorded,)
    limit = _block_limit(capture, texts)
    return (recorded, *(block for block in _shapes(unit.launch) if prod(block) <= limit and block != recorded))


def _block_limit(capture: Capture, texts: Mapping[str, str]) -> int:
    """Threads of the largest block that the kernel may have, 0 where none but the recorded one will do."""
    if capture.source is not None and capture.source.language == "ptx":
        return ptxtext.block_limit(texts[capture.source.main], capture.symbol)
    if capture.lacks:
        return 0
    text = "\n".join(_COMMENT_OR_TEXT.sub(" ", text) for text in texts.values())
    name = _plain_name(capture)
    return _thread_limit(text, name) if _agnostic(text, name) else 0


def _plain_name(capture: Capture) -> str:
    """The kernel's own name: ``kernel`` of ``void ns::kernel<double>(double*)``."""
    head = capture.demangled.split("(")[0].split("<")[0]
    return re.split(r"\s|::", head.strip())[-1]


def _agnostic(text: str, kernel: str) -> bool:
    bodies = list(_reachable(text, kernel))
    return bool(bodies) and all(_is_agnostic(body) for body in bodies)


@lru_cache(maxsize=256)
def _is_agnostic(body: str) -> bool:
    statements = (statement for statement in body.split(";") if _FORBIDDEN.search(statement))  # few: the rest is slow
    return _FORBIDDEN.search(_without_global_index(";".join(statements))) is None


def _without_global_index(body: str) -> str:
    """The text without ``blockIdx.a * blockDim.a + threadIdx.a``, in any order and with casts."""
    body = _ROUND_ONE.sub(r"\1", _CAST.sub("", _SPACE.sub(r"\1", body)))
    body = _PRODUCT.sub(lambda match: f"r3_product_{match[1] or match[2]}", body)
    return _SUM.sub("0", _ROUND_PRODUCT.sub(r"\1", body))


def _reachable(text: str, kernel: str) -> Iterator[str]:
    """The definition of the kernel and of everything it names that is defined here: functions, macros, variables.

    Without a definition of the kernel there is nothing.
    """
    macros, lists = list(_MACRO.finditer(text)), _lists(text)
    defined = {*lists, *(macro[1] for macro in macros)}
    waiting, seen = [kernel], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        bodies = (_body_after(text, place) for place in lists.get(name, ()))
        for body in (*(macro[2] for macro in macros if macro[1] == name), *filter(None, bodies)):
            yield body
            waiting += [named for named in _names(body) if named in defined]


@lru_cache(maxsize=256)
def _names(body: str) -> tuple[str, ...]:
    """The names in a text, each once."""
    return tuple(dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*\b", body)))


def _lists(text: str) -> Mapping[str, list[int]]:
    """Where parameters of definitions open, by name; overloads, and branches of an #if, share one."""
    found: dict[str, list[int]] = {}
    start, end = 0, "\n}\n"
    for part in text.split(end):
        for name, place in _lists_of(part):
            found.setdefault(name, []).append(start + place)
        start += len(part) + len(end)
    return found


@lru_cache(maxsize=1024)
def _lists_of(part: str) -> Sequence[tuple[str, int]]:
    """As far as a part of a text says; most parts are those of other texts, too, and known."""
    found = []
    for match in _FUNCTION.finditer(part):
        end = _closing(part, match.end() - 1, "()")
        if end == len(part) or _BRACE.match(part, end):
            found.append((match[1], match.end() - 1))
    return found


def _body_after(text: str, opening: int) -> str | None:
    """The braces that follow a parameter list at once, as those of a definition do."""
    end = _closing(text, opening, "()")
    brace = _BRACE.match(text, end)
    return text[end : _closing(text, brace.end() - 1, "{}")] if brace else None


def _closing(text: str, opening: int, pair: str) -> int:
    """The index after the bracket that closes the one at ``opening``; the end of the text where none does."""
    depth = 0
    for match in _BRACKETS[pair].finditer(text, opening):
        depth += 1 if match[0] == pair[0] else -1
        if depth == 0:
            return match.end()
    return len(text)


def _thread_limit(text: str, kernel: str) -> int:
    """The kernel's __launch_bounds__ where it is a number; no other block where it is an expression."""
    limit = MAX_THREADS
    for bounds in re.finditer(_BOUNDS.pattern + rf"[^{{;]*\b{re.escape(kernel)}\s*\(", text):
        first = bounds[1].split(",")[0].strip()
        limit = min(limit, int(first) if first.isdigit() else 0)
    return limit


@lru_cache
def _shapes(recorded: LaunchConfig) -> Sequence[Dim3]:
    """Power-of-two shapes of whole warps along the axes in use, no axis much longer than its threads.

    One warp alone, and rows shorter than half a warp, are left out where the launch is larger: they win nothing.
    """
    threads = [g * b for g, b in zip(recorded.grid, recorded.block, strict=True)]
    longest = [1 << (n - 1).bit_length() for n in threads]
    fewest = min(2 * WARP, prod(longest))
    axes = (_powers(min(n, most)) for n, most in zip(longest, (MAX_THREADS, 32, 8), strict=True))
    shapes = ((x, y, z) for z, y, x in product(*reversed(list(axes))) if x >= min(WARP // 2, longest[0]))
    return [shape for shape in shapes if prod(shape) % WARP == 0 and fewest <= prod(shape) <= MAX_THREADS]


def _powers(largest: int) -> Sequence[int]:
    return [1 << exponent for exponent in range(largest.bit_length())]
