"""A language model's server on this machine: it speaks OpenAI's protocol and does what a test tells it to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from threading import Event, Thread
from typing import Any

Request = dict[str, Any]


@dataclass(frozen=True)
class Response:
    """What one request is answered with: status, bytes, headers; one that ``hangs`` ends after its first byte."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    hangs: bool = False


def said(text: str, *, prompt: int = 1000, cached: int = 0, answer: int = 100) -> Response:
    """A good response with this text."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return Response(json.dumps({"model": "tiny-1", "choices": [choice], "usage": usage}).encode())


def failed(status: int, message: str, *headers: tuple[str, str]) -> Response:
    return Response(json.dumps({"error": {"message": message}}).encode(), status, headers)


@dataclass
class ModelServer:
    """``answer`` gives the response to each chat request; all of them are kept in ``requests`` with their key."""

    answer: Callable[[Request], Response]
    models: tuple[str, ...] = ("tiny",)
    requests: list[Request] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    port: int = 0
    over: Event = field(default_factory=Event)  # what hangs is let go

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def in_turn(self, *responses: Response) -> None:
        """Answer with these, one after the other, the last one for ever."""
        left = list(responses)
        self.answer = lambda request: left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def serving(answer: Callable[[Request], Response] = lambda request: said("hello")) -> Iterator[ModelServer]:
    """A server for the length of a test."""
    server = ModelServer(answer)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    listening.daemon_threads = True
    server.port = listening.server_address[1]
    thread = Thread(target=listening.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        listening.shutdown()
        thread.join()
        listening.server_close()


@contextmanager
def nobody() -> Iterator[str]:
    """The URL of a port that is taken, and that nobody listens on."""
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(Response(json.dumps({"data": [{"id": name} for name in server.models]}).encode()))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append(request)
            server.keys.append(self.headers.get("Authorization", ""))
            self._send(server.answer(request))

        def _send(self, response: Response) -> None:
            self.send_response(response.status)
            for name, value in (("Content-Length", str(len(response.body))), *response.headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.body[:1] if response.hangs else response.body)
            if response.hangs:
                self.wfile.flush()
                server.over.wait()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
