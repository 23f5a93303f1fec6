"""A time limit on the injected clock, for what must not wait for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from prov_host.clock import Clock

__all__ = ["pause", "within"]

R = TypeVar("R")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, R]) -> R:
    """Run ``work``, but not longer than ``seconds``.

    Returns:
        What ``work`` returns.

    Raises:
        TimeoutError: it took longer; it was cancelled, and is not waited for: whatever it hangs in may not listen.

    On the event loop. Since 0.1.
    """
    loop = asyncio.get_running_loop()
    job = loop.create_task(work)
    alarm = loop.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait({job, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise TimeoutError(f"no end after {seconds:g} s")
        return job.result()
    finally:
        alarm.cancel()
        if not job.done():
            job.cancel()
            job.add_done_callback(_retrieve)


async def pause(clock: Clock, seconds: float, *until: asyncio.Event) -> bool:
    """Wait for ``seconds``, or until one of the events is set.

    Returns:
        Whether an event ended the wait.

    On the event loop. Since 0.1.
    """
    if any(event.is_set() for event in until):
        return True
    loop = asyncio.get_running_loop()
    alarm = loop.create_task(clock.sleep(seconds))
    waits = [loop.create_task(event.wait()) for event in until]
    try:
        await asyncio.wait({alarm, *waits}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (alarm, *waits):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(alarm, *waits, return_exceptions=True)
    return any(event.is_set() for event in until)


def _retrieve(job: asyncio.Task[Any]) -> None:
    if not job.cancelled():
        job.exception()  # looked at, so that asyncio does not report it as forgotten
