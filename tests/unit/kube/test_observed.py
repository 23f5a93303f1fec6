"""What the client metrics are told."""

from __future__ import annotations

import pytest

from prov_host.errors import ApiUnavailable
from prov_host.kube.observed import ObservedTransport


@pytest.fixture
def inner(kit):
    return kit.ScriptedTransport()


@pytest.fixture
def seen():
    return []


@pytest.fixture
def transport(inner, clock, seen):
    return ObservedTransport(inner, clock, lambda *one: seen.append(one))


async def test_each_request_is_told_with_its_code_and_time(transport, inner, seen, clock, kit):
    def slow(_):
        clock._time += 0.5
        return kit.status_reply(404, "NotFound")

    inner.answers += [kit.reply(), slow, ApiUnavailable("refused")]
    assert (await transport.request("POST", "/x", query={"a": "b"}, body=b"{}", timeout=3)).status == 200
    assert (await transport.request("GET", "/x")).status == 404
    with pytest.raises(ApiUnavailable):
        await transport.request("DELETE", "/x")
    assert seen == [("POST", "200", 0.0), ("GET", "404", 0.5), ("DELETE", "<error>", 0.0)]
    assert (inner.requests[0].query, inner.requests[0].timeout) == ({"a": "b"}, 3)


async def test_a_watch_is_told_once_when_it_is_answered(transport, inner, seen, kit):
    inner.streams += [kit.ScriptedStream(b"one"), kit.ScriptedStream(status=410)]
    async with transport.stream("/x") as stream:
        assert seen == [("GET", "200", 0.0)]
        assert [line async for line in stream.lines()] == [b"one"]
    async with transport.stream("/x"):
        pass
    with pytest.raises(ApiUnavailable):
        async with transport.stream("/x"):
            pass
    assert [code for _, code, _ in seen] == ["200", "410", "<error>"]


async def test_closing_closes_what_is_wrapped(transport, inner):
    await transport.close()
    assert inner.closed
