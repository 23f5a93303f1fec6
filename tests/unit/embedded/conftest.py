"""A cluster without sockets on a clock that only moves when a test says so."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from prov_host.embedded import Cluster, InProcessTransport
from prov_host.testing.clock import FakeClock


class Api:
    """Requests to the cluster, with dictionaries."""

    def __init__(self, cluster: Cluster, clock: FakeClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.transport = InProcessTransport(cluster)

    async def __call__(self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str):
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = await self.transport.request(method, path, query=query, body=data, content_type=kind)
        answer = json.loads(reply.body) if reply.body.startswith((b"{", b"[")) else reply.body.decode()
        return reply.status, answer

    async def ok(self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str) -> Any:
        status, answer = await self(method, path, body, kind, **query)
        assert status in {200, 201}, answer
        return answer

    async def settle(self) -> None:
        await self.clock.settle()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def api(clock: FakeClock):
    cluster = Cluster(clock, random.Random(7))
    yield Api(cluster, clock)
    await cluster.close()


@pytest.fixture
async def bare(clock: FakeClock):
    """Without the volume controllers."""
    cluster = Cluster(clock, random.Random(7), controllers=False)
    yield Api(cluster, clock)
    await cluster.close()
