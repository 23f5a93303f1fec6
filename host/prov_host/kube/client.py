"""Typed operations over a transport: what to send, how often to try, and what the answer means.

The transport moves bytes; here they become paths, bodies, Structs and exceptions. Three rules run through it.

* **Nothing is sent twice unless that is safe.** A GET whose connection broke is sent once more. A write is not: the
  server may have done it, and only the caller knows how to find out. A 429 is different: the server says that it has
  done nothing, so everything is sent again after the time it asks for, a few times.
* **A name goes into a path only if it can be one.** The API forbids ``/``, ``%``, ``.`` and ``..`` as names, and an
  empty name would turn the deletion of one object into the deletion of all; such a request is refused here.
* **Every object of a list is decoded on its own** (:mod:`prov_host.kube.decoding`), a slice at a time, so that a large
  list neither fails because of one object nor holds up the loop.
"""

from __future__ import annotations

import contextlib
import logging
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from prov_host.clock import Clock
from prov_host.errors import ApiError, ApiUnavailable, Invalid
from prov_host.kube.api import PatchKind, Resource
from prov_host.kube.decoding import Decoder, encode
from prov_host.kube.failures import error_of, garbled, is_too_large_version
from prov_host.kube.ratelimit import RateLimiter
from prov_host.kube.transport import Reply, Transport

