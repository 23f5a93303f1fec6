"""An event loop on a thread of its own, so that tests can be ordinary functions."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads; a context manager that starts and ends it. Since 0.1.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout: float = 30.0) -> T:
        """Run a coroutine to its end.

        Args:
            coroutine: what to run.
            timeout: seconds of real time.

        Returns:
            What it returned; raises what it raised.
        """
        return self.start(coroutine).result(timeout)

    def call(self, function: Callable[[], object]) -> None:
        """Call something on the loop, soon."""
        self._loop.call_soon_threadsafe(function)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine; the future is for other threads."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


async def _cancel_all() -> None:
    """End what still runs, as :func:`asyncio.run` does."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
