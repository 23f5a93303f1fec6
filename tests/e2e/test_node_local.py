"""hostpath on clusters: one process on each node, as the documentation shows it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from docpages import blocks_of
from harness.host import HostProcess

if TYPE_CHECKING:
    from harness.controlplane import ControlPlane
    from harness.embedded import EmbeddedCluster

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "node-local-volumes.md"
NODES = ("node-1", "node-2")


def _claim(name: str, namespace: str, class_name: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"volume.kubernetes.io/selected-node": node},  # as the scheduler does
        },
        "spec": {
            "storageClassName": class_name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }


@pytest.mark.parametrize("source", ["local", "hostPath"])
def test_each_nodes_process_serves_its_own_volumes(
    cluster: EmbeddedCluster | ControlPlane, tmp_path: Path, source: str
) -> None:
    client = cluster.client
    name = f"node-local-{source.lower()}"
    provisioner = f"example.com/{name}"
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    client.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "parameters": {"source": source},
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )

    def ours() -> list[dict[str, Any]]:
        volumes = client.list("PersistentVolume")
        return [volume for volume in volumes if volume["spec"].get("storageClassName") == name]

    with contextlib.ExitStack() as stack:
        for node in NODES:
            (tmp_path / node).mkdir()
            environment = {
                "KUBECONFIG": str(cluster.kubeconfig),
                "PROV_HOST_NODE_NAME": node,
                "PROV_HOST_HOSTPATH_SCOPE": "per-node",
                "PROV_HOST_HOSTPATH_PROVISIONER": provisioner,
                "PROV_HOST_HOSTPATH_DIRECTORIES": str(tmp_path / node),
            }
            arguments = ["--plugin=hostpath", "--leader-election=false"]
            stack.enter_context(HostProcess(tmp_path, arguments, environment, name=node))
        claims = {f"data-{number}": NODES[number % 2] for number in range(6)}
        for claim, node in claims.items():
            client.create(_claim(claim, name, name, node))

        def bound() -> bool:
            return all(
                claim.get("status", {}).get("phase") == "Bound" for claim in client.list("PersistentVolumeClaim", name)
            )

        _wait(bound, "all claims are bound")
        for volume in ours():
            node = claims[volume["spec"]["claimRef"]["name"]]
            directory = Path(volume["spec"][source]["path"])
            assert directory.parent == tmp_path / node
            assert directory.is_dir()
            (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            assert term["matchExpressions"][0]["values"] == [node]
        assert len(ours()) == len(claims)
        for claim in claims:
            client.delete("PersistentVolumeClaim", claim, name)
        _wait(lambda: not ours(), "all volumes are gone")
        for node in NODES:
            assert [path.name for path in (tmp_path / node).iterdir()] == [".prov-host"]
    client.delete("StorageClass", name)


@pytest.mark.e2e
def test_the_documented_manifests_are_accepted(control_plane: ControlPlane) -> None:
    client = control_plane.client
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prov-host"}})
    manifests = [obj for block in blocks_of(PAGE) if block.language == "yaml" for obj in yaml.safe_load_all(block.text)]
    assert [manifest["kind"] for manifest in manifests] == ["StorageClass", "DaemonSet"]
    for manifest in manifests:
        client.create(manifest, dryRun="All", fieldValidation="Strict")


def _wait(condition: Any, what: str, timeout: float = 60.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not so: {what}"
        time.sleep(0.05)
