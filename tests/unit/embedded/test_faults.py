"""What goes wrong on purpose, and how a client sees it."""

from __future__ import annotations

import asyncio
import json

import pytest

from prov_host.embedded import InProcessTransport
from prov_host.errors import ApiUnavailable

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def lease(name: str) -> dict:
    return {"metadata": {"name": name}, "spec": {}}


async def test_the_next_matching_requests_fail(bare) -> None:
    fault = bare.cluster.faults.fail(verb="create", resource="leases", name="a*", status=503, times=2)
    assert (await bare("POST", LEASES, lease("b")))[0] == 201
    for _ in range(2):
        status, answer = await bare("POST", LEASES, lease("a1"))
        assert (status, answer["reason"], answer["code"]) == (503, "ServiceUnavailable", 503)
    assert (await bare("POST", LEASES, lease("a1")))[0] == 201
    assert (fault.hits, bare.cluster.faults.rules) == (2, [])


async def test_a_failure_can_carry_headers(bare) -> None:
    bare.cluster.faults.fail(status=429, headers={"retry-after": "7"})
    reply = await bare.transport.request("GET", LEASES)
    assert (reply.status, reply.headers["retry-after"]) == (429, "7")


async def test_a_failure_may_come_after_the_deed(bare) -> None:
    bare.cluster.faults.fail(verb="create", status=500, after_commit=True)
    assert (await bare("POST", LEASES, lease("a")))[0] == 500
    assert (await bare("GET", f"{LEASES}/a"))[0] == 200


async def test_a_lost_reply_leaves_the_client_in_the_dark(bare) -> None:
    bare.cluster.faults.lose_reply(verb="create", resource="leases")
    with pytest.raises(ApiUnavailable, match="connection reset"):
        await bare("POST", LEASES, lease("a"))
    assert (await bare("GET", f"{LEASES}/a"))[0] == 200


async def test_a_connection_may_break_before_the_deed(bare) -> None:
    bare.cluster.faults.lose_reply(verb="create", after_commit=False)
    with pytest.raises(ApiUnavailable):
        await bare("POST", LEASES, lease("a"))
    assert (await bare("GET", f"{LEASES}/a"))[0] == 404


async def test_a_delay_passes_on_the_clusters_clock(bare, clock) -> None:
    bare.cluster.faults.delay(10, verb="get")
    asked = asyncio.ensure_future(bare("GET", f"{LEASES}/a"))
    await clock.advance(9.9)
    assert not asked.done()
    await clock.advance(0.1)
    assert (await asked)[0] == 404


async def test_a_request_gives_up_at_its_timeout_and_may_still_be_carried_out(bare, clock) -> None:
    bare.cluster.faults.delay(60, verb="create", after_commit=True)
    body = json.dumps(lease("a")).encode()
    asked = asyncio.ensure_future(bare.transport.request("POST", LEASES, body=body, timeout=5))
    await clock.advance(5)
    with pytest.raises(ApiUnavailable, match="no answer within 5 s"):
        await asked
    assert (await bare("GET", f"{LEASES}/a"))[0] == 200


async def test_latency_is_for_every_request(bare, clock) -> None:
    bare.cluster.faults.latency = 2
    asked = asyncio.ensure_future(bare("GET", LEASES))
    await clock.advance(1.9)
    assert not asked.done()
    await clock.advance(0.1)
    assert (await asked)[0] == 200
    bare.cluster.faults.clear()
    assert (await bare("GET", LEASES))[0] == 200


async def test_open_watches_can_be_closed(bare) -> None:
    async with bare.transport.stream(LEASES, query={"watch": "true"}) as stream:
        assert bare.cluster.faults.close_watches("leases") == 1
        assert [line async for line in stream.lines()] == []
    assert bare.cluster.faults.close_watches() == 0


async def test_open_watches_can_get_an_error(bare) -> None:
    async with bare.transport.stream(LEASES, query={"watch": "true"}) as stream:
        assert bare.cluster.faults.error_watches() == 1
        (line,) = [json.loads(line) async for line in stream.lines()]
    assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_watch_can_be_refused(bare) -> None:
    bare.cluster.faults.fail(verb="watch", status=429)
    async with bare.transport.stream(LEASES, query={"watch": "true"}) as stream:
        assert stream.status == 429
        assert json.loads(b"".join([line async for line in stream.lines()]))["code"] == 429


async def test_a_closed_transport_answers_nothing(bare) -> None:
    transport = InProcessTransport(bare.cluster)
    await transport.close()
    await transport.close()
    with pytest.raises(ApiUnavailable, match="closed"):
        await transport.request("GET", LEASES)
    assert (await bare("GET", CLAIMS))[0] == 200
