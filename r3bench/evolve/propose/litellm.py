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
from r3bench.evolve.propose.openai import reply_of, retry_after
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

        litellm.suppress_debug_info = True  # or it prints advice for each error
        began = monotonic()
        messages = prompt.messages(marked="claude" in self._model)  # others keep beginnings without being told
        try:
            found = litellm.completion(model=self._model, messages=messages, timeout=left_s, num_retries=0)
        except openai.OpenAIError as error:  # what all of LiteLLM's errors are
            raise self._refused(error) from None
        return reply_of(_with_cost(found), f"litellm:{self._model}", monotonic() - began)

    def _refused(self, error: Exception) -> ModelError | Failed:
        """What one of LiteLLM's errors means. Its status tells more than its class: some statuses have none."""
        who, status = f"litellm:{self._model}", getattr(error, "status_code", None) or 500
        said, after_s = " ".join(hidden(str(error)).split())[:_DETAIL], _pause(error)
        denied = status in (401, 403)
        if (denied or status == 500) and (missing := self._missing_keys()):
            return ModelError("no key", f"{who} needs {' and '.join(missing)} in the environment", fatal=True)
        if denied:
            return ModelError("wrong key", f"{who} is refused: check its key in the environment", fatal=True)
        if status == 404:
            return ModelError("unknown model", f"{who} is not known there: {said}", fatal=True)
        if status == 408:
            return Failed("time-out", f"{who} did not answer in time", after_s)
        if status == 429:
            return Failed("rate limit", f"{who}: {said}", after_s)
        if _never_arrived(error):
            return Failed("unreachable", f"{who} cannot be reached; is its server up?")
        if status < 500:
            return ModelError("refused request", f"{who}: {said}")
        return Failed("server error", f"{who}: {said}", after_s)

    def _missing_keys(self) -> list[str]:
        import litellm

        missing = litellm.validate_environment(model=self._model).get("missing_keys") or ()
        return [name for name in missing if name.endswith("_KEY")]


def _pause(error: Exception) -> float | None:
    """The seconds that the server behind an error asks to wait."""
    return retry_after(getattr(getattr(error, "response", None), "headers", None) or {})


def _never_arrived(error: BaseException | None) -> bool:
    """Whether no connection is what lies behind an error."""
    import httpx

    while error is not None:
        if isinstance(error, httpx.ConnectError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _with_cost(found: Any) -> Mapping[str, Any]:
    """The response as plain data, with what it cost where LiteLLM knows the price."""
    plain: dict[str, Any] = found.model_dump()
    cost = getattr(found, "_hidden_params", {}).get("response_cost")
    usage = plain.get("usage") or {}
    return plain | {"usage": usage | ({"cost": cost} if cost is not None else {})}
