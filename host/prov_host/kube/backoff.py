"""How long to wait before the next try: longer each time, a little random, and short again after a quiet while."""

from __future__ import annotations

import random

from prov_host.clock import Clock

__all__ = ["Backoff"]


class Backoff:
    """An exponential backoff with jitter, as the reference's reflector has it. For one task. Since 0.1.

    Args:
        clock: the host's clock.
        rng: where the jitter comes from.
        first: seconds before the first retry.
        factor: what each further wait is longer by.
        cap: seconds that no wait exceeds before jitter.
        jitter: up to this share of a wait is added at random: many hosts that lost one server at the same moment
            must not come back at the same moment.
        reset: seconds without a retry after which the next one counts as the first.
    """

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        *,
        first: float = 0.8,
        factor: float = 2.0,
        cap: float = 30.0,
        jitter: float = 1.0,
        reset: float = 120.0,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._first = first
        self._factor = factor
        self._cap = cap
        self._jitter = jitter
        self._reset = reset
        self._next = first
        self._last: float | None = None

    def take(self) -> float:
        """The seconds to wait now; the next call tells more."""
        now = self._clock.monotonic()
        if self._last is not None and now - self._last > self._reset:
            self._next = self._first
        wait = self._next * (1.0 + self._jitter * self._rng.random())
        self._next = min(self._next * self._factor, self._cap)
        self._last = now + wait
        return wait

    async def wait(self, at_least: float = 0.0) -> float:
        """Wait; not less than ``at_least`` seconds, which a server asked for. Returns the seconds waited."""
        wait = max(self.take(), at_least)
        await self._clock.sleep(wait)
        return wait
