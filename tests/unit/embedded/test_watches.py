"""Watches in time: bookmarks, timeouts, the bounded history."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from prov_host.embedded import Cluster, InProcessTransport
from prov_host.errors import ApiUnavailable

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Reader:
    """Reads a watch in the background."""

    def __init__(self, transport: InProcessTransport, idle_timeout: float = 10_000, **query: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._query = {"watch": "true", **query}
        self.task = asyncio.ensure_future(self._read(transport, idle_timeout))

    async def _read(self, transport: InProcessTransport, idle_timeout: float) -> None:
        async with transport.stream(LEASES, query=self._query, idle_timeout=idle_timeout) as stream:
            async for line in stream.lines():
                self.events.append(json.loads(line))

    @property
    def seen(self) -> list[tuple[str, str]]:
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.events]


async def create(api, *names: str) -> None:
    for name in names:
        await api.ok("POST", LEASES, {"metadata": {"name": name}, "spec": {}})


async def test_bookmarks_come_every_minute_with_the_current_revision(bare, clock) -> None:
    reader = Reader(bare.transport, allowWatchBookmarks="true", timeoutSeconds="300")
    await clock.advance(59)
    bare.cluster.create_namespace("elsewhere")
    assert reader.seen == []
    await clock.advance(1)
    assert reader.seen == [("BOOKMARK", "")]
    assert reader.events[0]["object"]["metadata"]["resourceVersion"] == str(bare.cluster.store.revision)
    await clock.advance(120)
    assert len(reader.seen) == 3
    bare.cluster.faults.drop_bookmarks = True
    await clock.advance(119)
    assert len(reader.seen) == 3
    reader.task.cancel()


async def test_a_watch_ends_after_its_timeout(bare, clock) -> None:
    reader = Reader(bare.transport, timeoutSeconds="30")
    await clock.advance(29)
    assert not reader.task.done()
    await clock.advance(1)
    assert reader.task.done()


async def test_a_silent_watch_counts_as_dead(bare, clock) -> None:
    reader = Reader(bare.transport, idle_timeout=50)
    await clock.advance(40)
    await create(bare, "a")
    await clock.advance(40)
    assert reader.seen == [("ADDED", "a")]
    await clock.advance(10)
    with pytest.raises(ApiUnavailable, match="silent for 50 s"):
        await reader.task


async def test_a_watch_from_before_the_history_gets_an_error(clock) -> None:
    cluster = Cluster(clock, random.Random(1), controllers=False, history=3)
    transport = InProcessTransport(cluster)
    for name in "abcde":
        body = json.dumps({"metadata": {"name": name}, "spec": {}}).encode()
        await transport.request("POST", LEASES, body=body)
    old, young = cluster.store.revision - 4, cluster.store.revision - 3
    early, late = Reader(transport, resourceVersion=str(old)), Reader(transport, resourceVersion=str(young))
    await clock.settle()
    assert early.task.done()
    (error,) = early.events
    assert error == {
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"too old resource version: {old} ({young})",
            "reason": "Expired",
            "code": 410,
        },
    }
    assert late.seen == [("ADDED", "c"), ("ADDED", "d"), ("ADDED", "e")]
    await cluster.close()
    await clock.settle()
    assert late.task.done()


async def test_compaction_leaves_open_watches_alone(bare, clock) -> None:
    await create(bare, "a")
    reader = Reader(bare.transport)
    await clock.settle()
    revision = bare.cluster.store.revision
    await create(bare, "b")
    bare.cluster.compact()
    await create(bare, "c")
    await clock.settle()
    assert reader.seen == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    late = Reader(bare.transport, resourceVersion=str(revision))
    await clock.settle()
    assert [event["object"]["code"] for event in late.events] == [410]
    reader.task.cancel()


async def test_leaving_a_watch_leaves_nothing_behind(bare, clock) -> None:
    table = bare.cluster.store.tables["leases.coordination.k8s.io"]
    reader = Reader(bare.transport, allowWatchBookmarks="true")
    await clock.settle()
    assert len(table.watchers) == 1
    reader.task.cancel()
    await clock.settle()
    assert table.watchers == set()
    assert clock.next_due is None


async def test_a_reader_that_is_too_far_behind_is_cut_off(bare, monkeypatch) -> None:
    monkeypatch.setattr("prov_host.embedded.store._WATCH_BACKLOG", 2)
    stream = await bare.cluster.handle("GET", LEASES, query={"watch": "true"})
    await create(bare, "a", "b", "c", "d")
    assert [json.loads(line)["object"]["metadata"]["name"] async for line in stream.lines()] == ["a", "b", "c"]
