"""The embedded cluster for ordinary, synchronous tests: it lives on a thread, the test talks to it in dictionaries.

The cluster answers HTTP on loopback as well, so that a host, ``kubectl`` and other programs reach it through
:attr:`EmbeddedCluster.kubeconfig`. Its objects are what the API would show; nothing of it is mocked.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from prov_host.embedded import Cluster, InProcessTransport, serve, write_kubeconfig
from prov_host.errors import ApiError
from prov_host.kube.transport import Reply
from prov_host.testing.loop import LoopThread

__all__ = ["EmbeddedCluster"]

T = TypeVar("T")

# Kind -> path of its API group, plural, whether it lives in a namespace.
_KINDS: Mapping[str, tuple[str, str, bool]] = {
    "Namespace": ("/api/v1", "namespaces", False),
    "Node": ("/api/v1", "nodes", False),
    "PersistentVolume": ("/api/v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "Event": ("/api/v1", "events", True),
    "StorageClass": ("/apis/storage.k8s.io/v1", "storageclasses", False),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
}


class EmbeddedCluster:
    """A cluster in memory with a synchronous client; a context manager that starts and stops it.

    Attributes:
        url: where it listens.
        kubeconfig: a file for kubectl, the host and other programs.
        cluster: the cluster itself, for its ``faults``; to be used on :attr:`loop` only.
        loop: the thread it lives on.

    Its methods are callable from any thread but its own. Since 0.1.
    """

    def __init__(self) -> None:
        self.loop = LoopThread("embedded cluster")
        self._exit = contextlib.ExitStack()
        self.url = ""
        self.kubeconfig = Path()
        self.cluster: Cluster
        self._transport: InProcessTransport

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prov-host-cluster-")))
            stack.enter_context(self.loop)
            stop = self.loop.run(self._start())
            stack.callback(lambda: self.loop.run(stop()))
            self.kubeconfig = write_kubeconfig(directory / "kubeconfig", self.url)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    async def _start(self) -> Callable[[], Coroutine[Any, Any, None]]:
        self.cluster = Cluster()
        self._transport = InProcessTransport(self.cluster)
        stack = contextlib.AsyncExitStack()
        server = await stack.enter_async_context(serve(self.cluster))
        self.url = server.url
        return stack.aclose

    # --- objects ----------------------------------------------------------------------------------------------

    def create(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object from its JSON form, ``kind`` and ``metadata`` included.

        Raises:
            ApiError: as the API server says.
        """
        namespace = str(obj["metadata"].get("namespace", "")) or "default"
        return self._request("POST", _path(obj["kind"], namespace=namespace), dict(obj))

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """An object, or None if there is none."""
        try:
            return self._request("GET", _path(kind, name, namespace))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind, of all namespaces."""
        prefix, plural, _ = _KINDS[kind]
        items: list[dict[str, Any]] = self._request("GET", f"{prefix}/{plural}")["items"]
        return items

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object.

        Raises:
            ApiError: as the API server says.
        """
        self._request("DELETE", _path(kind, name, namespace))

    def patch(self, kind: str, name: str, body: Mapping[str, Any], namespace: str = "default") -> dict[str, Any]:
        """Merge-patch an object.

        Raises:
            ApiError: as the API server says.
        """
        return self._request(
            "PATCH", _path(kind, name, namespace), dict(body), content_type="application/merge-patch+json"
        )

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, content_type: str = "application/json"
    ) -> dict[str, Any]:
        encoded = None if body is None else msgspec.json.encode(body)
        reply: Reply = self.loop.run(self._transport.request(method, path, body=encoded, content_type=content_type))
        answer: dict[str, Any] = msgspec.json.decode(reply.body)
        if reply.status >= 400:
            message = f"{method} {path}: {answer.get('message', '')}"
            raise ApiError(message, status=reply.status, reason=str(answer.get("reason", "")))
        return answer

    # --- what tests of provisioning need ------------------------------------------------------------------------

    def create_class(
        self,
        provisioner: str,
        parameters: Mapping[str, str] | None = None,
        *,
        name: str = "tested",
        binding_mode: str = "Immediate",
        reclaim_policy: str = "Delete",
    ) -> dict[str, Any]:
        """Create a storage class."""
        return self.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "parameters": dict(parameters or {}),
                "volumeBindingMode": binding_mode,
                "reclaimPolicy": reclaim_policy,
            }
        )

    def create_claim(
        self,
        name: str = "data",
        namespace: str = "default",
        *,
        class_name: str = "tested",
        storage: str = "1Gi",
        access_modes: Sequence[str] = ("ReadWriteOnce",),
        selected_node: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Create a claim, and its namespace if that is missing.

        Args:
            name: its name.
            namespace: its namespace.
            class_name: its class.
            storage: how much, as a quantity.
            access_modes: as the API writes them.
            selected_node: what a scheduler would annotate.
            labels: its labels.
            annotations: its annotations.
        """
        if self.get("Namespace", namespace) is None:
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        marks = {"volume.kubernetes.io/selected-node": selected_node} if selected_node else {}
        return self.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": dict(labels or {}),
                    "annotations": {**(annotations or {}), **marks},
                },
                "spec": {
                    "storageClassName": class_name,
                    "accessModes": list(access_modes),
                    "resources": {"requests": {"storage": storage}},
                },
            }
        )

    def wait_bound(self, name: str = "data", namespace: str = "default", *, timeout: float = 20.0) -> dict[str, Any]:
        """Wait until a claim is bound.

        Returns:
            Its volume.

        Raises:
            AssertionError: it is not bound in time; says what its events say.
        """

        def bound() -> dict[str, Any] | None:
            claim = self.get("PersistentVolumeClaim", name, namespace) or {}
            if claim.get("status", {}).get("phase") != "Bound":
                return None
            return self.get("PersistentVolume", claim["spec"]["volumeName"])

        return self.wait_for(bound, f"the claim {namespace}/{name} is bound", timeout=timeout)

    def wait_gone(self, kind: str, name: str, namespace: str = "default", *, timeout: float = 20.0) -> None:
        """Wait until an object is gone.

        Raises:
            AssertionError: it is still there.
        """
        self.wait_for(
            lambda: self.get(kind, name, namespace) is None, f"{kind} {namespace}/{name} is gone", timeout=timeout
        )

    def events(self, name: str, reason: str = "") -> list[str]:
        """The messages of the events about an object, oldest first, all or those of one reason."""
        found = [event for event in self.objects("Event") if event.get("involvedObject", {}).get("name") == name]
        found.sort(key=lambda event: (str(event.get("lastTimestamp") or ""), event["metadata"]["name"]))
        return [str(event.get("message", "")) for event in found if reason in ("", event.get("reason"))]

    def wait_for(self, condition: Callable[[], T | None], what: str = "", *, timeout: float = 20.0) -> T:
        """Ask again and again until something is so.

        Args:
            condition: returns something true once it is so.
            what: in words, for the error.
            timeout: seconds of real time.

        Returns:
            What the condition returned.

        Raises:
            AssertionError: it never became so; says what the events of the cluster say.
        """
        end = time.monotonic() + timeout
        pause = threading.Event()
        while True:
            if answer := condition():
                return answer
            if time.monotonic() > end:
                told = "\n".join(
                    f"  {event.get('reason')} {event.get('involvedObject', {}).get('name')}: {event.get('message')}"
                    for event in self.objects("Event")[-20:]
                )
                raise AssertionError(f"not so after {timeout:g} s: {what or condition}; the events say:\n{told}")
            pause.wait(0.01)


def _path(kind: str, name: str = "", namespace: str = "default") -> str:
    prefix, plural, namespaced = _KINDS[kind]
    parts = [prefix, *(("namespaces", namespace) if namespaced else ()), plural, *((name,) if name else ())]
    return "/".join(parts)
