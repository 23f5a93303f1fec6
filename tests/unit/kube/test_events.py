"""Events: what is written, merged, counted, dropped and given up."""

from __future__ import annotations

import asyncio
import random
import re
import threading

import msgspec
import pytest

from prov_host import errors
from prov_host.kube.client import Client
from prov_host.kube.events import EventRecorder
from prov_host.model import Claim, ObjectReference, Volume

COMPONENT = "example.com/nfs_host-1"


@pytest.fixture
def transport(kit):
    transport = kit.ScriptedTransport()
    transport.default = lambda request: kit.reply({"metadata": {"name": "event"}})
    return transport


@pytest.fixture
def claim(kit):
    return msgspec.convert(kit.claim("data", "uid-1", "7"), Claim)


@pytest.fixture
async def recorder(transport, clock):
    recorder = EventRecorder(Client(transport, clock), component=COMPONENT, clock=clock, rng=random.Random(1))
    yield recorder
    transport.default = errors.NotFound("over")
    stopping = asyncio.create_task(recorder.stop(1))
    await clock.run_for(2)
    await stopping


@pytest.fixture
def emit(recorder, claim):
    def emit(message="it failed", reason="ProvisioningFailed", regarding=None, type="Warning"):
        recorder.emit(regarding or claim, type=type, reason=reason, message=message)

    emit.recorder = recorder
    return emit


def _written(transport):
    return [(r.method, r.body.get("count"), r.body["message"]) for r in transport.requests]


async def test_an_event_is_written_as_the_reference_writes_it(recorder, emit, transport, clock):
    recorder.start()
    emit()
    await clock.run_for(0)
    (request,) = transport.requests
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/default/events")
    name = request.body["metadata"].pop("name")
    assert re.fullmatch(r"data\.[0-9a-f]{16}", name)
    stamp = request.body.pop("firstTimestamp")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stamp)
    assert request.body.pop("lastTimestamp") == stamp
    assert request.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": "default",
            "name": "data",
            "uid": "uid-1",
            "resourceVersion": "7",
        },
        "reason": "ProvisioningFailed",
        "message": "it failed",
        "type": "Warning",
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }


async def test_events_of_volumes_go_to_the_default_namespace_and_of_leases_to_theirs(recorder, emit, transport, clock):
    recorder.start()
    emit(regarding=msgspec.convert({"metadata": {"name": "pvc-1", "uid": "u"}}, Volume))
    emit(regarding=ObjectReference("coordination.k8s.io/v1", "Lease", "storage", "example.com-nfs", "u2"))
    await clock.run_for(0)
    volume, lease = transport.requests
    assert volume.path == "/api/v1/namespaces/default/events"
    assert volume.body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "name": "pvc-1",
        "uid": "u",
    }
    assert lease.path == "/api/v1/namespaces/storage/events"
    assert lease.body["involvedObject"]["apiVersion"] == "coordination.k8s.io/v1"


async def test_an_equal_event_counts_the_first_one_up(recorder, emit, transport, clock):
    recorder.start()
    for _ in range(3):
        emit()
        await clock.run_for(60)
    assert _written(transport) == [("POST", 1, "it failed"), ("PATCH", 2, "it failed"), ("PATCH", 3, "it failed")]
    name = transport.requests[0].body["metadata"]["name"]
    assert transport.requests[2].path == f"/api/v1/namespaces/default/events/{name}"
    assert transport.requests[2].content_type == "application/strategic-merge-patch+json"
    assert set(transport.requests[2].body) == {"count", "lastTimestamp", "message"}


async def test_an_event_that_has_expired_on_the_server_is_made_anew(recorder, emit, transport, clock, kit):
    recorder.start()
    emit()
    await clock.run_for(4000)
    transport.answers.append(kit.status_reply(404, "NotFound"))
    emit()
    await clock.run_for(0)
    assert _written(transport)[1:] == [("PATCH", 2, "it failed"), ("POST", 2, "it failed")]
    assert transport.requests[2].body["firstTimestamp"] < transport.requests[2].body["lastTimestamp"]


async def test_more_than_ten_similar_events_are_combined(recorder, emit, transport, clock):
    recorder.start()
    for number in range(14):
        emit(f"failed with {number}")
    emit("something else", reason="Other")
    await clock.run_for(0)
    assert _written(transport)[9:] == [
        ("POST", 1, "failed with 9"),
        ("POST", 1, "(combined from similar events): failed with 10"),
        ("PATCH", 2, "(combined from similar events): failed with 11"),
        ("PATCH", 3, "(combined from similar events): failed with 12"),
        ("PATCH", 4, "(combined from similar events): failed with 13"),
        ("POST", 1, "something else"),
    ]


async def test_after_ten_quiet_minutes_similar_events_stand_alone_again(recorder, emit, transport, clock):
    recorder.start()
    for number in range(12):
        emit(f"failed with {number}")
    await clock.run_for(601)
    emit("failed with 99")
    await clock.run_for(0)
    assert _written(transport)[-1] == ("POST", 1, "failed with 99")


