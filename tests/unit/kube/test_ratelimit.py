"""The client-side token bucket."""

from __future__ import annotations

import asyncio

import pytest

from prov_host.kube.ratelimit import RateLimiter


async def _passing(limiter, clock, count, seconds, background):
    passed: list[tuple[int, float]] = []

    async def one(number: int) -> None:
        await limiter.acquire()
        passed.append((number, clock.monotonic()))

    tasks = [background(one(number)) for number in range(count)]
    start = clock.monotonic()
    await clock.run_for(seconds)
    return tasks, [(number, round(at - start, 6)) for number, at in passed]


async def test_a_burst_passes_at_once_and_the_rest_at_the_rate_in_order(clock, background):
    limiter = RateLimiter(clock, qps=10, burst=3)
    _, passed = await _passing(limiter, clock, 6, 1.0, background)
    assert passed == [(0, 0), (1, 0), (2, 0), (3, 0.1), (4, 0.2), (5, 0.3)]


async def test_the_bucket_fills_up_again_and_not_beyond_its_burst(clock, background):
    limiter = RateLimiter(clock, qps=10, burst=2)
    await _passing(limiter, clock, 2, 100.0, background)
    _, passed = await _passing(limiter, clock, 4, 1.0, background)
    assert [at for _, at in passed] == [0, 0, 0.1, 0.2]


async def test_a_cancelled_request_takes_no_token_and_no_turn(clock, background):
    limiter = RateLimiter(clock, qps=1, burst=1)
    tasks, _ = await _passing(limiter, clock, 3, 0.5, background)
    tasks[1].cancel()
    await clock.run_for(0.5)
    assert tasks[2].done()


async def test_many_requests_keep_to_the_rate_in_the_long_run(clock, background):
    limiter = RateLimiter(clock, qps=7, burst=1)
    _, passed = await _passing(limiter, clock, 100, 10.0, background)
    assert len(passed) == 71


@pytest.mark.parametrize(("qps", "burst"), [(0, 10), (5, 0), (0, 0)])
async def test_zero_means_no_limit(clock, qps, burst):
    limiter = RateLimiter(clock, qps=qps, burst=burst)
    async with asyncio.timeout(5):
        for _ in range(1000):
            assert await limiter.acquire() == 0.0


@pytest.mark.parametrize(("qps", "burst"), [(-1, 1), (1, -1), (float("nan"), 1), (float("inf"), 1)])
def test_nonsense_is_refused(clock, qps, burst):
    with pytest.raises(ValueError, match="must be 0"):
        RateLimiter(clock, qps=qps, burst=burst)
