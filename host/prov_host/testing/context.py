"""The host as a plugin sees it in a unit test: what it holds is put there by the test, what it is told is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry

from prov_host.clock import Clock
from prov_host.errors import NotSynced
from prov_host.model import Claim, Note, StorageClass, Volume
from prov_host.testing.clock import FakeClock

__all__ = ["FakeHost"]


class FakeHost:
    """A :class:`prov_host.HostContext` in a test's hands; everything it holds is an attribute.

    Args:
        plugin: the plugin's name.
        node_name: the node the host runs on.
        clock: a clock that stands still by default.

    Attributes:
        known_volumes: what :meth:`volumes` returns.
        known_claims: what :meth:`claims` returns.
        known_classes: what :meth:`storage_classes` returns.
        caches_filled: what :meth:`synced` returns; False makes the three above raise NotSynced.
        events: what :meth:`event` was told, in order.
        jobs: what :meth:`every` was told, by name: seconds and job. A test runs the job itself.

    Since 0.1.
    """

    def __init__(self, plugin: str = "tested", *, node_name: str = "", clock: Clock | None = None) -> None:
        self.plugin = plugin
        self.node_name = node_name
        self.clock: Clock = clock or FakeClock()
        self.registry = CollectorRegistry()
        self.known_volumes: list[Volume] = []
        self.known_claims: list[Claim] = []
        self.known_classes: list[StorageClass] = []
        self.caches_filled = True
        self.events: list[tuple[Claim | Volume, Note]] = []
        self.jobs: dict[str, tuple[float, Callable[[], object]]] = {}

    def synced(self) -> bool:
        """See :meth:`prov_host.HostContext.synced`."""
        return self.caches_filled

    def _check_filled(self) -> None:
        if not self.caches_filled:
            raise NotSynced("the caches of this test's host are not filled")

    def volumes(self) -> tuple[Volume, ...]:
        """See :meth:`prov_host.HostContext.volumes`."""
        self._check_filled()
        return tuple(self.known_volumes)

    def claims(self) -> tuple[Claim, ...]:
        """See :meth:`prov_host.HostContext.claims`."""
        self._check_filled()
        return tuple(self.known_claims)

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """See :meth:`prov_host.HostContext.storage_classes`."""
        self._check_filled()
        return tuple(self.known_classes)

    def event(self, regarding: Claim | Volume, note: Note) -> None:
        """See :meth:`prov_host.HostContext.event`."""
        self.events.append((regarding, note))

    def every(self, name: str, seconds: float, job: Callable[[], object]) -> None:
        """See :meth:`prov_host.HostContext.every`."""
        self.jobs[name] = (seconds, job)

    def know(self, volumes: Iterable[Volume]) -> None:
        """Add volumes to those that the cluster has."""
        self.known_volumes.extend(volumes)
