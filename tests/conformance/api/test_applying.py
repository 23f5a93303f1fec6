"""Server-side apply."""

from __future__ import annotations

import json

import pytest

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


@pytest.fixture
def apply(api):
    def call(manager: str, name: str = "a", *, force: bool = False, spec=None, **metadata):
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, **metadata}}
        if spec is not None:
            body["spec"] = spec
        query = {"fieldManager": manager, **({"force": "true"} if force else {})}
        return api("PATCH", f"{api.leases}/{name}", body, type=APPLY, **query)

    return call


def owned(answer) -> dict:
    return {
        (entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in answer.body["metadata"]["managedFields"]
    }


def test_an_apply_creates(apply) -> None:
    answer = apply("one", labels={"l": "1"}, spec={"holderIdentity": "me"})
    assert answer.status == 201
    assert owned(answer) == {
        ("one", "Apply"): {"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {"f:holderIdentity": {}}}
    }


def test_an_apply_changes_only_what_it_says(apply) -> None:
    apply("one", labels={"l": "1"}, spec={"holderIdentity": "me"})
    answer = apply("two", annotations={"a": "2"}, spec={"leaseDurationSeconds": 15})
    assert answer.status == 200
    assert answer.body["spec"] == {"holderIdentity": "me", "leaseDurationSeconds": 15}
    assert answer.body["metadata"]["labels"] == {"l": "1"}
    assert set(owned(answer)) == {("one", "Apply"), ("two", "Apply")}


def test_what_a_manager_no_longer_says_goes_unless_another_says_it(apply) -> None:
    apply("one", labels={"mine": "1", "ours": "1"})
    apply("two", labels={"ours": "1"})
    answer = apply("one", labels={"new": "1"})
    assert answer.body["metadata"]["labels"] == {"new": "1", "ours": "1"}


def test_saying_something_else_than_another_manager_is_a_conflict(apply) -> None:
    apply("one", labels={"l": "1"})
    answer = apply("two", labels={"l": "2"})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .metadata.labels.l'
    assert answer.details == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".metadata.labels.l"}]
    }


def test_a_conflict_can_be_won_by_force(apply) -> None:
    apply("one", labels={"l": "1"}, spec={"holderIdentity": "me"})
    answer = apply("two", labels={"l": "2"}, force=True)
    assert answer.body["metadata"]["labels"] == {"l": "2"}
    assert owned(answer)["one", "Apply"] == {"f:spec": {"f:holderIdentity": {}}}


def test_an_ordinary_update_takes_fields_over(api, apply) -> None:
    apply("one", labels={"l": "1", "m": "1"})
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"labels": {"l": "2"}}}, type=MERGE, fieldManager="other")
    answer = apply("one", labels={"l": "1", "m": "1"})
    assert answer.status == 409
    who = 'conflict with "other" using coordination.k8s.io/v1'
    assert answer.message == f"Apply failed with 1 conflict: {who}: .metadata.labels.l"


def test_sets_and_keyed_lists_merge_by_item(apply) -> None:
    apply("one", finalizers=["x/one"])
    answer = apply("two", finalizers=["x/two"])
    assert answer.body["metadata"]["finalizers"] == ["x/one", "x/two"]
    assert owned(answer)["two", "Apply"] == {"f:metadata": {"f:finalizers": {'v:"x/two"': {}}}}
    apply("one")
    apply("two")


def test_applying_the_same_again_is_no_new_version(apply) -> None:
    first = apply("one", labels={"l": "1"})
    second = apply("one", labels={"l": "1"})
    assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


def test_a_configuration_may_be_yaml(api) -> None:
    text = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: a\n  labels: {l: '1'}\n"
    assert api("PATCH", f"{api.leases}/a", text, type=APPLY, fieldManager="one").status == 201


def test_a_dry_run_applies_nothing(api, apply) -> None:
    apply("one", labels={"l": "1"})
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a", "labels": {"l": "2"}}}
    answer = api("PATCH", f"{api.leases}/a", body, type=APPLY, fieldManager="one", dryRun="All")
    assert answer.body["metadata"]["labels"] == {"l": "2"}
    assert api.ok("GET", f"{api.leases}/a")["metadata"]["labels"] == {"l": "1"}


def test_an_apply_of_a_claim_keeps_what_the_control_plane_added(api) -> None:
    api.ok("POST", api.classes, api.storage_class())
    claim = api.claim("c", api.name("class"))
    path = f"{api.claims}/c"
    assert api("PATCH", path, json.dumps(claim), type=APPLY, fieldManager="one").status == 201
    api.until(lambda: "annotations" in api.ok("GET", path)["metadata"])
    claim["metadata"]["labels"] = {"l": "1"}
    new = api.ok("PATCH", path, json.dumps(claim), type=APPLY, fieldManager="one")
    assert new["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] == "example.com/conformance"
    assert new["metadata"]["labels"] == {"l": "1"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"kind": ""}, 400),
        ({"metadata": {"name": "a", "managedFields": [{"manager": "x"}]}}, 400),
        ({"metadata": {"name": "b"}}, 400),
        ({"metadata": {"name": "a", "uid": "other"}}, 409),
        ({"bogus": 1}, 500),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(api, change, status) -> None:
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, **change}
    assert api("PATCH", f"{api.leases}/a", body, type=APPLY, fieldManager="one").status == status


def test_a_manager_is_needed(api) -> None:
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    answer = api("PATCH", f"{api.leases}/a", body, type=APPLY)
    assert (answer.status, answer.fields) == (422, [("FieldValueRequired", "fieldManager")])
