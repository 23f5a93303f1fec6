"""Paths, retries and exceptions of the typed client."""

from __future__ import annotations

import asyncio
import json

import pytest

from prov_host import errors
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.kube.client import Client
from prov_host.kube.ratelimit import RateLimiter


@pytest.fixture
def transport(kit):
    return kit.ScriptedTransport()


@pytest.fixture
def client(transport, clock):
    return Client(transport, clock)


async def test_operations_use_the_paths_and_bodies_of_the_api(client, transport, kit):
    transport.default = kit.reply(kit.claim("a"))
    await client.get(CLAIMS, "a", namespace="ns")
    await client.create(VOLUMES, {"metadata": {"name": "v"}})
    await client.update(CLAIMS, {"metadata": {"name": "a", "resourceVersion": "3"}}, namespace="ns")
    await client.patch(CLASSES, "fast", {"x": 1}, kind="merge")
    await client.patch(VOLUMES, "v", {"x": 1})
    await client.patch(VOLUMES, "v", [{"op": "test"}], kind="json")
    await client.delete(CLAIMS, "a", namespace="ns", uid="u-1")
    await client.delete(VOLUMES, "v")
    assert [(r.method, r.path, r.body, r.content_type) for r in transport.requests] == [
        ("GET", "/api/v1/namespaces/ns/persistentvolumeclaims/a", None, "application/json"),
        ("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "v"}}, "application/json"),
        (
            "PUT",
            "/api/v1/namespaces/ns/persistentvolumeclaims/a",
            {"metadata": {"name": "a", "resourceVersion": "3"}},
            "application/json",
        ),
        ("PATCH", "/apis/storage.k8s.io/v1/storageclasses/fast", {"x": 1}, "application/merge-patch+json"),
        ("PATCH", "/api/v1/persistentvolumes/v", {"x": 1}, "application/strategic-merge-patch+json"),
        ("PATCH", "/api/v1/persistentvolumes/v", [{"op": "test"}], "application/json-patch+json"),
        (
            "DELETE",
            "/api/v1/namespaces/ns/persistentvolumeclaims/a",
            {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "u-1"}},
            "application/json",
        ),
        ("DELETE", "/api/v1/persistentvolumes/v", None, "application/json"),
    ]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb", "../../nodes/x"])
async def test_a_name_that_would_change_the_path_is_never_sent(client, transport, name):
    with pytest.raises(errors.Invalid):
        await client.delete(VOLUMES, name)
    with pytest.raises(errors.Invalid):
        await client.get(CLAIMS, name, namespace="ns")
    with pytest.raises(errors.Invalid):
        await client.get(CLAIMS, "a", namespace=name)
    with pytest.raises(errors.Invalid):
        await client.update(VOLUMES, {"metadata": {"name": name}})
    assert not transport.requests


async def test_odd_characters_of_a_name_are_encoded(client, transport, kit):
    transport.default = kit.reply({"metadata": {"name": "x"}})
    await client.get(VOLUMES, "a b?c#d\udcffé")
    assert transport.requests[0].path == "/api/v1/persistentvolumes/a%20b%3Fc%23d%3F%C3%A9"


async def test_text_that_is_not_unicode_is_sent_with_replacement_characters(client, transport, kit):
    transport.default = kit.reply({"metadata": {"name": "x"}})
    await client.create(VOLUMES, {"metadata": {"annotations": {"path": "/srv/\udcff"}}})
    assert transport.requests[0].body == {"metadata": {"annotations": {"path": "/srv/?"}}}


async def test_a_body_without_a_json_form_is_refused(client, transport):
    with pytest.raises(errors.Invalid, match="no JSON form"):
        await client.create(VOLUMES, {"metadata": {"name": object()}})
    assert not transport.requests


@pytest.mark.parametrize(
    "case",
    [
        (400, "BadRequest", errors.ApiError),
        (401, "Unauthorized", errors.Forbidden),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "", errors.Conflict),
        (410, "Gone", errors.Gone),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ApiError),
        (504, "Timeout", errors.ApiError),
    ],
)
async def test_each_status_is_its_own_exception(client, transport, kit, case):
    code, reason, kind = case
    transport.answers.append(kit.status_reply(code, reason, "because of that"))
    with pytest.raises(errors.ApiError, match=r"GET /api/v1/persistentvolumes/v: .*because of that") as caught:
        await client.get(VOLUMES, "v")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (code, reason)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "an empty answer"),
        (b"<html><head><style>p{}</style></head><body><h1>Bad   Gateway</h1></body></html>", "502: Bad Gateway$"),
        (b"upstream \x00\xff connect error", "upstream . connect error"),
        (b"[1, 2]", r"\[1, 2\]"),
        (b'{"kind": 5, "message": ["x"]}', "message"),
        (b"x" * 100_000, r"x{300}\.\.\.$"),
        (b"[" * 100_000, r"\[{300}\.\.\.$"),
    ],
)
async def test_an_answer_of_something_in_between_is_quoted(client, transport, kit, body, words):
    transport.answers.append(kit.reply(body, 502))
    with pytest.raises(errors.ApiError, match=words) as caught:
        await client.create(VOLUMES, {})
    assert caught.value.status == 502


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"metadata"', b"\xff"])
async def test_a_good_status_with_a_senseless_body_is_an_error(client, transport, kit, body):
    transport.answers.append(kit.reply(body, 200))
    with pytest.raises(errors.ApiError, match="cannot be read"):
        await client.get(VOLUMES, "v")


