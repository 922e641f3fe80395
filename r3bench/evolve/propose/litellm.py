"""Any provider that LiteLLM knows. The package is large and slow to import, so it is imported when it is first used."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from threading import Event
from time import monotonic
from typing import Any

from r3bench.errors import ModelError
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.keys import hidden
from r3bench.evolve.propose.openai import reply_of
from r3bench.evolve.propose.patience import Failed, patiently
from r3bench.evolve.propose.reply import Reply

_DETAIL = 200


class LiteLLMProposer:
    """``model`` as LiteLLM spells it: ``anthropic/claude-sonnet-4-5``, ``openrouter/...``, ``ollama/...``."""

    def __init__(self, model: str, patience_s: float) -> None:
        self._model, self._patience_s, self._closed = model, patience_s, Event()
        if importlib.util.find_spec("litellm") is None:
            raise ModelError("not installed", f"litellm:{model} needs LiteLLM: pip install r3bench[llm]", fatal=True)

    def propose(self, prompt: Prompt) -> Reply:
        return patiently(lambda left_s: self._ask(prompt, left_s), self._patience_s, self._closed)

    def close(self) -> None:
        self._closed.set()

    def _ask(self, prompt: Prompt, left_s: float) -> Reply:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or it fetches a price list from the network
        import litellm
        import openai

        began = monotonic()
        messages = prompt.messages(marked="claude" in self._model)  # others keep beginnings without being told
        try:
            found = litellm.completion(model=self._model, messages=messages, timeout=left_s, num_retries=0)
        except openai.OpenAIError as error:  # what all of LiteLLM's errors are
            raise self._refused(error) from None
        reply = _with_cost(found)
        return reply_of(reply, f"litellm:{self._model}", monotonic() - began)

    def _refused(self, error: Exception) -> ModelError | Failed:
        import openai

        status = getattr(error, "status_code", None)
        said = " ".join(hidden(str(error)).split())[:_DETAIL]
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            missing = self._missing_keys()
            reason, remedy = ("no key", f"set {' and '.join(missing)}") if missing else ("wrong key", "check its key")
            return ModelError(reason, f"litellm:{self._model} is refused: {remedy} in the environment", fatal=True)
        if isinstance(error, openai.NotFoundError):
            return ModelError("unknown model", f"litellm:{self._model} is not known there: {said}", fatal=True)
        if isinstance(error, openai.APITimeoutError):
            return Failed("time-out", f"litellm:{self._model} did not answer in time")
        if isinstance(error, openai.RateLimitError):
            return Failed("rate limit", f"litellm:{self._model}: {said}")
        if isinstance(error, openai.APIConnectionError) and (status or 500) == 500:
            return Failed("unreachable", f"litellm:{self._model} cannot be reached: {said}")
        if isinstance(status, int) and status < 500:
            return ModelError("refused request", f"litellm:{self._model}: {said}")
        return Failed("server error", f"litellm:{self._model}: {said}")

    def _missing_keys(self) -> list[str]:
        import litellm

        return list(litellm.validate_environment(model=self._model).get("missing_keys") or ())


def _with_cost(found: Any) -> Mapping[str, Any]:
    """The response as plain data, with what it cost where LiteLLM knows the price."""
    plain: dict[str, Any] = found.model_dump()
    cost = getattr(found, "_hidden_params", {}).get("response_cost")
    usage = plain.get("usage") or {}
    return plain | {"usage": usage | ({"cost": cost} if cost is not None else {})}
