from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from prov_host.context import PluginContext
from prov_host.errors import NotSynced
from prov_host.hookspecs import HostContext, hookimpl
from prov_host.model import Claim, Note, ObjectMeta, Volume
from prov_host.plugins import Plugin
from prov_host.readiness import Readiness
from prov_host.testing.clock import FakeClock
from prov_host.threads import count_by_plugin, owner_of, watch_threads


class FakeCache:
    def __init__(self, *objects: Any) -> None:
        self.objects = objects

    def values(self) -> tuple[Any, ...]:
        return self.objects


class FakeEvents:
    def __init__(self) -> None:
        self.emitted: list[tuple[str, str, str]] = []

    def emit(self, regarding: Any, *, type: str, reason: str, message: str) -> None:
        self.emitted.append((type, reason, message))


def named(name: str) -> Volume:
    return Volume(metadata=ObjectMeta(name=name))


class FakeWorld:
    def __init__(self) -> None:
        self.volumes = FakeCache(named("a"), named("b"))
        self.claims = FakeCache(Claim())
        self.classes = FakeCache()
        self.events = FakeEvents()
        self.synced = True

    def being_saved(self) -> list[Volume]:
        return [named("b"), named("c")]


def test_it_is_what_plugins_are_promised() -> None:
    context: HostContext = PluginContext("p", node_name="n")
    assert (context.plugin, context.node_name) == ("p", "n")
    assert context.registry is context.registry


@pytest.mark.parametrize("ask", ["volumes", "claims", "storage_classes"])
def test_what_exists_is_not_told_before_the_caches_are_filled(ask: str) -> None:
    context = PluginContext("p")
    assert not context.synced()
    with pytest.raises(NotSynced):
        getattr(context, ask)()
    world = FakeWorld()
    world.synced = False
    context.attach(world)  # type: ignore[arg-type]
    assert not context.synced()
    with pytest.raises(NotSynced):
        getattr(context, ask)()
    world.synced = True
    getattr(context, ask)()


def test_an_event_before_there_is_a_cluster_is_only_logged() -> None:
    PluginContext("p").event(named("a"), Note("Reason", "nobody hears it"))


def test_volumes_that_are_being_saved_are_among_the_volumes() -> None:
    context = PluginContext("p")
    context.attach(FakeWorld())  # type: ignore[arg-type]
    assert context.synced()
    assert [volume.name for volume in context.volumes()] == ["a", "b", "c"]
    assert len(context.claims()) == 1


def test_an_event_of_an_unknown_type_is_a_warning() -> None:
    world = FakeWorld()
    context = PluginContext("p")
    context.attach(world)  # type: ignore[arg-type]
    context.event(named("a"), Note("R", "m", "Fatal"))
    context.event(named("a"), Note("R", "m"))
    assert world.events.emitted == [("Warning", "R", "m"), ("Normal", "R", "m")]


def test_a_job_runs_again_and_again_whatever_it_raises(caplog: pytest.LogCaptureFixture) -> None:
    context = PluginContext("p")
    runs = threading.Semaphore(0)

    def job() -> None:
        runs.release()
        raise SystemExit("bye")

    context.every("sweep", 0.001, job)
    context.configured()
    assert not runs.acquire(timeout=0.02)  # not before this process serves
    context.start_jobs()
    context.start_jobs()
    for _ in range(3):
        assert runs.acquire(timeout=5)
    context.stop_jobs()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["job sweep of plugin p failed, and will be tried again: SystemExit: bye"]


