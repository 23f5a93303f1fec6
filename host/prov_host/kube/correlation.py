"""Keeps one broken claim from writing thousands of events: which are merged, which are counted up, which are dropped.

The rules are those of client-go's recorder, so that `kubectl describe` shows what users of other controllers know:

* events that differ only in their message are **combined** once there are more than ten different ones in ten minutes;
* an event that is equal to an earlier one **counts it up** instead of being a new object;
* one object may have 25 events at once from one source and one more every five minutes; the rest is **dropped**.

No network and no clock of its own in here; what the server made of an event is told back with
:meth:`Correlator.recorded`. The memory is bounded: the least recently used is forgotten.
"""

from __future__ import annotations

import collections
import datetime as dt
from typing import Generic, TypeVar

import msgspec

from prov_host.clock import Clock
from prov_host.model import ObjectReference

__all__ = ["Correlator", "Entry", "Happening"]

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED = 4096
_SIMILAR_LIMIT = 10
_SIMILAR_SECONDS = 600.0
_BURST = 25.0
_SECONDS_PER_EVENT = 300.0
_COMBINED = "(combined from similar events): "


class Happening(msgspec.Struct, frozen=True):
    """Something that somebody wants an event for. Since 0.1.

    Attributes:
        regarding: what it happened to.
        type: ``Normal`` or ``Warning``.
        reason: CamelCase.
        message: for people.
        time: when, on the wall clock.
        name: what the event object is called if it becomes a new one.
    """

    regarding: ObjectReference
    type: str
    reason: str
    message: str
    time: dt.datetime
    name: str


class Entry(msgspec.Struct, frozen=True):
    """What to write: a new event (``count`` 1), or a higher count for one that was written before. Since 0.1.

    Attributes:
        key: to tell back with :meth:`Correlator.recorded`.
        name: the event object's name.
        message: the message, perhaps of combined events.
        count: how often it has happened.
        first: when first.
        last: when last.
    """

    key: tuple[str, ...]
    name: str
    message: str
    count: int
    first: dt.datetime
    last: dt.datetime


class _Recent(Generic[K, V]):
    """A mapping that forgets what was not used for longest."""

    def __init__(self) -> None:
        self._items: collections.OrderedDict[K, V] = collections.OrderedDict()

    def get(self, key: K) -> V | None:
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key]

    def put(self, key: K, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        while len(self._items) > _REMEMBERED:
            self._items.popitem(last=False)


class _Similar:
    """The different messages of one kind of event, lately."""

    def __init__(self) -> None:
        self.messages: set[str] = set()
        self.last = 0.0


class _Bucket:
    """What one object may still have."""

    def __init__(self, now: float) -> None:
        self.tokens = _BURST
        self.filled = now


class Correlator:
    """Decides what becomes of each event of one source. For one task. Since 0.1.

    Args:
        clock: the host's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._similar: _Recent[tuple[str, ...], _Similar] = _Recent()
        self._written: _Recent[tuple[str, ...], Entry] = _Recent()
        self._buckets: _Recent[tuple[str, ...], _Bucket] = _Recent()

    def correlate(self, happening: Happening) -> Entry | None:
        """What to write for it; None if the object has had too many.

        Args:
            happening: what happened.
        """
        ref = happening.regarding
        about = (ref.kind or "", ref.namespace or "", ref.name or "", ref.uid or "", ref.api_version or "")
        key, message = self._combine((*about, happening.type, happening.reason), happening.message)
        before = self._written.get(key)
        entry = Entry(
            key=key,
            name=before.name if before else happening.name,
            message=message,
            count=before.count + 1 if before else 1,
            first=before.first if before else happening.time,
            last=happening.time,
        )
        return entry if self._allowed(about) else None

    def recorded(self, entry: Entry) -> None:
        """The server has it: the next equal one counts it up."""
        self._written.put(entry.key, entry)

    def _combine(self, kind: tuple[str, ...], message: str) -> tuple[tuple[str, ...], str]:
        now = self._clock.monotonic()
        similar = self._similar.get(kind)
        if similar is None or now - similar.last > _SIMILAR_SECONDS:
            similar = _Similar()
            self._similar.put(kind, similar)
        similar.last = now
        if message in similar.messages or len(similar.messages) < _SIMILAR_LIMIT:
            similar.messages.add(message)
            return (*kind, message), message
        return kind, _COMBINED + message

    def _allowed(self, about: tuple[str, ...]) -> bool:
        now = self._clock.monotonic()
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = _Bucket(now)
            self._buckets.put(about, bucket)
        bucket.tokens = min(_BURST, bucket.tokens + (now - bucket.filled) / _SECONDS_PER_EVENT)
        bucket.filled = now
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True