async def test_a_busy_server_is_asked_again_after_the_time_it_named(client, transport, kit, clock, background):
    busy = kit.status_reply(429, "TooManyRequests", retry_after="3")
    transport.answers += [busy, busy, kit.reply(kit.claim("a"))]
    task = background(client.create(CLAIMS, {}, namespace="ns"))
    await clock.run_for(2.9)
    assert len(transport.requests) == 1
    await clock.run_for(3.2)
    assert task.result().name == "a"
    assert len(transport.requests) == 3


async def test_a_version_from_the_future_is_not_waited_for(client, transport, kit):
    behind = kit.status_reply(504, "Timeout", "Too large resource version: 9, current: 5", retry_after="1")
    transport.answers.append(behind)
    with pytest.raises(errors.ApiError, match="Too large"):
        await client.list_all(CLAIMS, version="9")


async def test_a_busy_server_is_not_asked_for_ever(client, transport, kit, clock, background):
    transport.default = kit.status_reply(429, "TooManyRequests", retry_after="1")

    async def expect():
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.get(VOLUMES, "v")
        assert caught.value.retry_after == 1.0

    task = background(expect())
    await clock.run_for(10)
    await task
    assert len(transport.requests) == 6


@pytest.mark.parametrize("headers", [{}, {"retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"}, {"retry_after": "3600"}])
async def test_a_429_without_a_usable_time_is_passed_on(client, transport, kit, headers):
    transport.answers.append(kit.status_reply(429, "TooManyRequests", **headers))
    with pytest.raises(errors.TooManyRequests):
        await client.get(VOLUMES, "v")


async def test_a_read_is_sent_once_more_when_its_connection_broke(client, transport, kit):
    transport.answers += [errors.ApiUnavailable("reset"), kit.reply(kit.claim("a"))]
    assert (await client.get(CLAIMS, "a", namespace="ns")).name == "a"
    transport.answers += [errors.ApiUnavailable("reset"), errors.ApiUnavailable("reset")]
    with pytest.raises(errors.ApiUnavailable):
        await client.get(CLAIMS, "a", namespace="ns")


async def test_a_read_that_timed_out_is_not_sent_again(client, transport, clock, background):
    async def slow():
        await clock.sleep(30)
        return errors.ApiUnavailable("timed out")

    transport.answers.append(lambda _: slow())

    async def expect():
        with pytest.raises(errors.ApiUnavailable):
            await client.get(VOLUMES, "v", timeout=30)

    task = background(expect())
    await clock.run_for(31)
    await task


@pytest.mark.parametrize("failure", [errors.ApiUnavailable("reset"), (503, "1")])
async def test_a_write_is_never_sent_twice(client, transport, kit, failure):
    if isinstance(failure, tuple):
        failure = kit.status_reply(failure[0], "ServiceUnavailable", retry_after=failure[1])
    for write in (
        client.create(VOLUMES, {}),
        client.update(VOLUMES, {"metadata": {"name": "v"}}),
        client.patch(VOLUMES, "v", {}),
        client.delete(VOLUMES, "v"),
    ):
        transport.answers.append(failure)
        with pytest.raises(errors.ApiError):
            await write
    assert len(transport.requests) == 4


async def test_every_request_waits_for_the_rate_limit(transport, kit, clock, background):
    client = Client(transport, clock, RateLimiter(clock, qps=1, burst=1))
    transport.default = kit.reply(kit.claim("a"))
    for _ in range(3):
        background(client.get(CLAIMS, "a", namespace="ns"))
    await clock.run_for(0.5)
    assert len(transport.requests) == 1
    await clock.run_for(2)
    assert len(transport.requests) == 3


async def test_a_list_is_read_page_by_page(client, transport, kit):
    transport.answers += [
        kit.reply({"metadata": {"resourceVersion": "7", "continue": "tok/en"}, "items": [kit.claim("a")]}),
        kit.reply({"metadata": {"resourceVersion": "7"}, "items": [kit.claim("b")]}),
    ]
    found = await client.list_all(CLAIMS, version="5", page=1)
    assert [one.name for one in found.items] == ["a", "b"]
    assert found.version == "7"
    assert [dict(r.query) for r in transport.requests] == [
        {"limit": "1", "resourceVersion": "5"},
        {"limit": "1", "continue": "tok/en"},
    ]


