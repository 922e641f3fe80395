"""LiteLLM as we use it, by a package like it: what is asked of it, and what its errors mean."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any, ClassVar

import httpx
import pytest

from tests.search.asking import KEY, ask, trouble


def test_litellm_is_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    error = trouble("litellm:anthropic/claude")
    assert error.reason == "not installed"
    assert "pip install r3bench[llm]" in str(error)


class Refusal(Exception):
    """LiteLLM's errors are OpenAI's, with a status."""

    status_code = 500


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package like LiteLLM in what is used of it; ``litellm.completion`` is for a test to set."""
    openai, found = ModuleType("openai"), ModuleType("litellm")
    openai.OpenAIError = Refusal  # type: ignore[attr-defined]
    found.validate_environment = lambda model: {"missing_keys": []}  # type: ignore[attr-defined]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "openai", openai)
    monkeypatch.setitem(sys.modules, "litellm", found)
    return found


class Completion:
    """What LiteLLM returns."""

    _hidden_params: ClassVar = {"response_cost": 0.002}

    def model_dump(self) -> dict[str, Any]:
        usage = {"prompt_tokens": 90, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}
        return {"model": "claude-1", "choices": [{"message": {"content": "yes"}}], "usage": usage}


def test_litellm_is_asked_with_marks_where_a_provider_wants_them(litellm: ModuleType) -> None:
    asked: list[dict[str, Any]] = []

    def completion(**about: Any) -> Completion:
        asked.append(about)
        return Completion()

    litellm.completion = completion  # type: ignore[attr-defined]
    reply = ask("litellm:anthropic/claude-1")
    assert (reply.text, reply.origin, reply.model) == ("yes", "litellm:anthropic/claude-1", "claude-1")
    assert (reply.tokens, reply.cached_tokens, reply.answer_tokens, reply.cost) == (90, 64, 5, 0.002)
    ask("litellm:ollama/tiny")
    marked, plain = (json.dumps(about["messages"]) for about in asked)
    assert "cache_control" in marked
    assert "cache_control" not in plain
    assert all(about["num_retries"] == 0 and 0 < about["timeout"] <= 60.0 for about in asked)


@pytest.mark.parametrize(
    ("status", "reason", "fatal"),
    [
        (401, "wrong key", True),
        (403, "wrong key", True),
        (404, "unknown model", True),
        (400, "refused request", False),
        (402, "refused request", False),
        (429, "rate limit", False),
        (408, "time-out", False),
        (500, "server error", False),
    ],
)
def test_litellms_errors_by_name(
    litellm: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int, reason: str, fatal: bool
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    def completion(**about: Any) -> Completion:
        error = Refusal(f"no, {KEY}")
        error.status_code = status
        raise error

    litellm.completion = completion  # type: ignore[attr-defined]
    error = trouble("litellm:anthropic/claude-1", patience_s=0.1)
    assert (error.reason, error.fatal) == (reason, fatal)
    litellm.validate_environment = lambda model: {"missing_keys": ["ANTHROPIC_API_KEY"]}  # type: ignore[attr-defined]
    if reason in ("wrong key", "server error"):
        assert trouble("litellm:anthropic/claude-1", patience_s=0.1).reason == "no key"


def test_litellm_without_a_connection(litellm: ModuleType) -> None:
    def completion(**about: Any) -> Completion:
        raise Refusal("Connection error") from httpx.ConnectError("refused")

    litellm.completion = completion  # type: ignore[attr-defined]
    error = trouble("litellm:ollama/tiny")
    assert (error.reason, error.fatal) == ("unreachable", True)