__all__ = ["Client", "Listing", "WatchEvent"]

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)
_SLICE = 100  # objects decoded before others get a turn: about a millisecond
_PATCH_TYPES: dict[PatchKind, str] = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """All objects of a kind at one moment. Since 0.1.

    Attributes:
        items: the objects; what could not be read at all is missing, and logged.
        version: the list's resourceVersion, opaque: where a watch goes on.
    """

    items: tuple[T, ...]
    version: str


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One line of a watch. Since 0.1.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK``, or one from the future.
        object: None for a bookmark, and for an object that could not be read at all.
        version: the resourceVersion to go on from, "" if the line told none.
        initial_end: whether this is the bookmark that ends the initial events.
    """

    type: str
    object: T | None
    version: str
    initial_end: bool = False


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta | None = None
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _VersionMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str | None = None
    annotations: dict[str, Any] | None = None


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _VersionMeta | None = None


class Client:
    """Implements :class:`prov_host.kube.api.Api`, and lists and watches for the reflectors.

    Args:
        transport: where requests go; not closed by the client.
        clock: the host's clock.
        limiter: the client-side rate limit, shared by all that should share it; None means no limit.
        retries: how often a request that the server was too busy for (429) is sent again.
        longest_wait: seconds; a server that asks for a longer pause gets its 429 passed on to the caller at once.

    All methods are called on one event loop. Since 0.1.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        limiter: RateLimiter | None = None,
        *,
        retries: int = 5,
        longest_wait: float = 30.0,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._limiter = limiter
        self._retries = retries
        self._longest_wait = longest_wait
        self._decoders: dict[type[msgspec.Struct], Decoder[Any]] = {}

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "", timeout: float = 30.0) -> T:
        """See :meth:`prov_host.kube.api.Api.get`."""
        path = _path(resource, namespace, name)
        return self._one(resource, await self._send("GET", path, timeout=timeout), f"GET {path}")

    async def create(
        self, resource: Resource[T], body: Mapping[str, Any], *, namespace: str = "", timeout: float = 30.0
    ) -> T:
        """See :meth:`prov_host.kube.api.Api.create`."""
        path = _path(resource, namespace)
        reply = await self._send("POST", path, body=body, timeout=timeout)
        return self._one(resource, reply, f"POST {path}")

    async def update(
        self, resource: Resource[T], body: Mapping[str, Any], *, namespace: str = "", timeout: float = 30.0
    ) -> T:
        """See :meth:`prov_host.kube.api.Api.update`."""
        path = _path(resource, namespace, str((body.get("metadata") or {}).get("name") or ""))
        return self._one(resource, await self._send("PUT", path, body=body, timeout=timeout), f"PUT {path}")

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Any,
        *,
        kind: PatchKind = "strategic",
        namespace: str = "",
        timeout: float = 30.0,
    ) -> T:
        """See :meth:`prov_host.kube.api.Api.patch`."""
        path = _path(resource, namespace, name)
        reply = await self._send("PATCH", path, body=body, content_type=_PATCH_TYPES[kind], timeout=timeout)
        return self._one(resource, reply, f"PATCH {path}")

    async def delete(
        self, resource: Resource[T], name: str, *, namespace: str = "", uid: str = "", timeout: float = 30.0
    ) -> None:
        """See :meth:`prov_host.kube.api.Api.delete`."""
        path = _path(resource, namespace, name)
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}} if uid else None
        await self._send("DELETE", path, body=options, timeout=timeout)

    async def list_all(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        version: str = "",
        page: int = 500,
        timeout: float = 60.0,
    ) -> Listing[T]:
        """Read all objects, page by page.

        Args:
            resource: what to list.
            namespace: "" for all namespaces.
            version: "" for the very latest, "0" for what the server has at hand, or a resourceVersion that the
                answer must not be older than.
            page: objects per request.
            timeout: seconds per page.

        Raises:
            Gone: the version, or the list's continuation, has expired: list again with ``version=""``.
            ApiError: anything else; ``is_too_large_version`` tells a server that is behind.
        """
        path = _path(resource, namespace)
        query = {"limit": str(page)} | ({"resourceVersion": version} if version else {})
        items: list[T] = []
        while True:
            reply = await self._send("GET", path, query=query, timeout=timeout)
            what = f"GET {path}"
            try:
                found = msgspec.json.decode(reply.body, type=_List)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise garbled(what, error) from error
            meta = found.metadata or _ListMeta()
            decode = self._decoder(resource).decode
            for number, raw in enumerate(found.items or (), start=1):
                try:
                    items.append(decode(raw))
                except ApiError as error:
                    logger.warning("%s: an object of the list is skipped: %s", what, error)
                if number % _SLICE == 0:
                    await self._clock.sleep(0)
            if not meta.continue_:
                return Listing(tuple(items), meta.resource_version or "")
            query = {"limit": str(page), "continue": meta.continue_}

    @contextlib.asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        name: str = "",
        version: str = "",
        initial: bool = False,
        seconds: int = 300,
        idle_timeout: float = 240.0,
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        """Follow what happens; leaving the context ends it.

        Args:
            resource: what to watch.
            namespace: "" for all namespaces.
            name: only this object; "" for all.
            version: where to go on from: a list's, an event's or a bookmark's resourceVersion.
            initial: ask for all that is there first (WatchList), ended by an event with ``initial_end``.
            seconds: after which the server ends it.
            idle_timeout: seconds without a byte after which the connection counts as dead.

        Yields:
            The events. The iteration ends when the server ends the answer.

        Raises:
            Gone: the version has expired.
            ApiUnavailable: no connection, or it broke; also out of the iteration.
            ApiError: the server refused, or told of an error in the stream.
        """
        path = _path(resource, namespace)
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        if version or initial:
            query["resourceVersion"] = version
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        if initial:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if self._limiter:
            await self._limiter.acquire()
        async with self._transport.stream(path, query=query, idle_timeout=idle_timeout) as stream:
            if stream.status != 200:
                body = b"\n".join([line async for line in stream.lines()])
                raise error_of(f"watch {path}", stream.status, body, stream.headers)
            # Closed here and not by the garbage collector, or a watch that is left early would linger.
            async with (
                _closing(stream.lines()) as lines,
                contextlib.aclosing(self._events(resource, lines, f"watch {path}")) as events,
            ):
                yield events

    async def _events(
        self, resource: Resource[T], lines: AsyncIterator[bytes], what: str
    ) -> AsyncGenerator[WatchEvent[T], None]:
        decode = self._decoder(resource).decode
        number = 0
        async for line in lines:
            if not line.strip():
                continue
            number += 1
            if number % _SLICE == 0:
                await self._clock.sleep(0)
            try:
                event = _event(line)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise garbled(what, error) from error
            if event.type == "ERROR":
                raise error_of(what, 200, bytes(event.object))
            meta = _version_of(event.object) if event.type == "BOOKMARK" else None
            if meta is not None:
                end = str((meta.annotations or {}).get(_INITIAL_EVENTS_END)) == "true"
                yield WatchEvent(event.type, None, meta.resource_version or "", end)
                continue
            try:
                obj = decode(event.object)
            except ApiError as error:
                logger.warning("%s: a line (%s) is skipped: %s", what, event.type[:32], error)
                yield WatchEvent(event.type, None, _version_of(event.object).resource_version or "")
                continue
            yield WatchEvent(event.type, obj, _version_in(obj))

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float,
    ) -> Reply:
        what = f"{method} {path}"
        try:
            data = None if body is None else encode(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise Invalid(f"{what}: the body has no JSON form: {error}") from error
        tries = 0
        while True:
            reply = await self._exchange(
                method, path, query=query, data=data, content_type=content_type, timeout=timeout
            )
            if 200 <= reply.status < 300:
                return reply
            refusal = error_of(what, reply.status, reply.body, reply.headers)
            wait = refusal.retry_after
            # A 503 may have been half done; only a 429 says for sure that nothing was.
            again = reply.status == 429 or (method == "GET" and reply.status in {502, 503, 504})
            again = again and not is_too_large_version(refusal)  # will not come about by waiting
            if not again or wait is None or wait > self._longest_wait or tries >= self._retries:
                raise refusal
            tries += 1
            logger.debug("%s: the server asks to wait %.0f s (try %d of %d)", what, wait, tries, self._retries)
            await self._clock.sleep(wait)

    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        timeout: float,
    ) -> Reply:
        if self._limiter:
            await self._limiter.acquire()
        end = self._clock.monotonic() + timeout
        try:
            return await self._transport.request(
                method, path, query=query, body=data, content_type=content_type, timeout=timeout
            )
        except ApiUnavailable as error:
            left = end - self._clock.monotonic()
            # An idle connection that the server closed just as it was used; with no time left it was a time-out.
            if method != "GET" or left <= 0:
                raise
            logger.debug("GET %s is sent once more, the connection broke: %s", path, error)
        return await self._transport.request(method, path, query=query, timeout=left)

    def _one(self, resource: Resource[T], reply: Reply, what: str) -> T:
        try:
            return self._decoder(resource).decode(reply.body)
        except ApiError as error:
            raise garbled(what, error) from error

    def _decoder(self, resource: Resource[T]) -> Decoder[T]:
        found = self._decoders.get(resource.type)
        if found is None:
            found = self._decoders[resource.type] = Decoder(resource)
        return found


