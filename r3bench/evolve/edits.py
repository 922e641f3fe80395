"""From a model's answer to new source files.

An answer is either a code block with the open functions in full, or SEARCH/REPLACE blocks on them. Functions are put
back where they were by name, new ones go in front of the one that follows them in the answer; nothing else of a file
can change, so what an answer repeats of the surroundings is left out and what it would change there is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import prod
from textwrap import shorten

from r3bench.errors import BadReply, BuildError
from r3bench.evolve.opened import FILE_LINE, Item, definitions, opened, parameters, shown, span, whole
from r3bench.model import Dim3, LaunchRule
from r3bench.syntax import (
    Edit,
    Function,
    Node,
    apply,
    captured,
    find_kernel,
    functions,
    parse,
    text_of,
    tokens,
    walk,
)

MOST_BYTES = 100_000
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^<{5,9} ?SEARCH[ \t]*\n(.*?)^={5,9}[ \t]*\n(.*?)^>{5,9} ?REPLACE", re.DOTALL | re.MULTILINE)
_CHANGE = re.compile(r"^[*_# ]*CHANGE[*_ ]*:[*_ ]*(.+)$", re.IGNORECASE | re.MULTILINE)
_LAUNCH = re.compile(
    r"^[*_ ]*LAUNCH[*_ ]*:[*_ ]*block\s*=\s*(\d+x\d+x\d+)(?:[,;\s]+per_thread\s*=\s*(\d+x\d+x\d+))?",
    re.IGNORECASE | re.MULTILINE,
)
_PRINTS = frozenset(("printf", "vprintf", "fprintf", "puts", "putchar", "fputs"))
# What the preprocessor and the compiler say of themselves, the machine and the file: other values elsewhere.
_PREDEFINED = re.compile(
    r"__(?:[A-Z]\w*|has_\w+|clang\w*|nvptx\w*|amdgcn\w*|hip\w*|gnu_linux\w*|linux\w*|unix\w*|x86_64\w*|i386\w*|func__|"
    r"cplusplus|pragma|is_identifier|builtin_(?:FILE|LINE|COLUMN|FUNCTION|source_location|constant_p|"
    r"is_constant_evaluated))|_Pragma|linux|unix|source_location|is_constant_evaluated|consteval"
)
_INCLUDE = re.compile(r"#\s*include")
_UNROLL = re.compile(r"#\s*pragma\s+(?:no)?unroll\b")
_SENTENCE = 600  # characters of a description; a chain of rules needs some


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What an answer comes to: whole texts by path, the launch they ask for (None: as recorded), what was changed."""

    files: tuple[tuple[str, str], ...]
    launch: LaunchRule | None
    description: str


def revised(
    answer: str, files: Mapping[str, str], file: str, kernel: str, launch: LaunchRule | None = None
) -> Revision:
    """The texts that an answer makes of these files, which run under ``launch`` if the answer does not ask for another.

    ``file`` is the one that defines the kernel.

    BadReply, with a reason by name, where it makes none of them.
    """
    if not answer.strip():
        raise BadReply("empty", "the answer is empty")
    if (nbytes := len(answer.encode(errors="surrogatepass"))) > MOST_BYTES:
        raise BadReply("too large", f"the answer has {nbytes} bytes; at most {MOST_BYTES} are read")
    items = opened(files, file, kernel)
    text = _edited(answer, shown(items)) if _BLOCK.search(answer) else _code(answer, items)
    if "\N{REPLACEMENT CHARACTER}" in text:
        raise BadReply("not UTF-8", "the code is not UTF-8 text")
    splice, asked = _Splice(files, kernel, items), _launch(answer) or launch
    changed = splice.put(text)
    if asked == launch and not splice.changes:
        raise BadReply("nothing changed", "the code is the one that it was made from")
    return Revision(files=tuple(sorted(changed.items())), launch=asked, description=_description(answer))


# -- what the answer says ---------------------------------------------------------------------------------------------


def _description(answer: str) -> str:
    """The line ``CHANGE: ...``, or else the first line outside the code."""
    found = _CHANGE.search(answer)
    return shorten((found[1] if found else _prose(answer)).rstrip("*_ "), _SENTENCE, placeholder=" ...")


