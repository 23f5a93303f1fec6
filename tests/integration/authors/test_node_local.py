"""hostpath on a cluster: one host, or one on each node, that share a provisioner's name and no Lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from prov_host import Provisioned, ProvisionRequest, hookimpl
from prov_host.testing import EmbeddedCluster, FakeClock, RunningHost
from prov_host_hostpath import HostpathPlugin

PROVISIONER = "prov-host/hostpath"


@pytest.fixture
def node(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Callable[..., RunningHost]]:
    """Starts the host of a node, with a directory of the node's own."""
    with ExitStack() as stack:

        def start(
            name: str, plugin: type | None = None, clock: FakeClock | None = None, **settings: Any
        ) -> RunningHost:
            root = tmp_path / name
            root.mkdir(exist_ok=True)
            table = {"directories": [str(root)], "scope": "per-node", **settings}
            return stack.enter_context(
                RunningHost(
                    cluster,
                    {"hostpath": plugin},
                    settings={"hostpath": table},
                    options={"node_name": name},
                    clock=clock,
                )
            )

        yield start


def _directories(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != ".prov-host")


def _on(cluster: EmbeddedCluster, claim: str, node: str) -> dict[str, Any]:
    cluster.create_claim(claim, selected_node=node)
    return cluster.wait_bound(claim)


def test_each_node_makes_and_removes_its_own_volumes(
    cluster: EmbeddedCluster, node: Callable[..., RunningHost], tmp_path: Path
) -> None:
    cluster.create_class(PROVISIONER, binding_mode="WaitForFirstConsumer")
    hosts = {name: node(name) for name in ("node-1", "node-2", "node-3")}
    volumes = {}
    for number in range(9):
        name = f"node-{number % 3 + 1}"
        cluster.create_claim(f"data-{number}", selected_node=name)
        volumes[f"data-{number}"] = name
    for claim, name in volumes.items():
        volume = cluster.wait_bound(claim)
        term = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
        assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]
        assert volume["spec"]["local"]["path"].startswith(str(tmp_path / name))
    assert [len(_directories(tmp_path / name)) for name in hosts] == [3, 3, 3]
    assert cluster.objects("Lease") == []
    for claim in volumes:
        cluster.delete("PersistentVolumeClaim", claim)
    cluster.wait_for(lambda: not cluster.objects("PersistentVolume"), "all volumes are gone")
    assert [_directories(tmp_path / name) for name in hosts] == [[], [], []]
    deleted = "controller_persistentvolume_delete_total"
    assert [host.metric(deleted, {"class": "tested"}) for host in hosts.values()] == [3, 3, 3]
    failed = "controller_persistentvolume_delete_failed_total"
    assert [host.metric(failed, {"class": "tested"}) for host in hosts.values()] == [0, 0, 0]


def test_a_host_that_starts_leaves_what_another_is_making(
    cluster: EmbeddedCluster, node: Callable[..., RunningHost], tmp_path: Path
) -> None:
    """A claim marked as in the making looks like one that this process left behind, if nobody asks whose it is."""
    asked, go = threading.Event(), threading.Event()

    class Slow(HostpathPlugin):
        @hookimpl
        def provision(self, request: ProvisionRequest) -> Provisioned:
            asked.set()
            go.wait(20)
            return super().provision(request)

    cluster.create_class(PROVISIONER, binding_mode="WaitForFirstConsumer")
    node("node-2", Slow)
    cluster.create_claim("data", selected_node="node-2")
    assert asked.wait(20)
    node("node-1")
    _on(cluster, "other", "node-1")  # node-1 is up, and has seen everything
    assert cluster.events("data", "ProvisioningFailed") == []
    go.set()
    volume = cluster.wait_bound("data")
    assert volume["spec"]["local"]["path"].startswith(str(tmp_path / "node-2"))
    assert len(_directories(tmp_path / "node-1")) == 1


def test_a_restarted_node_finishes_its_own(
    cluster: EmbeddedCluster, node: Callable[..., RunningHost], tmp_path: Path
) -> None:
    cluster.create_class(PROVISIONER, binding_mode="WaitForFirstConsumer")
    node("node-2")
    first = node("node-1")
    volume = _on(cluster, "data", "node-1")
    first.stop()
    cluster.delete("PersistentVolumeClaim", "data")
    cluster.create_claim("later", selected_node="node-1")
    _on(cluster, "meanwhile", "node-2")
    assert _directories(tmp_path / "node-1")
    node("node-1")
    cluster.wait_gone("PersistentVolume", volume["metadata"]["name"])
    cluster.wait_bound("later")


def test_a_node_without_room_gives_the_claim_back_to_the_scheduler(
    cluster: EmbeddedCluster, node: Callable[..., RunningHost]
) -> None:
    cluster.create_class(PROVISIONER, binding_mode="WaitForFirstConsumer")
    node("node-1", reserve="900Pi")
    node("node-2")
    cluster.create_claim("data", selected_node="node-1")

    def given_back() -> bool:
        claim = cluster.get("PersistentVolumeClaim", "data") or {}
        return "volume.kubernetes.io/selected-node" not in claim["metadata"]["annotations"]

    cluster.wait_for(given_back, "the annotation selected-node is gone")
    assert "room for 0" in cluster.events("data", "ProvisioningFailed")[0]
    mark = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-2"}}}
    cluster.patch("PersistentVolumeClaim", "data", mark)
    cluster.wait_bound("data")


def test_the_volume_of_a_gone_node_is_forgotten_in_time(
    cluster: EmbeddedCluster, node: Callable[..., RunningHost], tmp_path: Path
) -> None:
    cluster.create_class(PROVISIONER, binding_mode="WaitForFirstConsumer")
    gone = node("node-1")
    name = _on(cluster, "data", "node-1")["metadata"]["name"]
    gone.stop()
    cluster.delete("PersistentVolumeClaim", "data")
    other = node("node-2", clock=FakeClock(), gone_nodes="forget-after", forget_after="2d")
    other.advance(60)
    assert cluster.get("PersistentVolume", name) is not None
    for _ in range(8):
        other.advance(6 * 3600)
    assert cluster.get("PersistentVolume", name) is not None

    def gone_by_now() -> bool:
        # The looks at it come with the resync, 15 minutes apart, and the node adds a while of its own by chance. Hooks
        # run in threads, which take real time: what is past its limit by this clock is tried again later.
        other.advance(60)
        return cluster.get("PersistentVolume", name) is None

    cluster.wait_for(gone_by_now, "the volume is forgotten")
    assert len(_directories(tmp_path / "node-1")) == 1
    assert "has not answered for 2d" in cluster.events(name, "VolumeDeleted")[0]
