"""Fixtures of the end-to-end tests: one cluster of each kind, and an installation of its own for each test."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import pytest

from harness.embedded import EmbeddedCluster
from harness.installation import Installation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.controlplane import ControlPlane
    from harness.nfs import NfsServer


@pytest.fixture(scope="session")
def embedded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """The embedded cluster in a process of its own."""
    with EmbeddedCluster(tmp_path_factory.mktemp("embedded-cluster")) as cluster:
        yield cluster


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def cluster(request: pytest.FixtureRequest) -> EmbeddedCluster | ControlPlane:
    """A cluster with an API and a volume binder: the same tests must pass on both kinds."""
    name = "embedded_cluster" if request.param == "embedded" else "control_plane"
    found: EmbeddedCluster | ControlPlane = request.getfixturevalue(name)
    return found


def _slug(request: pytest.FixtureRequest) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-").removeprefix("test-")
    return f"t{zlib.crc32(request.node.nodeid.encode()) % 10000:04}-{words[:30].strip('-')}"


@pytest.fixture
def installation(
    request: pytest.FixtureRequest, cluster: EmbeddedCluster | ControlPlane, tmp_path: Path
) -> Iterator[Installation]:
    """prov-host with nfs_subdir on a plain directory, not yet started."""
    installed = Installation(
        _slug(request),
        client=cluster.client,
        kubeconfig=cluster.kubeconfig,
        directory=tmp_path,
        share=tmp_path / "share",
    )
    installed.create_namespace()
    yield installed
    installed.clean()


@pytest.fixture
def nfs_installation(
    request: pytest.FixtureRequest, control_plane: ControlPlane, nfs_server: NfsServer, tmp_path: Path
) -> Iterator[Installation]:
    """prov-host on the real control plane, with the real NFS server's export as its share."""
    slug = _slug(request)
    installed = Installation(
        slug,
        client=control_plane.client,
        kubeconfig=control_plane.kubeconfig,
        directory=tmp_path,
        share=nfs_server.export / slug,
        server=nfs_server.server,
        path=f"{nfs_server.path}/{slug}",
    )
    installed.create_namespace()
    yield installed
    installed.clean()
