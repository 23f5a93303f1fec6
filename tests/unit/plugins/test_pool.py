from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from prov_host.about import about, what_about
from prov_host.clock import SystemClock
from prov_host.errors import HookTimeout, PluginError
from prov_host.pool import HookPool, call_limited
from prov_host.starting import start_thread
from prov_host.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Hooks hang on it; opened at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def pool_of(clock: FakeClock, size: int = 2) -> HookPool:
    return HookPool("slow", size=size, clock=clock, queue_wait=30.0)


async def started(pool: HookPool, count: int) -> None:
    for _ in range(2000):
        if sum(call.started_at is not None for call in pool._busy.values()) == count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("never started")


async def test_a_hook_answers_from_a_thread_of_the_pool(clock: FakeClock) -> None:
    pool = pool_of(clock)
    assert await pool.run("pv", "provision", lambda: threading.current_thread().name) == "hooks of slow #1"
    assert pool.active == 0


async def test_a_hook_works_on_what_its_caller_works_on(clock: FakeClock) -> None:
    pool = pool_of(clock, size=1)
    with about({"claim": "default/a"}):
        assert await pool.run("a", "provision", what_about) == {"claim": "default/a"}
    with about({"claim": "default/b"}):
        assert await pool.run("b", "provision", what_about) == {"claim": "default/b"}
    assert await pool.run("c", "provision", what_about) == {}
    pool.close()


async def test_what_a_hook_raises_comes_out(clock: FakeClock) -> None:
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await pool_of(clock).run("pv", "provision", broken)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
async def test_an_exception_that_would_end_the_host_ends_only_the_call(
    clock: FakeClock, kind: type[BaseException]
) -> None:
    pool = pool_of(clock)

    def leave() -> None:
        raise kind("bye")

    with pytest.raises(PluginError, match=f"provision raised {kind.__name__}: bye"):
        await pool.run("pv", "provision", leave)
    assert await pool.run("pv", "provision", lambda: 1) == 1


async def test_a_hook_past_its_limit_times_out_and_keeps_its_key_busy(clock: FakeClock, gate: threading.Event) -> None:
    pool = pool_of(clock)
    call = asyncio.ensure_future(pool.run("pv-1", "provision", gate.wait, limit=120))
    await started(pool, 1)
    await clock.advance(119)
    assert not call.done()
    await clock.advance(1)
    with pytest.raises(HookTimeout, match="provision of pv-1 by plugin slow timed out after 2 min"):
        await call
    await clock.advance(60)
    with pytest.raises(HookTimeout, match=r"earlier provision timed out and is still running, since 3 min"):
        await pool.run("pv-1", "delete", lambda: None, limit=120)
    assert [(late.key, late.what, late.seconds) for late in pool.late()] == [("pv-1", "provision", 180.0)]
    assert await pool.run("pv-2", "provision", lambda: 2) == 2


async def test_a_late_return_wakes_who_waits_and_frees_the_key(clock: FakeClock, gate: threading.Event) -> None:
    pool = pool_of(clock)
    woken: list[str] = []
    pool.on_return(woken.append)
    pool.on_return(lambda key: 1 / 0)  # type: ignore[arg-type,return-value]  # a broken waker must not matter
    call = asyncio.ensure_future(pool.run("pv-1", "provision", gate.wait, limit=5))
    await started(pool, 1)
    await clock.advance(5)
    with pytest.raises(HookTimeout):
        await call
    assert woken == []
    gate.set()
    await clock.run_until(lambda: woken)
    assert woken == ["pv-1"]
    assert pool.late() == ()
    assert await pool.run("pv-1", "provision", lambda: "again") == "again"


async def test_a_return_in_time_wakes_nobody(clock: FakeClock) -> None:
    pool = pool_of(clock)
    woken: list[str] = []
    pool.on_return(woken.append)
    await pool.run("pv-1", "provision", lambda: None, limit=5)
    assert woken == []


async def test_two_calls_for_one_key_run_one_after_the_other(clock: FakeClock, gate: threading.Event) -> None:
    pool = pool_of(clock, size=4)
    running: list[int] = []
    seen: list[int] = []

    def work() -> None:
        running.append(1)
        seen.append(len(running))
        gate.wait(0.02)
        running.pop()

    await asyncio.gather(*(pool.run("pv", "provision", work) for _ in range(5)))
    assert seen == [1, 1, 1, 1, 1]


async def test_when_all_threads_hang_a_call_waits_a_bounded_time_and_never_starts_afterwards(
    clock: FakeClock, gate: threading.Event
) -> None:
    pool = pool_of(clock, size=2)
    hung = [asyncio.ensure_future(pool.run(f"hung-{n}", "provision", gate.wait, limit=10)) for n in range(2)]
    await started(pool, 2)
    ran: list[str] = []
    waiting = asyncio.ensure_future(pool.run("pv", "provision", lambda: ran.append("pv"), limit=120))
    await clock.advance(30)
    with pytest.raises(HookTimeout, match=r"all 2 threads of plugin slow have been busy for 30 s \(2 of them hang\)"):
        await waiting
    gate.set()
    await asyncio.wait(hung)
    assert all(isinstance(one.exception(), HookTimeout) for one in hung)
    assert await pool.run("pv", "provision", lambda: "after") == "after"
    assert ran == []


