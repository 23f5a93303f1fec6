"""Faults on purpose: what can go wrong between a client and an API server, for tests.

::

    cluster.faults.fail(verb="create", resource="persistentvolumes", status=500, times=3)
    cluster.faults.lose_reply(verb="create", resource="persistentvolumes")  # it is done, but the client cannot know
    cluster.faults.delay(30, verb="update", resource="leases")
    cluster.faults.close_watches("persistentvolumeclaims")
    cluster.faults.latency = 0.01

Rules are looked at in the order they were made; each counts down and is gone when it was used up.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from prov_host.embedded.failures import ApiFailure

if TYPE_CHECKING:
    from prov_host.embedded.requests import Target
    from prov_host.embedded.store import Store

__all__ = ["Fault", "Faults"]

_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
    422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


class Fault(msgspec.Struct):
    """One rule. ``left`` counts down; ``hits`` counts up. Since 0.1.

    Attributes:
        verb: as in RBAC, a shell pattern.
        resource: the plural, a shell pattern.
        name: of the object ("" for a create with a generated name, and for collections), a shell pattern.
        namespace: a shell pattern.
        subresource: ``status`` or "", a shell pattern.
        failure: what is answered, or None.
        lost: the connection breaks instead of an answer.
        after: the request is carried out first.
        seconds: the answer waits that long.
        left: how many requests it still applies to.
        hits: how many it applied to.
    """

    verb: str = "*"
    resource: str = "*"
    name: str = "*"
    namespace: str = "*"
    subresource: str = "*"
    failure: ApiFailure | None = None
    lost: bool = False
    after: bool = False
    seconds: float = 0.0
    left: int = 1
    hits: int = 0

    def matches(self, target: Target, name: str) -> bool:
        """Whether it applies to a request."""
        match = fnmatch.fnmatchcase
        return (
            self.left > 0
            and match(target.verb, self.verb)
            and match(target.resource.plural, self.resource)
            and match(name, self.name)
            and match(target.namespace, self.namespace)
            and match(target.subresource, self.subresource)
        )


class Faults:
    """What is going wrong with a cluster at the moment. Its methods belong to the cluster's event loop. Since 0.1.

    Attributes:
        latency: seconds that every request takes longer.
        drop_bookmarks: no watch gets bookmarks (but for the one that ends initial events).
        rules: the rules that are left.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.latency = 0.0
        self.drop_bookmarks = False
        self.rules: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Add a rule."""
        self.rules.append(fault)
        return fault

    def fail(
        self,
        *,
        verb: str = "*",
        resource: str = "*",
        name: str = "*",
        namespace: str = "*",
        subresource: str = "*",
        status: int = 503,
        reason: str = "",
        message: str = "injected by the test",
        headers: Mapping[str, str] | None = None,
        times: int = 1,
        after_commit: bool = False,
    ) -> Fault:
        """Answer the next matching requests with a failure.

        Args:
            verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, ``deletecollection``,
                or a shell pattern.
            resource: plural, or a shell pattern.
            name: of the object, or a shell pattern.
            namespace: or a shell pattern.
            subresource: "" or ``status``, or a shell pattern.
            status: the HTTP status code.
            reason: of the Status; a fitting one by default.
            message: of the Status.
            headers: for example ``{"retry-after": "1"}``.
            times: to how many requests.
            after_commit: carry the request out first.

        Returns:
            The rule; its ``hits`` tell how often it applied.
        """
        failure = ApiFailure(status, reason or _REASONS.get(status, "InternalError"), message, {}, headers=headers)
        return self.add(Fault(verb, resource, name, namespace, subresource, failure, False, after_commit, 0.0, times))

    def lose_reply(
        self,
        *,
        verb: str = "*",
        resource: str = "*",
        name: str = "*",
        namespace: str = "*",
        subresource: str = "*",
        times: int = 1,
        after_commit: bool = True,
    ) -> Fault:
        """Break the connection of the next matching requests, by default after they were carried out."""
        return self.add(Fault(verb, resource, name, namespace, subresource, None, True, after_commit, 0.0, times))

    def delay(
        self,
        seconds: float,
        *,
        verb: str = "*",
        resource: str = "*",
        name: str = "*",
        namespace: str = "*",
        times: int = 1,
        after_commit: bool = False,
    ) -> Fault:
        """Let the next matching requests wait, before or after they are carried out."""
        return self.add(Fault(verb, resource, name, namespace, "*", None, False, after_commit, seconds, times))

    def clear(self) -> None:
        """Everything works again."""
        self.rules.clear()
        self.latency = 0.0
        self.drop_bookmarks = False

    def close_watches(self, resource: str = "*") -> int:
        """End the open watches of the matching kinds, as a server that shuts down; returns how many."""
        closed = 0
        for table in self._store.tables.values():
            if fnmatch.fnmatchcase(table.resource.plural, resource):
                for watcher in tuple(table.watchers):
                    watcher.close()
                    closed += 1
        return closed

    def error_watches(
        self, resource: str = "*", *, code: int = 410, reason: str = "Expired", message: str = "injected"
    ) -> int:
        """Send an ERROR event to the open watches of the matching kinds and end them; returns how many."""
        from prov_host.embedded.store import watch_line  # noqa: PLC0415  # store does not know faults

        line, told = watch_line("ERROR", ApiFailure(code, reason, message).body()), 0
        for table in self._store.tables.values():
            if fnmatch.fnmatchcase(table.resource.plural, resource):
                for watcher in tuple(table.watchers):
                    watcher.put(line)
                    watcher.close()
                    told += 1
        return told

    def take(self, target: Target, name: str) -> list[Fault]:
        """The rules that apply to a request; each is used once by it. At most one that fails it."""
        taken: list[Fault] = []
        for fault in tuple(self.rules):
            if not fault.matches(target, name):
                continue
            ends = fault.failure is not None or fault.lost
            if ends and any(other.failure is not None or other.lost for other in taken):
                continue
            fault.left -= 1
            fault.hits += 1
            taken.append(fault)
            if fault.left <= 0:
                self.rules.remove(fault)
        return taken
