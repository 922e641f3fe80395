"""How much of the prompts of a search a server's prefix cache would hold.

A search of 200 steps (4 islands of 20) on a made-up cost model, its texts made by the rules from one of miniweather's
kernels; the prompts go, in order, through a model of a prefix cache: blocks of 16 tokens, each known by all that stands
before it, 64k tokens, the least recently used ones dropped. Prints what part of the prompts' tokens was in it, as the
prompts are and with the programs in the order in which they were drawn. Run: python -m tests.benchmarks.prefix_cache
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from random import Random

from r3bench import store
from r3bench.errors import BadReply, ModelError
from r3bench.evolve.archive import Archive
from r3bench.evolve.brief import Brief, brief
from r3bench.evolve.edits import revised
from r3bench.evolve.program import Program
from r3bench.evolve.prompt import Prompt, Prompter
from r3bench.evolve.propose import open_proposers
from r3bench.model import Target

BLOCK, CAPACITY = 16, 65_536
STEPS, ISLANDS, POPULATION, MIGRATION = 200, 4, 20, 20
CAPTURES = Path(__file__).parents[2] / "captures" / "miniweather"
_TOKEN = re.compile(r"\s?[A-Za-z_]{1,7}|\d{1,3}|\s+|[^\w\s]")


@dataclass
class PrefixCache:
    """Counts the tokens of prompts, and those in blocks that it had."""

    blocks: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    tokens: int = 0
    cached: int = 0

    def ask(self, text: str) -> None:
        words = _TOKEN.findall(text)
        self.tokens += len(words)
        known, key = True, b""
        for start in range(0, len(words) - BLOCK + 1, BLOCK):
            key = sha256(key + "".join(words[start : start + BLOCK]).encode()).digest()
            known = known and key in self.blocks
            self.cached += BLOCK * known
            self.blocks[key] = None
            self.blocks.move_to_end(key)
        while len(self.blocks) > CAPACITY // BLOCK:
            self.blocks.popitem(last=False)

    @property
    def rate(self) -> float:
        return self.cached / self.tokens


def searched(about: Brief, texts: dict[str, str], seed: int) -> Iterable[tuple[Prompt, tuple[str, ...]]]:
    """The prompts of a simulated search, each with the ids of its programs in the order drawn."""
    random = Random(seed)
    first = Program(id="p0", files=tuple(sorted(texts.items())), speedup=1.0, cell=(0, 0))
    archive = Archive(first, islands=ISLANDS, population=POPULATION, migrate=MIGRATION, seed=seed)
    prompter, proposer = Prompter(about), open_proposers("rules", seed=seed)
    for step in range(1, STEPS + 1):
        draw = archive.draw(step)
        prompt = prompter.build(draw)
        yield prompt, tuple(program.id for program in prompter.chosen(draw))
        program = Program(id=f"p{step}", files=(), parent=draw.parent.id, status="refused", step=step)
        try:
            made = revised(proposer.propose(prompt).text, dict(draw.parent.files), about.file, about.name)
        except (BadReply, ModelError) as error:
            program = replace(program, detail=str(error))
        else:
            program = _judged(replace(program, files=made.files, description=made.description), draw.parent, random)
        archive.add(program, draw)
        archive.migrate(step)


def _judged(program: Program, parent: Program, random: Random) -> Program:
    """One in four fails; the others gain or lose a little, and land in some cell."""
    if random.random() < 0.25:
        return replace(program, status="failed", detail="mismatch: out differs in 31 of 4096 elements, first at [3]")
    gain = (parent.speedup or 1.0) * random.lognormvariate(0.0, 0.1)
    return replace(program, status="matched", speedup=gain, cell=(random.randrange(8), random.randrange(8)))


def rates(kernel: str, seed: int) -> tuple[float, float, int]:
    """Part of the tokens in the cache: ordered, as drawn; and tokens of a prompt."""
    capture = store.open_capture(CAPTURES / f"{kernel}.zarr")
    texts = store.sources(capture)
    about = brief(capture, texts, Target(device="cuda", arch="sm_90"), baseline_ns=10_000.0)
    ordered, drawn = PrefixCache(), PrefixCache()
    for prompt, ids in searched(about, texts, seed):
        ordered.ask(prompt.text)
        blocks = dict(prompt.programs)
        drawn.ask(prompt.static + "".join(blocks.get(i, "") for i in ids) + prompt.tail)
    return ordered.rate, drawn.rate, ordered.tokens // STEPS


def main() -> None:
    for kernel in ("tendencies_x", "initial_state"):
        for seed in (0, 1):
            ordered, drawn, size = rates(kernel, seed)
            print(f"{kernel} seed {seed}: {ordered:.1%} of {size} tokens a prompt cached, as drawn {drawn:.1%}")


if __name__ == "__main__":
    main()
