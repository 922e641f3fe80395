"""Asking a proposer, through the ledger: what was answered before is not asked (or paid for) again."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from hashlib import sha256

from r3bench.errors import Exhausted, ModelError
from r3bench.evolve.budget import Budget
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.reply import Proposer, Reply
from r3bench.ledger import Failures, Ledger, Record, Spent
from r3bench.nouns import decode, encode


@dataclass(slots=True)
class Asking:
    """The questions of one kernel's search; every answer, and every failure to get one, goes on record."""

    kernel: str
    proposer: Proposer
    threads: Executor
    ledger: Ledger
    budget: Budget
    spent: Spent = field(default_factory=Spent)
    _failures: dict[tuple[str, str], Failures] = field(default_factory=dict)

    async def ask(self, prompt: Prompt) -> Reply:
        """The answer, from the ledger where this very question was answered before. ModelError where none came."""
        record = self.ledger.find("reply", self.kernel, prompt.step, prompt.turn)
        if record is None or not self._stands(record, prompt):
            record = await self._asked(prompt)
        if "trouble" in record:
            self.spent = replace(self.spent, failed=self.spent.failed + 1)
            error = _error(record["trouble"])
            self.failed("no answer", error.reason, str(error))
            raise error
        reply = decode(Reply, record)
        self.budget.answered(reply.tokens + reply.answer_tokens, reply.cost)
        self.spent = _added(self.spent, reply)
        return reply

    def failed(self, who: str, why: str, detail: str) -> None:
        """Count an answer of no use, or one that never came, under who gave it and why."""
        known = self._failures.get((who, why), Failures(source=who, status=why, count=0, detail=detail))
        self._failures[who, why] = replace(known, count=known.count + 1)

    @property
    def failures(self) -> tuple[Failures, ...]:
        """What was counted, most frequent first."""
        return tuple(sorted(self._failures.values(), key=lambda failures: -failures.count))

    def _stands(self, record: Record, prompt: Prompt) -> bool:
        """Whether what is on record answers this very question. That nobody answered stands only where later questions
        were answered: a search that ended there asks again when it is resumed."""
        if "trouble" not in record or record["prompt"] != prompt.sha256:
            return bool(record["prompt"] == prompt.sha256)
        later = (r for r in self.ledger.records("reply") if r["kernel"] == self.kernel and r["step"] > prompt.step)
        return any("trouble" not in r for r in later)

    async def _asked(self, prompt: Prompt) -> Record:
        """Ask, and keep what came of it. The static text of the prompts is kept once."""
        self.ledger.once("prompt", kernel=self.kernel, sha256=_sha256(prompt.static), static=prompt.static)
        about = {"prompt": prompt.sha256, "static": _sha256(prompt.static), "shown": prompt.shown, "tail": prompt.tail}
        try:
            reply = await asyncio.get_running_loop().run_in_executor(self.threads, self.proposer.propose, prompt)
        except Exhausted:
            raise
        except ModelError as error:
            came: Record = {"trouble": {"reason": error.reason, "text": str(error), "fatal": error.fatal}}
        else:
            came = encode(reply)
        return self.ledger.append("reply", kernel=self.kernel, step=prompt.step, turn=prompt.turn, **about, **came)


def _error(trouble: Record) -> ModelError:
    return ModelError(trouble["reason"], trouble["text"], fatal=trouble["fatal"])


def _added(spent: Spent, reply: Reply) -> Spent:
    return replace(
        spent,
        replies=spent.replies + 1,
        prompt_tokens=spent.prompt_tokens + reply.tokens,
        cached_tokens=spent.cached_tokens + reply.cached_tokens,
        answer_tokens=spent.answer_tokens + reply.answer_tokens,
        dollars=spent.dollars + (reply.cost or 0.0),
        seconds=spent.seconds + reply.seconds,
    )


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()
