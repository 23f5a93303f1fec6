"""The API server goes away and comes back: nothing is lost, nothing is made twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import MissingPart
from harness.client import wait_until
from harness.controlplane import ControlPlane
from harness.installation import Installation

pytestmark = pytest.mark.e2e


@pytest.fixture
def own_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own, that it may disturb."""
    try:
        plane = ControlPlane(tmp_path / "plane")
    except MissingPart as error:
        pytest.skip(str(error))
    with plane:
        yield plane


def test_claims_made_before_during_and_after_a_restart_of_the_api_server_are_bound(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    installation = Installation(
        "outage",
        client=own_plane.client,
        kubeconfig=own_plane.kubeconfig,
        directory=tmp_path,
        share=tmp_path / "share",
    )
    installation.create_namespace()
    archive = installation.create_class("archive", {"onDelete": "delete"})
    # The default lease outlives the restart.
    with installation.host() as host:
        installation.create_claims({f"before-{number}": archive for number in range(10)})
        wait_until(installation.volumes, timeout=60, what="the first volume")
        own_plane.restart_api_server()
        installation.create_claims({f"after-{number}": archive for number in range(10)})
        names = [f"{when}-{number}" for when in ("before", "after") for number in range(10)]
        installation.wait_bound(names, 120)
        assert len(installation.volumes()) == len(names)
        assert len(installation.directories()) == len(names)
        installation.delete_claims(names)
        installation.wait_no_volumes(120)
        wait_until(lambda: not installation.directories(), timeout=30, what="empty share")
        assert host.process.returncode is None
        assert host.stop() == 0
