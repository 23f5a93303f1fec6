"""The client-side rate limit: a token bucket that lets requests through in the order in which they came.

The API server has limits of its own and says so with 429; this one keeps a host that has thousands of claims to look
after from taking more than its share before the server has to say so. Waiting requests queue up behind one lock,
which is fair: who came first goes first, and a cancelled request takes no token with it.
"""

from __future__ import annotations

import asyncio
import math

from prov_host.clock import Clock

__all__ = ["RateLimiter"]


class RateLimiter:
    """A token bucket on the injected clock.

    Args:
        clock: the host's clock.
        qps: requests per second in the long run; 0 means no limit.
        burst: requests that may go at once after a quiet time, at least 1; 0 means no limit.

    Raises:
        ValueError: a negative or non-finite number.

    All methods are called on one event loop. Since 0.1.
    """

    def __init__(self, clock: Clock, *, qps: float, burst: int) -> None:
        if not math.isfinite(qps) or qps < 0 or burst < 0:
            raise ValueError(f"a rate limit of {qps} requests/s with a burst of {burst}: both must be 0 (off) or more")
        self._clock = clock
        self._interval = 1.0 / qps if qps and burst else 0.0
        # The bucket as one number: the time at which it is full again. A request may pass as long as that is at most
        # burst - 1 intervals ahead. No refill arithmetic, so no rounding that leaves a waiter a hair short of a token.
        self._slack = self._interval * (burst - 1)
        self._full_at = -math.inf
        self._turn = asyncio.Lock()

    async def acquire(self) -> float:
        """Wait for a token and take it.

        Returns:
            Seconds waited for the clock, 0.0 if none.
        """
        if not self._interval:
            return 0.0
        async with self._turn:
            wait = self._full_at - self._slack - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)
            self._full_at = max(self._full_at, self._clock.monotonic()) + self._interval
            return max(wait, 0.0)
