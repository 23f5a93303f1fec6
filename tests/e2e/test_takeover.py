"""Taking over from nfs-subdir-external-provisioner: its volumes, and its lock on an Endpoints object."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness.client import wait_until
from harness.installation import QUICK_LEASE, Installation


def make_volume_as_it_does(installation: Installation, name: str, class_name: str) -> Path:
    """A bound claim whose volume has that tool's annotation and source, and nothing of ours; returns its directory."""
    installation.create_claims({name: class_name})
    claim = installation.claims()[name]
    volume = f"pvc-{claim['metadata']['uid']}"
    directory = f"{installation.namespace}-{name}-{volume}"
    (installation.share / directory).mkdir(mode=0o777)
    (installation.share / directory / "data").write_text(name)
    installation.client.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": volume,
                "annotations": {"pv.kubernetes.io/provisioned-by": installation.provisioner},
            },
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "1Mi"},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "name": name,
                    "namespace": installation.namespace,
                    "uid": claim["metadata"]["uid"],
                },
                "nfs": {"server": installation.server, "path": f"{installation.path}/{directory}"},
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": class_name,
                "volumeMode": "Filesystem",
            },
        }
    )
    return installation.share / directory


def places_of(installation: Installation, name: str) -> list[Path]:
    return [path.parent for path in installation.share.rglob("data") if path.read_text() == name]


def test_its_volumes_are_archived_removed_or_retained_by_their_class(installation: Installation) -> None:
    classes = {
        "archived": installation.create_class("archived", {}),
        "removed": installation.create_class("removed", {"archiveOnDelete": "false"}),
        "retained": installation.create_class("retained", {"onDelete": "retain"}),
        "classless": installation.create_class("gone", {"onDelete": "delete"}),
    }
    directories = {name: make_volume_as_it_does(installation, name, class_name) for name, class_name in classes.items()}
    installation.wait_bound(directories, 60)
    installation.client.delete("StorageClass", classes["classless"])
    with installation.host():
        installation.delete_claims(directories)
        installation.wait_no_volumes(60)
        for name in ("archived", "classless"):
            (place,) = places_of(installation, name)
            assert place != directories[name]
            assert name in place.name
        assert places_of(installation, "removed") == []
        assert places_of(installation, "retained") == [directories["retained"]]


@contextlib.contextmanager
def endpoints_lock(installation: Installation, holder: str) -> Iterator[threading.Event]:
    """The lock as that tool keeps it; it is renewed until the event that is yielded is set."""
    client, stop = installation.client, threading.Event()
    # A client of its own clock: nothing may depend on the times in the record.
    clock = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)

    def record(seconds: float) -> dict[str, str]:
        now = (clock + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        values = {"holderIdentity": holder, "leaseDurationSeconds": 3, "acquireTime": "2020-01-01T00:00:00Z"}
        return {
            "control-plane.alpha.kubernetes.io/leader": json.dumps(values | {"renewTime": now, "leaderTransitions": 0})
        }

    client.create(
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": installation.lease,
                "namespace": installation.namespace,
                "annotations": record(0),
            },
        }
    )

    def renew() -> None:
        started = time.monotonic()
        while not stop.wait(0.5):
            annotations = record(10 + 2 * (time.monotonic() - started))
            patch = {"metadata": {"annotations": annotations}}
            client.patch("Endpoints", installation.lease, patch, installation.namespace)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


def test_nothing_is_served_while_it_keeps_renewing_its_lock(installation: Installation) -> None:
    archive = installation.create_class("archive", {})
    holder = "nfs-client-provisioner-5b8c_0f9e"
    with endpoints_lock(installation, holder) as stop, installation.host(*QUICK_LEASE) as host:
        installation.create_claims({"waits": archive})
        wait_until(lambda: holder in host.log_text(), timeout=20, what=lambda: f"who holds it\n{host.log_text()}")
        time.sleep(7)  # more than twice the lock's duration
        assert installation.volumes() == []
        assert host.get("/healthz")[0] == 200
        stop.set()
        installation.wait_bound(["waits"], 30)


def test_a_lock_that_nobody_renews_is_no_obstacle(installation: Installation) -> None:
    archive = installation.create_class("archive", {})
    with endpoints_lock(installation, "gone") as stop:
        stop.set()
        with installation.host(*QUICK_LEASE):
            installation.create_claims({"soon": archive})
            installation.wait_bound(["soon"], 30)
