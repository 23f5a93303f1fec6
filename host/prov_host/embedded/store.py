"""What the cluster holds: one counter of revisions, the objects of each kind, and the recent history of each kind.

The place of etcd and of the API server's watch cache. Objects are plain dictionaries that nobody changes once they are
stored; a write makes a new one. The JSON of a stored object is made once, when first needed, and shared by every list
and every watch. The history lets a watch resume, lets a list be read as it was at an earlier revision (so that pages
of one list fit together), and is bounded: what fell out of it answers 410.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from prov_host.embedded.failures import expired
from prov_host.embedded.types import RESOURCES, ResourceType

__all__ = ["Change", "Store", "Stored", "Table", "Watcher", "key_of"]

Object = dict[str, Any]
_encode = msgspec.json.encode
_WATCH_BACKLOG = 100_000  # events; a reader that is further behind is cut off, as the real server does


def key_of(obj: Object) -> str:
    """``namespace/name``, or ``name`` for cluster-scoped kinds."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class Stored:
    """One version of one object; ``obj`` must not be changed."""

    __slots__ = ("_item", "obj", "revision", "table")

    def __init__(self, table: Table, obj: Object, revision: int) -> None:
        self.table = table
        self.obj = obj
        self.revision = revision
        self._item: bytes | None = None

    @property
    def item(self) -> bytes:
        """JSON as inside a list: without kind and apiVersion."""
        if self._item is None:
            self._item = _encode(self.obj)
        return self._item

    @property
    def json(self) -> bytes:
        """JSON as an answer of its own."""
        return self.table.head + self.item[1:]


class Change:
    """One step of a kind's history. ``before`` is None for a creation, ``after`` for a deletion.

    ``last`` is the object as a watch shows it; for a deletion that is its last state, with the deletion's revision.
    """

    __slots__ = ("_line", "after", "before", "key", "last", "revision", "type")

    def __init__(self, key: str, before: Stored | None, after: Stored | None, last: Stored) -> None:
        self.key = key
        self.before = before
        self.after = after
        self.last = last
        self.revision = last.revision
        self.type: Literal["ADDED", "MODIFIED", "DELETED"] = (
            "DELETED" if after is None else "ADDED" if before is None else "MODIFIED"
        )
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The watch event as JSON, shared by all watches that are not filtered into another type."""
        if self._line is None:
            self._line = watch_line(self.type, self.last.json)
        return self._line


def watch_line(type: str, json: bytes) -> bytes:
    """A watch event without its newline."""
    return b'{"type":"' + type.encode() + b'","object":' + json + b"}"


class Watcher:
    """One reader of a kind's changes, from the moment it was made. Iterate with :meth:`next`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._pending: deque[Change | bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False
        table.watchers.add(self)

    def put(self, change: Change | bytes) -> None:
        """Hand over a change, or a line as it is (a bookmark, an error)."""
        if not self.closed:
            self._pending.append(change)
            if len(self._pending) > _WATCH_BACKLOG:
                self.close()
            self._wake()

    def close(self) -> None:
        """No more changes; what is pending is still delivered."""
        self.closed = True
        self._table.watchers.discard(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> Change | bytes | None:
        """The next change if one is there."""
        return self._pending.popleft() if self._pending else None

    async def next(self) -> Change | bytes | None:
        """The next change; None when closed and empty."""
        while not self._pending:
            if self.closed:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._pending.popleft()


class Table:
    """All objects of one kind."""

    def __init__(self, store: Store, resource: ResourceType, history: int) -> None:
        self._store = store
        self.resource = resource
        self.head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode()
        self.objects: dict[str, Stored] = {}
        self.watchers: set[Watcher] = set()
        self.changes: deque[Change] = deque()
        self.compacted = 0
        """The newest revision whose change is no longer in ``changes``."""
        self._limit = history

    def get(self, key: str) -> Stored | None:
        """The current version of an object."""
        return self.objects.get(key)

    def put(self, obj: Object) -> Stored:
        """Create or replace an object; sets its resourceVersion."""
        revision = self._store.next_revision()
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
        stored, key = Stored(self, obj, revision), key_of(obj)
        before = self.objects.get(key)
        self.objects[key] = stored
        self._record(Change(key, before, stored, stored))
        return stored

    def remove(self, key: str) -> Stored:
        """Delete an object; returns its last state with the deletion's resourceVersion."""
        before = self.objects.pop(key)
        revision = self._store.next_revision()
        obj = {**before.obj, "metadata": {**before.obj["metadata"], "resourceVersion": str(revision)}}
        last = Stored(self, obj, revision)
        self._record(Change(key, before, None, last))
        return last

    def _record(self, change: Change) -> None:
        self.changes.append(change)
        while len(self.changes) > self._limit:
            self.compacted = self.changes.popleft().revision
        for watcher in tuple(self.watchers):
            watcher.put(change)
        self._store.tell(self.resource, change)

    def compact(self) -> None:
        """Forget the history up to now."""
        self.changes.clear()
        self.compacted = self._store.revision

    def since(self, revision: int) -> Iterator[Change]:
        """The changes after a revision.

        Raises:
            ApiFailure: 410 if they are not all known any more.
        """
        if revision < self.compacted:
            raise expired(f"too old resource version: {revision} ({self.compacted})")
        if not self.changes or self.changes[-1].revision <= revision:
            return iter(())
        return (change for change in tuple(self.changes) if change.revision > revision)

    def at(self, revision: int) -> dict[str, Stored]:
        """All objects as they were at a revision; the dictionary is the caller's only if it is not the current one.

        Raises:
            ApiFailure: 410 if the history does not go back that far.
        """
        if revision < self.compacted:
            raise expired("The resourceVersion for the provided list is too old.")
        if not self.changes or self.changes[-1].revision <= revision:
            return self.objects
        objects = dict(self.objects)
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            if change.before is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.before
        return objects


class Store:
    """All kinds, and the counter.

    Args:
        history: changes kept per kind.

    Attributes:
        revision: the revision of the last write.
        listeners: called with each change, at once; must not write and must not raise.
    """

    def __init__(self, history: int) -> None:
        self.revision = 1
        self.listeners: list[Callable[[ResourceType, Change], None]] = []
        self.tables: dict[str, Table] = {resource.id: Table(self, resource, history) for resource in RESOURCES}

    def next_revision(self) -> int:
        """Count up."""
        self.revision += 1
        return self.revision

    def tell(self, resource: ResourceType, change: Change) -> None:
        """Pass a change on to the listeners."""
        for listener in self.listeners:
            listener(resource, change)
