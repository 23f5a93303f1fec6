"""What the host offers a plugin: :class:`prov_host.HostContext` over the process's caches and events.

A plugin gets its context in ``configure``, before there is a cluster; the host attaches the caches later. Until they
are filled asking them is an error (:exc:`~prov_host.errors.NotSynced`), for "not known yet" is not "there is none".
Jobs that a plugin asks for with ``every`` run on threads of their own while this process serves the plugin's names.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from prov_host.clock import Clock, SystemClock
from prov_host.errors import NotSynced
from prov_host.kube.api import Cache, EventSink
from prov_host.model import Claim, Note, StorageClass, Volume
from prov_host.output import HostThread, as_plugin, words_of
from prov_host.starting import NoThread, start_thread

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["PluginContext", "World"]

logger = logging.getLogger(__name__)


class World(Protocol):
    """The process's caches and events, as the host attaches them."""

    @property
    def claims(self) -> Cache[Claim]:
        """All claims."""

    @property
    def volumes(self) -> Cache[Volume]:
        """All volumes."""

    @property
    def classes(self) -> Cache[StorageClass]:
        """All classes."""

    @property
    def events(self) -> EventSink:
        """Where events go."""

    @property
    def synced(self) -> bool:
        """Whether all caches have been filled."""

    def being_saved(self) -> Iterable[Volume]:
        """Volumes that were made and are not in the cache yet."""


class _Job(msgspec.Struct, frozen=True):
    name: str
    seconds: float
    function: Callable[[], object]


class PluginContext:
    """Implements :class:`prov_host.HostContext`.

    Args:
        plugin: the plugin's name.
        node_name: the node this process runs on, or "".
        clock: the host's clock.
        registry: where metrics are registered; one of its own by default.

    The plugin's methods are callable from any thread, the host's are called on the event loop. Since 0.1.
    """

    def __init__(
        self,
        plugin: str,
        *,
        node_name: str = "",
        clock: Clock | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.plugin = plugin
        self.node_name = node_name
        self.clock: Clock = clock or SystemClock()
        self._registry = registry
        self._world: World | None = None
        self._jobs: list[_Job] = []
        self._configured = False
        self._stop = threading.Event()
        self._started: set[str] = set()

    @property
    def registry(self) -> CollectorRegistry:
        """See :class:`prov_host.HostContext`."""
        if self._registry is None:
            from prometheus_client import CollectorRegistry  # noqa: PLC0415  the command line may not need it

            self._registry = CollectorRegistry()
        return self._registry

    @registry.setter
    def registry(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def synced(self) -> bool:
        """See :meth:`prov_host.HostContext.synced`."""
        return self._world is not None and self._world.synced

    def _filled(self) -> World:
        """What there is to see. Raises NotSynced: no answer is better than "there is nothing"."""
        if self._world is None or not self._world.synced:
            raise NotSynced("the host's caches are not filled yet, so it cannot tell what exists in the cluster")
        return self._world

    def volumes(self) -> tuple[Volume, ...]:
        """See :meth:`prov_host.HostContext.volumes`."""
        world = self._filled()
        # In this order: a volume that is saved in between is seen twice rather than never.
        pending = tuple(world.being_saved())
        known = world.volumes.values()
        if not pending:
            return known
        names = {volume.name for volume in known}
        return (*known, *(volume for volume in pending if volume.name not in names))

    def claims(self) -> tuple[Claim, ...]:
        """See :meth:`prov_host.HostContext.claims`."""
        return self._filled().claims.values()

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """See :meth:`prov_host.HostContext.storage_classes`."""
        return self._filled().classes.values()

    def event(self, regarding: Claim | Volume, note: Note) -> None:
        """See :meth:`prov_host.HostContext.event`."""
        if self._world is None:
            logger.info("plugin %s has an event for nobody: %s %s", self.plugin, note.reason, note.message)
            return
        kind = note.type if note.type in {"Normal", "Warning"} else "Warning"
        self._world.events.emit(regarding, type=kind, reason=note.reason, message=note.message)

    def every(self, name: str, seconds: float, job: Callable[[], object]) -> None:
        """See :meth:`prov_host.HostContext.every`."""
        if self._configured:
            raise RuntimeError(f"every({name!r}) was called after configure; jobs are set up in configure only")
        if not seconds > 0:
            raise ValueError(f"every({name!r}): {seconds} s apart; it must be more than 0")
        if any(known.name == name for known in self._jobs):
            raise ValueError(f"every({name!r}) was called twice; jobs have names of their own")
        self._jobs.append(_Job(name, seconds, job))

    def configured(self) -> None:
        """The ``configure`` hook has returned: no more jobs."""
        self._configured = True

    def attach(self, world: World) -> None:
        """From now on, this is what the plugin sees."""
        self._world = world

    def start_jobs(self) -> bool:
        """This process serves the plugin's names now. Idempotent.

        Returns:
            Whether all jobs have a thread now; otherwise this is to be called again.
        """
        for job in self._jobs:
            if job.name in self._started or self._stop.is_set():
                continue
            try:
                start_thread(HostThread(functools.partial(self._work, job), f"job {job.name} of {self.plugin}"))
            except NoThread as error:
                logger.warning("job %s of plugin %s waits: %s; tried again", job.name, self.plugin, error)
                return False
            self._started.add(job.name)
        return True

    def stop_jobs(self) -> None:
        """No job starts again; one that runs goes on. Idempotent."""
        self._stop.set()

    def _work(self, job: _Job) -> None:
        said = ""
        while not self._stop.is_set():
            words = ""
            try:
                as_plugin(self.plugin, job.function)
            except BaseException as error:
                words = words_of(error)
                logger.debug("job %s of plugin %s failed", job.name, self.plugin, exc_info=error)
            # A share that is away fails a job again and again; once is enough to be told.
            if words != said:
                if words:
                    logger.warning(
                        "job %s of plugin %s failed, and will be tried again: %s", job.name, self.plugin, words
                    )
                else:
                    logger.info("job %s of plugin %s works again", job.name, self.plugin)
            said = words
            self._stop.wait(job.seconds)
