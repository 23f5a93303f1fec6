"""The clock that all other tests stand on."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from prov_host.testing.clock import FakeClock


async def test_sleepers_wake_in_order_each_at_its_own_moment() -> None:
    clock = FakeClock()
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps: float) -> None:
        for nap in naps:
            await clock.sleep(nap)
            seen.append((name, clock.monotonic() - 1000))

    tasks = [asyncio.create_task(sleeper("a", 1, 1, 1)), asyncio.create_task(sleeper("b", 2.5))]
    await clock.advance(10)
    await asyncio.gather(*tasks)
    assert seen == [("a", 1), ("a", 2), ("b", 2.5), ("a", 3)]
    assert clock.monotonic() == 1010
    assert clock.now() == dt.datetime(2026, 1, 1, 0, 0, 10, tzinfo=dt.UTC)


async def test_no_time_passes_by_itself() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(0.001))
    await clock.settle()
    assert not task.done()
    await clock.advance(0.001)
    await task


async def test_a_sleep_of_nothing_yields_once() -> None:
    clock = FakeClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.next_due is None


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.settle()
    task.cancel()
    await clock.settle()
    assert clock.next_due is None
    await clock.advance(5)


async def test_the_wall_clock_can_jump_alone() -> None:
    clock = FakeClock()
    clock.shift_wall_clock(-3600)
    assert clock.now() == dt.datetime(2025, 12, 31, 23, tzinfo=dt.UTC)
    assert clock.monotonic() == 1000


async def test_run_until_stops_at_the_moment_it_became_so() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(7))
    await clock.run_until(task.done)
    assert clock.monotonic() == 1007


async def test_run_until_gives_up_and_says_so() -> None:
    clock = FakeClock()

    async def forever() -> None:
        while True:
            await clock.sleep(1)

    task = asyncio.create_task(forever())
    waiting = asyncio.create_task(clock.run_until(lambda: False, limit=3))
    real_sleep, asyncio.sleep = asyncio.sleep, lambda _seconds: real_sleep(0)  # type: ignore[assignment, misc]
    try:
        with pytest.raises(AssertionError, match="not so after 3 s"):
            await waiting
    finally:
        asyncio.sleep = real_sleep
        task.cancel()


async def test_a_sleeper_of_another_loop_wakes_too() -> None:
    clock = FakeClock()
    done = asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(clock.sleep(3)))
    while clock.next_due is None:
        await asyncio.sleep(0.001)
    await clock.run_until(done.done)
