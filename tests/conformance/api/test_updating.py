"""PUT and the three kinds of patch."""

from __future__ import annotations

import pytest

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def lease(api):
    return api.ok("POST", api.leases, api.lease("a", leaseDurationSeconds=15))


@pytest.fixture
def claim(api):
    return api.ok("POST", api.claims, api.claim("c"))


def test_an_update_replaces_the_object(api, lease) -> None:
    lease["spec"] = {"holderIdentity": "you"}
    lease["metadata"]["labels"] = {"l": "1"}
    new = api.ok("PUT", f"{api.leases}/a", lease)
    assert new["spec"] == {"holderIdentity": "you"}
    assert int(new["metadata"]["resourceVersion"]) > int(lease["metadata"]["resourceVersion"])
    assert new["metadata"]["uid"] == lease["metadata"]["uid"]


def test_an_update_of_an_old_version_conflicts(api, lease) -> None:
    api.ok("PUT", f"{api.leases}/a", {**lease, "spec": {"holderIdentity": "first"}})
    answer = api("PUT", f"{api.leases}/a", {**lease, "spec": {"holderIdentity": "second"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "a": the object has been modified; please apply '
        "your changes to the latest version and try again"
    )
    assert answer.details == {"name": "a", "group": "coordination.k8s.io", "kind": "leases"}


def test_an_update_that_changes_nothing_is_no_new_version(api, claim) -> None:
    first = api.ok("PUT", f"{api.claims}/c", claim)  # the first one tidies up how the real server stores it
    second = api.ok("PUT", f"{api.claims}/c", claim | {"metadata": first["metadata"]})
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_lease_needs_a_resource_version_and_a_claim_does_not(api, lease, claim) -> None:
    del lease["metadata"]["resourceVersion"], claim["metadata"]["resourceVersion"]
    answer = api("PUT", f"{api.leases}/a", lease)
    assert (answer.status, answer.fields) == (422, [("FieldValueInvalid", "metadata.resourceVersion")])
    assert api("PUT", f"{api.claims}/c", claim).status == 200


def test_an_update_with_another_uid_conflicts(api, claim) -> None:
    claim["metadata"]["uid"] = "1111"
    answer = api("PUT", f"{api.claims}/c", claim)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 1111" in answer.message


def test_an_update_must_name_the_object_of_the_path(api, lease) -> None:
    lease["metadata"]["name"] = "b"
    answer = api("PUT", f"{api.leases}/a", lease)
    assert (answer.status, answer.message) == (400, "the name of the object (b) does not match the name on the URL (a)")
    del lease["metadata"]["name"]
    assert api("PUT", f"{api.leases}/a", lease).status == 400


def test_an_update_creates_a_lease_and_no_claim(api, claim) -> None:
    assert api("PUT", f"{api.leases}/new", api.lease("new")).status == 201
    claim["metadata"]["name"] = "new"
    assert api("PUT", f"{api.claims}/new", claim).status == 404


def test_the_status_is_changed_through_its_own_path_only(api, claim) -> None:
    claim["status"] = {"phase": "Lost"}
    assert api.ok("PUT", f"{api.claims}/c", claim)["status"] == {"phase": "Pending"}
    patch = {"status": {"phase": "Lost"}, "spec": {"volumeName": "no"}, "metadata": {"labels": {"l": "1"}}}
    changed = api.ok("PATCH", f"{api.claims}/c/status", patch, type=MERGE)
    assert changed["status"]["phase"] == "Lost"
    assert "volumeName" not in changed["spec"]
    assert changed["metadata"]["labels"] == {"l": "1"}
    assert api.ok("GET", f"{api.claims}/c/status")["metadata"]["name"] == "c"
    assert api("GET", f"{api.leases}/a/status").status == 404


# ------------------------------------------------------------------------------------------- merge patch


def test_a_merge_patch_merges_objects_replaces_lists_and_removes_nulls(api) -> None:
    lease = api.lease("a", leaseDurationSeconds=15)
    lease["metadata"] |= {"labels": {"a": "1", "b": "2"}, "finalizers": ["x/a", "x/b"]}
    api.ok("POST", api.leases, lease)
    patch = {
        "metadata": {"labels": {"a": None, "c": "3"}, "finalizers": ["x/c"]},
        "spec": {"leaseDurationSeconds": None},
    }
    new = api.ok("PATCH", f"{api.leases}/a", patch, type=MERGE)
    assert new["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert new["metadata"]["finalizers"] == ["x/c"]
    assert new["spec"] == {"holderIdentity": "me"}
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": None}}, type=MERGE)


def test_a_patch_with_an_old_resource_version_conflicts(api, lease) -> None:
    patch = {"metadata": {"resourceVersion": "1", "labels": {"a": "1"}}}
    assert api("PATCH", f"{api.leases}/a", patch, type=MERGE).reason == "Conflict"
    patch["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
    assert api("PATCH", f"{api.leases}/a", patch, type=MERGE).status == 200


def test_a_patch_with_another_uid_is_invalid(api, lease) -> None:
    answer = api("PATCH", f"{api.leases}/a", {"metadata": {"uid": "other"}}, type=MERGE)
    assert (answer.status, answer.fields) == (422, [("FieldValueInvalid", "metadata.uid")])
    own = {"metadata": {"uid": lease["metadata"]["uid"], "labels": {"a": "1"}}}
    assert api("PATCH", f"{api.leases}/a", own, type=MERGE).status == 200


def test_a_patch_cannot_rename(api, lease) -> None:
    answer = api("PATCH", f"{api.leases}/a", {"metadata": {"name": "b"}}, type=MERGE)
    assert (answer.status, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("body", "type"), [("{bad", MERGE), ([], MERGE), ({}, JSON_PATCH), ("{bad", JSON_PATCH), ([], STRATEGIC)]
)
def test_what_is_no_patch_is_a_bad_request(api, lease, body, type) -> None:
    path = f"{api.leases}/a"
    assert api("PATCH", path, body, type=type).status == 400


def test_other_kinds_of_patch_are_not_understood(api, lease) -> None:
    answer = api("PATCH", f"{api.leases}/a", {}, type="application/json")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


def test_a_patch_of_nothing_is_not_found(api) -> None:
    assert api("PATCH", f"{api.leases}/none", {}, type=MERGE).status == 404


# -------------------------------------------------------------------------------------------- JSON patch


def test_a_json_patch_is_applied_in_order(api) -> None:
    lease = api.lease("a")
    lease["metadata"] |= {"labels": {"a": "1"}, "finalizers": ["x/a", "x/b"]}
    api.ok("POST", api.leases, lease)
    operations = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": "x/a"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x/c"},
        {"op": "add", "path": "/metadata/labels/x~1y", "value": "2"},
        {"op": "replace", "path": "/spec/holderIdentity", "value": "you"},
        {"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/labels/b"},
        {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/c"},
    ]
    new = api.ok("PATCH", f"{api.leases}/a", operations, type=JSON_PATCH)
    assert new["metadata"]["finalizers"] == ["x/b", "x/c"]
    assert new["metadata"]["labels"] == {"x/y": "2", "b": "1", "c": "1"}
    assert new["spec"]["holderIdentity"] == "you"
    api.ok("PATCH", f"{api.leases}/a", {"metadata": {"finalizers": None}}, type=MERGE)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/spec/holderIdentity", "value": "you"},
        {"op": "test", "path": "/metadata/uid", "value": "x"},
        {"op": "remove", "path": "/metadata/labels/none"},
        {"op": "replace", "path": "/metadata/none/deeper", "value": "1"},
        {"op": "add", "path": "/metadata/none/deeper", "value": "1"},
        {"op": "bad", "path": "/spec"},
    ],
)
def test_a_json_patch_that_cannot_be_applied_changes_nothing(api, lease, operation) -> None:
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"changed": "1"}}, operation]
    answer = api("PATCH", f"{api.leases}/a", operations, type=JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == "the server rejected our request due to an error in our request"
    assert "labels" not in api.ok("GET", f"{api.leases}/a")["metadata"]


def test_a_json_patch_may_replace_what_is_not_there_yet(api, lease) -> None:
    operations = [{"op": "replace", "path": "/spec/leaseTransitions", "value": 1}]
    assert api.ok("PATCH", f"{api.leases}/a", operations, type=JSON_PATCH)["spec"]["leaseTransitions"] == 1
    missing = [{"op": "test", "path": "/metadata/labels", "value": None}]
    assert api("PATCH", f"{api.leases}/a", missing, type=JSON_PATCH).status == 200


def test_too_many_operations_are_refused(api, lease) -> None:
    operations = [{"op": "test", "path": "/spec/holderIdentity", "value": "me"}] * 10_001
    assert api("PATCH", f"{api.leases}/a", operations, type=JSON_PATCH).status == 413


# --------------------------------------------------------------------------------- strategic merge patch


@pytest.fixture
def finalizers(api):
    """A volume with finalizers, and how to patch them."""
    volume = api.volume("v")
    volume["metadata"]["finalizers"] = ["x/a", "x/b"]
    api.ok("POST", api.volumes, volume)

    def patch(**metadata):
        body = {"metadata": {key.replace("__", "/"): value for key, value in metadata.items()}}
        return api.ok("PATCH", f"{api.volumes}/{api.name('v')}", body, type=STRATEGIC)["metadata"].get("finalizers")

    return patch


PROTECTION = "kubernetes.io/pv-protection"


def test_finalizers_merge(finalizers) -> None:
    assert finalizers(finalizers=["x/c", "x/a"]) == ["x/c", "x/a", "x/b", PROTECTION]


def test_finalizers_are_ordered_on_demand(finalizers) -> None:
    order = {"$setElementOrder__finalizers": ["x/b", "x/c", "x/a", PROTECTION]}
    assert finalizers(finalizers=["x/c"], **order) == ["x/b", "x/c", "x/a", PROTECTION]


def test_single_finalizers_are_removed_without_touching_others(finalizers) -> None:
    directive = {"$deleteFromPrimitiveList__finalizers": ["x/a", "x/none"]}
    assert finalizers(**directive, **{"$setElementOrder__finalizers": ["x/b"]}) == ["x/b", PROTECTION]


def test_a_null_removes_all_finalizers(finalizers) -> None:
    assert finalizers(finalizers=None) is None


def test_maps_can_be_replaced(api, claim) -> None:
    api.ok("PATCH", f"{api.claims}/c", {"metadata": {"labels": {"a": "1"}}}, type=STRATEGIC)
    patch = {"metadata": {"labels": {"$patch": "replace", "b": "2"}}}
    assert api.ok("PATCH", f"{api.claims}/c", patch, type=STRATEGIC)["metadata"]["labels"] == {"b": "2"}


def test_keyed_lists_merge_by_their_key(api, claim) -> None:
    def owner(uid: str, name: str) -> dict[str, str]:
        return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}

    def patch(*owners):
        body = {"metadata": {"ownerReferences": list(owners)}}
        new = api.ok("PATCH", f"{api.claims}/c", body, type=STRATEGIC)["metadata"].get("ownerReferences", [])
        return {reference["uid"]: reference["name"] for reference in new}

    assert patch(owner("1", "a"), owner("2", "b")) == {"1": "a", "2": "b"}
    assert patch({"uid": "2", "name": "c"}) == {"1": "a", "2": "c"}
    assert patch({"$patch": "delete", "uid": "1"}) == {"2": "c"}
    answer = api("PATCH", f"{api.claims}/c", {"metadata": {"ownerReferences": [{"name": "x"}]}}, type=STRATEGIC)
    assert answer.status in {400, 500}
