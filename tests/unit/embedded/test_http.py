"""The embedded cluster on a port; tests/conformance/api tests what it says there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import aiohttp
import pytest

from prov_host.embedded import Cluster, serve, write_kubeconfig
from prov_host.errors import ConfigurationError

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
async def test_it_listens_on_loopback_only(host) -> None:
    with pytest.raises(ConfigurationError, match="no authentication"):
        async with serve(Cluster(), host=host):
            pass


async def test_a_port_that_is_taken_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1 port {port}"):
            async with serve(Cluster(), port=port):
                pass


async def test_two_clusters_know_nothing_of_each_other() -> None:
    async with serve(Cluster()) as one, serve(Cluster()) as two, aiohttp.ClientSession() as session:
        body = {"metadata": {"name": "a"}, "spec": {}}
        async with session.post(one.url + LEASES, json=body) as answer:
            assert answer.status == 201
        async with session.get(two.url + f"{LEASES}/a") as answer:
            assert answer.status == 404


async def test_leaving_ends_open_watches_at_once() -> None:
    async with aiohttp.ClientSession() as session:
        async with serve(Cluster()) as server:
            answer = await session.get(server.url + LEASES, params={"watch": "true"})
            started = asyncio.get_running_loop().time()
        assert await answer.content.read() == b""
        assert asyncio.get_running_loop().time() - started < 5


async def test_a_client_that_leaves_takes_its_watch_with_it() -> None:
    cluster = Cluster()
    table = cluster.store.tables["leases.coordination.k8s.io"]
    async with serve(cluster) as server:
        async with aiohttp.ClientSession() as session:
            answer = await session.get(server.url + LEASES, params={"watch": "true"})
            assert len(table.watchers) == 1
            answer.close()
        for _ in range(100):
            if not table.watchers:
                break
            await asyncio.sleep(0.01)
        assert table.watchers == set()


async def test_a_lost_reply_is_a_broken_connection() -> None:
    cluster = Cluster()
    cluster.faults.lose_reply(verb="create")
    async with serve(cluster) as server, aiohttp.ClientSession() as session:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        body = b'{"metadata":{"name":"a"}}'
        writer.write(f"POST {LEASES} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        async with session.get(server.url + f"{LEASES}/a") as answer:
            assert answer.status == 200


def test_a_kubeconfig_points_at_the_server(tmp_path) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1234")
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1234"}
    assert config["current-context"] == config["contexts"][0]["name"]
