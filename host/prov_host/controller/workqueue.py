"""Work queues as the reference controller's: a set of keys, each handled by one worker at a time.

The rules that the rest of the controller leans on:

* Adding a key that is queued already does nothing. Adding one that is being worked on makes it run once more, after
  :meth:`WorkQueue.done`.
* A key added with a delay keeps its *earliest* due time. A plain :meth:`WorkQueue.add` does not wait for it.
* After :meth:`WorkQueue.shut_down`, adds are dropped, and what is queued is still handed out until it is empty.

How long a failed key waits is the :class:`Limiter`'s business: the larger of a delay per key, doubling with each
failure, and a token bucket shared by everything that uses the same limiter. (Reference controller, "queues and rate
limiters".)
"""

from __future__ import annotations

import asyncio
import collections
import heapq
import itertools
from typing import Protocol

from prov_host.clock import Clock

__all__ = ["Limiter", "QueueObserver", "WorkQueue"]


class Limiter:
    """How long a key that failed waits before it is tried again.

    Args:
        clock: the host's clock.
        base: seconds after the first failure.
        maximum: seconds that the doubling stops at.
        rate: keys per second of the shared bucket; 0 means no bucket.
        burst: keys the bucket holds.

    Belongs to the event loop. Since 0.1. Source: reference controller, ``min(15 s * 2^failures, 1000 s)`` and 10/s
    with a burst of 100.
    """

    def __init__(
        self, clock: Clock, *, base: float = 15.0, maximum: float = 1000.0, rate: float = 10.0, burst: int = 100
    ) -> None:
        self._clock = clock
        self._base = base
        self._maximum = maximum
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._filled = clock.monotonic()
        self._failures: dict[str, int] = {}

    def when(self, key: str) -> float:
        """Count a failure of ``key`` and answer how many seconds it has to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # An exponent that the maximum cuts off long before keeps the number from overflowing a float.
        delay = min(self._base * 2.0 ** min(failures, 64), self._maximum)
        return max(delay, self._reserve())

    def _reserve(self) -> float:
        """Take a token, on credit if there is none: later keys queue up behind it."""
        if not self._rate:
            return 0.0
        now = self._clock.monotonic()
        self._tokens = min(self._tokens + (now - self._filled) * self._rate, float(self._burst))
        self._filled = now
        self._tokens -= 1.0
        return max(-self._tokens / self._rate, 0.0)

    def failures(self, key: str) -> int:
        """How often ``key`` has failed since it was last forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: str) -> None:
        """Let the next failure of ``key`` be its first again."""
        self._failures.pop(key, None)


class QueueObserver(Protocol):
    """What a queue tells of itself, for metrics."""

    def added(self) -> None:
        """A key was added to the set."""

    def taken(self, waited: float) -> None:
        """A worker took a key that had been queued for ``waited`` seconds."""

    def finished(self, worked: float) -> None:
        """A worker was done with a key after ``worked`` seconds."""

    def retried(self) -> None:
        """A key was put back to wait out a failure or a delay."""


class WorkQueue:
    """A set of keys to work on; see the module's rules.

    Args:
        clock: the host's clock.
        limiter: decides the delays of :meth:`retry`; may be shared with other queues if their keys never collide.
        observer: told of every step.

    Belongs to the event loop. Since 0.1.
    """

    def __init__(self, clock: Clock, limiter: Limiter, observer: QueueObserver | None = None) -> None:
        self._clock = clock
        self._limiter = limiter
        self._observer = observer
        self._order: collections.deque[str] = collections.deque()
        self._dirty: dict[str, float] = {}  # key -> since when it waits for a worker
        self._working: dict[str, float] = {}  # key -> since when a worker has it
        self._getters: collections.deque[asyncio.Future[None]] = collections.deque()
        self._due: dict[str, float] = {}  # key -> when its delay ends
        self._heap: list[tuple[float, int, str]] = []
        self._sequence = itertools.count()
        self._timer: asyncio.Task[None] | None = None
        self._timer_due = 0.0
        self._closed = False

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._order)

    @property
    def working(self) -> int:
        """Keys that a worker has now."""
        return len(self._working)

    @property
    def closed(self) -> bool:
        """Whether the queue was shut down."""
        return self._closed

    def started(self) -> list[float]:
        """When each key that a worker has now was taken, on the monotonic clock."""
        return list(self._working.values())

    def delayed(self, key: str) -> bool:
        """Whether ``key`` waits out a delay."""
        return key in self._due

    def failures(self, key: str) -> int:
        """See :meth:`Limiter.failures`."""
        return self._limiter.failures(key)

    def forget(self, key: str) -> None:
        """See :meth:`Limiter.forget`."""
        self._limiter.forget(key)

    def add(self, key: str) -> None:
        """Queue ``key`` now, whatever delay it waits out."""
        if self._closed or key in self._dirty:
            return
        self._dirty[key] = self._clock.monotonic()
        if self._observer:
            self._observer.added()
        if key not in self._working:
            self._order.append(key)
            self._wake()

    def add_after(self, key: str, delay: float) -> None:
        """Queue ``key`` in ``delay`` seconds, or at the earlier moment it already has."""
        if self._closed:
            return
        if self._observer:
            self._observer.retried()
        if delay <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + delay
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._sequence), key))
        if self._timer is None or due < self._timer_due:
            self._set_timer()

    def retry(self, key: str, *, at_least: float = 0.0) -> None:
        """Count a failure of ``key`` and queue it after the delay the limiter gives, or ``at_least`` seconds."""
        self.add_after(key, max(self._limiter.when(key), at_least))

    async def get(self) -> str | None:
        """Wait for a key and take it; None once the queue was shut down and is empty.

        Every key taken must be given back with :meth:`done`, once.
        """
        while not self._order:
            if self._closed:
                return None
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled() and self._order:
                    self._wake()  # we were woken for a key that we do not take: another worker must
                raise
        key = self._order.popleft()
        now = self._clock.monotonic()
        self._working[key] = now
        since = self._dirty.pop(key)
        if self._observer:
            self._observer.taken(now - since)
        return key

    def done(self, key: str) -> None:
        """Give a key back; if it was added meanwhile it is queued again."""
        since = self._working.pop(key)
        if self._observer:
            self._observer.finished(self._clock.monotonic() - since)
        if key in self._dirty:
            self._order.append(key)
            self._wake()

    def shut_down(self) -> None:
        """Drop all adds from now on, delayed keys included; idempotent."""
        self._closed = True
        self._due.clear()
        self._heap.clear()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._getters:
            self._wake()

    def _wake(self) -> None:
        """Wake one worker that still wants to be woken."""
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _set_timer(self) -> None:
        """One sleeping task for all delayed keys, re-set when an earlier key comes."""
        if self._timer:
            self._timer.cancel()
        self._timer_due = self._heap[0][0]
        self._timer = asyncio.get_running_loop().create_task(self._move_due())

    async def _move_due(self) -> None:
        while self._heap:
            self._timer_due = self._heap[0][0]
            await self._clock.sleep(self._timer_due - self._clock.monotonic())
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                due, _, key = heapq.heappop(self._heap)
                if self._due.get(key) == due:  # else the key got an earlier moment, and had it
                    del self._due[key]
                    self.add(key)
        self._timer = None
