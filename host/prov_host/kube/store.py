"""What the watch has told, indexed: the cache that the controller and the plugins read.

One writer, a :class:`~prov_host.kube.reflector.Reflector` on the event loop; readers on any thread. Readers of single
objects take no lock (one dictionary lookup), and readers of everything get a snapshot that is made once and shared
until the next change, so that a plugin that looks at 10,000 volumes in every hook costs nothing.

Handlers hear one consistent story per object, where an object is a uid: added once, then updated any number of times,
each time from what they last saw, then deleted once. An object that was deleted and made anew under its old name
while nobody looked is told as a deletion and an addition. What they have heard already (the same resourceVersion
again, after a reconnect) is not told twice.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from prov_host.kube.api import Handler, Resource
from prov_host.kube.decoding import metadata_of

__all__ = ["Store", "key_of"]

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)


def key_of(obj: msgspec.Struct) -> str:
    """``namespace/name``, or ``name`` without a namespace; "" without a name. Callable from any thread. Since 0.1."""
    meta = metadata_of(obj)
    if not meta.name:
        return ""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Store(Generic[T]):
    """Implements :class:`prov_host.kube.api.Cache`. Written on the event loop, read from any thread. Since 0.1.

    Args:
        resource: what it holds.
    """

    def __init__(self, resource: Resource[T]) -> None:
        self.resource = resource
        self._by_key: dict[str, T] = {}
        self._by_uid: dict[str, T] = {}
        self._snapshot: tuple[T, ...] | None = ()
        self._lock = threading.Lock()
        self._handlers: list[Handler[T]] = []
        self._synced = asyncio.Event()

    # Reading.

    def get(self, key: str) -> T | None:
        """See :meth:`prov_host.kube.api.Cache.get`."""
        return self._by_key.get(key)

    def by_uid(self, uid: str) -> T | None:
        """See :meth:`prov_host.kube.api.Cache.by_uid`."""
        return self._by_uid.get(uid)

    def values(self) -> tuple[T, ...]:
        """See :meth:`prov_host.kube.api.Cache.values`."""
        found = self._snapshot
        if found is None:
            with self._lock:
                found = self._snapshot = tuple(self._by_key.values())
        return found

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def synced(self) -> bool:
        """Whether the first list is in."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """See :meth:`prov_host.kube.api.Cache.wait_synced`."""
        await self._synced.wait()

    def subscribe(self, handler: Handler[T]) -> Callable[[], None]:
        """See :meth:`prov_host.kube.api.Cache.subscribe`."""
        for obj in self.values():
            _tell(handler.added, obj)
        self._handlers.append(handler)

        def undo() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return undo

    # Writing.

    def replace_if_unchanged(self, old: T, new: T) -> bool:
        """See :meth:`prov_host.kube.api.Cache.replace_if_unchanged`.

        Handlers hear of ``new`` at once; the watch's own telling of it is then no news any more.
        """
        key = key_of(old)
        if self._by_key.get(key) is not old or key_of(new) != key or _uid(new) != _uid(old):
            return False
        self.apply(new)
        return True

    def apply(self, obj: T) -> None:
        """Take what a watch told of one object that exists."""
        key = key_of(obj)
        if not key:
            logger.warning("a %s without a name is skipped", self.resource.kind)
            return
        old = self._by_key.get(key)
        if old is None:
            self._put(key, obj)
            self._each(lambda handler: handler.added, obj)
        elif _uid(old) != _uid(obj):
            self._drop(key, old)
            self._each(lambda handler: handler.deleted, old)
            self._put(key, obj)
            self._each(lambda handler: handler.added, obj)
        elif not _no_news(old, obj):
            self._put(key, obj)
            for handler in tuple(self._handlers):
                _tell(handler.updated, old, obj)

    def remove(self, obj: T) -> None:
        """Take what a watch told of one object that is gone."""
        key = key_of(obj)
        old = self._by_key.get(key)
        # A deletion of an earlier object of that name says nothing about this one.
        if old is None or (_uid(obj) and _uid(old) != _uid(obj)):
            return
        self._drop(key, old)
        self._each(lambda handler: handler.deleted, old)

    def replace(self, objects: Iterable[T]) -> None:
        """Take a whole new list: what is not in it is told as deleted. Readers never see it half done."""
        new: dict[str, T] = {}
        for obj in objects:
            key = key_of(obj)
            if key:
                new[key] = obj
            else:
                logger.warning("a %s without a name is skipped", self.resource.kind)
        old = self._by_key
        for key, obj in old.items():
            # Keep the very object if nothing changed: less memory, and `is` comparisons of readers stay true.
            if key in new and _uid(new[key]) == _uid(obj) and _no_news(obj, new[key]):
                new[key] = obj
        with self._lock:
            self._by_key = new
            self._by_uid = {_uid(obj): obj for obj in new.values() if _uid(obj)}
            self._snapshot = None
        handlers = tuple(self._handlers)  # one that subscribes meanwhile has been told of everything already
        for key, obj in old.items():
            if key not in new or _uid(new[key]) != _uid(obj):
                for handler in handlers:
                    _tell(handler.deleted, obj)
        for key, obj in new.items():
            before = old.get(key)
            if before is None or _uid(before) != _uid(obj):
                for handler in handlers:
                    _tell(handler.added, obj)
            elif before is not obj:
                for handler in handlers:
                    _tell(handler.updated, before, obj)
        self._synced.set()

    def replay(self) -> Iterator[T]:
        """Tell the handlers of each object once more, one per step of the iteration, as the object is at that step."""
        for key in tuple(self._by_key):
            obj = self._by_key.get(key)
            if obj is not None:
                for handler in tuple(self._handlers):
                    _tell(handler.updated, obj, obj)
                yield obj

    def _put(self, key: str, obj: T) -> None:
        with self._lock:
            self._by_key[key] = obj
            if _uid(obj):
                self._by_uid[_uid(obj)] = obj
            self._snapshot = None

    def _drop(self, key: str, obj: T) -> None:
        with self._lock:
            del self._by_key[key]
            if self._by_uid.get(_uid(obj)) is obj:
                del self._by_uid[_uid(obj)]
            self._snapshot = None

    def _each(self, method: Callable[[Handler[T]], Callable[[T], None]], obj: T) -> None:
        for handler in tuple(self._handlers):
            _tell(method(handler), obj)


def _tell(method: Callable[..., None], *args: msgspec.Struct) -> None:
    try:
        method(*args)
    except Exception:
        # A handler that breaks its promise must not cost the others the news, or the cache its watch.
        logger.exception("a handler failed on %s", key_of(args[-1]))


def _uid(obj: msgspec.Struct) -> str:
    return metadata_of(obj).uid or ""


def _no_news(old: msgspec.Struct, new: msgspec.Struct) -> bool:
    version = metadata_of(new).resource_version
    # A storage restored from a backup gives out old versions again, for other contents.
    return bool(version) and metadata_of(old).resource_version == version and old == new
