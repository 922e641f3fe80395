"""The answers of an earlier run, as its ledger holds them: nobody is asked, nothing is paid."""

from __future__ import annotations

from pathlib import Path

from r3bench.errors import Exhausted, LedgerError, ModelError
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.reply import Reply
from r3bench.ledger import Record, read
from r3bench.nouns import decode


class RecordedProposer:
    """Answers a prompt with what was answered at the same step (and turn) of the same kernel's search."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._replies = {(r["kernel"], r["step"], r["turn"]): r for r in _records(path)}
        self._last = {kernel: step for kernel, step, _ in sorted(self._replies)}

    def propose(self, prompt: Prompt) -> Reply:
        record = self._replies.get((prompt.kernel, prompt.step, prompt.turn))
        if record is None:
            raise self._missing(prompt)
        if (trouble := record.get("trouble")) is not None:
            raise ModelError(trouble["reason"], trouble["text"], fatal=trouble.get("fatal", False))
        return decode(Reply, record)

    def close(self) -> None:
        pass

    def _missing(self, prompt: Prompt) -> ModelError:
        if prompt.step <= self._last.get(prompt.kernel, 0):
            return Exhausted(f"{self._path} holds no answer to step {prompt.step} of {prompt.kernel}")
        held = self._last.get(prompt.kernel, 0)
        sentence = f"{self._path} holds answers to {held} steps of {prompt.kernel}; record more or stop there"
        return ModelError("not recorded", sentence, fatal=True)


def _records(path: str) -> list[Record]:
    try:
        records, _ = read(Path(path))
    except LedgerError as error:
        raise ModelError("not recorded", str(error), fatal=True) from error
    found = [record for record in records if record["kind"] == "reply"]
    if not found:
        raise ModelError("not recorded", f"{path} holds no answers; name the ledger of a run that asked", fatal=True)
    return found
