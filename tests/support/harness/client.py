"""A small synchronous client of the Kubernetes API: dictionaries in, dictionaries out.

Tests look at the cluster with eyes of their own, so this shares nothing with the host's session. It speaks to the
real API server (https, bearer token) and to the embedded one (plain http), and may be used from several threads.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import urllib3
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")


class _Resource(NamedTuple):
    prefix: str
    plural: str
    namespaced: bool


_CORE, _STORAGE, _RBAC = "/api/v1", "/apis/storage.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
_RESOURCES = {
    "Namespace": _Resource(_CORE, "namespaces", namespaced=False),
    "Node": _Resource(_CORE, "nodes", namespaced=False),
    "PersistentVolume": _Resource(_CORE, "persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": _Resource(_CORE, "persistentvolumeclaims", namespaced=True),
    "Pod": _Resource(_CORE, "pods", namespaced=True),
    "Event": _Resource(_CORE, "events", namespaced=True),
    "Endpoints": _Resource(_CORE, "endpoints", namespaced=True),
    "ServiceAccount": _Resource(_CORE, "serviceaccounts", namespaced=True),
    "ConfigMap": _Resource(_CORE, "configmaps", namespaced=True),
    "Secret": _Resource(_CORE, "secrets", namespaced=True),
    "Service": _Resource(_CORE, "services", namespaced=True),
    "StorageClass": _Resource(_STORAGE, "storageclasses", namespaced=False),
    "Lease": _Resource("/apis/coordination.k8s.io/v1", "leases", namespaced=True),
    "Deployment": _Resource("/apis/apps/v1", "deployments", namespaced=True),
    "DaemonSet": _Resource("/apis/apps/v1", "daemonsets", namespaced=True),
    "PodDisruptionBudget": _Resource("/apis/policy/v1", "poddisruptionbudgets", namespaced=True),
    "ClusterRole": _Resource(_RBAC, "clusterroles", namespaced=False),
    "ClusterRoleBinding": _Resource(_RBAC, "clusterrolebindings", namespaced=False),
    "Role": _Resource(_RBAC, "roles", namespaced=True),
    "RoleBinding": _Resource(_RBAC, "rolebindings", namespaced=True),
}
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
APPLY_PATCH = "application/apply-patch+yaml"


class ApiError(Exception):
    """An answer of the API server that is not a success.

    Attributes:
        status: the HTTP status code.
        reason: the machine-readable reason of the Status object, for example `AlreadyExists`; empty when there is none.
        body: the text of the answer.
    """

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        try:
            parsed = json.loads(body)
        except ValueError:
            parsed = {}
        self.status = status
        self.body = body
        self.reason: str = parsed.get("reason", "") if isinstance(parsed, dict) else ""
        message = parsed.get("message", body) if isinstance(parsed, dict) else body
        super().__init__(f"{method} {path}: {status} {self.reason}: {message}")


class ApiClient:
    """The API of one cluster, as one user.

    Args:
        url: root of the API server, for example `https://127.0.0.1:6443`.
        token: bearer token; None sends none.
        ca_file: certificate authority of an https server.
    """

    def __init__(self, url: str, *, token: str | None = None, ca_file: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.ca_file = ca_file
        self.warnings: list[str] = []
        """Every `Warning` header that the API server sent, newest last."""
        self._pool = urllib3.PoolManager(
            num_pools=2,
            maxsize=16,
            retries=False,
            timeout=urllib3.Timeout(connect=5, read=60),
            ca_certs=str(ca_file) if ca_file else None,
        )

    @classmethod
    def from_kubeconfig(cls, path: Path) -> ApiClient:
        """The client of a kubeconfig's current context; understands tokens and certificate authority files, no more."""
        config = yaml.safe_load(path.read_text())
        context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        users = {u["name"]: u.get("user") or {} for u in config.get("users") or []}
        ca_file = cluster.get("certificate-authority")
        return cls(
            cluster["server"],
            token=users.get(context.get("user", ""), {}).get("token"),
            ca_file=Path(ca_file) if ca_file else None,
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> str:
        """One request; returns the text of the answer.

        Raises:
            ApiError: the status is 400 or above.
        """
        headers = {"Accept": "application/json, */*", "User-Agent": "prov-host-tests"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        target = f"{path}?{urlencode(query)}" if query else path
        response = self._pool.request(method, self.url + target, body=data, headers=headers)
        self.warnings += response.headers.getlist("Warning")
        text = response.data.decode(errors="replace")
        if response.status >= 400:
            raise ApiError(method, target, response.status, text)
        return text

    def call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """One request whose answer is JSON."""
        result: dict[str, Any] = json.loads(self.request(method, path, **more))
        return result

    @staticmethod
    def path(kind: str, name: str | None = None, namespace: str | None = None) -> str:
        """The path of one object, of the collection without a name, of all namespaces without a namespace."""
        resource = _RESOURCES[kind]
        parts = [resource.prefix]
        if resource.namespaced and namespace is not None:
            parts.append(f"namespaces/{namespace}")
        parts.append(resource.plural)
        if name is not None:
            parts.append(name)
        return "/".join(parts)

    def create(self, obj: Mapping[str, Any], **query: str) -> dict[str, Any]:
        """Create the object where its kind and its namespace (else `default`) say."""
        namespace = obj["metadata"].get("namespace", "default")
        return self.call("POST", self.path(obj["kind"], namespace=namespace), body=obj, query=query)

    def apply(self, obj: Mapping[str, Any], *, manager: str = "prov-host-tests", **query: str) -> dict[str, Any]:
        """Server-side apply, with force."""
        meta = obj["metadata"]
        path = self.path(obj["kind"], meta["name"], meta.get("namespace", "default"))
        query = {"fieldManager": manager, "force": "true", **query}
        return self.call("PATCH", path, body=obj, query=query, content_type=APPLY_PATCH)

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """The object, or None when there is none."""
        try:
            return self.call("GET", self.path(kind, name, namespace))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None = None, **query: str) -> list[dict[str, Any]]:
        """All objects of a kind, of one namespace or of all."""
        items: list[dict[str, Any]] = self.call("GET", self.path(kind, namespace=namespace), query=query)["items"] or []
        return items

    def delete(self, kind: str, name: str, namespace: str = "default", **options: Any) -> bool:
        """Delete one object; False when there was none. `options` are the fields of DeleteOptions."""
        try:
            self.request("DELETE", self.path(kind, name, namespace), body=options or None)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def patch(
        self,
        kind: str,
        name: str,
        body: Any,
        namespace: str = "default",
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Patch one object, by default with a merge patch."""
        path = self.path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        return self.call("PATCH", path, body=body, content_type=content_type)

    def watch(
        self, kind: str, namespace: str | None = None, *, since: str, seconds: int = 600, metadata_only: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Each event of a watch, until the server ends it after `seconds`; closing the generator ends it earlier.

        Args:
            kind: as in `list`.
            namespace: as in `list`.
            since: resourceVersion after which events are wanted; `list_version` has one.
            seconds: how long the server keeps it open.
            metadata_only: ask for metadata alone, which costs everybody less.
        """
        headers = {"Accept": METADATA_ONLY if metadata_only else "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        query = urlencode({"watch": "1", "resourceVersion": since, "timeoutSeconds": str(seconds)})
        path = f"{self.path(kind, namespace=namespace)}?{query}"
        timeout = urllib3.Timeout(connect=5, read=seconds + 30)
        response = self._pool.request("GET", self.url + path, headers=headers, preload_content=False, timeout=timeout)
        try:
            if response.status >= 400:
                raise ApiError("GET", path, response.status, response.data.decode(errors="replace"))
            rest = b""
            for chunk in response.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                yield from map(json.loads, lines)
        finally:
            response.close()

    def list_version(self, kind: str, namespace: str | None = None) -> str:
        """The resourceVersion of a list, from where a watch can go on."""
        version: str = self.call("GET", self.path(kind, namespace=namespace), query={"limit": "1"})["metadata"][
            "resourceVersion"
        ]
        return version

    def ready(self) -> bool:
        """Whether `/readyz` answers ok; False also while nothing listens."""
        try:
            return self.request("GET", "/readyz").strip() == "ok"
        except (ApiError, urllib3.exceptions.HTTPError):
            return False

    def service_account_token(self, name: str, namespace: str, *, seconds: int = 3600) -> str:
        """A fresh token of a service account, as kubelet gets them."""
        path = f"{self.path('ServiceAccount', name, namespace)}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        token: str = self.call("POST", path, body=body)["status"]["token"]
        return token

    def write_kubeconfig(self, path: Path, *, token: str | None = None, namespace: str = "default") -> Path:
        """Write a kubeconfig for this cluster, for this client's user or for another token."""
        cluster: dict[str, str] = {"server": self.url}
        if self.ca_file is not None:
            cluster["certificate-authority"] = str(self.ca_file)
        token = token if token is not None else self.token
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token} if token is not None else {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path


def wait_until(
    check: Callable[[], T], *, timeout: float, what: str | Callable[[], str] = "the condition", interval: float = 0.1
) -> T:
    """Poll `check` until it returns something true, and return that.

    Args:
        check: called again and again; an exception ends the wait.
        timeout: seconds.
        what: what is waited for, for the message; a callable is asked at the end, so that it can tell the last state.
        interval: seconds between two calls.

    Raises:
        AssertionError: the time is over.
    """
    deadline = time.monotonic() + timeout
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what() if callable(what) else what}")
        time.sleep(interval)
