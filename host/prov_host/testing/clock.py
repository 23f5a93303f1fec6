"""A clock that stands still until a test moves it.

Nothing waits for real time: :meth:`FakeClock.advance` goes from one due sleeper to the next, and after each lets the
event loop run until it has nothing left to do, so everything that follows from a moment has happened before the next
moment comes. Work in threads is not seen by that: a test with real threads waits for what it expects, with
:meth:`FakeClock.run_until`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import itertools
import threading
from collections.abc import Callable

__all__ = ["FakeClock"]

_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class FakeClock:
    """A :class:`prov_host.clock.Clock` in a test's hands.

    Args:
        start: the wall clock's first reading, timezone-aware.

    Reading and sleeping work in any thread and on any event loop; moving it belongs to one test. Since 0.1.
    """

    def __init__(self, start: dt.datetime = _START) -> None:
        self._wall = start
        self._monotonic = 1000.0
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """See :meth:`prov_host.clock.Clock.monotonic`; starts at 1000."""
        return self._monotonic

    def now(self) -> dt.datetime:
        """See :meth:`prov_host.clock.Clock.now`."""
        return self._wall

    async def sleep(self, seconds: float) -> None:
        """See :meth:`prov_host.clock.Clock.sleep`; returns once the test has moved the clock far enough."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), loop, future))
        await future

    @property
    def next_due(self) -> float | None:
        """Seconds until the next sleeper wakes, None if nobody sleeps."""
        with self._lock:
            while self._sleepers and self._sleepers[0][3].done():  # cancelled: it wakes nobody
                heapq.heappop(self._sleepers)
            return max(self._sleepers[0][0] - self._monotonic, 0.0) if self._sleepers else None

    def shift_wall_clock(self, seconds: float) -> None:
        """Move the wall clock alone, as an administrator or a time server does; nobody wakes."""
        self._wall += dt.timedelta(seconds=seconds)

    async def settle(self) -> None:
        """Let the event loop run until it has nothing left to do at this moment."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        if ready is None:  # not the standard loop, which alone shows what is left
            for _ in range(200):
                await asyncio.sleep(0)
            return
        # Everything queued before us has run when we do; what is left in the queue then is what still has to.
        while True:
            await asyncio.sleep(0)
            if not ready:
                return

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking every sleeper at its own moment.

        Args:
            seconds: how far, 0 or more.
        """
        target = self._monotonic + seconds
        await self.settle()
        while (due := self.next_due) is not None and self._monotonic + due <= target:
            self._move(due)
            self._wake()
            await self.settle()
        self._move(target - self._monotonic)

    async def run_until(self, condition: Callable[[], object], limit: float = 3600.0) -> None:
        """Let time pass, sleeper by sleeper, until something is so.

        Args:
            condition: asked again after everything that happened at each moment.
            limit: seconds of this clock to try for; work in threads gets up to 5 real seconds as well.

        Raises:
            AssertionError: it never became so.
        """
        end = self._monotonic + limit
        patience = 5000
        await self.settle()
        while not condition():
            due = self.next_due
            if due is not None and self._monotonic + due <= end:
                self._move(due)
                self._wake()
            elif patience:  # nobody sleeps, so a thread must be at work
                patience -= 1
                await asyncio.sleep(0.001)
            else:
                raise AssertionError(f"not so after {limit} s: {getattr(condition, '__name__', condition)}")
            await self.settle()

    def _move(self, seconds: float) -> None:
        self._monotonic += seconds
        self._wall += dt.timedelta(seconds=seconds)

    def _wake(self) -> None:
        """Wake everyone due by now: directly on this loop, through its door on another."""
        here = asyncio.get_running_loop()
        with self._lock:
            while self._sleepers and self._sleepers[0][0] <= self._monotonic:
                _, _, loop, future = heapq.heappop(self._sleepers)
                if loop is here:
                    _finish(future)
                elif not loop.is_closed():
                    loop.call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
