"""One controller: everything that is done for one provisioner name.

It owns its queues and workers, so that a plugin that hangs holds up nobody else's claims, and shares the caches, the
API client, the events, the metrics and the locks of the process. What a change in the API concerns is decided here, by
annotation and without asking a plugin, before anything is queued::

    claims   --added, changed-->  queue of uids   --N workers-->  claims.ClaimPath
    volumes  --added, changed-->  queue of names  --N workers-->  volumes.VolumePath
    classes  --added, changed-->  the uids of claims that may have waited for that class
    volumes that could not be saved -> queue of names --4 workers--> saving.Saver
    claims whose mark is to be taken away -> queue of uids --2 workers--> intent.Intents

:meth:`Controller.start` begins, :meth:`Controller.stop_intake` begins nothing new, :meth:`Controller.drain` waits for
what is at work. Workers cannot die: whatever an item throws is logged with the item, and the item is tried again.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from prov_host.about import about, what_about
from prov_host.clock import Clock
from prov_host.controller.backend import Backend
from prov_host.controller.claims import ClaimPath, Unfinished
from prov_host.controller.locks import KeyLocks
from prov_host.controller.metrics import Metrics
from prov_host.controller.options import ControllerOptions
from prov_host.controller.parts import Kind, Parts, Result, default_volume_name
from prov_host.controller.saving import SAVE_WORKERS
from prov_host.controller.subjects import claim_subject, subject_words, volume_subject
from prov_host.controller.volumes import VolumePath
from prov_host.controller.workqueue import Limiter, WorkQueue
from prov_host.kube.api import Api, Cache, EventSink
from prov_host.model import INTENT_FINALIZER, Claim, StorageClass, Volume

__all__ = ["Controller", "ControllerStatus"]

logger = logging.getLogger(__name__)

_RELEASE_WORKERS = 2
_RECENT = 50


_Subject = Callable[[str], Mapping[str, str]]


class ControllerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller is doing, for the status page. Since 0.1.

    Attributes:
        provisioner: its provisioner name.
        plugin: the backend's plugin.
        queued_claims: claims that wait for a worker.
        queued_volumes: volumes that wait for a worker.
        working: claims and volumes that a worker has.
        in_progress: ``namespace/name`` of the claims a plugin may still be working on in the background.
        infeasible: claims that are left alone for a while.
        unsaved: names of volumes that exist on storage and could not be saved yet.
        releasing: claims that still carry our mark though nothing is in the making.
        failures: the latest failures, newest first: ``(when, what, error)``.
    """

    provisioner: str
    plugin: str
    queued_claims: int = 0
    queued_volumes: int = 0
    working: int = 0
    in_progress: tuple[str, ...] = ()
    infeasible: int = 0
    unsaved: tuple[str, ...] = ()
    releasing: int = 0
    failures: tuple[tuple[str, str, str], ...] = ()


