"""Keeps a store equal to what the API server holds of one kind: fill it, follow the watch, and never lose the thread.

::

    fill ──────────────> follow ──────────────────> (server ends the watch, or it broke) ──> follow again
     ^  WatchList or list   │  each line: store        from the last resourceVersion
     └──────────────────────┘
        the version has expired, or the stream makes no sense

**Filling** asks for a WatchList (the initial objects as a stream, which costs the server a fraction of a list); a
server that refuses it gets an ordinary paged list, from then on. The cache keeps its old content until the new one is
complete, and what vanished meanwhile is told as deleted.

**Following** goes on from the resourceVersion of the list, the last event or the last bookmark: opaque text that is
never compared or computed with. The server is asked to end each watch after five to ten minutes, at random, so that
many reflectors spread over its replicas; a connection on which nothing arrives for four minutes is dead, whatever TCP
believes (on a quiet 1.37 server the first bookmark comes after two minutes).

**Failing** is normal. Refused connections, 429 and 5xx mean "the same again, later": the watch goes on where it was.
410 and everything else that does not make sense mean "fill again". The waits grow from 0.8 s to 30 s, with jitter, and
start over after two quiet minutes; a server may ask for a longer pause, but not for more than 30 s. Nothing but
cancellation ends :meth:`Reflector.run`.

A **resync** tells the handlers of every object once more, from the cache; no request is made for it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Generic, TypeVar

import msgspec

from prov_host.clock import Clock
from prov_host.errors import ApiError, ApiUnavailable, Gone, TooManyRequests
from prov_host.kube.api import Resource
from prov_host.kube.backoff import Backoff
from prov_host.kube.client import Client, WatchEvent
from prov_host.kube.failures import is_garbled, is_too_large_version
from prov_host.kube.store import Store, key_of

__all__ = ["Reflector"]

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)
_SLICE = 500  # handlers told in a resync before others get a turn
_INITIAL_LIMIT = 300.0  # seconds for the initial objects: a server that ignores what we ask for never ends them
_LASTING = 30.0  # seconds after which what is wrong does not pass by itself
_LONGEST_WAIT = 30.0  # seconds that we stay blind because a server, or what stands before it, asks for a pause
_PATIENCE = 5  # failed watches in a row, after which a list looks whether the version is still any good


class Reflector(Generic[T]):
    """Fills and follows one store. All methods are called on the event loop. Since 0.1.

    Args:
        client: to list and watch with.
        resource: what to reflect, in all namespaces.
        store: what to keep equal; nobody else may write to it.
        clock: the host's clock.
        rng: for jitter and time-outs.
        resync: seconds between replays of the cache to its handlers; 0 means never, less than a second means one.
        watch_list: whether to try WatchList first.
        idle_timeout: seconds without a byte after which a watch counts as dead.

    Raises:
        ValueError: a negative resync period.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        store: Store[T],
        *,
        clock: Clock,
        rng: random.Random,
        resync: float = 900.0,
        watch_list: bool = True,
        idle_timeout: float = 240.0,
    ) -> None:
        if resync < 0:
            raise ValueError(f"a resync period of {resync} s: use 0 for never, or 1 s and more")
        self._client = client
        self._resource = resource
        self._store = store
        self._clock = clock
        self._rng = rng
        self._resync = max(resync, 1.0) if resync else 0.0
        self._watch_list = watch_list
        self._idle_timeout = idle_timeout
        self._backoff = Backoff(clock, rng)
        self._version: str | None = None  # None: nothing known yet; "": only the very latest will do
        self._filled = False
        self._half_filled = 0
        self._failures = 0
        self._problem = ""
        self._ill_since = 0.0

    @property
    def problem(self) -> str:
        """What is wrong just now with filling or following the store, "" if nothing is; for status pages."""
        return self._problem

    @property
    def lasting_problem(self) -> str:
        """What has been wrong for half a minute, or has kept the store from being filled; "" if nothing has."""
        passing = self._store.synced and self._clock.monotonic() - self._ill_since < _LASTING
        return "" if passing else self._problem

    async def run(self) -> None:
        """Keep the store equal to the server, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._resync:
                tasks.create_task(self._replay_regularly())
            tasks.create_task(self._reflect())

    async def _reflect(self) -> None:
        while True:
            try:
                if self._filled:
                    await self._follow()
                else:
                    await self._fill()
                self._failures = 0
            except ApiError as error:
                self._filled = self._goes_on_after(error)
                await self._pause(error)

    # Filling.

    async def _fill(self) -> None:
        if not self._watch_list:
            await self._fill_by_list()
            return
        try:
            await self._fill_by_watch()
        except ApiError as error:
            if self._filled or not self._refuses_watch_list(error):
                raise
            self._watch_list = False
            logger.info("%s: no WatchList here, an ordinary list is used: %s", self._resource.plural, error)
            await self._fill_by_list()

    def _refuses_watch_list(self, error: ApiError) -> bool:
        if self._half_filled >= 2:  # something between us and the server does not let it through
            return True
        return 400 <= error.status < 500 and error.status not in {401, 403, 408, 410, 429}

    async def _fill_by_list(self) -> None:
        """An ordinary list: what the server has at hand at first, later not older than what is known."""
        version = "0" if self._version is None else self._version
        try:
            found = await self._client.list_all(self._resource, version=version)
        except ApiError as error:
            if not version or not (isinstance(error, Gone) or is_too_large_version(error)):
                raise
            # The server has forgotten, or never knew, that version: whatever it has now is the truth.
            found = await self._client.list_all(self._resource, version="")
        self._take(found.items, found.version)

    async def _fill_by_watch(self) -> None:
        """A WatchList; goes on as the ordinary watch once the initial objects are in."""
        collected: dict[str, T] = {}
        started = self._clock.monotonic()
        async with self._client.watch(
            self._resource,
            version=self._version or "",
            initial=True,
            seconds=self._seconds(),
            idle_timeout=self._idle_timeout,
        ) as events:
            self._half_filled += 1
            async for event in events:
                if self._filled:
                    self._apply(event)
                elif event.initial_end:
                    self._half_filled = 0
                    self._take(tuple(collected.values()), event.version)
                    collected.clear()
                elif event.object is not None:
                    if event.type == "DELETED":
                        collected.pop(key_of(event.object), None)
                    else:
                        collected[key_of(event.object)] = event.object
                    if self._clock.monotonic() - started > _INITIAL_LIMIT:
                        break
        if not self._filled:
            raise ApiUnavailable(f"watch {self._resource.plural}: it ended before all initial objects had come")

    def _take(self, items: tuple[T, ...], version: str) -> None:
        self._store.replace(items)
        self._filled = True
        self._version = version
        self._well()
        logger.debug("%s: filled with %d objects", self._resource.plural, len(self._store))

    # Following.

    async def _follow(self) -> None:
        started = self._clock.monotonic()
        count = 0
        async with self._client.watch(
            self._resource, version=self._version or "", seconds=self._seconds(), idle_timeout=self._idle_timeout
        ) as events:
            self._problem = ""
            async for event in events:
                count += 1
                self._apply(event)
        if not count and self._clock.monotonic() - started < 1.0:
            # A server or proxy that answers and hangs up at once must not be asked in a tight loop.
            raise ApiUnavailable(f"watch {self._resource.plural}: it ended at once, without a word")

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.object is not None:
            if event.type in {"ADDED", "MODIFIED"}:
                self._store.apply(event.object)
            elif event.type == "DELETED":
                self._store.remove(event.object)
            else:
                logger.warning("%s: a watch event of type %.40r is skipped", self._resource.plural, event.type)
        if event.version:
            self._version = event.version
        self._well()

    def _seconds(self) -> int:
        return int(300 * (1.0 + self._rng.random()))

    # Failing.

    def _goes_on_after(self, error: ApiError) -> bool:
        """Whether the watch may go on from where it was; decides what to fill from if not."""
        self._failures += 1
        if is_too_large_version(error) or (isinstance(error, Gone) and not self._filled):
            self._version = ""
            return False
        if isinstance(error, Gone) or is_garbled(error) or self._failures % _PATIENCE == 0:
            return False
        return self._filled and (isinstance(error, (ApiUnavailable, TooManyRequests)) or error.status >= 500)

    async def _pause(self, error: ApiError) -> None:
        if not self._problem:
            self._ill_since = self._clock.monotonic()
        self._problem = str(error)
        wait = max(self._backoff.take(), min(error.retry_after or 0.0, _LONGEST_WAIT))
        log = logger.info if isinstance(error, Gone) else logger.warning
        log("%s: %s (again in %.1f s; the cache keeps what it has)", self._resource.plural, error, wait)
        await self._clock.sleep(wait)

    def _well(self) -> None:
        self._problem = ""
        self._failures = 0

    # Resync.

    async def _replay_regularly(self) -> None:
        await self._store.wait_synced()
        while True:
            await self._clock.sleep(self._resync)
            for number, _ in enumerate(self._store.replay(), start=1):
                if number % _SLICE == 0:
                    await self._clock.sleep(0)
