"""Runs hooks on threads, so that a slow or hung hook holds up nothing but its own volume.

Each backend has a :class:`HookPool` of its own: a bounded number of daemon threads and a queue. A call belongs to a key
(a volume's name), and a key has one call at a time. A call past its limit is *late*: its caller gets
:exc:`~prov_host.errors.HookTimeout` at once, its thread goes on (Python cannot stop it), and its key stays busy until
the thread returns. Meanwhile further calls for that key are refused without taking a thread; when the thread returns
at last, :meth:`HookPool.on_return` tells who waits. If all threads are late, further calls wait a bounded time for one
and are then withdrawn: a call that its caller has given up never starts afterwards. A thread that cannot be started is
not counted: the call waits for one of the others, is refused if there is none, and the next call tries again.

Everything but the running of the hook happens on the event loop, so only the queue needs a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from prov_host.clock import Clock
from prov_host.errors import HookTimeout, PluginError
from prov_host.output import STARTED_BY, HostThread, as_plugin, words_of
from prov_host.starting import NoThread, start_thread

__all__ = ["HookPool", "Late", "call_limited", "seconds_text"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


def seconds_text(seconds: float) -> str:
    """A duration for people: ``0.25 s``, ``42 s``, ``12 min``. Callable from any thread. Since 0.1."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class Late(msgspec.Struct, frozen=True):
    """A hook that was given up and has not returned. Since 0.1.

    Attributes:
        key: the volume's name.
        what: the hook's name.
        seconds: since it was started.
    """

    key: str
    what: str
    seconds: float


class _Call:
    """One call on its way; ``started_at`` and ``withdrawn`` are guarded by the pool's lock."""

    __slots__ = ("asked_at", "done", "error", "function", "key", "late", "result", "started_at", "what", "withdrawn")

    def __init__(self, key: str, what: str, function: Callable[[], Any], asked_at: float) -> None:
        self.key = key
        self.what = what
        # In the caller's context, so that log lines of the hook say what it works on.
        self.function: Callable[[], Any] | None = functools.partial(contextvars.copy_context().run, function)
        self.asked_at = asked_at
        self.started_at: float | None = None
        self.withdrawn = False
        self.late = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.result: Any = None
        self.error: Exception | None = None


