"""Keys stay where they are: in the environment."""

from __future__ import annotations

import os
import re

_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHAPES = re.compile(r"\b(?:sk|pk|gsk|hf|xai|AIza)[-_][\w-]{6,}|(?<=//)[^/\s@]+@|(?<=Bearer )\S+")
_QUERY = re.compile(r"(https?://[^\s?#]*\?)[^\s#\"'<>]+")
_SHORTEST = 6  # a shorter value is no key, and hiding it would garble text


def hidden(text: str) -> str:
    """The text with every key in it made ``***``: what the environment holds under such a name, and what looks like
    one (also the half-masked one that a server quotes), and the whole query of a URL."""
    secrets = {value for name, value in os.environ.items() if _NAMES.search(name) and len(value) >= _SHORTEST}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _QUERY.sub(r"\1***", _SHAPES.sub("***", text))
