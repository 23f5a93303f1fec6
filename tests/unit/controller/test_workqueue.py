"""The queue's rules, one by one, and all together against a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host.controller.workqueue import Limiter, WorkQueue
from prov_host.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def queue(clock: FakeClock) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue(clock, Limiter(clock))
    yield queue
    queue.shut_down()
    await clock.settle()


def exhausted(queue: WorkQueue) -> bool:
    return len(queue) == 0


async def test_a_key_that_is_queued_is_not_queued_twice(queue: WorkQueue) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert exhausted(queue)


async def test_a_key_is_never_with_two_workers(queue: WorkQueue) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert exhausted(queue)
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert exhausted(queue)


async def test_a_waiting_worker_is_woken_by_an_add(queue: WorkQueue, clock: FakeClock) -> None:
    worker = asyncio.create_task(queue.get())
    await clock.settle()
    queue.add("a")
    assert await worker == "a"


async def test_a_worker_that_is_cancelled_as_it_is_woken_passes_the_key_on(queue: WorkQueue, clock: FakeClock) -> None:
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await clock.settle()
    queue.add("a")
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_the_earliest_of_two_delays_counts(queue: WorkQueue, clock: FakeClock) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 7)
    await clock.advance(4.9)
    assert exhausted(queue)
    await clock.advance(0.1)
    assert await queue.get() == "a"
    queue.done("a")
    await clock.advance(20)
    assert exhausted(queue)


async def test_an_earlier_key_does_not_wait_for_a_later_one(queue: WorkQueue, clock: FakeClock) -> None:
    queue.add_after("late", 100)
    await clock.settle()
    queue.add_after("early", 1)
    await clock.advance(1)
    assert await queue.get() == "early"
    assert queue.delayed("late")


async def test_a_plain_add_does_not_wait_for_a_delay(queue: WorkQueue, clock: FakeClock) -> None:
    queue.retry("a")
    queue.add("a")
    assert await queue.get() == "a"
    assert queue.failures("a") == 1
    queue.done("a")
    await clock.advance(15)
    assert await queue.get() == "a"


async def test_failures_wait_15_30_60_up_to_1000_seconds(clock: FakeClock) -> None:
    limiter = Limiter(clock, rate=0)
    assert [limiter.when("a") for _ in range(9)] == [15, 30, 60, 120, 240, 480, 960, 1000, 1000]
    assert limiter.when("b") == 15
    limiter.forget("a")
    assert limiter.failures("a") == 0
    assert limiter.when("a") == 15


async def test_ten_thousand_failures_overflow_nothing(clock: FakeClock) -> None:
    limiter = Limiter(clock, rate=0)
    assert {limiter.when("a") for _ in range(10_000)} >= {1000.0}


async def test_without_doubling_every_failure_waits_the_same(clock: FakeClock) -> None:
    limiter = Limiter(clock, base=15, maximum=15, rate=0)
    assert [limiter.when("a") for _ in range(3)] == [15, 15, 15]


async def test_the_shared_bucket_delays_what_comes_after_the_burst(clock: FakeClock) -> None:
    limiter = Limiter(clock, base=1, maximum=1, rate=10, burst=100)
    delays = [limiter.when(f"key-{number}") for number in range(130)]
    assert delays[:110] == [1.0] * 110
    assert delays[110:112] == pytest.approx([1.1, 1.2])
    assert delays[129] == pytest.approx(3.0)
    await clock.advance(13)
    assert limiter.when("later") == 1.0


async def test_after_shut_down_adds_are_dropped_and_queued_keys_are_handed_out(
    queue: WorkQueue, clock: FakeClock
) -> None:
    queue.add("a")
    queue.add_after("b", 1)
    queue.shut_down()
    queue.add("c")
    await clock.advance(2)
    assert await queue.get() == "a"
    queue.done("a")
    assert await queue.get() is None


async def test_shut_down_wakes_every_waiting_worker(queue: WorkQueue, clock: FakeClock) -> None:
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await clock.settle()
    queue.shut_down()
    assert await asyncio.gather(*workers) == [None, None, None]


async def test_a_failed_key_may_be_made_to_wait_longer(queue: WorkQueue, clock: FakeClock) -> None:
    queue.retry("a", at_least=300)
    await clock.advance(299)
    assert exhausted(queue)
    await clock.advance(1)
    assert await queue.get() == "a"


KEYS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS),
        st.tuples(st.just("after"), KEYS, st.integers(0, 5)),
        st.tuples(st.just("get"), st.just("")),
        st.tuples(st.just("done"), KEYS),
        st.tuples(st.just("pass"), st.integers(1, 4)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_any_sequence_of_steps_behaves_as_a_set_with_one_worker_per_key(steps: list[tuple[str, ...]]) -> None:
    asyncio.run(check_against_model(steps))


async def check_against_model(steps: list[tuple[str, ...]]) -> None:
    clock = FakeClock()
    queue = WorkQueue(clock, Limiter(clock))
    order: list[str] = []
    dirty: set[str] = set()
    working: set[str] = set()
    due: dict[str, float] = {}

    def add(key: str) -> None:
        if key not in dirty:
            dirty.add(key)
            if key not in working:
                order.append(key)

    for verb, *args in steps:
        if verb == "add":
            queue.add(args[0])
            add(args[0])
        elif verb == "after":
            queue.add_after(args[0], float(args[1]))
            if args[1]:
                moment = clock.monotonic() + float(args[1])
                due[args[0]] = min(due.get(args[0], moment), moment)
            else:
                add(args[0])
        elif verb == "get" and order:
            key = order.pop(0)
            assert await queue.get() == key
            assert key not in working
            dirty.discard(key)
            working.add(key)
        elif verb == "done" and args[0] in working:
            queue.done(args[0])
            working.discard(args[0])
            if args[0] in dirty:
                order.append(args[0])
        elif verb == "pass":
            await clock.settle()
            target = clock.monotonic() + float(args[0])
            for moment in sorted(set(due.values())):
                if moment <= target:
                    await clock.advance(moment - clock.monotonic())
                    ready = [key for key, when in due.items() if when == moment]
                    for key in ready:
                        del due[key]
                    # Among keys of one moment the queue's order is its own; take it over.
                    before = set(order)
                    for key in ready:
                        add(key)
                    assert set(order) - before <= set(ready)
            await clock.advance(target - clock.monotonic())
        await clock.settle()
        assert len(queue) == len(order)
        order.sort(key=list(queue._order).index)
        assert list(queue._order) == order
    queue.shut_down()
    await clock.settle()
