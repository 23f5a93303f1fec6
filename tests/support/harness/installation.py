"""One installation of prov-host with nfs_subdir on a cluster: namespace, classes, share, and replicas of the host.

Each has a provisioner name and names of its own, so that many tests can share one cluster. The cluster is anything
with an API: the real control plane and the embedded one are used through the same client and kubeconfig.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from harness.client import wait_until
from harness.host import HostProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from harness.client import ApiClient

# Quick enough for tests that kill a replica, slow enough for two busy cores.
QUICK_LEASE = (
    "--leader-election-lease-duration=4s",
    "--leader-election-renew-deadline=3s",
    "--leader-election-retry-period=500ms",
)


class Installation:
    """A namespace, a provisioner name and a share of its own.

    Args:
        name: unique on the cluster; the namespace, and the last part of the provisioner name.
        client: the cluster's API, as an administrator.
        kubeconfig: what the host gets as KUBECONFIG.
        directory: for logs.
        share: the directory that is the mounted share of the plugin.
        server: NFS server written into volumes.
        path: export path written into volumes; by default one that no other installation has, since volumes of another
            share at the same path would rightly make the plugin refuse its own.
    """

    def __init__(
        self,
        name: str,
        *,
        client: ApiClient,
        kubeconfig: Path,
        directory: Path,
        share: Path,
        server: str = "nfs.example.com",
        path: str = "",
    ) -> None:
        self.namespace = name
        self.provisioner = f"test.example.com/{name}"
        self.lease = self.provisioner.replace("/", "-")
        self.client = client
        self.kubeconfig = kubeconfig
        self.directory = directory
        self.share = share
        self.server = server
        self.path = path or f"/exports/{name}"
        self.hosts: list[HostProcess] = []
        share.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """What the Go provisioner's environment says, the share's place, and that it is an ordinary directory.

        The last is left out when the share's place is the exported path itself: then nothing need be mounted.
        """
        plain = {} if self.path == str(self.share) else {"PROV_HOST_NFS_SUBDIR_PLAIN_DIRECTORY": "true"}
        return {
            **plain,
            "NFS_SERVER": self.server,
            "NFS_PATH": self.path,
            "PROVISIONER_NAME": self.provisioner,
            "KUBECONFIG": str(self.kubeconfig),
            "POD_NAMESPACE": self.namespace,
            "PROV_HOST_NFS_SUBDIR_MOUNT": str(self.share),
        }

    def create_namespace(self) -> None:
        """Make the namespace that claims and Lease live in."""
        self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    def class_name(self, suffix: str) -> str:
        """The name of one of this installation's classes."""
        return f"{self.namespace}-{suffix}"

    def create_class(self, suffix: str, parameters: Mapping[str, str], **more: Any) -> str:
        """Make a class with these parameters; returns its name."""
        name = self.class_name(suffix)
        storage_class = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": self.provisioner,
            "parameters": dict(parameters),
            **more,
        }
        self.client.create(storage_class)
        return name

    def create_claims(self, classes_by_claim: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> None:
        """Make many claims at once, from several threads."""

        def create(item: tuple[str, str]) -> None:
            self.client.create(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                        "name": item[0],
                        "namespace": self.namespace,
                        "annotations": dict(annotations or {}),
                    },
                    "spec": {
                        "storageClassName": item[1],
                        "accessModes": ["ReadWriteMany"],
                        "resources": {"requests": {"storage": "1Mi"}},
                    },
                }
            )

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(create, classes_by_claim.items()))

    def delete_claims(self, names: Iterable[str]) -> None:
        """Delete many claims at once."""
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda name: self.client.delete("PersistentVolumeClaim", name, self.namespace), names))

    def claims(self) -> dict[str, dict[str, Any]]:
        """The namespace's claims by name."""
        return {claim["metadata"]["name"]: claim for claim in self.client.list("PersistentVolumeClaim", self.namespace)}

    def volumes(self) -> list[dict[str, Any]]:
        """All volumes that refer to claims of the namespace, whoever made them."""
        return [
            volume
            for volume in self.client.list("PersistentVolume")
            if volume["spec"].get("claimRef", {}).get("namespace") == self.namespace
        ]

    def wait_bound(self, names: Iterable[str], timeout: float) -> None:
        """Wait until these claims are bound."""
        wanted = set(names)

        def open_claims() -> set[str]:
            bound = {name for name, claim in self.claims().items() if claim["status"].get("phase") == "Bound"}
            return wanted - bound

        wait_until(
            lambda: not open_claims(),
            timeout=timeout,
            interval=0.3,
            what=lambda: f"claims bound; {len(open_claims())} of {len(wanted)} are not\n{self.report()}",
        )

    def wait_no_volumes(self, timeout: float) -> None:
        """Wait until no volume of the namespace's claims is left."""
        wait_until(
            lambda: not self.volumes(),
            timeout=timeout,
            interval=0.3,
            what=lambda: f"volumes gone; {len(self.volumes())} are left\n{self.report()}",
        )

    def lease_holder(self) -> str:
        """Who holds the Lease of the provisioner name; empty for nobody."""
        lease = self.client.get("Lease", self.lease, self.namespace)
        return str((lease or {}).get("spec", {}).get("holderIdentity") or "")

    def host(self, *args: str, name: str = "prov-host", **env: str) -> HostProcess:
        """A replica, not yet started."""
        command = ["--plugin", "nfs_subdir", "--leader-election-namespace", self.namespace, *args]
        host = HostProcess(self.directory, command, self.environment() | env, name=name)
        self.hosts.append(host)
        return host

    def directories(self) -> set[str]:
        """The names in the share that are not the plugin's own."""
        return {entry.name for entry in self.share.iterdir() if not entry.name.startswith(".prov-host")}

    def report(self, lines: int = 25) -> str:
        """The last warnings of the namespace and the ends of the hosts' logs, for failure messages."""
        events = [event for event in self.client.list("Event", self.namespace) if event.get("type") == "Warning"]
        warnings = [f"{event['involvedObject'].get('name')}: {event['reason']}: {event['message']}" for event in events]
        logs = [f"--- {host.process.log}\n{host.process.log_tail(lines)}" for host in self.hosts if host.started]
        return "\n".join([*warnings[-10:], *logs])

    def clean(self) -> None:
        """Kill the hosts and remove what would disturb other tests on a shared cluster."""
        for host in self.hosts:
            if host.started:
                host.process.kill()
        self.delete_claims(list(self.claims()))
        for volume in self.volumes():
            name = volume["metadata"]["name"]
            if volume["metadata"].get("finalizers"):
                self.client.patch("PersistentVolume", name, {"metadata": {"finalizers": None}})
            self.client.delete("PersistentVolume", name)
        for storage_class in self.client.list("StorageClass"):
            if storage_class["provisioner"] == self.provisioner:
                self.client.delete("StorageClass", storage_class["metadata"]["name"])
