"""One operation per volume name at a time; claims that cannot work are left alone for a while."""

from __future__ import annotations

import asyncio

import pytest

from prov_host.controller.locks import KeyLocks
from prov_host.controller.slowset import SlowSet
from prov_host.model import ObjectMeta, StorageClass
from prov_host.testing.clock import FakeClock


async def test_two_users_of_one_name_come_one_after_the_other() -> None:
    locks = KeyLocks()
    inside: list[str] = []
    gate = asyncio.Event()

    async def use(who: str, name: str) -> None:
        async with locks.hold(name):
            inside.append(who)
            await gate.wait()

    tasks = [asyncio.create_task(use(who, name)) for who, name in (("a", "x"), ("b", "x"), ("c", "y"))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert inside == ["a", "c"]
    gate.set()
    await asyncio.gather(*tasks)
    assert inside == ["a", "c", "b"]
    assert not locks.held("x")


async def test_a_lock_is_free_again_after_an_error_and_a_cancellation() -> None:
    locks = KeyLocks()
    with pytest.raises(RuntimeError):
        async with locks.hold("x"):
            raise RuntimeError
    async with locks.hold("x"):
        waiting = asyncio.create_task(locks.hold("x").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert locks.held("x")
    assert not locks.held("x")


def a_class(uid: str = "1", version: str = "1", **fields: object) -> StorageClass:
    return StorageClass(metadata=ObjectMeta(name="c", uid=uid, resource_version=version), **fields)  # type: ignore[arg-type]


async def test_a_claim_is_left_alone_until_its_time_is_over() -> None:
    clock = FakeClock()
    slow = SlowSet(clock, 300)
    slow.add("claim", a_class())
    assert slow.remaining("claim", a_class()) == 300
    await clock.advance(100)
    slow.add("claim", a_class())
    assert slow.remaining("claim", a_class(version="2")) == 200
    assert slow.remaining("other", a_class()) == 0
    await clock.advance(200)
    assert slow.remaining("claim", a_class()) == 0
    assert "claim" not in slow


@pytest.mark.parametrize("changed", [a_class(uid="2"), a_class(mount_options=("ro",)), a_class(parameters={"a": "b"})])
async def test_a_class_that_is_another_now_ends_the_delay(changed: StorageClass) -> None:
    slow = SlowSet(FakeClock(), 300)
    slow.add("claim", a_class())
    assert slow.remaining("claim", None) == 0
    assert "claim" in slow
    assert slow.remaining("claim", changed) == 0
    assert "claim" not in slow
