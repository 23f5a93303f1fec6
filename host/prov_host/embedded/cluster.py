"""The embedded cluster: a Kubernetes API server and the volume part of its control plane, in memory.

One :class:`Cluster` is one cluster. It knows no sockets: :meth:`Cluster.handle` takes a request apart, hands it to
:mod:`~prov_host.embedded.writes` or :mod:`~prov_host.embedded.lists`, and answers. :mod:`~prov_host.embedded.http`
puts it on a loopback port, :mod:`~prov_host.embedded.inprocess` makes a transport of it. Everything happens on one
event loop, and a request that is not delayed on purpose is carried out in one step, so there are no locks.

What is served: namespaces, nodes, pods (as far as kubectl asks for them), claims, volumes, storage classes, events,
leases and endpoints, all at version 1. It behaves as version 1.37 does; tests/conformance/api holds both to that.
"""

from __future__ import annotations

import logging
import random as random_module
from collections.abc import Mapping
from typing import Any

import msgspec

from prov_host.clock import Clock, SystemClock
from prov_host.embedded import discovery, lists, tables, writes
from prov_host.embedded.binder import VolumeControllers
from prov_host.embedded.decoding import shown_object
from prov_host.embedded.events import to_new_event
from prov_host.embedded.failures import ApiFailure, ConnectionLost, not_found, too_large_version
from prov_host.embedded.faults import Fault, Faults
from prov_host.embedded.lists import WatchStream
from prov_host.embedded.metrics import RequestCounter
from prov_host.embedded.requests import Options, Target, parse_options, parse_path
from prov_host.embedded.store import Store, Stored, key_of, watch_line
from prov_host.kube.transport import Reply

__all__ = ["Cluster"]

logger = logging.getLogger(__name__)
_JSON = "application/json"
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_ENDPOINTS_WARNING = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
_encode = msgspec.json.encode


