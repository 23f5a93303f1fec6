"""The embedded cluster as synchronous tests use it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from prov_host import ApiError
from prov_host.testing import EmbeddedCluster


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


def test_objects_come_and_go(cluster: EmbeddedCluster) -> None:
    cluster.create_class("example.com/disk", {"a": "b"})
    claim = cluster.create_claim("data", "ns1", labels={"x": "y"}, selected_node="node-1")
    assert cluster.get("PersistentVolumeClaim", "data", "ns1") is not None
    assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "node-1"
    assert [item["metadata"]["name"] for item in cluster.objects("PersistentVolumeClaim")] == ["data"]
    cluster.patch("PersistentVolumeClaim", "data", {"metadata": {"labels": {"x": None}}}, "ns1")
    cluster.delete("PersistentVolumeClaim", "data", "ns1")
    cluster.wait_gone("PersistentVolumeClaim", "data", "ns1")


def test_errors_are_the_apis(cluster: EmbeddedCluster) -> None:
    cluster.create_class("example.com/disk")
    with pytest.raises(ApiError) as caught:
        cluster.create_class("example.com/disk")
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")
    assert cluster.get("PersistentVolume", "missing") is None


def test_a_saved_volume_binds_its_claim(cluster: EmbeddedCluster) -> None:
    claim = cluster.create_claim()
    ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
        "storageClassName": "tested",
        "claimRef": ref,
    }
    cluster.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec})
    assert cluster.wait_bound()["metadata"]["name"] == "pv"


def test_what_never_becomes_so_is_said_in_words(cluster: EmbeddedCluster) -> None:
    cluster.create_claim()
    with pytest.raises(AssertionError, match=r"the claim default/data is bound; the events say"):
        cluster.wait_bound(timeout=0.05)


def test_other_programs_reach_it_on_loopback(cluster: EmbeddedCluster) -> None:
    with urllib.request.urlopen(f"{cluster.url}/readyz") as answer:
        assert answer.status == 200
    assert cluster.url in cluster.kubeconfig.read_text()


def test_nothing_is_left_when_it_stops() -> None:
    with EmbeddedCluster() as cluster:
        kubeconfig = cluster.kubeconfig
    assert not kubeconfig.exists()