def _prose(answer: str) -> str:
    lines = (line.strip(" #*_") for line in _FENCE.sub("", _BLOCK.sub("", answer)).splitlines())
    return next((line for line in lines if line and not _LAUNCH.match(line)), "")


def _launch(answer: str) -> LaunchRule | None:
    found = _LAUNCH.search(answer)
    if found is None:
        return None
    block, per_thread = _dim3(found[1]), _dim3(found[2] or "1x1x1")
    if not 0 < prod(block) <= 1024 or not 0 < prod(per_thread) <= 1024:
        raise BadReply("impossible launch", f"a block of {found[1]} threads cannot be launched")
    return LaunchRule(block=block, per_thread=per_thread)


def _dim3(text: str) -> Dim3:
    x, y, z = (int(n) for n in text.split("x"))
    return x, y, z


def _code(answer: str, items: Sequence[Item]) -> str:
    """The last code block that defines an open function, or a kernel at all."""
    blocks = [match[2].strip("\n") for match in _FENCE.finditer(answer)]
    if not blocks:
        cut = re.search(r"^[ \t]*(`{3,}|~{3,})", answer, re.MULTILINE)
        reason, what = ("unfinished", "the code block does not end") if cut else ("no code block", "it is only prose")
        raise BadReply(reason, f"the answer has no whole code block: {what}")
    for block in blocks:
        parse(block, shown(items).strip("\n"))
    names = {item.name for item in items}
    fitting = [b for b in blocks if any(f.name in names or f.kernel for f in functions(b))]
    if not fitting:
        kernel = next(item.name for item in items if item.kernel)
        raise BadReply("no kernel", f"no code block of the answer defines {kernel} or a function that it calls")
    return fitting[-1]


# -- search and replace -----------------------------------------------------------------------------------------------


def _edited(answer: str, text: str) -> str:
    for match in _BLOCK.finditer(answer):
        text = replaced(text, match[1], match[2])
    return text


def replaced(text: str, search: str, replace: str) -> str:
    """Replace the one place that spells ``search``, as written or but for white space and empty lines.

    BadReply where there is none or more than one.
    """
    for old, new in ((search, replace), (search.strip(), replace.strip())):
        if old.strip() and text.count(old) == 1:
            return text.replace(old, new)
    lines = text.splitlines(keepends=True)
    places = list(_places(lines, [_bare(line) for line in search.splitlines() if line.strip()]))
    if len(places) != 1:
        first = next((line.strip() for line in search.splitlines() if line.strip()), "")
        reason = "edit is ambiguous" if places else "edit does not match"
        raise BadReply(
            reason, f"the SEARCH block that begins {first!r} fits {len(places)} places of the open functions"
        )
    start, end = places[0]
    given = next(line for line in search.splitlines() if line.strip())
    shift = _indent(lines[start])[len(_indent(given)) :] if lines[start].startswith(_indent(given)) else ""
    shifted = "".join((shift + line if line.strip() else line) + "\n" for line in replace.splitlines())
    return "".join(lines[:start]) + shifted + "".join(lines[end:])