class Cluster:
    """A cluster in memory.

    Args:
        clock: for timestamps, timeouts of watches and injected delays.
        random: for uids and generated names; a seeded one makes them reproducible.
        controllers: whether claims are annotated and bound, volumes released, and both protected.
        history: changes kept per kind; a client further behind gets a 410.

    Attributes:
        store: the objects; for tests to look at.
        faults: what goes wrong on purpose.
        requests: counts, as ``apiserver_request_total`` shows them.

    All methods belong to one event loop. Since 0.1.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
        *,
        controllers: bool = True,
        history: int = 10_000,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.store = Store(history)
        self.faults = Faults(self.store)
        self.requests = RequestCounter()
        source = random or random_module.Random()  # noqa: S311  # names, not secrets
        self._writer = writes.Writer(self.store, self.clock, source)
        self._streams: set[WatchStream] = set()
        for name in _NAMESPACES:
            self.create_namespace(name)
        self.controllers = VolumeControllers(self.store, self._writer) if controllers else None

    def create_namespace(self, name: str) -> None:
        """Create a namespace without a request.

        Raises:
            ApiFailure: it is there already, or the name cannot be.
        """
        target = parse_path("POST", "/api/v1/namespaces", watch=False)
        assert target is not None
        self._writer.create(target, _encode({"metadata": {"name": name}}), _JSON, Options())

    def compact(self) -> None:
        """Forget all history: open watches go on, but every older resourceVersion and continue token is gone (410)."""
        for table in self.store.tables.values():
            table.compact()

    def objects(self, plural: str) -> list[dict[str, Any]]:
        """The objects of a kind in the order of their keys, for tests to look at; they must not be changed."""
        table = next(table for table in self.store.tables.values() if table.resource.plural == plural)
        return [table.objects[key].obj for key in sorted(table.objects)]

    async def close(self) -> None:
        """End all watches and stop the controllers. Idempotent."""
        if self.controllers is not None:
            self.controllers.stop()
        for stream in tuple(self._streams):
            stream.close()
        self._streams.clear()

    # ------------------------------------------------------------------------------------------ requests

    async def handle(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Reply | WatchStream:
        """Carry out one request.

        Args:
            method: the HTTP method.
            path: absolute, each segment percent-encoded.
            query: the parameters, decoded.
            headers: lower-case names.
            body: of the content type that the headers say.

        Returns:
            The answer, or the stream of a watch, to be iterated or closed.

        Raises:
            ConnectionLost: there is no answer (an injected fault).
        """
        query, headers = query or {}, headers or {}
        try:
            target = parse_path(method, path, watch=query.get("watch", "").lower() not in {"", "0", "false", "f"})
        except ApiFailure as failure:
            return self._failed(failure, None)
        if target is None:
            return discovery.answer(method, path, headers, self.requests)
        faults = await self._before(target, body)
        try:
            for fault in faults:
                if fault.failure is not None and not fault.after:
                    raise fault.failure
            reply = self._carry_out(target, query, headers, body)
        except ApiFailure as failure:
            reply = self._failed(failure, target)
        except Exception:
            logger.exception("embedded cluster: %s %s failed", method, path)
            reply = self._failed(ApiFailure(500, "InternalError", "Internal error occurred: see the log", {}), target)
        if faults:
            reply = await self._after(faults, reply, target)
        self.requests.count(
            target, reply.status if isinstance(reply, Reply) else 200, patch=headers.get("content-type", "")
        )
        return reply

    async def _before(self, target: Target, body: bytes) -> list[Fault]:
        if self.faults.latency:
            await self.clock.sleep(self.faults.latency)
        if not self.faults.rules:
            return []
        taken = self.faults.take(target, target.name or _name_in(body))
        for fault in taken:
            if fault.seconds and not fault.after:
                await self.clock.sleep(fault.seconds)
        for fault in taken:
            if fault.lost and not fault.after:
                raise ConnectionLost(f"{target.verb} {target.resource.plural}")
        return taken

    async def _after(self, faults: list[Fault], reply: Reply | WatchStream, target: Target) -> Reply | WatchStream:
        for fault in (fault for fault in faults if fault.after):
            if fault.seconds:
                await self.clock.sleep(fault.seconds)
            if (fault.lost or fault.failure is not None) and isinstance(reply, WatchStream):
                reply.close()
            if fault.lost:
                raise ConnectionLost(f"the reply to {target.verb} {target.resource.plural} is lost")
            if fault.failure is not None:
                reply = self._failed(fault.failure, target)
        return reply

    def _failed(self, failure: ApiFailure, target: Target | None) -> Reply:
        headers = {"content-type": _JSON, **failure.headers, **(_deprecation(target) if target is not None else {})}
        if not failure.reason and failure.code == 404:
            return Reply(404, b"404 page not found\n", {"content-type": "text/plain; charset=utf-8"})
        return Reply(failure.code, failure.body() + b"\n", headers)

    def _carry_out(
        self, target: Target, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Reply | WatchStream:
        options = parse_options(query, target.verb)
        shape = tables.wanted(headers.get("accept", ""))
        if target.verb == "watch":
            return self._watch(target, options, shape=shape)
        if target.verb == "get":
            return self._get(target, options, shape=shape)
        if target.verb == "list":
            return self._list(target, options, shape=shape)
        if target.verb == "deletecollection":
            keys = [key_of(stored.obj) for stored in lists.list_objects(self.store, target, options).items]
            gone = self._writer.delete_collection(target, body, keys)
            return self._items(target, lists.Page(self.store.revision, tuple(gone)))
        outcome = self._write(target, options, headers, body)
        warnings = list(outcome.warnings)
        if target.resource.plural == "endpoints":
            warnings.append(_ENDPOINTS_WARNING)
        answer_headers = {"content-type": _JSON, **({"warning": _warnings(warnings)} if warnings else {})}
        if outcome.stored is not None:
            stored = outcome.stored
        elif outcome.body is not None and outcome.body.get("kind") != "Status":
            stored = Stored(self.store.tables[target.resource.id], outcome.body, 0)
        else:
            return Reply(outcome.status, _encode(outcome.body), answer_headers)
        return Reply(outcome.status, self._shaped(target, stored, shape), answer_headers)

    def _write(self, target: Target, options: Options, headers: Mapping[str, str], body: bytes) -> writes.Outcome:
        content_type = headers.get("content-type", _JSON)
        if target.verb == "create":
            return self._writer.create(target, body, content_type, options)
        agent = headers.get("user-agent", "unknown").partition("/")[0]
        if target.verb == "update":
            return self._writer.update(target, body, content_type, options, agent)
        if target.verb == "patch":
            return self._writer.patch(target, body, content_type, options, agent)
        return self._writer.delete(target, body, options)

    # ------------------------------------------------------------------------------------------ reads

    def _get(self, target: Target, options: Options, *, shape: tables.Shape) -> Reply:
        asked = lists.parse_revision(options.resource_version)
        if (asked or 0) > self.store.revision:
            raise too_large_version(asked or 0, self.store.revision)
        stored = self.store.tables[target.resource.id].get(target.key)
        if stored is None:
            raise not_found(target.resource.plural, target.resource.group, target.name)
        headers = {"content-type": _JSON, **_deprecation(target)}
        return Reply(200, self._shaped(target, stored, shape), headers)

    def _shaped(self, target: Target, stored: Stored, shape: tables.Shape) -> bytes:
        """An object as an answer, in the shape and the group that was asked for."""
        if shape == "table":
            return tables.render(target.resource, lists.Page(stored.revision, (stored,)), self.clock.now())
        return tables.metadata_only(stored) if shape == "metadata" else _shown(target, stored)

    def _list(self, target: Target, options: Options, *, shape: tables.Shape) -> Reply:
        page = lists.list_objects(self.store, target, options)
        headers = {"content-type": _JSON, **_deprecation(target)}
        if shape == "table":
            return Reply(200, tables.render(target.resource, page, self.clock.now()), headers)
        if shape == "metadata list":
            return Reply(200, tables.metadata_list(page), headers)
        if shape == "metadata":
            kind = f"*core.{target.resource.kind}List"
            why = f"you requested PartialObjectMetadata, but the requested object is a list ({kind})"
            raise ApiFailure(406, "NotAcceptable", why)
        return self._items(target, page)

    def _items(self, target: Target, page: lists.Page) -> Reply:
        resource, metadata = target.resource, tables.list_metadata(page)
        version = f"{target.group}/v1" if target.group else "v1"
        head = f'{{"kind":"{resource.kind}List","apiVersion":"{version}","metadata":'.encode() + _encode(metadata)
        if target.group != resource.group:
            items = b",".join(_encode(to_new_event(stored.obj)) for stored in page.items)
        else:
            items = b",".join([stored.item for stored in page.items])
        return Reply(200, head + b',"items":[' + items + b"]}\n", {"content-type": _JSON, **_deprecation(target)})

    def _watch(self, target: Target, options: Options, *, shape: tables.Shape) -> WatchStream:
        stream = lists.start_watch(self.store, self.clock, target, options)
        stream.drop_bookmarks = lambda: self.faults.drop_bookmarks
        if shape == "metadata":
            stream.render = lambda kind, stored: watch_line(kind, tables.metadata_only(stored))
        elif shape == "table":
            resource, first = target.resource, [True]

            def render(type: str, stored: Stored) -> bytes:
                page = lists.Page(stored.revision, (stored,))
                body = tables.render(resource, page, self.clock.now(), columns=first[0])
                first[0] = False
                return watch_line(type, body)

            stream.render = render
        elif target.group != target.resource.group:
            stream.render = lambda kind, stored: watch_line(kind, _shown(target, stored))
        self._streams.add(stream)
        stream.on_close = self._streams.discard
        return stream


def _shown(target: Target, stored: Stored) -> bytes:
    """An object as an answer, in the group that was asked for."""
    return stored.json if target.group == target.resource.group else _encode(shown_object(target, stored))


def _deprecation(target: Target) -> dict[str, str]:
    return {"warning": _warnings([_ENDPOINTS_WARNING])} if target.resource.plural == "endpoints" else {}


def _warnings(texts: list[str]) -> str:
    return ", ".join('299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts)


def _name_in(body: bytes) -> str:
    try:
        raw = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
