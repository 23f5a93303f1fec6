"""Writes events, behind everybody's back: never in the way of the work, never a reason for it to fail.

``emit`` puts an event into a bounded queue from any thread and returns; one task writes them, one after another, as
:mod:`prov_host.kube.correlation` decides. When the API server cannot be reached an event is tried twelve times, ten
seconds apart, and the queue fills up behind it; when it is full, what comes is dropped and counted. When the server
refuses an event, trying again would change nothing. On stop, what is left is written for as long as there is time.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime as dt
import logging
import random
import re
import threading
import uuid
from typing import Any

import msgspec

from prov_host.clock import Clock
from prov_host.errors import AlreadyExists, ApiError, ApiUnavailable, NotFound
from prov_host.kube.api import CLAIMS, VOLUMES, Api, Resource
from prov_host.kube.correlation import Correlator, Entry, Happening
from prov_host.kube.waiting import within
from prov_host.model import Claim, ObjectMeta, ObjectReference, Volume
from prov_host.printable import printable

__all__ = ["EVENTS", "EventRecorder"]

logger = logging.getLogger(__name__)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MAX_MESSAGE = 1024  # bytes
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


class _Event(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


EVENTS = Resource(_Event, "", "v1", "events", "Event", True)


class EventRecorder:
    """Implements :class:`prov_host.kube.api.EventSink` for one source. Since 0.1.

    Args:
        api: to write with; apart from the one that the work uses, so that events do not take its rate limit.
        component: the source, ``<provisioner name>_<identity>``.
        clock: the host's clock.
        rng: for the first wait and for names.
        capacity: events that wait at most.
        tries: for each event, if the server cannot be reached.
        pause: seconds between tries.
    """

    def __init__(
        self,
        api: Api,
        *,
        component: str,
        clock: Clock,
        rng: random.Random,
        capacity: int = 1000,
        tries: int = 12,
        pause: float = 10.0,
    ) -> None:
        self._api = api
        self._component = component
        self._clock = clock
        self._rng = rng
        self._capacity = capacity
        self._tries = tries
        self._pause = pause
        self._correlator = Correlator(clock)
        self._queue: collections.deque[Happening] = collections.deque()
        self._lock = threading.Lock()
        self._last_stamp = 0
        self._dropped = 0
        self._closed = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._refused: set[int] = set()

    @property
    def dropped(self) -> int:
        """How many events were dropped because too many were waiting. Callable from any thread."""
        return self._dropped

    def emit(self, regarding: Claim | Volume | ObjectReference, *, type: str, reason: str, message: str) -> None:
        """See :meth:`prov_host.kube.api.EventSink.emit`."""
        try:
            reference = _reference(regarding)
            with self._lock:
                if self._closed:
                    return
                if len(self._queue) >= self._capacity:
                    self._dropped += 1
                    first = self._dropped == 1
                else:
                    first = False
                    time = self._clock.now()
                    name = self._name(reference.name or "", time)
                    self._queue.append(Happening(reference, type, reason, _cut(printable(message)), time, name))
            if first:
                logger.warning("events of %s are dropped: %d are waiting", self._component, self._capacity)
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed, the process ends
                    self._loop.call_soon_threadsafe(self._wake.set)
        except Exception:
            logger.exception("no event %r for %r", reason, regarding)

    def start(self) -> None:
        """Begin to write, on the running event loop; what was emitted before is written too."""
        self._loop = asyncio.get_running_loop()
        self._wake.set()
        self._task = self._loop.create_task(self._work(), name=f"events of {self._component}")

    async def stop(self, limit: float = 5.0) -> None:
        """Take no more events, and write what is left for ``limit`` seconds at most. On the event loop. Idempotent."""
        with self._lock:
            self._closed = True
        if self._task is None:
            return
        task, self._task = self._task, None
        self._idle.clear()  # it may be idle only because the last event has not woken it yet
        self._wake.set()
        try:
            await within(self._clock, limit, self._idle_wait())
        except TimeoutError:
            logger.warning("%d events of %s were not written in time", len(self._queue) + 1, self._component)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _idle_wait(self) -> None:
        await self._idle.wait()

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            while self._queue:
                happening = self._queue.popleft()
                try:
                    await self._write(happening)
                except Exception:
                    logger.exception("event %s of %s was not written", happening.reason, _title(happening))
            self._idle.set()
            await self._wake.wait()

    async def _write(self, happening: Happening) -> None:
        entry = self._correlator.correlate(happening)
        if entry is None:
            logger.debug("too many events: %s %s: %s", _title(happening), happening.reason, happening.message)
            return
        for attempt in range(1, self._tries + 1):
            try:
                await self._send(happening, entry)
            except ApiUnavailable as error:
                if attempt == self._tries:
                    logger.warning(
                        "event %s of %s was given up after %d tries: %s",
                        happening.reason,
                        _title(happening),
                        attempt,
                        error,
                    )
                    return
                # The first wait is random: many processes may have lost one server at one moment.
                await self._clock.sleep(self._pause * (self._rng.random() if attempt == 1 else 1.0))
            except AlreadyExists:
                logger.debug("event %s of %s is there already", happening.reason, _title(happening))
                return
            except ApiError as error:
                self._say_refused(happening, error)
                return
            else:
                self._correlator.recorded(entry)
                return

    async def _send(self, happening: Happening, entry: Entry) -> None:
        namespace = happening.regarding.namespace or "default"
        if entry.count > 1:
            change = {"count": entry.count, "lastTimestamp": _stamp(entry.last), "message": entry.message}
            try:
                await self._api.patch(EVENTS, entry.name, change, namespace=namespace)
                return
            except NotFound:
                pass  # events live for an hour
        await self._api.create(EVENTS, self._body(happening, entry, namespace), namespace=namespace)

    def _body(self, happening: Happening, entry: Entry, namespace: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": entry.name, "namespace": namespace},
            "involvedObject": msgspec.to_builtins(happening.regarding),
            "reason": happening.reason,
            "message": entry.message,
            "type": happening.type,
            "count": entry.count,
            "firstTimestamp": _stamp(entry.first),
            "lastTimestamp": _stamp(entry.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }

    def _say_refused(self, happening: Happening, error: ApiError) -> None:
        level = logging.DEBUG if error.status in self._refused else logging.WARNING
        self._refused.add(error.status)
        logger.log(level, "event %s of %s was refused: %s", happening.reason, _title(happening), error)

    def _name(self, about: str, time: dt.datetime) -> str:
        """As client-go names events; a uuid if the object's name cannot be part of one. Under the lock."""
        stamp = (time - _EPOCH) // dt.timedelta(microseconds=1) * 1000
        self._last_stamp = stamp = max(stamp, self._last_stamp + 1)  # two in a microsecond are two
        name = f"{about}.{stamp:x}"
        if len(name) <= 253 and _SUBDOMAIN.fullmatch(name):
            return name
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))


def _reference(regarding: Claim | Volume | ObjectReference) -> ObjectReference:
    if isinstance(regarding, ObjectReference):
        return regarding
    kind = CLAIMS if isinstance(regarding, Claim) else VOLUMES
    meta = regarding.metadata
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=meta.namespace if kind.namespaced else None,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def _title(happening: Happening) -> str:
    ref = happening.regarding
    return f"{ref.kind} {ref.namespace + '/' if ref.namespace else ''}{ref.name}"


def _cut(message: str) -> str:
    """Not longer than the API takes."""
    data = message.encode()
    return message if len(data) == len(message) <= _MAX_MESSAGE else data[:_MAX_MESSAGE].decode(errors="ignore")


def _stamp(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
