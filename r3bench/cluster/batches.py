"""Several requests to a task: a task costs Dask some milliseconds of three processes, whatever it does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import repeat
from typing import Any

MOST = 8  # requests that go together; where one of them ends its worker, all are done again

Asked = tuple[Any, "asyncio.Future[Any]"]


class Batches:
    """Asks workers of one kind: a task for each of their ``slots``, and what waits meanwhile goes with the next.

    ``run`` has one task done, and gives an answer for each of its requests; what it raises they all do.
    """

    def __init__(self, run: Callable[[list[Any]], Awaitable[list[Any]]], slots: Callable[[], int]) -> None:
        self._run, self._slots = run, slots
        self._waiting: deque[Asked] = deque()
        self._tasks: set[asyncio.Future[list[Any]]] = set()

    async def ask(self, request: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        self._go_on()
        return await answer

    def _go_on(self) -> None:
        self._waiting = deque(each for each in self._waiting if not each[1].done())  # what was cancelled meanwhile goes
        slots = max(1, self._slots())
        while self._waiting and len(self._tasks) < slots:
            count = min(MOST, -(-len(self._waiting) // slots))  # the others are about to be free, too
            together = [self._waiting.popleft() for _ in range(count)]
            self._tasks.add(task := asyncio.ensure_future(self._run([request for request, _ in together])))
            task.add_done_callback(partial(self._settle, together))

    def _settle(self, asked: list[Asked], done: asyncio.Future[list[Any]]) -> None:
        self._tasks.discard(done)
        failed = None if done.cancelled() else done.exception()
        answers = repeat(None) if done.cancelled() or failed is not None else done.result()
        for (_, future), answer in zip(asked, answers, strict=False):
            if future.done():
                continue
            if done.cancelled():
                future.cancel()
            elif failed is not None:
                future.set_exception(failed)
            else:
                future.set_result(answer)
        self._go_on()