def test_a_job_without_a_thread_is_begun_later_and_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = PluginContext("p")
    runs: list[str] = []
    both = threading.Semaphore(0)

    def job(name: str) -> None:
        runs.append(name)
        both.release()

    context.every("a", 1000, functools.partial(job, "a"))
    context.every("b", 1000, functools.partial(job, "b"))
    real = threading.Thread.start
    left = [1]

    def start(self: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert not context.start_jobs()
        assert not context.start_jobs()
    assert "job b of plugin p waits: could not start the thread 'job b of p'" in caplog.text
    assert context.start_jobs()
    assert context.start_jobs()
    assert both.acquire(timeout=5)
    assert both.acquire(timeout=5)
    context.stop_jobs()
    assert sorted(runs) == ["a", "b"]


def test_jobs_are_set_up_in_configure_only() -> None:
    context = PluginContext("p")
    context.every("a", 1, lambda: None)
    with pytest.raises(ValueError, match="called twice"):
        context.every("a", 1, lambda: None)
    with pytest.raises(ValueError, match="more than 0"):
        context.every("b", 0, lambda: None)
    context.configured()
    with pytest.raises(RuntimeError, match="in configure only"):
        context.every("c", 1, lambda: None)


def checking(answer: Any) -> Any:
    class Checking:
        @hookimpl
        def check(self) -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer() if callable(answer) else answer

    return Checking


@pytest.mark.parametrize(
    ("answer", "problems"),
    [
        (None, ()),
        ([], ()),
        (["the share is not mounted"], ("the share is not mounted",)),
        ("the share is not mounted", ("the share is not mounted",)),
        (OSError("stale"), ("check failed: OSError: stale",)),
        (SystemExit(1), ("check raised SystemExit: 1",)),
        (True, ("check returned True; it must return sentences, or nothing when all is well",)),
        (7, ("check returned 7; it must return sentences, or nothing when all is well",)),
    ],
)
async def test_readiness_is_what_check_answers(
    make_plugin: Callable[..., Plugin], answer: Any, problems: tuple[str, ...]
) -> None:
    told: list[bool] = []
    readiness = Readiness(make_plugin("p", checking(answer)), FakeClock(), changed=lambda p, ready: told.append(ready))
    assert not readiness.ready
    assert await readiness.check() == problems
    assert readiness.ready is not bool(problems)
    assert told == [readiness.ready]
    readiness.close()


async def test_a_check_without_a_thread_says_so_and_the_next_one_looks_again(
    make_plugin: Callable[..., Plugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    readiness = Readiness(make_plugin("p", checking(None)), FakeClock())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        (problem,) = await readiness.check()
    assert problem.startswith("check was not begun: could not start the thread 'hooks of p #1'")
    assert await readiness.check() == ()
    readiness.close()


async def test_a_plugin_without_a_check_is_ready(make_plugin: Callable[..., Plugin], backend_class: Any) -> None:
    readiness = Readiness(make_plugin("p", backend_class), FakeClock())
    await readiness.run()
    assert readiness.ready


async def test_a_hung_check_makes_it_not_ready_until_it_returns(make_plugin: Callable[..., Plugin]) -> None:
    import asyncio

    gate, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        gate.wait(10)

    clock = FakeClock()
    readiness = Readiness(make_plugin("p", checking(hang)), clock, limit=5)
    first = asyncio.ensure_future(readiness.check())
    while not begun.is_set():
        await asyncio.sleep(0.001)
    await clock.advance(5)
    assert await first == ("check has not returned for 5 s: its storage may hang",)
    await clock.advance(60)
    assert await readiness.check() == ("check has not returned for 65 s: its storage may hang",)
    gate.set()
    while readiness._pool.active:
        await asyncio.sleep(0.001)
    assert await readiness.check() == ()
    readiness.close()


def test_a_thread_that_a_plugin_left_is_named(make_plugin: Callable[..., Plugin], backend_class: Any) -> None:
    plugin = make_plugin("leaky", type("Leaky", (backend_class,), {"__module__": "leaky_package.inner"}))
    code = "def work(event):\n    event.wait(10)\n"
    namespace: dict[str, Any] = {"__name__": "leaky_package.helper"}
    exec(code, namespace)
    gate = threading.Event()
    # Started through somebody else's code, as a pool's threads are.
    thread = threading.Thread(target=lambda: namespace["work"](gate))
    thread.start()
    mine = threading.current_thread()
    try:
        while not owner_of(thread, [plugin]):
            pass
        assert owner_of(thread, [plugin]) == "plugin leaky (leaky-package 1.0)"
        assert owner_of(mine, [plugin]) == ""
        assert count_by_plugin([thread, mine], [plugin]) == {"plugin leaky (leaky-package 1.0)": 1}
    finally:
        gate.set()
        thread.join()


async def test_a_plugin_with_more_and_more_threads_is_named_once_for_each_doubling(
    make_plugin: Callable[..., Plugin], backend_class: Any, caplog: pytest.LogCaptureFixture
) -> None:
    import asyncio

    plugin = make_plugin("leaky", type("Leaky", (backend_class,), {"__module__": "leaky_package"}))
    namespace: dict[str, Any] = {"__name__": "leaky_package"}
    exec("def work(event):\n    event.wait(10)\n", namespace)
    gate = threading.Event()
    threads = [threading.Thread(target=namespace["work"], args=(gate,)) for _ in range(4)]
    clock = FakeClock()
    watching = asyncio.ensure_future(watch_threads([plugin], clock, many=2))
    try:
        for thread in threads[:2]:
            thread.start()
        await clock.advance(600)
        for thread in threads[2:]:
            thread.start()
        await clock.advance(600)
    finally:
        gate.set()
        watching.cancel()
        for thread in threads:
            thread.join()
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(";")[0] for text in said] == [
        "plugin leaky (leaky-package 1.0) has 2 threads of its own",
        "plugin leaky (leaky-package 1.0) has 4 threads of its own",
    ]
