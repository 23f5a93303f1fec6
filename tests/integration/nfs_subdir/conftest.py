"""nfs_subdir in the real host, on an embedded cluster and a directory that stands for the share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from faulty_sys import FaultySys
from prov_host.testing import EmbeddedCluster, RunningHost
from prov_host_nfs_subdir import NfsSubdirPlugin

PROVISIONER = "example.com/nfs"
SERVER = "nfs.example.com"
EXPORT = "/exports/k8s"


class World:
    """A cluster, a share, and hosts that are started and stopped."""

    def __init__(self, cluster: EmbeddedCluster, share: Path) -> None:
        self.cluster = cluster
        self.share = share
        self.sys = FaultySys()
        self.provisioner = PROVISIONER

    def host(self, *, options: Mapping[str, str] | None = None, more: Any = None, **settings: Any) -> RunningHost:
        """A host; quick to try again, so that tests need not wait."""
        table = {
            "server": SERVER,
            "path": EXPORT,
            "provisioner": [PROVISIONER],
            "mount": str(self.share),
            "plain_directory": True,
            **settings,
        }
        quick = {"retry_interval_start": "20ms", "retry_interval_max": "100ms"}
        plugins = {"nfs_subdir": lambda: NfsSubdirPlugin({}, self.sys), **(more or {})}
        return RunningHost(self.cluster, plugins, settings={"nfs_subdir": table}, options={**quick, **(options or {})})

    def by_name(self, **parameters: str) -> None:
        """A class whose directories are named after namespace and claim."""
        pattern = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}
        self.cluster.create_class(PROVISIONER, {**pattern, **parameters})

    def claim(self, namespace: str, name: str, **options: Any) -> dict[str, Any]:
        """A claim, bound; returns its volume."""
        self.cluster.create_claim(name, namespace, **options)
        return self.cluster.wait_bound(name, namespace)

    def delete(self, namespace: str, name: str, volume: Mapping[str, Any]) -> None:
        """Delete a claim and wait until its volume is gone too."""
        self.cluster.delete("PersistentVolumeClaim", name, namespace)
        self.cluster.wait_gone("PersistentVolume", volume["metadata"]["name"])

    def told(self, name: str, reason: str, words: str = "") -> str:
        """Wait for an event; returns its message."""

        def find() -> str | None:
            return next((text for text in self.cluster.events(name, reason) if words in text), None)

        return self.cluster.wait_for(find, f"an event {reason} about {name} with {words!r}")

    def files(self) -> dict[str, str]:
        """Every file on the share but the plugin's own, and what is in it."""
        return {
            str(path.relative_to(self.share)): path.read_text()
            for path in sorted(self.share.rglob("*"))
            if path.is_file() and ".prov-host" not in path.parts and path.suffix != ".json"
        }

    def old_volume(self, name: str, path: str, **source: Any) -> dict[str, Any]:
        """A volume as the Go provisioner left it, released."""
        return self.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany"],
                    "persistentVolumeReclaimPolicy": "Delete",
                    "storageClassName": "tested",
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": "old",
                        "name": "gone",
                        "uid": "77777777-0000-4000-8000-000000000007",
                    },
                    **(source or {"nfs": {"server": SERVER, "path": path}}),
                },
            }
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    share = tmp_path / "share"
    share.mkdir()
    share.chmod(0o755)
    with EmbeddedCluster() as cluster:
        world = World(cluster, share)
        yield world
        world.sys.heal()
