"""The metrics of the process itself: who leads, which plugins are ready, which hooks hang, what the API is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram, Info

from prov_host.plugins import Plugin

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from prov_host.routing import PluginBackend

__all__ = ["HostMetrics"]

# client-go's.
_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class HostMetrics:
    """What a process tells about itself.

    Args:
        registry: where they are registered.
        version: of prov-host.

    Belongs to the event loop, where not said otherwise. Since 0.1.
    """

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        Info("prov_host_build", "The version of prov-host.", registry=registry).info({"version": version})
        self._leader = Gauge(
            "prov_host_leader",
            "Whether this process serves the provisioner name (1) or stands by (0).",
            ("provisioner",),
            registry=registry,
        )
        self._events_dropped = Gauge(
            "prov_host_events_dropped",
            "Events that were dropped because too many were waiting to be written.",
            ("provisioner",),
            registry=registry,
        )
        self._ready = Gauge(
            "prov_host_plugin_ready",
            "Whether the plugin's check found nothing wrong when it was last asked.",
            ("plugin",),
            registry=registry,
        )
        self._active = Gauge(
            "prov_host_hooks_active", "Hooks of the backend that wait or run now.", ("plugin",), registry=registry
        )
        self._late = Gauge(
            "prov_host_hooks_late",
            "Hooks of the backend that are past their time limit and have not returned.",
            ("plugin",),
            registry=registry,
        )
        self._dropped = Counter(
            "prov_host_observer_records_dropped_total",
            "Finished operations that the plugin was not told of because it does not keep up.",
            ("plugin",),
            registry=registry,
        )
        self._requests = Counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "host", "method"),
            registry=registry,
        )
        self._request_duration = Histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ("verb", "host"),
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )

    def request_observer(self, host: str) -> Callable[[str, str, float], None]:
        """What is told of each request to an API server: method, status code, seconds. Callable from any thread."""

        def observe(method: str, code: str, seconds: float) -> None:
            self._requests.labels(code, host, method).inc()
            self._request_duration.labels(method, host).observe(seconds)

        return observe

    def watch_name(self, provisioner: str, leading: Callable[[], bool], events_dropped: Callable[[], int]) -> None:
        """Show whether this process serves a name, and how its events fare, from now on."""
        self._leader.labels(provisioner).set_function(lambda: float(leading()))
        self._events_dropped.labels(provisioner).set_function(lambda: float(events_dropped()))

    def ready(self, plugin: Plugin, ready: bool) -> None:  # noqa: FBT001  as Readiness calls it
        """A plugin was checked."""
        self._ready.labels(plugin.name).set(float(ready))

    def watch_backend(self, backend: PluginBackend) -> None:
        """Show a backend's hooks from now on."""
        self._active.labels(backend.plugin).set_function(lambda: float(backend.active))
        self._late.labels(backend.plugin).set_function(lambda: float(len(backend.late())))

    def dropped(self, plugin: str) -> None:
        """A record for an observer was dropped."""
        self._dropped.labels(plugin).inc()
