"""A hostpath plugin on a directory of its own, called as the host calls it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prov_host import Claim, Provisioned, ProvisionRequest, Volume
from prov_host.testing import BackendUnderTest, RunningBackend, make_claim, make_class, make_request, make_volume
from prov_host_hostpath import HostpathPlugin

PROVISIONER = "prov-host/hostpath"


@dataclasses.dataclass
class Hostpath:
    """One started plugin and what a test wants of it."""

    root: Path
    subject: BackendUnderTest
    running: RunningBackend
    plugin: HostpathPlugin

    @property
    def host(self) -> Any:
        return self.running.host

    def request(
        self, claim: Claim | None = None, parameters: dict[str, str] | None = None, *, node: str = "node-1"
    ) -> ProvisionRequest:
        storage_class = make_class(parameters, provisioner=PROVISIONER)
        return make_request(claim or make_claim(), storage_class, selected_node=node)

    def provision(self, *args: Any, **options: Any) -> tuple[ProvisionRequest, Provisioned, Volume]:
        request = self.request(*args, **options)
        provisioned = self.running.provision(request)
        return request, provisioned, make_volume(request, provisioned, plugin="hostpath")

    def path(self, volume: Volume) -> Path:
        return self.root / volume.record["name"]

    def private(self, *names: str) -> Path:
        return self.root.joinpath(".prov-host", *names)


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Hostpath]:
    """Starts a plugin; called again, it is what is there after a restart."""

    def start(node_name: str = "node-1", **settings: Any) -> Hostpath:
        root = tmp_path / "volumes"
        root.mkdir(exist_ok=True)
        made: list[HostpathPlugin] = []

        def make() -> HostpathPlugin:
            made.append(HostpathPlugin(environ={}))
            return made[-1]

        subject = BackendUnderTest(make, {"directories": [str(root)], **settings}, name="hostpath", node_name=node_name)
        running = subject.start()
        return Hostpath(root, subject, running, made[-1])

    return start


@pytest.fixture
def hostpath(start: Callable[..., Hostpath]) -> Hostpath:
    return start()