@pytest.mark.parametrize("body", [{"metadata": None, "items": None}, {}, {"items": []}])
async def test_a_list_of_nothing_is_empty(client, transport, kit, body):
    transport.answers.append(kit.reply(body))
    assert (await client.list_all(CLAIMS)).items == ()


async def test_one_odd_object_never_fails_the_list(client, transport, kit, caplog):
    odd = kit.claim("odd")
    odd["spec"] = {"volumeName": 5, "accessModes": "all", "resources": {"requests": {"storage": [1]}}}
    odd["metadata"] |= {"annotations": {"good": "yes", "bad": {"x": 1}, "number": 3}, "finalizers": ["a", None, "b"]}
    transport.answers.append(kit.reply({"items": [kit.claim("a"), odd, 5, None, "x", kit.claim("b")]}))
    found = (await client.list_all(CLAIMS)).items
    assert [one.name for one in found] == ["a", "odd", "b"]
    assert found[1].spec.volume_name == "5"  # what is set stays set: this claim must not look unbound
    assert found[1].access_modes == ()
    assert found[1].annotations == {"good": "yes", "number": "3"}
    assert found[1].finalizers == ("a", "b")
    assert caplog.text.count("default/odd is odd") == 1
    assert caplog.text.count("is skipped") == 3


async def test_an_odd_object_is_reported_once(client, transport, kit, caplog):
    odd = kit.claim("odd", phase=1)
    odd["status"] = []
    transport.default = kit.reply({"items": [odd]})
    for _ in range(3):
        await client.list_all(CLAIMS)
    assert caplog.text.count("is odd") == 1
    assert "status is a list, left out" in caplog.text


async def test_a_long_list_lets_others_run(client, transport, kit, background):
    transport.answers.append(kit.reply({"items": [kit.claim(f"c{number}") for number in range(1000)]}))
    turns = 0

    async def count():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    background(count())
    await client.list_all(CLAIMS)
    assert turns >= 9


async def test_a_watch_yields_objects_bookmarks_and_ends(client, transport, kit):
    transport.streams.append(
        kit.ScriptedStream(
            kit.event("ADDED", kit.claim("a", version="4")),
            b"  ",
            kit.bookmark("9"),
            kit.bookmark("10", end=True),
            kit.event("DELETED", kit.claim("a", version="11")),
        )
    )
    async with client.watch(CLAIMS, version="3", seconds=400, idle_timeout=50) as events:
        found = [(e.type, e.object and e.object.name, e.version, e.initial_end) async for e in events]
    assert found == [
        ("ADDED", "a", "4", False),
        ("BOOKMARK", None, "9", False),
        ("BOOKMARK", None, "10", True),
        ("DELETED", "a", "11", False),
    ]
    request = transport.requests[0]
    assert (request.path, request.timeout) == ("/api/v1/persistentvolumeclaims", 50)
    assert dict(request.query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "400",
        "resourceVersion": "3",
    }


async def test_an_error_in_a_watch_is_an_exception(client, transport, kit):
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (5)"}
    transport.streams.append(kit.ScriptedStream(kit.event("ERROR", gone)))
    with pytest.raises(errors.Gone, match="too old resource version"):
        await _drain(client)


async def test_a_refused_watch_is_an_exception(client, transport, kit):
    status = kit.status_reply(429, "TooManyRequests").body
    transport.streams.append(kit.ScriptedStream(status, status=429, headers={"retry-after": "7"}))
    with pytest.raises(errors.TooManyRequests) as caught:
        async with client.watch(CLAIMS):
            pass
    assert caught.value.retry_after == 7


async def test_an_odd_line_of_a_watch_is_read_as_far_as_it_goes(client, transport, kit):
    odd = kit.claim("odd", version="5", accessModes=7)
    broken = kit.event("MODIFIED", kit.claim("b", version="6", volumeName="BAD"))
    line = json.dumps(broken).encode().replace(b"BAD", b"\xff\xfe")
    transport.streams.append(kit.ScriptedStream(kit.event("ADDED", odd), line, kit.event("ADDED", 5)))
    async with client.watch(CLAIMS) as events:
        found = [(e.type, e.object and e.object.name, e.version) async for e in events]
    assert found == [("ADDED", "odd", "5"), ("MODIFIED", "b", "6"), ("ADDED", None, "")]


@pytest.mark.parametrize("line", [b"{", b"not json", b"[]", b'{"type": "ADDED"}', b'{"type": 5, "object": {}}'])
async def test_a_line_that_is_no_event_is_an_exception(client, transport, kit, line):
    transport.streams.append(kit.ScriptedStream(line))
    with pytest.raises(errors.ApiError, match="cannot be read"):
        await _drain(client)


async def _drain(client):
    async with client.watch(CLAIMS) as events:
        async for _ in events:
            pass