async def test_one_object_has_25_events_at_once_and_then_one_every_five_minutes(recorder, emit, transport, clock, kit):
    recorder.start()
    for _ in range(40):
        emit()
    await clock.run_for(0)
    assert len(transport.requests) == 25
    emit(regarding=msgspec.convert(kit.claim("other"), Claim))
    await clock.run_for(0)
    assert len(transport.requests) == 26
    await clock.run_for(301)
    emit()
    emit()
    await clock.run_for(0)
    assert len(transport.requests) == 27


async def test_a_server_that_cannot_be_reached_is_tried_twelve_times(recorder, emit, transport, clock, caplog):
    transport.default = errors.ApiUnavailable("refused")
    recorder.start()
    emit()
    await clock.run_for(200)
    assert len(transport.requests) == 12
    assert "given up after 12 tries" in caplog.text
    transport.default = None


async def test_an_event_is_written_once_the_server_is_back(recorder, emit, transport, clock, kit):
    transport.answers += [errors.ApiUnavailable("refused")] * 3
    recorder.start()
    emit("first")
    emit("second")
    await clock.run_for(31)
    assert [message for _, _, message in _written(transport)] == ["first"] * 4 + ["second"]


@pytest.mark.parametrize("code", [400, 403, 409, 422, 500])
async def test_a_refused_event_is_not_tried_again_and_the_next_is_new(emit, transport, clock, kit, code):
    transport.answers.append(kit.status_reply(code, "AlreadyExists" if code == 409 else "No"))
    emit.recorder.start()
    emit()
    emit()
    await clock.run_for(100)
    assert [method for method, _, _ in _written(transport)] == ["POST", "POST"]


async def test_refusals_of_one_kind_are_told_once(emit, transport, clock, kit, caplog):
    transport.default = kit.status_reply(403, "Forbidden", "events is forbidden")
    emit.recorder.start()
    for number in range(5):
        emit(f"message {number}")
    await clock.run_for(1)
    assert caplog.text.count("was refused") == 1
    assert "grant the permission" in caplog.text


async def test_a_full_queue_drops_and_counts(recorder, emit, transport, clock, caplog):
    for number in range(1005):
        emit(f"message {number}", regarding=ObjectReference("v1", "PersistentVolume", None, f"pv-{number}"))
    assert recorder.dropped == 5
    assert caplog.text.count("are dropped") == 1
    recorder.start()
    await clock.run_for(0)
    while len(transport.requests) < 1000:
        await clock.settle()
    emit("afterwards")
    await clock.run_for(0)
    assert _written(transport)[-1] == ("POST", 1, "afterwards")


async def test_emitting_from_any_thread_wakes_the_writer(recorder, emit, transport, clock):
    recorder.start()
    await clock.run_for(0)
    threads = [threading.Thread(target=emit, args=(f"from thread {n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while len(transport.requests) < 5:
        await asyncio.sleep(0.001)
    names = {request.body["metadata"]["name"] for request in transport.requests}
    assert len(names) == 5


async def test_what_waits_at_the_stop_is_still_written_and_nothing_after_it(recorder, emit, transport, clock):
    recorder.start()
    for number in range(8):
        emit(f"message {number}")
    await recorder.stop(5)
    assert len(transport.requests) == 8
    emit("too late")
    await clock.run_for(10)
    assert len(transport.requests) == 8
    await recorder.stop()


async def test_an_event_just_before_the_stop_is_written(recorder, emit, transport, clock):
    recorder.start()
    await clock.run_for(1)
    emit()
    await recorder.stop(5)
    assert len(transport.requests) == 1


async def test_the_stop_has_a_limit(emit, transport, clock, caplog, background):
    transport.default = errors.ApiUnavailable("refused")
    emit.recorder.start()
    emit("one")
    emit("two")
    await clock.run_for(0)
    stopping = background(emit.recorder.stop(5))
    await clock.run_for(5.1)
    assert stopping.done()
    assert "2 events" in caplog.text


async def test_long_and_odd_messages_are_cut_at_a_character(recorder, emit, transport, clock):
    recorder.start()
    emit("é" * 1000)
    emit("x" + "é" * 1000, reason="Other")
    emit("path /srv/\udcff\x00", reason="Third")
    await clock.run_for(0)
    first, second, third = (message for _, _, message in _written(transport))
    assert first == "é" * 512
    assert second == "x" + "é" * 511
    assert third == r"path /srv/\xff\x00"


@pytest.mark.parametrize("name", ["Upper", "a_b", "", "x" * 250, "../../nodes"])
async def test_a_name_that_cannot_be_part_of_an_events_name_gives_a_uuid(recorder, emit, transport, clock, name):
    recorder.start()
    emit(regarding=ObjectReference("v1", "PersistentVolume", None, name))
    await clock.run_for(0)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", transport.requests[0].body["metadata"]["name"])


async def test_emitting_never_raises(recorder, transport, clock, caplog):
    recorder.start()
    recorder.emit(None, type="Normal", reason="Odd", message=None)
    recorder.emit(ObjectReference(namespace=".."), type="Normal", reason="Odd", message="x")
    await clock.run_for(0)
    assert "no event 'Odd'" in caplog.text
    assert transport.requests == []
