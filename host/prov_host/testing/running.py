"""The real host on an embedded cluster, for ordinary tests: started and stopped in milliseconds, on its thread.

Everything is what ``prov-host --plugin ...`` would use: settings, plugin loading, routing, controllers, caches and
events. Only the Leases are left out, and requests go to the cluster without a socket.
"""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
from prometheus_client import CollectorRegistry

from prov_host.clock import Clock, SystemClock
from prov_host.context import PluginContext
from prov_host.embedded import InProcessTransport
from prov_host.host import Host
from prov_host.kube.transport import Transport
from prov_host.plugins import Candidate, configure, discover, load
from prov_host.settings import read_settings
from prov_host.testing.clock import FakeClock
from prov_host.testing.cluster import EmbeddedCluster

__all__ = ["RunningHost"]


class RunningHost:
    """The host with some plugins; a context manager that starts and stops it.

    Args:
        cluster: where it works.
        plugins: what to run: a plugin's name to its class, or to None for an installed one.
        settings: each plugin's settings, as in its table of the file.
        options: the host's options as on the command line, by field name: ``{"worker_threads": "2"}``.
        clock: the host's clock; the real one by default. A :class:`prov_host.testing.FakeClock` is moved with
            :meth:`advance`.

    Attributes:
        registry: the host's metrics.

    Raises:
        ConfigurationError: on entering, with every problem.

    Its methods are callable from any thread but the cluster's. Since 0.1.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        plugins: Mapping[str, Callable[[], object] | None],
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.cluster = cluster
        self.clock: Clock = clock or SystemClock()
        self._plugins = dict(plugins)
        self._tables = dict(settings or {})
        self._options = dict(options or {})
        self.registry = CollectorRegistry()
        self._started = False
        self._host: Host
        self._done: concurrent.futures.Future[int]

    def __enter__(self) -> Self:
        if not self._started:  # the fixture has started it already, and a test may still say `with`
            self._started = True
            self._start()
        return self

    def _start(self) -> None:
        make = self._prepare()

        async def on_the_loop() -> Host:
            return make()

        self._host = self.cluster.loop.run(on_the_loop())
        self._done = self.cluster.loop.start(self._host.run(signals=False))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """Stop as SIGTERM does: no new work, what runs is finished.

        Returns:
            The exit code that the process would have.
        """
        if not self._done.done():
            self.cluster.loop.call(self._host.stop)
        return self._done.result(60)

    def advance(self, seconds: float) -> None:
        """Let time pass for the host; its clock must be a :class:`prov_host.testing.FakeClock`."""
        assert isinstance(self.clock, FakeClock), "the host runs on the real clock; give it a FakeClock"
        self.cluster.loop.run(self.clock.advance(seconds))

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while it runs."""
        return self._done.result(0) if self._done.done() else None

    def metric(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """The value of a metric, 0 if nothing was counted."""
        return self.registry.get_sample_value(name, dict(labels or {})) or 0.0

    def _prepare(self) -> Callable[[], Host]:
        """What the command line does before the event loop starts."""
        names = tuple(self._plugins)
        installed = discover()
        candidates = [
            Candidate(name, "(under test)", "0", getattr(plugin, "__qualname__", name), _giving(plugin))
            for name, plugin in self._plugins.items()
            if plugin is not None
        ]
        candidates += [one for one in installed if self._plugins.get(one.name, one) is None]
        read = read_settings({"plugin": names, **self._options}, environment={}, installed=names)
        settings = msgspec.structs.replace(read, tables=self._tables)
        loaded = load(names, candidates)
        loaded.raise_if_asked()
        contexts = {
            plugin.name: PluginContext(
                plugin.name, node_name=settings.host.node_name, clock=self.clock, registry=self.registry
            )
            for plugin in loaded.working
        }
        configured = configure(
            loaded.working,
            lambda plugin, kind: settings.for_plugin(plugin.name, kind),
            lambda plugin: contexts[plugin.name],
        )
        configured.raise_if_asked()
        for context in contexts.values():
            context.configured()
        return functools.partial(
            Host, settings, configured.working, contexts, connect=self._connect, elect=False, clock=self.clock
        )

    async def _connect(self) -> Transport:
        return InProcessTransport(self.cluster.cluster)


def _giving(plugin: Callable[[], object]) -> Callable[[], object]:
    """What an entry point would lead to: the class, or the object that a function makes."""
    return lambda: plugin if isinstance(plugin, type) else plugin()
