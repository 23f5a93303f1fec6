"""A cluster with its volume controllers, a clock that the test moves, and processes on it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from controller_scene import Scene
from prov_host.embedded import Cluster, InProcessTransport
from prov_host.testing.clock import FakeClock


@pytest.fixture
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """The stage; with the parameter ``bare`` nobody else acts on claims and volumes."""
    clock = FakeClock()
    bare = getattr(request, "param", "") == "bare"
    cluster = Cluster(clock, random.Random(1), controllers=not bare)
    made = Scene(InProcessTransport(cluster), clock, cluster)
    yield made
    await made.close()
