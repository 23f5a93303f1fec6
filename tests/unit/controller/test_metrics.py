"""The metrics, as a scrape shows them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from prov_host.controller import Metrics
from prov_host.controller.workqueue import Limiter, WorkQueue
from prov_host.model import Claim, ClaimSpec, DataSource, ObjectMeta, Volume, VolumeSpec
from prov_host.testing.clock import FakeClock

REFERENCE = {
    "controller_persistentvolumeclaim_provision_total": (
        "counter",
        (
            "Total number of persistent volumes provisioned successfully. "
            "Broken down by storage class name and source of the claim."
        ),
    ),
    "controller_persistentvolumeclaim_provision_failed_total": (
        "counter",
        (
            "Total number of persistent volume provision failed attempts. "
            "Broken down by storage class name and source of the claim."
        ),
    ),
    "controller_persistentvolumeclaim_provision_duration_seconds": (
        "histogram",
        (
            "Latency in seconds to provision persistent volumes. Failed provisioning attempts are ignored. "
            "Broken down by storage class name and source of the claim."
        ),
    ),
    "controller_persistentvolume_delete_total": (
        "counter",
        "Total number of persistent volumes deleted successfully. Broken down by storage class name.",
    ),
    "controller_persistentvolume_delete_failed_total": (
        "counter",
        "Total number of persistent volume delete failed attempts. Broken down by storage class name.",
    ),
    "controller_persistentvolume_delete_duration_seconds": (
        "histogram",
        (
            "Latency in seconds to delete persistent volumes. Failed deletion attempts are ignored. "
            "Broken down by storage class name."
        ),
    ),
}
BUCKETS = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"]


def scrape(registry: CollectorRegistry) -> list[str]:
    return generate_latest(registry).decode().splitlines()


def test_names_help_types_and_buckets_are_the_references() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, FakeClock())
    claim = Claim(spec=ClaimSpec(storage_class_name="c", data_source=DataSource(kind="VolumeSnapshot")))
    volume = Volume(spec=VolumeSpec(storage_class_name="c"))
    metrics.provision_succeeded(claim, 0.3)
    metrics.provision_failed(claim)
    metrics.delete_succeeded(volume, 0.3)
    metrics.delete_failed(volume)
    lines = scrape(registry)
    for name, (kind, text) in REFERENCE.items():
        assert f"# HELP {name} {text}" in lines
        assert f"# TYPE {name} {kind}" in lines
    labels = 'class="c",source="VolumeSnapshot"'
    assert f"controller_persistentvolumeclaim_provision_total{{{labels}}} 1.0" in lines
    series = "controller_persistentvolumeclaim_provision_duration_seconds_bucket"
    found = [line.split('le="')[1].split('"')[0] for line in lines if line.startswith(series)]
    assert found == BUCKETS
    assert 'controller_persistentvolume_delete_failed_total{class="c"} 1.0' in lines
    assert not [line for line in lines if "_created" in line]


def test_the_class_label_is_the_specs_and_the_source_ignores_data_source_ref() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, FakeClock())
    beta = {"volume.beta.kubernetes.io/storage-class": "chosen"}
    claim = Claim(metadata=ObjectMeta(annotations=beta), spec=ClaimSpec(data_source_ref=DataSource(kind="X")))
    metrics.provision_failed(claim)
    assert 'controller_persistentvolumeclaim_provision_failed_total{class="",source=""} 1.0' in scrape(registry)


def test_who_creates_claims_does_not_create_series() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, FakeClock())
    for number in range(1000):
        source = DataSource(kind=f"Kind{number}")
        claim = Claim(spec=ClaimSpec(storage_class_name=f"invented-{number}", data_source=source))
        metrics.provision_failed(claim, class_exists=False)
        metrics.provision_succeeded(claim, 1.0, class_exists=False)
    name = "controller_persistentvolumeclaim_provision_failed_total"
    series = [line for line in scrape(registry) if line.startswith(f"{name}{{")]
    assert len(series) <= 20
    assert sum(float(line.rsplit(" ", 1)[1]) for line in series) == 1000
    assert not any("invented" in line for line in scrape(registry))
    assert any('source="other"' in line for line in series)


async def test_queues_of_one_name_add_up() -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    metrics = Metrics(registry, clock)
    queues = [WorkQueue(clock, Limiter(clock), metrics.queue_observer("claims")) for _ in range(2)]
    for number, queue in enumerate(queues):
        metrics.watch_queue("claims", queue)
        queue.add(f"a{number}")
        queue.add(f"b{number}")
    await clock.advance(2)
    for queue in queues:
        await queue.get()
        await clock.advance(3)
    lines = scrape(registry)
    for line in (
        'workqueue_depth{name="claims"} 2.0',
        'workqueue_adds_total{name="claims"} 4.0',
        'workqueue_unfinished_work_seconds{name="claims"} 9.0',
        'workqueue_longest_running_processor_seconds{name="claims"} 6.0',
        'workqueue_queue_duration_seconds_sum{name="claims"} 7.0',
    ):
        assert line in lines
    queues[0].done("a0")
    queues[0].retry("a0")
    lines = scrape(registry)
    assert 'workqueue_work_duration_seconds_sum{name="claims"} 6.0' in lines
    assert 'workqueue_retries_total{name="claims"} 1.0' in lines
    for queue in queues:
        queue.shut_down()
    await clock.settle()
