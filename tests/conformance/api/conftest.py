"""One suite, two API servers: whatever these tests say about the embedded cluster is true of the real one as well.

The tests talk HTTP and know nothing else. Both servers are shared by all tests of a run, so each test has a namespace
of its own and starts every cluster-wide name with it.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import urllib3

from prov_host.testing.cluster import EmbeddedCluster

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        return self.body.get("reason", "")

    @property
    def message(self) -> str:
        return self.body.get("message", "")

    @property
    def details(self) -> dict[str, Any]:
        return self.body.get("details", {})

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The causes of a refusal: reason and field of each."""
        return [(cause["reason"], cause["field"]) for cause in self.details.get("causes", ())]


class Api:
    """One of the two servers, and a namespace in it."""

    def __init__(
        self, url: str, headers: dict[str, str], ca: str | None, kubeconfig: Path, compact: Callable[[], None]
    ):
        self._url = url
        self._headers = headers
        self._pool = urllib3.PoolManager(ca_certs=ca, retries=False, maxsize=8)
        self.kubeconfig = kubeconfig
        self.compact = compact
        """Let the server forget its history."""
        self.namespace = ""

    def close(self) -> None:
        self._pool.clear()

    # ------------------------------------------------------------------------------------------ requests

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        type: str = "application/json",
        accept: str = "",
        **query: str,
    ) -> Answer:
        headers = {**self._headers, "User-Agent": "conformance"}
        if body is not None:
            headers["Content-Type"] = type
            body = body if isinstance(body, (str, bytes)) else json.dumps(body)
        if accept:
            headers["Accept"] = accept
        target = self._url + path + ("?" + urlencode(query) if query else "")
        response = self._pool.request(method, target, body=body, headers=headers, timeout=20)
        text = response.data.decode()
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = text
        return Answer(response.status, parsed, {name.lower(): value for name, value in response.headers.items()})

    def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """A request that must succeed; returns the object without its managedFields."""
        answer = self(method, path, body, **more)
        assert answer.status in {200, 201}, answer.body
        if isinstance(answer.body, dict):
            answer.body.get("metadata", {}).pop("managedFields", None)
        return answer.body

    def lines(self, path: str, **query: str) -> list[dict[str, Any]]:
        """All events of a watch that the server ends by itself."""
        target = f"{self._url}{path}?{urlencode({'watch': 'true', 'timeoutSeconds': '1', **query})}"
        response = self._pool.request("GET", target, headers=self._headers, timeout=30)
        assert response.status == 200, response.data
        return [json.loads(line) for line in response.data.splitlines()]

    def start_watch(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """The events of a watch as they come; it is open when this returns."""
        target = f"{self._url}{path}?{urlencode({'watch': 'true', 'timeoutSeconds': '20', **query})}"
        response = self._pool.request("GET", target, headers=self._headers, preload_content=False, timeout=30)
        assert response.status == 200, response.data

        def events() -> Iterator[dict[str, Any]]:
            rest = b""
            try:
                for chunk in response.stream():
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from map(json.loads, lines)
            finally:
                response.close()

        return events()

    def until(self, check: Callable[[], Any], *, seconds: float = 30.0) -> Any:
        """Poll until something true comes back."""
        end = time.monotonic() + seconds
        while not (found := check()):
            assert time.monotonic() < end, "it does not come to pass"
            time.sleep(0.05)
        return found

    # ------------------------------------------------------------------------------------------ names

    @property
    def claims(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def events(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/events"

    @property
    def endpoints(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/endpoints"

    volumes = "/api/v1/persistentvolumes"
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    namespaces = "/api/v1/namespaces"
    nodes = "/api/v1/nodes"

    def name(self, suffix: str) -> str:
        """A cluster-wide name of this test's own."""
        return f"{self.namespace}-{suffix}"

    # ------------------------------------------------------------------------------------------ objects

    def claim(self, name: str, storage_class: str | None = None, size: str = "1Gi", **spec: Any) -> dict[str, Any]:
        """A claim's JSON; by default of a class that only this test has and nobody provisions."""
        storage_class = self.name("none") if storage_class is None else storage_class
        base = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {**base, "storageClassName": storage_class, **spec},
        }

    def volume(self, suffix: str, storage_class: str | None = None, **spec: Any) -> dict[str, Any]:
        """A volume's JSON."""
        base = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nfs": {"server": "nfs.example.com", "path": "/share"},
            "storageClassName": self.name("none") if storage_class is None else storage_class,
        }
        spec = {key: value for key, value in {**base, **spec}.items() if value is not None}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self.name(suffix)},
            "spec": spec,
        }

    def storage_class(self, suffix: str = "class", **fields: Any) -> dict[str, Any]:
        """A class's JSON."""
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": self.name(suffix)},
            "provisioner": "example.com/conformance",
            **fields,
        }

    def lease(self, name: str, **spec: Any) -> dict[str, Any]:
        """A lease's JSON: a small object that no controller touches."""
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
            "spec": {"holderIdentity": "me", **spec},
        }

    # ------------------------------------------------------------------------------------------ clean-up

    def clean(self) -> None:
        """Delete what this test made outside its namespace, and its claims."""
        gone = {"metadata": {"finalizers": None}}
        for claim in self.ok("GET", self.claims)["items"]:
            self("PATCH", f"{self.claims}/{claim['metadata']['name']}", gone, type=MERGE)
        self("DELETE", self.claims)
        for collection in (self.volumes, self.classes, self.nodes):
            for item in self.ok("GET", collection)["items"]:
                name = item["metadata"]["name"]
                if name.startswith(self.namespace + "-"):
                    self("DELETE", f"{collection}/{name}")
                    self("PATCH", f"{collection}/{name}", gone, type=MERGE)


@pytest.fixture(scope="session")
def _embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with EmbeddedCluster() as cluster:

        def compact() -> None:
            async def call() -> None:
                cluster.cluster.compact()

            cluster.loop.run(call())

        api = Api(cluster.url, {}, None, cluster.kubeconfig, compact)
        yield api
        api.close()


@pytest.fixture(scope="session")
def _real(control_plane) -> Iterator[Api]:
    flags = control_plane._processes[0].argv
    etcd = next(flag.partition("=")[2] for flag in flags if flag.startswith("--advertise-client-urls="))
    pool = urllib3.PoolManager(retries=False)

    def compact() -> None:
        # What the API server's own compactor does every five minutes, which other API servers notice by this key.
        revision = pool.request("POST", f"{etcd}/v3/kv/range", json={"key": "AA=="}).json()["header"]["revision"]
        key, value = (base64.b64encode(text.encode()).decode() for text in ("compact_rev_key", str(revision)))
        pool.request("POST", f"{etcd}/v3/kv/put", json={"key": key, "value": value})
        pool.request("POST", f"{etcd}/v3/kv/compaction", json={"revision": revision})

    client = control_plane.client
    headers = {"Authorization": f"Bearer {client.token}"}
    api = Api(client.url, headers, str(client.ca_file), control_plane.kubeconfig, compact)
    yield api
    api.close()
    pool.clear()


_number = iter(range(10_000))


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """An API server with a fresh namespace."""
    found: Api = request.getfixturevalue(f"_{request.param}")
    found.namespace = f"api-{next(_number)}"
    found.ok("POST", found.namespaces, {"metadata": {"name": found.namespace}})
    yield found
    found.clean()