async def test_a_cancelled_call_that_runs_keeps_its_key_busy(clock: FakeClock, gate: threading.Event) -> None:
    pool = pool_of(clock)
    call = asyncio.ensure_future(pool.run("pv", "provision", gate.wait, limit=120))
    await started(pool, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(HookTimeout):
        await pool.run("pv", "provision", lambda: None)


async def test_a_cancelled_call_in_the_queue_is_withdrawn(clock: FakeClock, gate: threading.Event) -> None:
    pool = pool_of(clock, size=1)
    ran: list[str] = []
    first = asyncio.ensure_future(pool.run("a", "provision", gate.wait))
    await started(pool, 1)
    second = asyncio.ensure_future(pool.run("b", "provision", lambda: ran.append("b")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    gate.set()
    await first
    assert await pool.run("b", "provision", lambda: "new") == "new"
    assert ran == []


async def test_the_pool_starts_no_more_threads_than_it_needs(clock: FakeClock) -> None:
    pool = pool_of(clock, size=8)
    for _ in range(20):
        await pool.run("pv", "provision", lambda: None)
    assert pool._threads == 1
    await asyncio.gather(*(pool.run(f"pv-{n}", "provision", lambda: None) for n in range(50)))
    assert pool._threads <= 8


async def test_idle_threads_end_with_the_pool(clock: FakeClock) -> None:
    pool = pool_of(clock)
    thread = await pool.run("pv", "provision", threading.current_thread)
    pool.close()
    thread.join(5)
    assert not thread.is_alive()
    with pytest.raises(HookTimeout, match="closed"):
        await pool.run("pv", "provision", lambda: None)


async def test_the_real_clock_measures_the_limit_too(gate: threading.Event) -> None:
    pool = HookPool("slow", size=1, clock=SystemClock())
    with pytest.raises(HookTimeout, match=r"after 0\.02 s"):
        await pool.run("pv", "provision", gate.wait, limit=0.02)


def a_shortage(patch: pytest.MonkeyPatch) -> None:
    """From now on, the system has no thread to give."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    patch.setattr(threading.Thread, "start", start)


async def test_a_call_without_a_thread_is_refused_and_never_runs_and_the_pool_lives_on(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(clock, size=2)
    ran: list[str] = []
    with monkeypatch.context() as patch:
        a_shortage(patch)
        for _ in range(3):
            with pytest.raises(HookTimeout, match=r"delete of pv .* was not begun: could not start .* tried again"):
                await pool.run("pv", "delete", lambda: ran.append("refused"))
        assert pool.active == 0
    await asyncio.gather(*(pool.run(f"pv-{n}", "delete", lambda: ran.append("later")) for n in range(3)))
    assert await pool.run("pv", "delete", lambda: 1) == 1
    assert ran == ["later"] * 3
    assert pool._threads == 2


async def test_a_call_without_a_thread_of_its_own_waits_for_another_one(
    clock: FakeClock, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pool_of(clock, size=2)
    first = asyncio.ensure_future(pool.run("a", "provision", gate.wait))
    await started(pool, 1)
    with monkeypatch.context() as patch:
        a_shortage(patch)
        second = asyncio.ensure_future(pool.run("b", "provision", lambda: threading.current_thread().name))
        await asyncio.sleep(0)
    assert "plugin slow: could not start the thread 'hooks of slow #2'" in caplog.text
    assert not second.done()
    assert await pool.run("c", "provision", lambda: threading.current_thread().name) == "hooks of slow #2"
    gate.set()
    await first
    assert (await second).startswith("hooks of slow #")


def test_an_import_without_a_thread_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        a_shortage(patch)
        with pytest.raises(PluginError, match="import was not begun: could not start the thread"):
            call_limited("slow", "import", lambda: None, limit=5)


def test_a_second_start_is_a_mistake_and_no_shortage() -> None:
    thread = threading.Thread(target=lambda: None)
    start_thread(thread)
    thread.join()
    with pytest.raises(RuntimeError, match="once"):
        start_thread(thread)


def test_a_hanging_import_is_given_up(gate: threading.Event) -> None:
    with pytest.raises(PluginError, match=r"import has not returned within 0\.02 s"):
        call_limited("slow", "import", gate.wait, limit=0.02)


def test_sys_exit_at_import_is_an_error_of_the_plugin(gate: threading.Event) -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(PluginError, match="import raised SystemExit: 3"):
        call_limited("slow", "import", leave, limit=5)


def test_what_a_plugin_prints_is_logged(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    from prov_host.output import plugin_output_to_log

    def chatty() -> None:
        print("hello")
        print("no newline", end="")

    caplog.set_level("INFO")
    with plugin_output_to_log():
        call_limited("chatty", "import", chatty, limit=5)
        print("the host's own")
        thread = threading.Thread(target=lambda: print("from a thread of its own"))
        thread.start()
        thread.join()
    assert capsys.readouterr().out == "the host's own\n"
    assert [record.getMessage() for record in caplog.records] == [
        "plugin chatty printed: hello",
        "plugin chatty printed: no newline",
        "plugin (its own thread) printed: from a thread of its own",
    ]
