"""The real host on the embedded cluster, as the test kit runs it for authors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prov_host import ConfigurationError
from prov_host.testing import EmbeddedCluster, RunningHost
from prov_host_hostpath import HostpathPlugin

PROVISIONER = "prov-host/hostpath"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "volumes"
    path.mkdir()
    return path


def _settings(root: Path) -> dict[str, Any]:
    return {"settings": {"hostpath": {"directories": [str(root)]}}, "options": {"node_name": "node-1"}}


def test_a_claim_is_bound_and_its_volume_removed(cluster: EmbeddedCluster, root: Path) -> None:
    cluster.create_class(PROVISIONER)
    with RunningHost(cluster, {"hostpath": None}, **_settings(root)) as host:
        cluster.create_claim("data", "ns1")
        volume = cluster.wait_bound("data", "ns1")
        path = Path(volume["spec"]["local"]["path"])
        assert path.is_dir()
        assert cluster.events("data", "ProvisioningSucceeded")
        cluster.delete("PersistentVolumeClaim", "data", "ns1")
        cluster.wait_gone("PersistentVolume", volume["metadata"]["name"])
        assert not path.exists()
        assert host.exit_code is None
        assert host.stop() == 0
    assert host.exit_code == 0


def test_another_process_goes_on_after_a_restart(cluster: EmbeddedCluster, root: Path) -> None:
    cluster.create_class(PROVISIONER)
    with RunningHost(cluster, {"hostpath": HostpathPlugin}, **_settings(root)):
        cluster.create_claim()
        volume = cluster.wait_bound()
    cluster.delete("PersistentVolumeClaim", "data")
    with RunningHost(cluster, {"hostpath": HostpathPlugin}, **_settings(root)):
        cluster.wait_gone("PersistentVolume", volume["metadata"]["name"])


def test_bad_settings_are_told_as_on_the_command_line(cluster: EmbeddedCluster) -> None:
    settings = {"hostpath": {"directories": ["relative"], "colour": "red"}}
    with pytest.raises(ConfigurationError, match="colour"), RunningHost(cluster, {"hostpath": None}, settings=settings):
        pass


def test_a_plugin_that_is_not_installed_is_named(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ConfigurationError, match="hostpaht"), RunningHost(cluster, {"hostpaht": None}):
        pass


def test_a_claim_for_a_block_device_is_refused(cluster: EmbeddedCluster, root: Path) -> None:
    cluster.create_class(PROVISIONER)
    with RunningHost(cluster, {"hostpath": None}, **_settings(root)):
        cluster.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "raw", "namespace": "default"},
                "spec": {
                    "storageClassName": "tested",
                    "volumeMode": "Block",
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        )
        events = cluster.wait_for(lambda: cluster.events("raw", "ProvisioningFailed"))
        assert events == [f"{PROVISIONER} does not support block volume provisioning"]
    assert list(root.iterdir()) == []


def test_an_archived_volume_keeps_its_data(cluster: EmbeddedCluster, root: Path) -> None:
    cluster.create_class(PROVISIONER, {"onDelete": "archive"})
    with RunningHost(cluster, {"hostpath": None}, **_settings(root)):
        cluster.create_claim("data", "ns1")
        volume = cluster.wait_bound("data", "ns1")
        Path(volume["spec"]["local"]["path"], "precious").write_text("data")
        cluster.delete("PersistentVolumeClaim", "data", "ns1")
        cluster.wait_gone("PersistentVolume", volume["metadata"]["name"])
    (copy,) = root.rglob("precious")
    assert copy.parent.parent == root / ".prov-host" / "archive"
    assert copy.parent.name.startswith("ns1-data-pvc-")
