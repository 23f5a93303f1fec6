"""Wires everything: start, elect, run, drain, release.

::

    start    web server, session, caches (warm on a standby too), checks of the plugins
    elect    one Lease per provisioner name, each renewed on a thread of its own
    run      a controller for each name whose Lease is ours
    stop     first signal: no new work, drain within a limit, close plugins, release the Leases, exit code 0
             second signal, or a lost Lease: the end of the process, at once

A lost Lease must end the process from whatever thread notices it, since another replica is about to begin and the
event loop may be what hangs; so must a reflector that dies, since a host with a cache that stands still would act on
the past. A Lease is not released while a hook of its plugin has not returned: the successor then waits until the
Lease has run out, by when this process is gone.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import logging
import random
import signal
import socket
import urllib.parse
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from prov_host.clock import Clock, SystemClock
from prov_host.context import PluginContext
from prov_host.controller import Controller, KeyLocks, Metrics
from prov_host.ending import exit_now
from prov_host.errors import ConfigurationError
from prov_host.host_metrics import HostMetrics
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.kube.client import Client
from prov_host.kube.events import EventRecorder
from prov_host.kube.leases import Durations, lease_name
from prov_host.kube.observed import ObservedTransport
from prov_host.kube.ratelimit import RateLimiter
from prov_host.kube.reflector import Reflector
from prov_host.kube.store import Store
from prov_host.kube.transport import Transport
from prov_host.model import Record
from prov_host.output import words_of
from prov_host.plugins import Plugin
from prov_host.pool import HookPool
from prov_host.readiness import Readiness
from prov_host.routing import Limits, Observers, PluginBackend, describe_late
from prov_host.serving import Election, Serving, own_namespace
from prov_host.settings import Settings
from prov_host.threads import watch_threads
from prov_host.web import BackendStatus, RecentFailure, Status, WebServer
from prov_host.world import PluginWorld, Stores

if TYPE_CHECKING:
    pass

__all__ = ["Host"]

logger = logging.getLogger(__name__)

_CLOSE_LIMIT = 5.0
_SPARE_THREADS = 4
_FLUSH_LIMIT = 3.0
_END_LIMIT = 0.5
_JOBS_AGAIN = 5.0
_RECENT_FAILURES = 50


class Host:
    """One process of the host.

    Args:
        settings: all settings.
        plugins: configured plugins, in the order of their names.
        contexts: each one's context, by plugin name.
        connect: makes a transport for the calling event loop; the session of the settings by default.
        elect: whether to hold Leases; as the settings say by default.
        clock: time.
        rng: randomness.
        version: of prov-host, for the status page.
        exit_process: ends the process at once, with an exit code and last words.

    Belongs to the event loop that :meth:`run` is called on. Since 0.1.
    """

    def __init__(
        self,
        settings: Settings,
        plugins: Sequence[Plugin],
        contexts: Mapping[str, PluginContext],
        *,
        connect: Callable[[], Awaitable[Transport]] | None = None,
        elect: bool | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        version: str = "",
        exit_process: Callable[[int, str], None] = exit_now,
    ) -> None:
        self.settings = settings
        self.identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self.clock: Clock = clock or SystemClock()
        self._plugins = tuple(plugins)
        self._contexts = dict(contexts)
        self._open = connect or self._open_session
        self._elect = settings.host.leader_election if elect is None else elect
        self._rng = rng or random.Random()  # noqa: S311  jitter
        self._version = version
        self._exit = exit_process
        self._registry = self._contexts[self._plugins[0].name].registry if self._plugins else CollectorRegistry()
        self._state = "starting"
        self._end_now = asyncio.Event()
        self._failed = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._recent: collections.deque[RecentFailure] = collections.deque(maxlen=_RECENT_FAILURES)
        self.metrics = HostMetrics(self._registry, version)
        self._controller_metrics = Metrics(self._registry, self.clock)
        self._observers = Observers(
            self._plugins,
            size=Limits().observers,
            dropped=lambda plugin: self._loop_call(functools.partial(self.metrics.dropped, plugin)),
            also=self._remember,
        )
        self._readiness = [
            Readiness(plugin, self.clock, limit=Limits().check, changed=self.metrics.ready) for plugin in self._plugins
        ]
        self._backends = [self._make_backend(plugin) for plugin in self._plugins if plugin.is_backend]
        self._serving: list[Serving] = []
        self.web: WebServer | None = None
        self.stores = Stores.empty()
        self._not_synced = {"claims", "volumes", "classes"}
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._filled = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _make_backend(self, plugin: Plugin) -> PluginBackend:
        host, controller = self.settings.host, self.settings.controller
        # Each name has its own workers for claims and for volumes, and one of them may hang in each thread.
        needed = 2 * controller.worker_threads * max(len(plugin.provisioners), 1) + _SPARE_THREADS
        limits = Limits(
            threads=host.backend_threads or needed,
            provision=controller.provision_timeout,
            delete=controller.deletion_timeout,
            qps=host.backend_qps,
            burst=host.backend_burst,
        )
        backend = PluginBackend(plugin, self._plugins, observers=self._observers, clock=self.clock, limits=limits)
        self.metrics.watch_backend(backend)
        return backend

    async def _open_session(self) -> Transport:
        from prov_host.kube.session import load  # noqa: PLC0415  takes the SDK along

        return await load(self.settings.host.kubeconfig, self.settings.host.context, clock=self.clock)

    async def _connect(self) -> Transport:
        transport = await self._open()
        host = urllib.parse.urlsplit(getattr(transport, "host", "")).netloc or "in-process"
        return ObservedTransport(transport, self.clock, self.metrics.request_observer(host))

    def _loop_call(self, function: Callable[[], object]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # closed: the process ends
                self._loop.call_soon_threadsafe(function)

    # ------------------------------------------------------------------ the life of a process

    def stop(self) -> None:
        """Stop as after a first signal; :meth:`run` returns 0 then. On the event loop. Idempotent."""
        self._end_now.set()

    async def run(self, *, signals: bool = True) -> int:
        """Run until stopped.

        Args:
            signals: whether to listen to SIGTERM and SIGINT; only on the main thread.

        Returns:
            The exit code: 0 after an orderly stop, 1 if something without which the host cannot work has failed.

        Raises:
            ConfigurationError: the address cannot be listened on, or the cluster cannot be found.
        """
        self._loop = asyncio.get_running_loop()
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._signalled, signal.Signals(number).name)
        self._check_names()
        transport: Transport | None = None
        try:
            if self.settings.host.http_address:
                self.web = WebServer(self.status, self._registry, self.clock)
                await self.web.start(*self.settings.host.http_endpoint())
            transport = await self._connect()
            await self._start(transport)
            await self._end_now.wait()
            if self._failed:
                # What is at work is left to the next process, which finds it by the marks on the claims.
                logger.critical("%s: ending", self._failed)
                return 1
            await self._shut_down()
            return 0
        finally:
            await self._end(transport)
            if signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    self._loop.remove_signal_handler(number)

    def _signalled(self, name: str) -> None:
        if self._end_now.is_set():
            self._exit(1, f"{name} again: ending at once")
            return
        logger.info("%s: finishing what runs, then ending (again to end at once)", name)
        self._end_now.set()

    def _check_names(self) -> None:
        """Everything about leadership that can be known to be wrong before anything starts."""
        if not self._elect:
            return
        problems: list[str] = []
        checks: list[Callable[[], object]] = [self._durations().check]
        names = [name for backend in self._backends for name in backend.provisioners]
        checks += [functools.partial(lease_name, name) for name in names]
        for check in checks:
            try:
                check()
            except ConfigurationError as error:
                problems += error.problems
        if problems:
            raise ConfigurationError(*problems)

    def _durations(self) -> Durations:
        host = self.settings.host
        return Durations(
            lease=host.leader_election_lease_duration,
            renew=host.leader_election_renew_deadline,
            retry=host.leader_election_retry_period,
        )

    def _spawn(self, name: str, work: Coroutine[Any, Any, None], *, endless: bool = False) -> None:
        """Run a part of the host; if it fails, or an endless one ends, the process does too."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                logger.critical("%s failed: %s", name, words_of(error), exc_info=error)
            elif not endless:
                return
            self._failed = self._failed or f"{name} has ended"
            self._end_now.set()

        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _start(self, transport: Transport) -> None:
        host = self.settings.host
        limiter = RateLimiter(self.clock, qps=host.kube_api_qps, burst=host.kube_api_burst)
        client = Client(transport, self.clock, limiter)
        # Lists and watches are few and everything waits for them; events must not take the requests of the work.
        unlimited = Client(transport, self.clock)
        locks = KeyLocks()
        self._serving = [
            self._make_serving(name, backend, client=client, unlimited=unlimited, locks=locks)
            for backend in self._backends
            for name in backend.provisioners
        ]
        controllers = [serving.controller for serving in self._serving]
        for plugin in self._plugins:
            own = [serving.recorder for serving in self._serving if serving.backend.owner is plugin]
            events = (own or [serving.recorder for serving in self._serving])[0]
            self._contexts[plugin.name].attach(PluginWorld(self.stores, events, controllers, lambda: self.synced))
        for name, resource, store in (
            ("claims", CLAIMS, self.stores.claims),
            ("volumes", VOLUMES, self.stores.volumes),
            ("classes", CLASSES, self.stores.classes),
        ):
            reflector: Reflector[Any] = Reflector(
                unlimited,
                resource,
                store,
                clock=self.clock,
                rng=self._rng,
                resync=self.settings.controller.resync_period,
            )
            self._reflectors[name] = reflector
            self._spawn(f"the reflector of {name}", reflector.run(), endless=True)
            self._spawn(f"waiting for {name}", self._note_synced(name, store))
        for readiness in self._readiness:
            self._spawn(f"checking {readiness.plugin.title}", self._check(readiness))
        self._spawn("the count of threads", watch_threads(self._plugins, self.clock), endless=True)
        for plugin in self._plugins:
            if not plugin.is_backend:
                self._spawn(f"starting the jobs of {plugin.title}", self._start_jobs(plugin.name))
        self._state = "running"
        titles = ", ".join(plugin.title for plugin in self._plugins)
        logger.info("prov-host %s runs as %s with %s", self._version, self.identity, titles)
        election = self._election() if self._elect else None
        for serving in self._serving:
            serving.take_part(election)

    def _make_serving(
        self, name: str, backend: PluginBackend, *, client: Client, unlimited: Client, locks: KeyLocks
    ) -> Serving:
        recorder = EventRecorder(unlimited, component=f"{name}_{self.identity}", clock=self.clock, rng=self._rng)
        recorder.start()
        controller = Controller(
            name,
            backend,
            api=client,
            claims=self.stores.claims,
            volumes=self.stores.volumes,
            classes=self.stores.classes,
            events=recorder,
            clock=self.clock,
            rng=self._rng,
            metrics=self._controller_metrics,
            options=self.settings.controller,
            locks=locks,
        )
        serving = Serving(
            name,
            backend,
            controller,
            recorder,
            call=self._loop_call,
            won=self._serve,
            lost=lambda reason: self._exit(1, f"the Lease of {name} is lost: {reason}; ending at once"),
        )
        self.metrics.watch_name(name, lambda: serving.leading, lambda: recorder.dropped)
        return serving

    async def _note_synced(self, name: str, store: Store[Any]) -> None:
        await store.wait_synced()
        self._not_synced.discard(name)
        if not self._not_synced:
            self._filled.set()

    async def _check(self, readiness: Readiness) -> None:
        """No plugin looks at its storage before it can know what the cluster has: nothing seen is not nothing there."""
        await self._filled.wait()
        await readiness.run()

    async def _start_jobs(self, plugin: str) -> None:
        await self._filled.wait()
        while not self._contexts[plugin].start_jobs():
            await self.clock.sleep(_JOBS_AGAIN)

    def _election(self) -> Election:
        return Election(
            connect=self._connect,
            namespace=self.settings.host.leader_election_namespace or own_namespace(),
            identity=self.identity,
            durations=self._durations(),
            clock=self.clock,
            rng=self._rng,
        )

    def _serve(self, serving: Serving) -> None:
        """A name is ours."""
        if self._end_now.is_set():
            return
        plugin = serving.backend.plugin
        self._spawn(f"starting the jobs of plugin {plugin}", self._start_jobs(plugin))
        self._spawn(f"the controller of {serving.name}", serving.controller.start())

    # ------------------------------------------------------------------ stopping

    async def _shut_down(self) -> None:
        self._state = "stopping"
        limit = self.settings.host.drain_timeout
        await asyncio.gather(*(serving.controller.drain(limit) for serving in self._serving if serving.leading))
        for context in self._contexts.values():
            context.stop_jobs()
        self._observers.close()
        await asyncio.gather(*(self._close_plugin(plugin) for plugin in self._plugins))
        await asyncio.gather(*(serving.release() for serving in self._serving))
        await asyncio.gather(*(serving.recorder.stop(_FLUSH_LIMIT) for serving in self._serving))
        logger.info("ended in an orderly way")

    async def _close_plugin(self, plugin: Plugin) -> None:
        if "close" not in plugin.hooks:
            return
        pool = HookPool(plugin.name, size=1, clock=self.clock, queue_wait=_CLOSE_LIMIT)
        try:
            await pool.run("close", "close", plugin.own.close, limit=_CLOSE_LIMIT)
        except Exception as error:  # noqa: BLE001  a plugin's own failure; the process ends anyway
            logger.warning("%s: close failed: %s", plugin.title, words_of(error))
        finally:
            pool.close()

    async def _end(self, transport: Transport | None) -> None:
        """Leave nothing behind, whatever has gone wrong."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for serving in self._serving:
            await serving.recorder.stop(_END_LIMIT)
        for backend in self._backends:
            backend.close()
        for readiness in self._readiness:
            readiness.close()
        if self.web is not None:
            await self.web.stop()
        if transport is not None:
            await transport.close()

    # ------------------------------------------------------------------ what is going on

    def _remember(self, record: Record) -> None:
        if record.outcome == "ok":
            return
        self._recent.appendleft(
            RecentFailure(
                time=self.clock.now().isoformat(timespec="seconds"),
                operation=record.operation,
                plugin=record.plugin,
                claim=record.claim,
                volume=record.volume,
                outcome=record.outcome,
                message=record.message,
            )
        )

    def status(self) -> Status:
        """How the process is now. On the event loop."""
        return Status(
            version=self._version,
            identity=self.identity,
            state=self._state,
            not_synced=tuple(sorted(self._not_synced)),
            stale=tuple(
                f"{name} cannot be listed or watched: {reflector.lasting_problem}"
                for name, reflector in sorted(self._reflectors.items())
                if reflector.lasting_problem
            ),
            backends=tuple(self._plugin_status(readiness) for readiness in self._readiness),
            leases=tuple(serving.lease_status() for serving in self._serving),
            queues=tuple(queue for serving in self._serving for queue in serving.queue_status()),
            failures=tuple(self._recent),
        )

    def _plugin_status(self, readiness: Readiness) -> BackendStatus:
        plugin = readiness.plugin
        backend = next((backend for backend in self._backends if backend.owner is plugin), None)
        return BackendStatus(
            plugin=plugin.name,
            title=plugin.title,
            provisioners=plugin.provisioners,
            problems=readiness.problems,
            checked=readiness.checked,
            active=backend.active if backend else 0,
            late=tuple(describe_late(backend.late())) if backend else (),
        )

    @property
    def synced(self) -> bool:
        """Whether all caches have been filled."""
        return not self._not_synced
