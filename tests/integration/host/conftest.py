"""A whole host in this process, on an embedded cluster, with plugins that are in the test's hands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from prov_host.clock import SystemClock
from prov_host.context import PluginContext
from prov_host.controller.options import ControllerOptions
from prov_host.embedded import Cluster, InProcessTransport
from prov_host.hookspecs import hookimpl
from prov_host.host import Host
from prov_host.host_options import HostSettings
from prov_host.model import Provisioned, ProvisionRequest, Volume
from prov_host.plugins import Candidate, Plugin, configure
from prov_host.settings import Settings


class Recording:
    """A backend that remembers what it was asked for, and can be told to hang."""

    name = "test.org/recording"

    def __init__(self) -> None:
        self.made: list[str] = []
        self.removed: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.closed = threading.Event()
        self.problems: list[str] = []

    @hookimpl
    def provisioners(self) -> list[str]:
        return [self.name]

    @hookimpl
    def provision(self, request: ProvisionRequest) -> Provisioned:
        self.begun.set()
        self.gate.wait(30)
        self.made.append(request.pv_name)
        return Provisioned(source={"nfs": {"server": "s", "path": f"/{request.pv_name}"}})

    @hookimpl
    def delete(self, volume: Volume) -> None:
        self.removed.append(volume.name)

    @hookimpl
    def check(self) -> list[str]:
        return self.problems

    @hookimpl
    def close(self) -> None:
        self.closed.set()


class Running:
    """A host that runs, its cluster and what a user does to that."""

    def __init__(self, cluster: Cluster, host: Host, registry: CollectorRegistry, exits: list[int]) -> None:
        self.cluster = cluster
        self.host = host
        self.registry = registry
        self.exits = exits
        self.code: asyncio.Task[int] = asyncio.ensure_future(host.run(signals=False))
        self.api = InProcessTransport(cluster, user_agent="test")

    async def create_class(self, name: str, provisioner: str, **parameters: str) -> None:
        body = {
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "parameters": parameters,
        }
        await self._post("/apis/storage.k8s.io/v1/storageclasses", body)

    async def create_claim(self, name: str, storage_class: str) -> None:
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Mi"}},
        }
        body = {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        await self._post("/api/v1/namespaces/default/persistentvolumeclaims", body)

    async def delete_claim(self, name: str) -> None:
        reply = await self.api.request("DELETE", f"/api/v1/namespaces/default/persistentvolumeclaims/{name}")
        assert reply.status in {200, 202}

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        reply = await self.api.request("POST", path, body=msgspec.json.encode(body))
        assert reply.status == 201, reply.body

    def bound(self) -> set[str]:
        claims = self.cluster.objects("persistentvolumeclaims")
        return {one["metadata"]["name"] for one in claims if one.get("status", {}).get("phase") == "Bound"}

    def volumes(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.cluster.objects("persistentvolumes")]

    async def until(self, condition: Callable[[], object], what: str = "it to become so", seconds: float = 10) -> None:
        for _ in range(int(seconds / 0.005)):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"waited {seconds} s in vain for {what}")

    async def get(self, path: str) -> tuple[int, str]:
        assert self.host.web is not None
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.host.web.address}{path}") as answer,
        ):
            return answer.status, await answer.text()


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start hosts; all are stopped at the end, and their plugins let go."""
    running: list[Running] = []
    backends: list[Any] = []

    async def begin(
        *targets: Any, cluster: Cluster | None = None, elect: bool = False, connect: Any = None, **options: Any
    ) -> Running:
        backends.extend(targets)
        cluster = cluster or Cluster()
        registry = CollectorRegistry()
        fields = set(HostSettings.__struct_fields__)
        names = tuple(f"plugin{number}" for number, _ in enumerate(targets))
        settings = Settings(
            host=HostSettings(plugin=names, **{k: v for k, v in options.items() if k in fields}),
            controller=ControllerOptions(**{k: v for k, v in options.items() if k not in fields}),
        )
        plugins = []
        for name, target in zip(names, targets, strict=True):
            candidate = Candidate(name, f"{name}-dist", "1.0", f"{name}:Plugin", lambda t=target: t)
            plugins.append(Plugin(candidate, target, asked=True))
        contexts = {name: PluginContext(name, registry=registry) for name in names}
        configured = configure(plugins, lambda plugin, kind: None, lambda plugin: contexts[plugin.name])
        configured.raise_if_asked()
        exits: list[int] = []

        async def in_process() -> InProcessTransport:
            return InProcessTransport(cluster)

        host = Host(
            settings,
            configured.working,
            contexts,
            connect=connect or in_process,
            elect=elect,
            clock=SystemClock(),
            version="test",
            exit_process=lambda code, words: exits.append(code),
        )
        running.append(Running(cluster, host, registry, exits))
        return running[-1]

    yield begin
    for one in running:
        one.host.stop()
    for backend in backends:
        if isinstance(backend, Recording):
            backend.gate.set()
    await asyncio.gather(*(one.code for one in running), return_exceptions=True)
    for one in running:
        await one.cluster.close()


@pytest.fixture
def backend() -> Recording:
    return Recording()


@pytest.fixture
def other() -> Recording:
    made = Recording()
    made.name = "test.org/other"
    return made


GOOD_PLUGIN = """
import os
import time
from prov_host import Provisioned, hookimpl

class Plugin:
    @hookimpl
    def provisioners(self):
        return ["good.example.com/x"]

    @hookimpl
    def provision(self, request):
        if "slow" in request.claim.name:
            time.sleep(float(os.environ.get("SLOW", "0.3")))
        return Provisioned(source={"nfs": {"server": "s", "path": "/" + request.pv_name}})

    @hookimpl
    def delete(self, volume):
        return None
"""


@pytest.fixture(scope="session")
def good_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one installed package, which brings the plugin `good`."""
    site = tmp_path_factory.mktemp("good-site")
    (site / "good_package.py").write_text(GOOD_PLUGIN)
    info = site / "good_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: good-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prov_host]\ngood = good_package:Plugin\n")
    return site
