"""A cluster without sockets on a clock that only moves when a test says so."""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import json
import random
from typing import Any

import pytest

from prov_host.embedded import Cluster, InProcessTransport


class StillClock:
    """Time that stands still until `advance` is called."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self._now

    def now(self) -> dt.datetime:
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=self._now - 1000.0)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        await future

    async def advance(self, seconds: float) -> None:
        await settle()
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await settle()
        self._now = end


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)


class Api:
    """Requests to the cluster, with dictionaries."""

    def __init__(self, cluster: Cluster, clock: StillClock) -> None:
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
        await settle()


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
async def api(clock: StillClock):
    cluster = Cluster(clock, random.Random(7))
    yield Api(cluster, clock)
    await cluster.close()


@pytest.fixture
async def bare(clock: StillClock):
    """Without the volume controllers."""
    cluster = Cluster(clock, random.Random(7), controllers=False)
    yield Api(cluster, clock)
    await cluster.close()