def _places(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The spans of lines that spell the wanted ones, empty lines in between left aside."""
    filled = [(number, _bare(line)) for number, line in enumerate(lines) if line.strip()]
    for at in range(len(filled) - len(wanted) + 1):
        if wanted and all(filled[at + n][1] == line for n, line in enumerate(wanted)):
            yield filled[at][0], filled[at + len(wanted) - 1][0] + 1


def _bare(line: str) -> str:
    return re.sub(r"\s+", "", line)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


# -- putting functions back -------------------------------------------------------------------------------------------


class _Splice:
    """Puts the definitions of an answer into the files."""

    def __init__(self, files: Mapping[str, str], kernel: str, items: Sequence[Item]) -> None:
        self.files, self.kernel, self.items = files, kernel, items
        self.changes = False
        self.repeated, self.given = set[Item](), set[Item]()

    @cached_property
    def said(self) -> set[str]:
        """What the open functions ask the preprocessor or the compiler already."""
        return {token for item in self.items for token in _elsewhere(item.text)}

    @cached_property
    def known(self) -> frozenset[tuple[str, ...]]:
        """The tokens of every definition that the files hold."""
        return frozenset[tuple[str, ...]]().union(*map(_held, self.files.values()))

    def put(self, text: str) -> dict[str, str]:
        """The files with the text's definitions in them; ``changes`` then says whether that makes any other code."""
        edits: dict[str, list[Edit]] = {path: [] for path in self.files}
        waiting: list[str] = []
        text, places = _without_files(text)
        for definition, own in self._parts(text):
            item = self._item(own, definition, _place(places, own)) if own is not None else None
            if item is None:
                waiting += [definition] if self._is_new(definition, own) else []
                continue
            edits[item.path] += self._replaced(item, definition, waiting)
            waiting = []
        kernel = next(item for item in self.items if item.kernel)
        edits[kernel.path] += self._in_front(kernel, waiting)
        return {path: apply(text, edits[path]) for path, text in self.files.items()}

    def _replaced(self, item: Item, definition: str, new: Sequence[str]) -> list[Edit]:
        self._check(item, definition)
        if definition != item.text:
            definition = _ended_as(definition, self.files[item.path])
        self.changes = self.changes or _spelled(definition) != _spelled(item.text)
        front = self._in_front(item, new)
        (self.repeated if definition == item.text else self.given).add(item)
        return front if definition == item.text else [*front, Edit(item.start, item.end, definition)]

    def _in_front(self, item: Item, new: Sequence[str]) -> list[Edit]:
        own = self.files[item.path]
        return [Edit(item.start, item.start, _ended_as(f"{text}\n\n", own)) for text in new]

    def _parts(self, text: str) -> Iterator[tuple[str, Function | None]]:
        """Every definition of the answer with the comment above it, and the function that it defines."""
        found = list(definitions(text))
        by_place = {function.node.start_byte: function for function in functions(text)}
        if any(node.type == "ERROR" for _, node in found):
            yield self._kernel_alone(text)
            return
        for definition, node in found:
            yield definition, by_place.get(_inner(node).start_byte)

    def _kernel_alone(self, text: str) -> tuple[str, Function | None]:
        """Where the tree is lost outside the kernel, the kernel by its brackets."""
        try:
            own = find_kernel(text, self.kernel)
        except BuildError as error:
            raise BadReply(
                "not readable", "the code cannot be read as CUDA C++: brackets or names are amiss"
            ) from error
        start, end = span(own.node)
        return text.encode()[start:end].decode(), own

    def _item(self, function: Function, definition: str, place: str) -> Item | None:
        """The open function that a definition is of; BadReply where the answer has given that already.

        Of several with one name and types of parameters it is that of the file which the answer names, or whose text
        this is, or which the answer has not repeated yet, or which is the nearest to the kernel.
        """
        named = [item for item in self.items if item.name == function.name]
        if len(named) > 1:
            named = [item for item in named if item.parameters == parameters(function)]
        if not named or named[0].kernel != function.kernel:
            return None
        left = [item for item in reversed(named) if item not in self.given]
        if not left:
            raise BadReply("defined twice", f"the answer defines {function.name} more than once: give it once")
        return max(left, key=lambda item: (item.path == place, item.text == definition, item not in self.repeated))

    # -- what may not be --

    def _is_new(self, definition: str, own: Function | None) -> bool:
        """Whether a definition is to be added; what the files hold already is not. BadReply where it may not be."""
        _, node = next(definitions(definition), ("", None))
        if node is None or tokens(text_of(node)) in self.known:
            return False
        if own is not None and own.kernel:
            raise BadReply("wrong kernel", f"the answer defines the kernel {own.name}; only {self.kernel} is open")
        if own is not None and self._is_closed(own.name):
            raise BadReply("closed function", f"{own.name} is not open: only {self.kernel} and what it calls are")
        self._check_contents(definition)
        self.changes = True
        return True

    def _is_closed(self, name: str) -> bool:
        """Whether the files define a function that is not open."""
        taken = any(function.name == name for text in self.files.values() for function in functions(text))
        return taken and not any(item.name == name for item in self.items)

    def _check(self, item: Item, definition: str) -> None:
        if item.kernel and _signature(definition, self.kernel) != _signature(item.text, self.kernel):
            raise BadReply("changed signature", f"the parameters of {self.kernel} have to stay as they are")
        self._check_contents(definition)

    def _check_contents(self, definition: str) -> None:
        for node in captured(parse(definition), "(declaration) @found"):
            if _keeps_state(node):
                raise BadReply("keeps state", f"{text_of(node).splitlines()[0]}: nothing may outlive a launch")
        for token in _elsewhere(definition):
            if _INCLUDE.match(token):
                raise BadReply("includes a file", f"{shorten(token, 60)}: an answer may not include files")
            if token not in self.said:
                why = "what is compiled elsewhere would be other code than what is verified here"
                raise BadReply("asks the compiler", f"{shorten(token, 60)}: {why}")
        if _prints(definition) and not any(_prints(item.text) for item in self.items):
            raise BadReply("prints", "the code prints, which the kernel did not")


def _ended_as(text: str, file: str) -> str:
    """A text whose lines end as those of a file."""
    windows = 2 * file.count("\r\n") > file.count("\n")
    return re.sub(r"\r?\n", "\r\n" if windows else "\n", text)


def _without_files(text: str) -> tuple[str, list[tuple[int, str]]]:
    """A text without the lines that name files, and from which byte on it is of which file."""
    parts = FILE_LINE.split(text)
    starts = accumulate(len(part.encode()) for part in parts[::2])
    return "".join(parts[::2]), list(zip(starts, parts[1::2], strict=False))


def _place(places: Sequence[tuple[int, str]], function: Function) -> str:
    """The file that an answer names above a function; empty where it names none."""
    return next((path for start, path in reversed(places) if start <= function.node.start_byte), "")


@lru_cache(maxsize=64)
def _held(text: str) -> frozenset[tuple[str, ...]]:
    """The tokens of every definition in a text."""
    return frozenset(tokens(text_of(whole(node))) for _, node in definitions(text))


def _inner(node: Node) -> Node:
    """The function definition inside ``template <...>`` and ``extern "C"``."""
    return next((n for n in walk(node) if n.type == "function_definition"), node)


@lru_cache(maxsize=256)
def _prints(text: str) -> bool:
    if not any(name in text for name in _PRINTS):
        return False
    called = captured(parse(text), "(call_expression function: (_) @found)")
    return any(text_of(callee).removeprefix("std::") in _PRINTS for callee in called)


def _spelled(text: str) -> list[tuple[str, ...]]:
    """What a text says, by paragraph: most are another text's, too, and known."""
    return list(map(tokens, text.split("\n\n")))


def _elsewhere(text: str) -> Sequence[str]:
    """The tokens by which a text may be other code under another compiler, for another GPU or in another file."""
    return _telling(text) if any(map(_telling, text.split("\n\n"))) else ()  # a comment may have paragraphs, too


@lru_cache(maxsize=256)
def _telling(text: str) -> Sequence[str]:
    found = tokens(text)
    directive = "%" in found and ("%", ":") in pairwise(found)
    return [token for token in dict.fromkeys(found) if _tells(token) or (directive and token == "%")]


@lru_cache(maxsize=4096)
def _tells(token: str) -> bool:
    return (token.startswith("#") and not _UNROLL.match(token)) or _PREDEFINED.fullmatch(token) is not None


def _keeps_state(node: Node) -> bool:
    """Whether a declaration is that of a variable that lives on after the launch."""
    head = text_of(node).split("=")[0]
    fixed = re.search(r"\b(const|constexpr|__shared__)\b", head)
    top = node.parent is not None and node.parent.type == "translation_unit"
    lives = fixed is None and (top or re.search(r"\b(static|__device__|__managed__|extern)\b", head) is not None)
    return lives and not captured(node, "(function_declarator) @found")


def _signature(definition: str, kernel: str) -> tuple[str, ...]:
    """The tokens in front of a kernel's body but for what changes no parameter."""
    function = find_kernel(definition, kernel)
    start = span(function.node)[0]
    head = definition.encode()[start : function.body.start_byte].decode()
    plain = re.sub(r"\b__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)", " ", head)
    free = ("__restrict__", "__restrict", *(("const",) if 'extern "C"' in head else ()))
    return tuple(token for token in tokens(plain) if token not in free)
