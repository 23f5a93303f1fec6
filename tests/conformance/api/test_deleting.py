"""Deletes, finalizers and preconditions."""

from __future__ import annotations

import pytest

MERGE = "application/merge-patch+json"


def finalized(api, name: str = "a", *finalizers: str) -> dict:
    lease = api.lease(name)
    lease["metadata"]["finalizers"] = list(finalizers or ("x/y",))
    return api.ok("POST", api.leases, lease)


def test_a_delete_without_finalizers_is_done_at_once(api) -> None:
    lease = api.ok("POST", api.leases, api.lease("a"))
    answer = api("DELETE", f"{api.leases}/a")
    assert answer.status == 200
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "group": "coordination.k8s.io", "kind": "leases", "uid": lease["metadata"]["uid"]},
    }
    assert api("GET", f"{api.leases}/a").status == 404
    assert api("DELETE", f"{api.leases}/a").status == 404


def test_storage_objects_are_answered_whole(api) -> None:
    api.ok("POST", api.classes, api.storage_class())
    assert api.ok("DELETE", f"{api.classes}/{api.name('class')}")["kind"] == "StorageClass"
    assert api("GET", f"{api.classes}/{api.name('class')}").status == 404


def test_an_object_with_finalizers_terminates_until_the_last_is_gone(api) -> None:
    finalized(api, "a", "x/a", "x/b")
    gone = api.ok("DELETE", f"{api.leases}/a")
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
    stamp = gone["metadata"]["deletionTimestamp"]
    assert api.ok("DELETE", f"{api.leases}/a")["metadata"]["deletionTimestamp"] == stamp
    one = api.ok("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": ["x/b"]}}, type=MERGE)
    assert one["metadata"]["deletionTimestamp"] == stamp
    last = api.ok("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": []}}, type=MERGE)
    assert "finalizers" not in last["metadata"]
    assert api("GET", f"{api.leases}/a").status == 404


def test_a_terminating_object_takes_no_new_finalizers(api) -> None:
    finalized(api)
    api.ok("DELETE", f"{api.leases}/a")
    answer = api("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": ["x/y", "x/new"]}}, type=MERGE)
    assert (answer.status, answer.fields) == (422, [("FieldValueForbidden", "metadata.finalizers")])
    assert answer.message.endswith(
        'no new finalizers can be added if the object is being deleted, found new finalizers []string{"x/new"}'
    )
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": None}}, type=MERGE)


def test_a_deletion_cannot_be_taken_back(api) -> None:
    finalized(api)
    api.ok("DELETE", f"{api.leases}/a")
    patch = {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None}}
    assert "deletionTimestamp" in api.ok("PATCH", f"{api.leases}/a", patch, type=MERGE)["metadata"]
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": None}}, type=MERGE)


def test_a_terminating_object_can_be_changed_otherwise(api) -> None:
    finalized(api)
    api.ok("DELETE", f"{api.leases}/a")
    changed = api.ok("PATCH", f"{api.leases}/a", {"metadata": {"labels": {"l": "1"}}}, type=MERGE)
    assert changed["metadata"]["labels"] == {"l": "1"}
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": None}}, type=MERGE)


def test_the_name_is_free_after_a_delete_and_the_new_object_is_another(api) -> None:
    first = api.ok("POST", api.leases, api.lease("a"))
    api.ok("DELETE", f"{api.leases}/a")
    second = api.ok("POST", api.leases, api.lease("a"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


@pytest.mark.parametrize(
    ("precondition", "words"),
    [
        ("uid", "the UID in the precondition (1) does not match the UID in record"),
        ("resourceVersion", "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record"),
    ],
)
def test_a_precondition_that_does_not_hold_conflicts(api, precondition, words) -> None:
    lease = api.ok("POST", api.leases, api.lease("a"))
    answer = api("DELETE", f"{api.leases}/a", {"preconditions": {precondition: "1"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert words in answer.message
    held = {"preconditions": {precondition: lease["metadata"][precondition]}}
    assert api("DELETE", f"{api.leases}/a", held).status == 200


def test_a_dry_run_deletes_nothing(api) -> None:
    api.ok("POST", api.leases, api.lease("a"))
    assert api("DELETE", f"{api.leases}/a", dryRun="All").status == 200
    assert api("GET", f"{api.leases}/a").status == 200


def test_propagation_policies_are_known(api) -> None:
    api.ok("POST", api.leases, api.lease("a"))
    answer = api("DELETE", f"{api.leases}/a", {"propagationPolicy": "Sideways"})
    assert (answer.status, answer.fields) == (422, [("FieldValueNotSupported", "propagationPolicy")])
    assert api("DELETE", f"{api.leases}/a", {"propagationPolicy": "Background"}).status == 200


def test_a_collection_is_deleted_by_selector(api) -> None:
    for name, label in (("a", "1"), ("b", "1"), ("c", "2")):
        lease = api.lease(name)
        lease["metadata"]["labels"] = {"l": label}
        api.ok("POST", api.leases, lease)
    gone = api.ok("DELETE", api.leases, labelSelector="l=1")
    assert gone["kind"] == "LeaseList"
    assert [lease["metadata"]["name"] for lease in api.ok("GET", api.leases)["items"]] == ["c"]
