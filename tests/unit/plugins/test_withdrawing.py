"""An operation that had to wait asks once more, on the hook's thread, whether it is still wanted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from prov_host.controller.backend import Withdrawn
from prov_host.hookspecs import hookimpl
from prov_host.model import Removed, Volume
from prov_host.plugins import Plugin
from prov_host.routing import Limits, Observers, PluginBackend
from prov_host.testing.clock import FakeClock


class Setting:
    """A backend that counts, on a clock that the test moves."""

    def __init__(self, make_plugin: Callable[..., Plugin], backend_class: type, **limits: Any) -> None:
        called = self.called = []  # type: list[str]

        class Counting(backend_class):
            @hookimpl
            def delete(self, volume: Volume) -> None:
                called.append("delete")

            @hookimpl
            def archive(self, volume: Volume) -> Removed:
                called.append("archive")
                return Removed()

        owner = make_plugin("owner", Counting)
        self.clock = FakeClock()
        observers = Observers([owner])
        self.backend = PluginBackend(owner, [owner], observers=observers, clock=self.clock, limits=Limits(**limits))


@pytest.mark.parametrize("hook", ["delete", "archive"])
async def test_what_is_not_wanted_any_more_is_not_begun(
    make_plugin: Callable[..., Plugin], backend_class: type, volume: Volume, hook: str
) -> None:
    setting = Setting(make_plugin, backend_class)
    asked_on: list[str] = []

    def still() -> bool:
        asked_on.append(threading.current_thread().name)
        return len(asked_on) > 1

    call = getattr(setting.backend, hook)
    with pytest.raises(Withdrawn, match=f"{hook} of {volume.name} is not wanted any more"):
        await call(volume, still=still)
    assert setting.called == []
    assert await call(volume, still=still) == Removed()
    assert setting.called == [hook]
    assert all(name.startswith("hooks of owner") for name in asked_on)
    setting.backend.close()


async def test_a_decision_during_the_wait_for_the_rate_limit_counts(
    make_plugin: Callable[..., Plugin], backend_class: type, volume: Volume
) -> None:
    setting = Setting(make_plugin, backend_class, qps=0.1, burst=1)
    wanted = {"now"}
    await setting.backend.delete(volume, still=lambda: bool(wanted))
    waiting = asyncio.ensure_future(setting.backend.delete(volume, still=lambda: bool(wanted)))
    await setting.clock.advance(5)
    assert not waiting.done()
    wanted.clear()
    await setting.clock.advance(5)
    with pytest.raises(Withdrawn):
        await waiting
    assert setting.called == ["delete"]
    setting.backend.close()