@contextlib.asynccontextmanager
async def _closing(lines: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    try:
        yield lines
    finally:
        if isinstance(lines, AsyncGenerator):
            await lines.aclose()


def _path(resource: Resource[Any], namespace: str, name: str | None = None) -> str:
    """The absolute path of a collection (``name=None``) or an object."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{_segment(namespace, resource)}" if resource.namespaced and namespace else ""
    if name is None:
        return f"{root}{scope}/{resource.plural}"
    if resource.namespaced and not namespace:
        raise Invalid(f"{resource.kind} {name[:253]!r}: its namespace is missing")
    return f"{root}{scope}/{resource.plural}/{_segment(name, resource)}"


def _segment(text: str, resource: Resource[Any]) -> str:
    if text in {"", ".", ".."} or "/" in text or "%" in text:
        raise Invalid(
            f"{resource.kind}: {text[:253]!r} cannot be a name or namespace (empty, '.', '..', or with '/' or '%')"
        )
    return urllib.parse.quote(text, safe="", errors="replace")


def _event(line: bytes) -> _Event:
    try:
        return msgspec.json.decode(line, type=_Event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # One bad byte somewhere in the object must not cost the line.
        return msgspec.json.decode(line.decode(errors="replace"), type=_Event)


def _version_of(raw: msgspec.Raw) -> _VersionMeta:
    try:
        return msgspec.json.decode(raw, type=_Versioned).metadata or _VersionMeta()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _VersionMeta()


def _version_in(obj: msgspec.Struct) -> str:
    meta = getattr(obj, "metadata", None)
    found = meta.get("resourceVersion") if isinstance(meta, dict) else getattr(meta, "resource_version", None)
    return found if isinstance(found, str) else ""