class HookPool:
    """Bounded daemon threads for one plugin's hooks.

    Args:
        plugin: the plugin's name; threads, logs and errors carry it.
        size: how many threads at most; they are started as needed.
        clock: measures the limits.
        queue_wait: seconds a call waits for a free thread at most.

    All methods are called on the event loop. Since 0.1.
    """

    def __init__(self, plugin: str, *, size: int, clock: Clock, queue_wait: float = 30.0) -> None:
        self._plugin = plugin
        self._size = size
        self._clock = clock
        self._queue_wait = queue_wait
        self._busy: dict[str, _Call] = {}
        self._wakes: list[Callable[[str], None]] = []
        self._threads = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        # The queue is a dict for its order and for withdrawing in constant time.
        self._queue: dict[_Call, None] = {}
        self._ready = threading.Condition()

    @property
    def size(self) -> int:
        """How many threads it has at most."""
        return self._size

    @property
    def active(self) -> int:
        """Calls that wait or run now, late ones included."""
        return len(self._busy)

    def late(self) -> tuple[Late, ...]:
        """The hooks that were given up and have not returned, oldest first."""
        now = self._clock.monotonic()
        found = [Late(c.key, c.what, now - (c.started_at or c.asked_at)) for c in self._busy.values() if c.late]
        return tuple(sorted(found, key=lambda late: -late.seconds))

    def on_return(self, wake: Callable[[str], None]) -> None:
        """Call ``wake(key)``, on the loop, whenever a late call has returned."""
        self._wakes.append(wake)

    async def run(self, key: str, what: str, function: Callable[[], T], *, limit: float | None = None) -> T:
        """Run ``function`` on a thread.

        Args:
            key: never two calls at once for one key.
            what: the hook's name, for messages.
            function: called without arguments, on a thread of the pool.
            limit: seconds it may run; None or 0 means no limit.

        Returns:
            What it returned.

        Raises:
            HookTimeout: it is past its limit; an earlier call for the key is; no thread became free; or none could be
                started (then its cause is a NoThread).
            PluginError: it raised a BaseException that is no Exception (``SystemExit`` for example).
            Exception: what it raised.
        """
        asked_at = self._clock.monotonic()
        if self._closed:
            raise HookTimeout(f"{what} of {key}: the pool of plugin {self._plugin} is closed")
        await self._wait_for_turn(key, what, asked_at + (limit or self._queue_wait))
        call = _Call(key, what, function, self._clock.monotonic())
        self._busy[key] = call
        self._submit(call)
        try:
            await self._wait_for_return(call, limit)
        except BaseException:  # the deadline, or the caller was cancelled
            if not self._withdraw(call):
                call.late = True
            raise
        if call.error is not None:
            try:
                raise call.error
            finally:
                call.error = None  # a traceback that holds its own frame would keep everything alive
        return cast(T, call.result)

    async def _wait_for_turn(self, key: str, what: str, deadline: float) -> None:
        while (earlier := self._busy.get(key)) is not None:
            now = self._clock.monotonic()
            if not earlier.late and now < deadline:
                await self._wait(earlier.done, deadline - now)
                continue
            age = seconds_text(now - (earlier.started_at or earlier.asked_at))
            raise HookTimeout(
                f"{what} of {key} by plugin {self._plugin} has to wait: an earlier {earlier.what} timed out and is"
                f" still running, since {age}; it will be tried again when that returns"
            )

    async def _wait_for_return(self, call: _Call, limit: float | None) -> None:
        while not call.done.done():
            now = self._clock.monotonic()
            if call.started_at is None:
                left = call.asked_at + self._queue_wait - now
                if left <= 0 and self._withdraw(call):
                    raise HookTimeout(
                        f"{call.what} of {call.key} timed out: all {self._threads} threads of plugin {self._plugin}"
                        f" have been busy for {seconds_text(self._queue_wait)} ({len(self.late())} of them hang);"
                        " it will be tried again"
                    )
                if limit:
                    left = min(left, limit)
            elif not limit:
                await call.done
                return
            else:
                left = call.started_at + limit - now
                if left <= 0:
                    raise HookTimeout(
                        f"{call.what} of {call.key} by plugin {self._plugin} timed out after {seconds_text(limit)} and"
                        " may still be running; it will be asked again when it has returned"
                    )
            await self._wait(call.done, left)

    async def _wait(self, future: asyncio.Future[None], seconds: float) -> None:
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((future, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()

    def _submit(self, call: _Call) -> None:
        self._loop = asyncio.get_running_loop()
        with self._ready:
            self._queue[call] = None
            self._ready.notify()
        if self._threads >= min(len(self._busy), self._size):
            return
        try:
            start_thread(HostThread(self._work, f"hooks of {self._plugin} #{self._threads + 1}"))
        except NoThread as error:
            logger.warning("plugin %s: %s", self._plugin, error)
            if self._threads:
                return  # one of those takes it
            self._withdraw(call)
            raise HookTimeout(
                f"{call.what} of {call.key} by plugin {self._plugin} was not begun: {error}; it will be tried again"
            ) from error
        self._threads += 1

    def _withdraw(self, call: _Call) -> bool:
        """Take a call out of the queue unless a thread has it already."""
        with self._ready:
            if call.started_at is not None:
                return False
            call.withdrawn = True
            self._queue.pop(call, None)
        self._release(call)
        return True

    def _release(self, call: _Call) -> None:
        if self._busy.get(call.key) is call:
            del self._busy[call.key]
        if not call.done.done():
            call.done.set_result(None)

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closed:
                    self._ready.wait()
                if not self._queue:
                    return
                call = next(iter(self._queue))
                del self._queue[call]
                call.started_at = self._clock.monotonic()
            function, call.function = call.function, None
            assert function is not None
            try:
                call.result = as_plugin(self._plugin, function)
            except Exception as error:  # noqa: BLE001  raised again where the call was awaited
                call.error = error
            except BaseException as error:  # noqa: BLE001  a plugin's sys.exit ends its call, not the host
                call.error = PluginError(f"{call.what} raised {words_of(error)}")
                call.error.__cause__ = error
            del function
            # The loop is closed when the host has ended without this call: nobody is left to tell.
            with contextlib.suppress(RuntimeError):
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._returned, call)
            del call

    def _returned(self, call: _Call) -> None:
        self._release(call)
        if not call.late:
            return
        age = seconds_text(self._clock.monotonic() - (call.started_at or call.asked_at))
        logger.warning("%s of %s by plugin %s returned late, after %s", call.what, call.key, self._plugin, age)
        for wake in self._wakes:
            try:
                wake(call.key)
            except Exception:
                logger.exception("waking %s failed", call.key)

    def close(self) -> None:
        """Let idle threads end; running hooks go on and are ignored. Idempotent."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()


def call_limited(plugin: str, what: str, function: Callable[[], T], *, limit: float) -> T:
    """Run a plugin's code once, before the loop runs, and wait a limited time for it.

    Args:
        plugin: the plugin's name.
        what: what is done, for the message: ``"import"``, ``"configure"``.
        function: called without arguments on a daemon thread of its own.
        limit: seconds to wait.

    Returns:
        What it returned.

    Raises:
        PluginError: it did not return in time, could not be begun, or raised a BaseException that is no Exception.
        Exception: what it raised.

    Callable from any thread. Since 0.1.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(cast(T, as_plugin(plugin, function)))
        except BaseException as error:  # noqa: BLE001  handed to the caller below
            failure.append(error)

    thread = HostThread(run, f"{what} of {plugin}")
    before = set(threading.enumerate())
    try:
        start_thread(thread)
    except NoThread as none:
        raise PluginError(f"{what} was not begun: {none}") from none
    thread.join(limit)
    for started in set(threading.enumerate()) - before:
        if not isinstance(started, HostThread):
            STARTED_BY[started] = plugin
    if thread.is_alive():
        raise PluginError(f"{what} has not returned within {seconds_text(limit)}")
    if not failure:
        return result[0]
    error = failure.pop()
    if isinstance(error, Exception):
        raise error
    raise PluginError(f"{what} raised {words_of(error)}") from error
