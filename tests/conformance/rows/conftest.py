"""The stage for the reference controller's rows, in two worlds; see ``controller_scene``."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator

import pytest

from controller_scene import Scene
from harness import MissingPart
from harness.controlplane import ControlPlane
from prov_host.clock import SystemClock
from prov_host.embedded import Cluster, InProcessTransport
from prov_host.kube.session import load
from prov_host.testing.clock import FakeClock


@pytest.fixture(scope="session")
def bare_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server whose claims and volumes nobody else acts on."""
    try:
        plane = ControlPlane(tmp_path_factory.mktemp("bare-control-plane"), controller_manager=False)
    except MissingPart as error:
        pytest.skip(str(error))
    with plane:
        yield plane


@pytest.fixture
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """A stage, on the embedded cluster unless the test's parameter ``env`` says ``real``."""
    if getattr(request, "param", "embedded") == "real":
        plane: ControlPlane = request.getfixturevalue("bare_control_plane")
        made = Scene(await load(str(plane.kubeconfig)), SystemClock(), None)
    else:
        clock = FakeClock()
        cluster = Cluster(clock, random.Random(1), controllers=False)
        made = Scene(InProcessTransport(cluster), clock, cluster)
    yield made
    await made.close()