class Controller:
    """Provisions the claims and reclaims the volumes of one provisioner name.

    Args:
        name: the provisioner name.
        backend: the plugin that owns it.
        api: typed operations on the API.
        claims: the cache of all claims.
        volumes: the cache of all volumes.
        classes: the cache of all classes.
        events: where events go.
        clock: time.
        rng: randomness.
        metrics: the process's.
        options: the choices; checked by whoever made them.
        locks: the process's, shared by its controllers.
        volume_name: names the volume for a claim, from its uid.

    Raises:
        ConfigurationError: the options cannot work.

    Belongs to the event loop. Since 0.1.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        *,
        api: Api,
        claims: Cache[Claim],
        volumes: Cache[Volume],
        classes: Cache[StorageClass],
        events: EventSink,
        clock: Clock,
        rng: random.Random,
        metrics: Metrics,
        options: ControllerOptions,
        locks: KeyLocks | None = None,
        volume_name: Callable[[Claim], str] = default_volume_name,
    ) -> None:
        options.check()
        self.parts = Parts(
            name=name,
            backend=backend,
            api=api,
            claims=claims,
            volumes=volumes,
            classes=classes,
            events=events,
            clock=clock,
            rng=rng,
            metrics=metrics,
            options=options,
            locks=locks or KeyLocks(),
            volume_name=volume_name,
        )
        limiter = Limiter(
            clock,
            base=options.retry_interval_start,
            maximum=options.limiter_maximum,
            rate=options.retry_rate,
            burst=options.retry_burst,
        )
        # One limiter for both, as the reference's: the keys cannot collide, uids here and volume names there.
        self.claim_queue = WorkQueue(clock, limiter, metrics.queue_observer("claims"))
        self.volume_queue = WorkQueue(clock, limiter, metrics.queue_observer("volumes"))
        metrics.watch_queue("claims", self.claim_queue)
        metrics.watch_queue("volumes", self.volume_queue)
        self.claim_path = ClaimPath(self.parts, self.claim_queue.add)
        self.volume_path = VolumePath(self.parts)
        metrics.watch_state(name, lambda: len(self.claim_path.in_progress), lambda: len(self.claim_path.saver.unsaved))
        self._failures: collections.deque[tuple[str, str, str]] = collections.deque(maxlen=_RECENT)
        self._workers: list[asyncio.Task[None]] = []
        self._subscriptions: list[Callable[[], None]] = []
        self._started = False
        self._stopping = False

    # ------------------------------------------------------------------ what is going on

    @property
    def name(self) -> str:
        """The provisioner name."""
        return self.parts.name

    @property
    def in_progress(self) -> frozenset[str]:
        """Uids of the claims a plugin may still be working on in the background."""
        return frozenset(self.claim_path.in_progress)

    def unsaved_volumes(self) -> tuple[Volume, ...]:
        """Volumes that are being saved, or were and are not in the cache yet. Safe from any thread."""
        return self.claim_path.saver.volumes()

    def status(self) -> ControllerStatus:
        """What the controller is doing."""
        path = self.claim_path
        return ControllerStatus(
            provisioner=self.name,
            plugin=self.parts.backend.plugin,
            queued_claims=len(self.claim_queue),
            queued_volumes=len(self.volume_queue),
            working=self.claim_queue.working + self.volume_queue.working,
            in_progress=tuple(sorted(unfinished.claim.key for unfinished in path.in_progress.values())),
            infeasible=len(path.slow),
            unsaved=path.saver.unsaved,
            releasing=path.intents.pending,
            failures=tuple(reversed(self._failures)),
        )

    def remember(self, claim: Claim) -> None:
        """Take a claim for one that a plugin may be working on, as after an answer "still working"."""
        self.claim_path.in_progress[claim.uid] = Unfinished(claim)
        self.claim_queue.add(claim.uid)

    # ------------------------------------------------------------------ running

    async def start(self) -> None:
        """Begin to work: wait for the caches, look at everything in them, and at every change from then on.

        Since 0.1. Source: reference controller, "Run".
        """
        parts = self.parts
        await parts.classes.wait_synced()
        await parts.volumes.wait_synced()
        await parts.claims.wait_synced()
        parts.backend.on_return(self._hook_returned)
        self._subscriptions = [
            parts.classes.subscribe(_ClassHandler(self)),
            parts.volumes.subscribe(_VolumeHandler(self)),
            parts.claims.subscribe(_ClaimHandler(self)),
        ]
        self._started = True
        threads = parts.options.worker_threads
        saver, intents = self.claim_path.saver, self.claim_path.intents
        for number in range(threads):
            self._spawn(f"claims-{number}", self.claim_queue, self._work_on_claim, self._claim_subject)
            self._spawn(f"volumes-{number}", self.volume_queue, self._work_on_volume, self._volume_subject)
        for number in range(SAVE_WORKERS):
            self._spawn(f"save-{number}", saver.queue, saver.process, self._volume_subject)
        for number in range(_RELEASE_WORKERS):
            self._spawn(f"release-{number}", intents.queue, intents.process, self._claim_subject)
        logger.info("Serving provisioner %s with plugin %s, %d workers", self.name, parts.backend.plugin, threads)

    def stop_intake(self) -> None:
        """Begin nothing new; what is at work goes on. Idempotent."""
        self._stopping = True
        for undo in self._subscriptions:
            undo()
        self._subscriptions = []
        self.claim_queue.shut_down()
        self.volume_queue.shut_down()

    async def drain(self, limit: float) -> bool:
        """Wait for what is at work, then end all workers.

        Args:
            limit: seconds to wait at most. What is not finished by then is given up: the marks on its claims have
                it found again by the next process.

        Returns:
            Whether everything was finished in time.
        """
        self.stop_intake()
        clock, path = self.parts.clock, self.claim_path
        deadline = clock.monotonic() + limit
        queues = (self.claim_queue, self.volume_queue, path.saver.queue, path.intents.queue)

        def busy() -> bool:
            waiting = len(path.saver.queue) + len(path.intents.queue)
            return waiting > 0 or any(queue.working for queue in queues)

        while busy() and clock.monotonic() < deadline:
            await clock.sleep(min(0.02, max(deadline - clock.monotonic(), 0.001)))
        finished = not busy()
        if not finished:
            logger.warning(
                "Provisioner %s: work was not finished within %g s and is left to the next", self.name, limit
            )
        path.saver.queue.shut_down()
        path.intents.queue.shut_down()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers = []
        return finished

    def _spawn(self, name: str, queue: WorkQueue, work: Callable[[str], Awaitable[None]], subject: _Subject) -> None:
        worker = self._run_worker(queue, work, subject)
        self._workers.append(asyncio.get_running_loop().create_task(worker, name=f"{self.name} {name}"))

    def _claim_subject(self, uid: str) -> Mapping[str, str]:
        unfinished = self.claim_path.in_progress.get(uid)
        claim = self.parts.claims.by_uid(uid) or (unfinished.claim if unfinished else None)
        return claim_subject(self.parts, uid, claim)

    def _volume_subject(self, name: str) -> Mapping[str, str]:
        volume = self.parts.volumes.get(name) or self.claim_path.saver.find(name)
        return volume_subject(self.parts, name, volume)

    async def _run_worker(self, queue: WorkQueue, work: Callable[[str], Awaitable[None]], subject: _Subject) -> None:
        """Hand one key after another to ``work``; nothing it raises ends the worker."""
        while (key := await queue.get()) is not None:
            with about(subject(key)):
                try:
                    await work(key)
                except (Exception, asyncio.CancelledError) as error:
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                        raise  # it is us who are to end, and not something that the item waited for
                    words = subject_words(what_about(), key)
                    logger.exception("Provisioner %s: unexpected error at %s%s", self.name, key, words)
                    self._failed(key, f"{type(error).__name__}: {error}")
                    queue.retry(key)
                finally:
                    queue.done(key)

    async def _work_on_claim(self, uid: str) -> None:
        if self._stopping:
            return  # it stays as it is; the next process finds it in the API
        result = await self.claim_path.process(uid)
        self._settle(self.claim_queue, uid, result, "claim", self.parts.options.failed_provision_threshold)

    async def _work_on_volume(self, name: str) -> None:
        if self._stopping:
            return
        result = await self.volume_path.process(name)
        self._settle(self.volume_queue, name, result, "volume", self.parts.options.failed_delete_threshold)

    def _settle(self, queue: WorkQueue, key: str, result: Result, what: str, threshold: int) -> None:
        """What a result means for its key."""
        words = subject_words(what_about(), key)
        if result.kind is Kind.WAIT:
            logger.debug('%s "%s"%s: %s', what, key, words, result.error)
            queue.add_after(key, result.after)
            return
        if result.kind is not Kind.RETRY:
            if result.kind is Kind.STOP:
                logger.info('%s "%s"%s is not worked on: %s', what, key, words, result.error)
            queue.forget(key)
            return
        logger.warning('error syncing %s "%s"%s: %s', what, key, words, result.error)
        claim = self.parts.claims.by_uid(key) if what == "claim" else None
        self._failed(f"{what} {claim.key if claim else key}", result.error)
        # A threshold of N gives N + 1 attempts; afterwards every change gives one more. As the reference.
        if threshold and queue.failures(key) >= threshold:
            logger.error('Giving up %s "%s"%s after %d retries, until it changes', what, key, words, threshold)
            if what == "claim":
                self.claim_path.give_up(key)
            return
        queue.retry(key, at_least=result.after)

    def _failed(self, key: str, error: str) -> None:
        self._failures.append((self.parts.clock.now().isoformat(timespec="seconds"), key, error))

    # ------------------------------------------------------------------ what happens in the cluster

    def claim_changed(self, claim: Claim, old: Claim | None) -> None:
        """A claim appeared, changed, or is replayed (``old is claim``)."""
        if not self.claim_path.concerns(claim):
            return
        if old is claim and self.claim_queue.delayed(claim.uid):
            return  # a replay, which is no reason to cut a delay short
        if old is not None and old is not claim and _without_mark(old) == _without_mark(claim):
            return  # our own mark came or went: looking again would be looking without end
        self.claim_queue.add(claim.uid)

    def claim_vanished(self, claim: Claim) -> None:
        """A claim is gone; what is in progress for it is in the queue and goes on."""
        self.claim_path.forget(claim)
        if claim.uid not in self.claim_path.in_progress:
            self.claim_queue.forget(claim.uid)

    def volume_changed(self, volume: Volume, old: Volume | None) -> None:
        """A volume appeared, changed, or is replayed."""
        self.claim_path.saver.seen(volume.name)
        if not self.parts.ours(volume):
            return
        if old is volume and self.volume_queue.delayed(volume.name):
            return
        self.volume_queue.add(volume.name)

    def volume_vanished(self, volume: Volume) -> None:
        """A volume is gone; its claim may have waited for that."""
        self.claim_path.saver.seen(volume.name)
        self.volume_path.forget(volume)
        self.volume_queue.forget(volume.name)
        claim = self.parts.claims.by_uid(volume.claim_uid) if volume.claim_uid else None
        if claim is not None and self.claim_path.concerns(claim):
            self.claim_queue.add(claim.uid)

    def class_changed(self, name: str) -> None:
        """A class appeared or changed: claims that wait for it are looked at now."""
        if not self._started:
            return  # all claims are about to be looked at anyway
        for claim in self.parts.claims.values():
            if claim.class_name == name and not claim.spec.volume_name and self.claim_path.concerns(claim):
                self.claim_queue.add(claim.uid)

    def _hook_returned(self, volume_name: str) -> None:
        """A hook that was given up for late has returned: its volume can be worked on again."""
        if self._stopping:
            return
        for uid, unfinished in self.claim_path.in_progress.items():
            if self.parts.volume_name(unfinished.claim) == volume_name:
                self.claim_queue.add(uid)
        volume = self.parts.volumes.get(volume_name)
        if volume is not None and self.parts.ours(volume):
            self.volume_queue.add(volume_name)


def _without_mark(claim: Claim) -> Claim:
    finalizers = tuple(name for name in claim.finalizers if name != INTENT_FINALIZER)
    metadata = msgspec.structs.replace(claim.metadata, finalizers=finalizers, resource_version=None)
    return msgspec.structs.replace(claim, metadata=metadata)


class _ClaimHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def added(self, obj: Claim) -> None:
        self._controller.claim_changed(obj, None)

    def updated(self, old: Claim, new: Claim) -> None:
        self._controller.claim_changed(new, old)

    def deleted(self, last: Claim) -> None:
        self._controller.claim_vanished(last)


class _VolumeHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def added(self, obj: Volume) -> None:
        self._controller.volume_changed(obj, None)

    def updated(self, old: Volume, new: Volume) -> None:
        self._controller.volume_changed(new, old)

    def deleted(self, last: Volume) -> None:
        self._controller.volume_vanished(last)


class _ClassHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def added(self, obj: StorageClass) -> None:
        self._controller.class_changed(obj.name)

    def updated(self, old: StorageClass, new: StorageClass) -> None:
        if old is not new:
            self._controller.class_changed(new.name)

    def deleted(self, last: StorageClass) -> None:
        """Nothing waits for a class to go."""
