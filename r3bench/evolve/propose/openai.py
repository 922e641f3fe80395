"""Any server that speaks OpenAI's chat protocol: vLLM, llama.cpp, Ollama, a provider's own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from threading import Event, Lock
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from r3bench.errors import ModelError
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.keys import hidden
from r3bench.evolve.propose.patience import Failed, patiently, stop_if
from r3bench.evolve.propose.reply import Reply

if TYPE_CHECKING:
    import httpx

KEY = "OPENAI_API_KEY"
_CONNECT_S = 10.0
_MOST_BYTES = 4_000_000  # of a response: far more than any answer that would be read
_DETAIL = 200
_MOST_TOKENS, _MOST_DOLLARS = 10**9, 1e6  # of one answer: more is a mistake of the server's


class OpenAIProposer:
    """``where``: the base URL, ``#`` and the model; without a model the first one that the server lists."""

    def __init__(self, where: str, patience_s: float) -> None:
        base, _, model = where.partition("#")
        if not re.match(r"https?://[^/]", base):
            raise ModelError("unknown proposer", f"openai:{hidden(base)} is no http or https URL", fatal=True)
        self._url = base.rstrip("/") if "/" in base.partition("//")[2].rstrip("/") else base.rstrip("/") + "/v1"
        self._model, self._patience_s = model, patience_s
        self._closed, self._lock = Event(), Lock()
        self._client = _client(self._url)

    def propose(self, prompt: Prompt) -> Reply:
        return patiently(lambda left_s: self._ask(prompt, left_s), self._patience_s, self._closed)

    def close(self) -> None:
        self._closed.set()
        self._client.close()

    def _ask(self, prompt: Prompt, left_s: float) -> Reply:
        began = monotonic()
        model = self._chosen_model(left_s)
        found = self._exchange("chat/completions", {"model": model, "messages": prompt.messages()}, left_s)
        return reply_of(found, f"openai:{model}", monotonic() - began)

    def _chosen_model(self, left_s: float) -> str:
        with self._lock:
            if not self._model:
                listed = self._exchange("models", None, left_s).get("data")
                names = [m["id"] for m in listed if isinstance(m, dict) and "id" in m] if listed else []
                if not names:
                    raise ModelError(
                        "unknown model", f"{hidden(self._url)} lists no model; name one: #MODEL", fatal=True
                    )
                self._model = str(names[0])
            return self._model

    # -- one exchange --

    def _exchange(self, path: str, body: Mapping[str, Any] | None, left_s: float) -> dict[str, Any]:
        import httpx

        where = hidden(self._url)
        try:
            return self._read(path, body, left_s)
        except httpx.TimeoutException as error:
            reason = "unreachable" if isinstance(error, httpx.ConnectTimeout) else "time-out"
            raise Failed(reason, f"{where} did not answer in {left_s:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            what = f"{type(error).__name__}: {error}"
            raise Failed("unreachable", f"{where} cannot be reached ({what}); is the server up?") from None
        except RuntimeError:  # the client was closed by another thread
            stop_if(self._closed)
            raise

    def _read(self, path: str, body: Mapping[str, Any] | None, left_s: float) -> dict[str, Any]:
        import httpx

        times = httpx.Timeout(left_s, connect=min(left_s, _CONNECT_S))
        method, end = ("POST" if body is not None else "GET"), monotonic() + left_s
        with self._client.stream(method, f"{self._url}/{path}", json=body, headers=_headers(), timeout=times) as found:
            data = bytearray()
            for chunk in found.iter_bytes():
                data += chunk
                stop_if(self._closed)
                if monotonic() > end:
                    raise httpx.ReadTimeout("")
                if len(data) > _MOST_BYTES:
                    raise Failed("bad answer", f"{hidden(self._url)} sent more than {_MOST_BYTES} bytes")
            if found.status_code != 200:
                raise refused(found.status_code, bytes(data), found.headers, hidden(self._url))
        return _json(bytes(data), hidden(self._url))


def _client(url: str) -> httpx.Client:
    try:
        import httpx
    except ImportError:
        raise ModelError(
            "not installed", f"{hidden(url)} needs httpx: pip install r3bench[openai]", fatal=True
        ) from None
    return httpx.Client()


def _headers() -> dict[str, str]:
    key = os.environ.get(KEY, "")
    return {"Authorization": f"Bearer {key}"} if key else {}


# -- what came back ---------------------------------------------------------------------------------------------------


def refused(status: int, data: bytes, headers: Mapping[str, str], where: str) -> ModelError | Failed:
    """What a status other than 200 means: an error that no other try will mend, or one that it may."""
    said = _message(data)
    if status in (401, 403):
        reason, remedy = ("wrong key", "check it") if os.environ.get(KEY) else ("no key", "set it")
        return ModelError(reason, f"{where} refuses the key (status {status}); {KEY} holds it: {remedy}", fatal=True)
    if status == 404:
        return ModelError("unknown model", f"{where} has no such model or path (404{said}); name #MODEL", fatal=True)
    if status == 429:
        return Failed("rate limit", f"{where} takes no more requests now (429{said})", retry_after(headers))
    if status == 408 or status >= 500:
        return Failed("server error", f"{where} failed ({status}{said})", retry_after(headers))
    return ModelError("refused request", f"{where} refuses the request ({status}{said})")


def _message(data: bytes) -> str:
    """What the server says, short and without keys."""
    text = data.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        pass
    text = " ".join(hidden(text).split())
    return f": {text[:_DETAIL]}" if text else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, or a date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "")
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return None


def _json(data: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(data.decode())
    except UnicodeDecodeError:
        raise Failed("not UTF-8", f"{where} sent bytes that are not UTF-8") from None
    except ValueError:
        raise Failed("bad answer", f"{where} sent no JSON") from None
    if not isinstance(found, dict):
        raise Failed("bad answer", f"{where} sent no JSON object")
    return found


def reply_of(found: Mapping[str, Any], origin: str, seconds: float) -> Reply:
    """The reply in a response of the protocol; an answer without text is one of no characters."""
    try:
        text = found["choices"][0]["message"].get("content") or ""
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Failed("bad answer", f"{origin} sent no choice with a message") from None
    usage = _object(found.get("usage"))
    details = _object(usage.get("prompt_tokens_details"))
    return Reply(
        text=hidden(str(text)),
        origin=origin,
        model=str(found.get("model") or origin.partition(":")[2]),
        tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")),
        answer_tokens=_count(usage.get("completion_tokens")),
        cost=_dollars(usage.get("cost")),
        seconds=round(seconds, 3),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    """Tokens, 0 where the server does not say how many in a number that could be."""
    return value if type(value) is int and 0 < value < _MOST_TOKENS else 0


def _dollars(value: object) -> float | None:
    """What was paid, None where the server does not say it in a number that could be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST_DOLLARS:
        return None
    return float(value)
