"""Prompts whose beginning a model's server knows already: static text, programs by longest known prefix, news last.

A program is printed once in a prompt, under its id, byte for byte the same all its life. The order of the programs is
chosen so that the prompt begins like an earlier one for as long as possible; which programs are shown is never changed
by that. The parent is named after them, with scores, its line of descent and what failed: only this differs each time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import takewhile
from typing import Any

from r3bench.evolve.archive import Draw
from r3bench.evolve.brief import Brief
from r3bench.evolve.opened import definitions
from r3bench.evolve.program import Program

Message = Mapping[str, Any]

REMEMBERED = 24  # orders of earlier prompts: about as many as a server's cache of 64k tokens still holds
BUDGET = 8_000  # tokens: what is longer is cached worse, and read worse
_DETAIL = 300  # characters of what went wrong with a program


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question: ``static`` text, ``programs`` (id and text) in their order, and the ``tail`` that is new each time.

    ``turn`` is 0, or 1 where an earlier answer is to be repaired; ``dialogue`` then holds that answer and what is wrong
    with it. ``known`` counts the leading programs that an earlier prompt showed in the same order, ``asked`` earlier
    prompts for the same ``parent``.
    """

    brief: Brief
    step: int
    parent: Program
    programs: tuple[tuple[str, str], ...]
    tail: str
    known: int = 0
    asked: int = 0
    dialogue: tuple[str, str] | None = None

    @property
    def kernel(self) -> str:
        return self.brief.kernel

    @property
    def static(self) -> str:
        return self.brief.static

    @property
    def turn(self) -> int:
        return int(self.dialogue is not None)

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids of the programs in it, in their order."""
        return tuple(name for name, _ in self.programs)

    @property
    def question(self) -> str:
        """All but the static part, and but for a repair."""
        return "".join(text for _, text in self.programs) + self.tail

    @property
    def text(self) -> str:
        """Everything, as one text."""
        return "\n".join((self.static + self.question, *(self.dialogue or ())))

    @property
    def sha256(self) -> str:
        return sha256(self.text.encode()).hexdigest()

    @property
    def tokens(self) -> int:
        """About how many tokens it has."""
        return token_count(self.text)

    def messages(self, *, marked: bool = False) -> list[Message]:
        """As a chat. ``marked`` puts ``cache_control`` where a provider is to keep the beginning: behind the static
        part, behind the programs that it knows, and behind all programs."""
        system: Message = {"role": "system", "content": [_part(self.static, marked)] if marked else self.static}
        user: Message = {"role": "user", "content": list(self._parts()) if marked else self.question}
        answer, trouble = self.dialogue or ("", "")
        turns = [{"role": "assistant", "content": answer}, {"role": "user", "content": trouble}]
        return [system, user, *(turns if self.dialogue else ())]

    def _parts(self) -> Iterator[Message]:
        for some in (self.programs[: self.known], self.programs[self.known :]):
            if some:
                yield _part("".join(text for _, text in some), True)
        yield _part(self.tail, False)

    def repaired(self, answer: str, trouble: str) -> Prompt:
        """The same question with an answer to it and what a compiler or the verifier said, to be put right."""
        request = f"{trouble.strip()}\n\nPut this right. Answer in the same form, in full.\n"
        return replace(self, dialogue=(answer, request))


def _part(text: str, mark: bool) -> Message:
    part = {"type": "text", "text": text}
    return part | {"cache_control": {"type": "ephemeral"}} if mark else part


def token_count(text: str) -> int:
    """About how many tokens a text has: code takes some 3 bytes each."""
    return -(-len(text.encode(errors="replace")) // 3)


class Prompter:
    """Builds the prompts of one kernel's search, and remembers in which orders it showed programs.

    ``budget`` is the most tokens of a prompt, as :func:`token_count` counts; the parent is shown whatever it takes.
    """

    def __init__(self, brief: Brief, *, budget: int = BUDGET) -> None:
        self.brief = brief
        self.budget = budget
        self._orders: deque[tuple[str, ...]] = deque(maxlen=REMEMBERED)
        self._blocks: dict[str, str] = {}
        self._parents: Counter[str] = Counter()

    def build(self, draw: Draw) -> Prompt:
        """The prompt of one step; from one thread only, in the order of the steps."""
        chosen = self.chosen(draw)
        known, order = self._order({program.id: program for program in chosen if self._block(program)})
        self._orders.append(tuple(program.id for program in order))
        self._parents[draw.parent.id] += 1
        return Prompt(
            brief=self.brief,
            step=draw.step,
            parent=draw.parent,
            programs=tuple((program.id, self._block(program)) for program in order),
            tail=_tail(draw, chosen),
            known=known,
            asked=self._parents[draw.parent.id] - 1,
        )

    def chosen(self, draw: Draw) -> tuple[Program, ...]:
        """The parent and the others as far as they fit, each once: a matter of the draw and of the budget alone."""
        left = self.budget - token_count(self.brief.static) - token_count(_tail(draw, (draw.parent, *draw.others)))
        chosen: dict[str, Program] = {}
        for program in (draw.parent, *draw.others):
            cost = token_count(self._block(program))
            if program is draw.parent or (program.id not in chosen and cost <= left):
                chosen[program.id] = program
                left -= cost
        return tuple(chosen.values())

    def _block(self, program: Program) -> str:
        """What a program changes of the first one, which the static part shows; nothing for that one itself."""
        if program.id not in self._blocks:
            texts = (text for _, file in program.files for text, _ in definitions(file))
            code = "\n\n".join(text for text in texts if text not in self.brief.first)
            head = f"# Program {program.id}\n\n{_launch(program)}```cuda\n"
            self._blocks[program.id] = f"{head}{code}\n```\n\n" if code else ""
        return self._blocks[program.id]

    def _order(self, programs: Mapping[str, Program]) -> tuple[int, list[Program]]:
        """How many programs begin it as in an earlier prompt, and all of them: the best, which last, come next."""
        prefixes = (tuple(takewhile(programs.__contains__, order)) for order in self._orders)
        prefix = max(prefixes, key=lambda ids: sum(len(self._block(programs[i])) for i in ids), default=())
        rest = sorted((p for p in programs.values() if p.id not in prefix), key=_best_first)
        return len(prefix), [*(programs[i] for i in prefix), *rest]


# -- the tail ---------------------------------------------------------------------------------------------------------


def _launch(program: Program) -> str:
    rule = program.launch
    if rule is None:
        return ""
    block, work = ("x".join(str(n) for n in shape) for shape in (rule.block, rule.per_thread))
    return f"LAUNCH: block={block} per_thread={work}\n"


def _tail(draw: Draw, shown: Sequence[Program]) -> str:
    parts = (
        ("# Speedups over the recorded kernel", (f"{p.id}: {_gain(p)}" for p in sorted(shown, key=_best_first))),
        (f"# How {draw.parent.id} came to be", _descent(draw)),
        ("# Tried and failed", (_failure(program) for program in draw.failures)),
    )
    lists = (_list(head, lines) for head, lines in parts)
    return "".join(lists) + f"Improve program {draw.parent.id}.\n"


def _list(head: str, lines: Iterable[str]) -> str:
    listed = "".join(f"- {line}\n" for line in lines)
    return f"{head}\n\n{listed}\n" if listed else ""


def _best_first(program: Program) -> tuple[float, str]:
    return -(program.speedup or 0.0), program.id


def _gain(program: Program) -> str:
    return f"{program.speedup:.2f}x" if program.speedup is not None else program.status


def _descent(draw: Draw) -> Iterator[str]:
    line = (*draw.line, draw.parent)
    for before, program in zip((None, *line), line, strict=False):
        gained = f", from {_gain(before)}" if before is not None else ""
        if program.parent is not None:
            change = program.description or program.origin
            yield f"{program.id} of {program.parent}: {change} ({_gain(program)}{gained})"


def _failure(program: Program) -> str:
    tried = f"{program.description or program.origin}, made of {program.parent}"
    return f"{tried}: {program.status}, because {' '.join(program.detail.split())[:_DETAIL]}"
