"""The metrics of provisioning, deleting and the work queues.

The reference controller's six have its exact names, labels, help and buckets; the work queues' are as client-go names
them; a few are ours, and only those have a ``provisioner`` label.

Whoever may create a claim chooses what its labels are made of, and a series stays for as long as the process lives. So
a class that does not exist counts under the class "", and after a number of kinds of sources others count as "other".
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from prov_host.clock import Clock
from prov_host.controller.workqueue import QueueObserver, WorkQueue
from prov_host.model import Claim, Volume

__all__ = ["Metrics"]

_MAX_SOURCES = 20
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_QUEUE_BUCKETS = tuple(10.0**power for power in range(-8, 2))


class Metrics:
    """What a process counts about provisioning and deleting; one for all its controllers.

    Args:
        registry: where they are registered.
        clock: for the ages of work in progress.

    Belongs to the event loop. Since 0.1. Source: reference controller, "metrics".
    """

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        # prometheus_client adds a `_created` series to each counter and histogram that the reference does not have.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        claim, volume = ("class", "source"), ("class",)
        self._provisioned = Counter(
            "controller_persistentvolumeclaim_provision_total",
            "Total number of persistent volumes provisioned successfully. "
            "Broken down by storage class name and source of the claim.",
            claim,
            registry=registry,
        )
        self._provision_failed = Counter(
            "controller_persistentvolumeclaim_provision_failed_total",
            "Total number of persistent volume provision failed attempts. "
            "Broken down by storage class name and source of the claim.",
            claim,
            registry=registry,
        )
        self._provision_duration = Histogram(
            "controller_persistentvolumeclaim_provision_duration_seconds",
            "Latency in seconds to provision persistent volumes. Failed provisioning attempts are ignored. "
            "Broken down by storage class name and source of the claim.",
            claim,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._deleted = Counter(
            "controller_persistentvolume_delete_total",
            "Total number of persistent volumes deleted successfully. Broken down by storage class name.",
            volume,
            registry=registry,
        )
        self._delete_failed = Counter(
            "controller_persistentvolume_delete_failed_total",
            "Total number of persistent volume delete failed attempts. Broken down by storage class name.",
            volume,
            registry=registry,
        )
        self._delete_duration = Histogram(
            "controller_persistentvolume_delete_duration_seconds",
            "Latency in seconds to delete persistent volumes. Failed deletion attempts are ignored. "
            "Broken down by storage class name.",
            volume,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._released = Counter(
            "prov_host_volumes_released_total",
            "Released volumes whose asset was handled, by what became of it (delete, archive, retain, absent).",
            ("provisioner", "result"),
            registry=registry,
        )
        self._in_progress = Gauge(
            "prov_host_claims_in_progress",
            "Claims for which a plugin may still be working in the background.",
            ("provisioner",),
            registry=registry,
        )
        self._unsaved = Gauge(
            "prov_host_volumes_unsaved",
            "Volumes that exist on storage and could not be saved in the API yet.",
            ("provisioner",),
            registry=registry,
        )
        self._queues = _QueueMetrics(registry, clock)
        self._sources = {"", "PersistentVolumeClaim", "VolumeSnapshot"}

    def provision_succeeded(self, claim: Claim, seconds: float, *, class_exists: bool = True) -> None:
        """A claim was provisioned in that time; the class of its spec exists, or its name is not shown."""
        labels = self._claim_labels(claim, class_exists=class_exists)
        self._provisioned.labels(*labels).inc()
        self._provision_duration.labels(*labels).observe(seconds)

    def provision_failed(self, claim: Claim, *, class_exists: bool = True) -> None:
        """An attempt to provision a claim failed, or was stopped; as for :meth:`provision_succeeded`."""
        self._provision_failed.labels(*self._claim_labels(claim, class_exists=class_exists)).inc()

    def _claim_labels(self, claim: Claim, *, class_exists: bool) -> tuple[str, str]:
        """The spec's class, not the beta annotation's, and dataSource's kind, not dataSourceRef's: as the reference."""
        source = claim.spec.data_source
        kind = (source.kind if source else None) or ""
        if kind not in self._sources:
            if len(self._sources) < _MAX_SOURCES:
                self._sources.add(kind)
            else:
                kind = "other"
        return (claim.spec.storage_class_name or "") if class_exists else "", kind

    def delete_succeeded(self, volume: Volume, seconds: float) -> None:
        """A volume was deleted in that time."""
        name = volume.spec.storage_class_name or ""
        self._deleted.labels(name).inc()
        self._delete_duration.labels(name).observe(seconds)

    def delete_failed(self, volume: Volume) -> None:
        """An attempt to delete a volume failed."""
        self._delete_failed.labels(volume.spec.storage_class_name or "").inc()

    def released(self, provisioner: str, result: str) -> None:
        """The asset of a released volume was handled: ``delete``, ``archive``, ``retain`` or ``absent``."""
        self._released.labels(provisioner, result).inc()

    def watch_state(self, provisioner: str, in_progress: Callable[[], float], unsaved: Callable[[], float]) -> None:
        """Show a controller's claims in progress and unsaved volumes from now on."""
        self._in_progress.labels(provisioner).set_function(in_progress)
        self._unsaved.labels(provisioner).set_function(unsaved)

    def queue_observer(self, name: str) -> QueueObserver:
        """What tells this of a queue's steps; queues of one name add up."""
        return self._queues.observer(name)

    def watch_queue(self, name: str, queue: WorkQueue) -> None:
        """Show the depth and the unfinished work of a queue from now on."""
        self._queues.watch(name, queue)


class _QueueMetrics:
    """client-go's workqueue metrics."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[str, list[WorkQueue]] = {}
        name = ("name",)
        self.adds = Counter(
            "workqueue_adds_total", "Total number of adds handled by workqueue", name, registry=registry
        )
        self.retries = Counter(
            "workqueue_retries_total", "Total number of retries handled by workqueue", name, registry=registry
        )
        self._depth = Gauge("workqueue_depth", "Current depth of workqueue", name, registry=registry)
        self._unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed by "
            "work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by "
            "observing the rate at which this increases.",
            name,
            registry=registry,
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            name,
            registry=registry,
        )
        self.queued = Histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            name,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self.worked = Histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            name,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )

    def observer(self, name: str) -> _Observer:
        return _Observer(self, name)

    def watch(self, name: str, queue: WorkQueue) -> None:
        queues = self._watched.setdefault(name, [])
        queues.append(queue)
        if len(queues) > 1:
            return

        def ages() -> list[float]:
            now = self._clock.monotonic()
            return [now - since for queue in queues for since in queue.started()]

        self._depth.labels(name).set_function(lambda: sum(map(len, queues)))
        self._unfinished.labels(name).set_function(lambda: sum(ages()))
        self._longest.labels(name).set_function(lambda: max(ages(), default=0.0))


class _Observer:
    """One queue's steps, counted."""

    def __init__(self, metrics: _QueueMetrics, name: str) -> None:
        self._adds = metrics.adds.labels(name)
        self._retries = metrics.retries.labels(name)
        self._queued = metrics.queued.labels(name)
        self._worked = metrics.worked.labels(name)

    def added(self) -> None:
        self._adds.inc()

    def taken(self, waited: float) -> None:
        self._queued.observe(waited)

    def finished(self, worked: float) -> None:
        self._worked.observe(worked)

    def retried(self) -> None:
        self._retries.inc()
