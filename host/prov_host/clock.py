"""Time as the host sees it: one object, injected everywhere, so that tests decide how it passes.

Nothing in the host calls :func:`time.monotonic`, :func:`time.time` or :func:`asyncio.sleep` itself. Durations are
``float`` seconds on the monotonic clock; the wall clock is only for stamps that people and other programs read
(Lease and Event times, archive names) and is never compared with a stamp that another machine wrote.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the host needs of time. Since 0.1."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back. Callable from any thread."""

    def now(self) -> dt.datetime:
        """The wall clock, timezone-aware, in UTC. Callable from any thread."""

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop. Zero or less yields once."""


class SystemClock:
    """The real clock of this machine. Since 0.1."""

    def monotonic(self) -> float:
        """See :meth:`Clock.monotonic`."""
        return time.monotonic()

    def now(self) -> dt.datetime:
        """See :meth:`Clock.now`."""
        return dt.datetime.now(dt.UTC)

    async def sleep(self, seconds: float) -> None:
        """See :meth:`Clock.sleep`."""
        await asyncio.sleep(max(seconds, 0.0))
