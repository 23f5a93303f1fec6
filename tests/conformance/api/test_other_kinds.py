"""Leases, events, endpoints, namespaces and nodes."""

from __future__ import annotations

import pytest

STRATEGIC = "application/strategic-merge-patch+json"


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds"]),
        ({"leaseDurationSeconds": -1, "leaseTransitions": -1}, ["spec.leaseDurationSeconds", "spec.leaseTransitions"]),
    ],
)
def test_a_lease_that_cannot_be_is_invalid(api, spec, fields) -> None:
    answer = api("POST", api.leases, api.lease("a", **spec))
    assert (answer.status, [field for _, field in answer.fields]) == (422, fields)


@pytest.mark.parametrize("stamp", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "yesterday"])
def test_times_of_a_lease_have_six_digits(api, stamp) -> None:
    answer = api("POST", api.leases, api.lease("a", renewTime=stamp))
    assert answer.status == 400
    assert answer.message.startswith('Lease in version "v1" cannot be handled as a Lease: parsing time ')


def test_times_of_a_lease_are_stored_as_given(api) -> None:
    times = {"acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T01:02:03.456789Z"}
    assert api.ok("POST", api.leases, api.lease("a", **times))["spec"] == {"holderIdentity": "me", **times}


def test_a_lease_without_holder_is_kept_apart_from_one_with_an_empty_one(api) -> None:
    assert api.ok("POST", api.leases, api.lease("a", holderIdentity=""))["spec"] == {"holderIdentity": ""}
    assert api.ok("POST", api.leases, {"metadata": {"name": "b"}})["spec"] == {}


# ------------------------------------------------------------------------------------------------ events


def event(api, name: str = "e", **fields):
    about = {"kind": "PersistentVolumeClaim", "namespace": api.namespace, "name": "c", "uid": "1"}
    base = {"metadata": {"name": name}, "involvedObject": about, "reason": "Tested", "message": "m", "type": "Normal"}
    return {**base, **fields}


def test_an_event_is_completed(api) -> None:
    made = api.ok("POST", api.events, event(api))
    assert made["source"] == {}
    assert made["firstTimestamp"] is made["lastTimestamp"] is made["eventTime"] is None
    assert made["reportingComponent"] == made["reportingInstance"] == ""


def test_an_event_lives_where_its_object_lives(api) -> None:
    elsewhere = event(api, involvedObject={"kind": "PersistentVolume", "name": "v"})
    assert api("POST", api.events, elsewhere).fields == [("FieldValueInvalid", "involvedObject.namespace")]
    elsewhere["metadata"]["name"] = api.name("event")
    events = "/api/v1/namespaces/default/events"
    assert api("POST", events, elsewhere).status == 201
    api.ok("DELETE", f"{events}/{api.name('event')}")


def test_an_event_can_be_counted_up(api) -> None:
    api.ok("POST", api.events, event(api, count=1, firstTimestamp="2026-01-01T00:00:00Z"))
    patch = {"count": 2, "lastTimestamp": "2026-01-01T00:00:01Z"}
    changed = api.ok("PATCH", f"{api.events}/e", patch, type=STRATEGIC)
    assert (changed["count"], changed["firstTimestamp"]) == (2, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("involvedObject.name=c", ["e"]),
        ("involvedObject.name=other", []),
        ("involvedObject.kind=PersistentVolumeClaim,involvedObject.uid=1", ["e"]),
        ("reason=Tested,type=Normal", ["e"]),
        ("type=Warning", []),
        ("source=tester", ["e"]),
        ("reportingComponent=tester", ["e"]),
    ],
)
def test_events_are_found_by_their_object(api, selector, found) -> None:
    api.ok("POST", api.events, event(api, source={"component": "tester"}, reportingComponent="tester"))
    listed = api.ok("GET", api.events, fieldSelector=selector)
    assert [item["metadata"]["name"] for item in listed["items"]] == found


def test_events_have_a_second_face(api) -> None:
    api.ok("POST", api.events, event(api, count=3, source={"component": "tester"}))
    base = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    other = api.ok("GET", f"{base}/e")
    assert (other["apiVersion"], other["note"], other["deprecatedCount"]) == ("events.k8s.io/v1", "m", 3)
    assert other["regarding"]["name"] == "c"
    assert other["deprecatedSource"] == {"component": "tester"}
    listed = api.ok("GET", base, fieldSelector="regarding.name=c")
    assert [item["note"] for item in listed["items"]] == ["m"]
    assert api.lines(base)[0]["object"]["note"] == "m"
    changed = api.ok("PATCH", f"{base}/e", {"metadata": {"labels": {"l": "1"}}}, type=STRATEGIC)
    assert (changed["note"], changed["metadata"]["labels"]) == ("m", {"l": "1"})


def test_a_new_event_can_be_made_with_its_second_face(api) -> None:
    body = {
        "metadata": {"name": "n"},
        "regarding": {"kind": "Thing", "namespace": api.namespace, "name": "t"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "c-1",
        "action": "Acted",
        "reason": "Tested",
        "type": "Normal",
        "note": "n",
    }
    api.ok("POST", f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events", body)
    made = api.ok("GET", f"{api.events}/n")
    assert (made["message"], made["reportingComponent"]) == ("n", "example.com/c")
    assert made["involvedObject"]["name"] == "t"


# --------------------------------------------------------------------------------------------- the others


def test_endpoints_carry_annotations_and_a_warning(api) -> None:
    leader = {"control-plane.alpha.kubernetes.io/leader": "{}"}
    answer = api("POST", api.endpoints, {"metadata": {"name": "e", "annotations": leader}})
    assert answer.status == 201
    assert answer.body["metadata"]["annotations"] == leader
    assert "v1 Endpoints is deprecated" in answer.headers["warning"]
    assert "v1 Endpoints is deprecated" in api("GET", f"{api.endpoints}/e").headers["warning"]
    loopback = {"metadata": {"name": "l"}, "subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]}
    assert api("POST", api.endpoints, loopback).fields == [("FieldValueInvalid", "subsets[0].addresses[0].ip")]


def test_a_new_namespace_is_completed(api) -> None:
    namespace = api.ok("GET", f"{api.namespaces}/{api.namespace}")
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": api.namespace}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}
    assert api("POST", api.namespaces, {"metadata": {"name": "a.b"}}).status == 422
    assert api("POST", api.namespaces, {"metadata": {"name": api.namespace}}).reason == "AlreadyExists"


def test_a_deleted_namespace_terminates(api) -> None:
    path = f"{api.namespaces}/{api.name('gone')}"
    api.ok("POST", api.namespaces, {"metadata": {"name": api.name("gone")}})
    gone = api.ok("DELETE", path)
    assert gone["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in gone["metadata"]


def test_the_usual_namespaces_are_there(api) -> None:
    names = {item["metadata"]["name"] for item in api.ok("GET", api.namespaces)["items"]}
    assert names >= {"default", "kube-system", "kube-public", "kube-node-lease"}
    active = api.ok("GET", api.namespaces, fieldSelector="status.phase=Active")["items"]
    assert api.namespace in {item["metadata"]["name"] for item in active}


def test_a_new_node_is_not_ready(api) -> None:
    made = api.ok("POST", api.nodes, {"metadata": {"name": api.name("node"), "labels": {"l": "1"}}})
    assert made["spec"] == {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    assert api.ok("GET", api.nodes, labelSelector="l=1")["items"][0]["metadata"]["name"] == api.name("node")
    assert api.ok("DELETE", f"{api.nodes}/{api.name('node')}")["status"] == "Success"
