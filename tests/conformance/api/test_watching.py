"""Watches: where they start, what they send, how they end."""

from __future__ import annotations

import pytest

MERGE = "application/merge-patch+json"


def seen(events) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


@pytest.fixture
def lease(api):
    return api.ok("POST", api.leases, api.lease("a"))


@pytest.mark.parametrize("start", [{}, {"resourceVersion": "0"}])
def test_without_a_revision_a_watch_starts_with_what_is_there(api, lease, start) -> None:
    assert seen(api.lines(api.leases, **start)) == [("ADDED", "a")]


def test_with_a_revision_a_watch_starts_after_it(api, lease) -> None:
    revision = lease["metadata"]["resourceVersion"]
    api.ok("POST", api.leases, api.lease("b"))
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"labels": {"l": "1"}}}, type=MERGE)
    api.ok("DELETE", f"{api.leases}/b")
    events = api.lines(api.leases, resourceVersion=revision)
    assert seen(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert revisions == sorted(revisions)
    assert revisions[0] > int(revision)
    assert {event["object"]["kind"] for event in events} == {"Lease"}


def test_changes_come_as_they_happen(api, lease) -> None:
    events = api.start_watch(api.leases, resourceVersion=lease["metadata"]["resourceVersion"])
    api.ok("POST", api.leases, api.lease("b"))
    assert seen([next(events)]) == [("ADDED", "b")]
    api.ok("DELETE", f"{api.leases}/a")
    assert seen([next(events)]) == [("DELETED", "a")]
    events.close()


def test_a_deleted_object_is_shown_as_it_was_last(api) -> None:
    lease = api.lease("a")
    lease["metadata"]["finalizers"] = ["x/y"]
    created = api.ok("POST", api.leases, lease)
    api.ok("DELETE", f"{api.leases}/a")
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": None}}, type=MERGE)
    events = api.lines(api.leases, resourceVersion=created["metadata"]["resourceVersion"])
    assert seen(events) == [("MODIFIED", "a"), ("DELETED", "a")]
    modified, deleted = (event["object"]["metadata"] for event in events)
    assert deleted["deletionTimestamp"] == modified["deletionTimestamp"]
    assert int(deleted["resourceVersion"]) > int(modified["resourceVersion"])


def test_a_selector_turns_changes_into_comings_and_goings(api) -> None:
    revision = api.ok("GET", api.leases)["metadata"]["resourceVersion"]
    api.ok("POST", api.leases, api.lease("a"))
    for value in ("1", "1", None):
        patch = {"metadata": {"labels": {"l": value}, "annotations": {"x": str(value)}}}
        api.ok("PATCH", f"{api.leases}/a", patch, type=MERGE)
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"labels": {"l": "1"}}}, type=MERGE)
    api.ok("PATCH", f"{api.leases}/a", {"spec": {"holderIdentity": "you"}}, type=MERGE)
    api.ok("DELETE", f"{api.leases}/a")
    events = api.lines(api.leases, resourceVersion=revision, labelSelector="l=1")
    assert [kind for kind, _ in seen(events)] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]


def test_one_object_can_be_watched(api, lease) -> None:
    api.ok("POST", api.leases, api.lease("b"))
    assert seen(api.lines(api.leases, fieldSelector="metadata.name=b")) == [("ADDED", "b")]


def test_initial_events_end_with_a_bookmark(api, lease) -> None:
    events = api.lines(
        api.leases, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    )
    assert seen(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    bookmark = events[-1]["object"]
    assert bookmark["kind"] == "Lease"
    assert bookmark["apiVersion"] == "coordination.k8s.io/v1"
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(bookmark["metadata"]["resourceVersion"]) >= int(lease["metadata"]["resourceVersion"])


def test_initial_events_can_be_declined(api, lease) -> None:
    events = api.lines(
        api.leases, sendInitialEvents="false", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    )
    assert seen(events) == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"sendInitialEvents": "true", "allowWatchBookmarks": "true"}, 422),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "NotOlderThan"}, 422),
        ({"resourceVersion": "abc"}, 500),
        ({"timeoutSeconds": "x"}, 400),
    ],
)
def test_a_watch_that_cannot_be_is_refused(api, query, status) -> None:
    answer = api("GET", api.leases, **{"watch": "true", "timeoutSeconds": "1", **query})
    assert (answer.status, answer.body["kind"]) == (status, "Status")


def test_a_watch_from_the_future_waits(api) -> None:
    assert api.lines(api.leases, resourceVersion="999999999") == []


def test_the_old_path_of_watches_works(api, lease) -> None:
    path = f"/apis/coordination.k8s.io/v1/watch/namespaces/{api.namespace}/leases"
    assert seen(api.lines(path)) == [("ADDED", "a")]


def test_a_watch_can_have_metadata_alone(api, lease) -> None:
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    answer = api("GET", api.leases, accept=accept, watch="true", timeoutSeconds="1")
    assert (answer.body["type"], answer.body["object"]["kind"]) == ("ADDED", "PartialObjectMetadata")
    assert "spec" not in answer.body["object"]
