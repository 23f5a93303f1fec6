"""What a create takes, completes, and refuses."""

from __future__ import annotations

import pytest


def test_a_created_object_has_what_the_server_adds(api) -> None:
    answer = api("POST", api.leases, api.lease("a"))
    metadata = answer.body["metadata"]
    assert answer.status == 201
    assert answer.body["kind"] == "Lease"
    assert answer.body["apiVersion"] == "coordination.k8s.io/v1"
    assert metadata["namespace"] == api.namespace
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["resourceVersion"].isdigit()


def test_system_fields_of_the_client_are_ignored(api) -> None:
    lease = api.lease("a")
    lease["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "deletionTimestamp": "2020-01-01T00:00:00Z",
        "selfLink": "/x",
    }
    metadata = api.ok("POST", api.leases, lease)["metadata"]
    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2020")
    assert not {"deletionTimestamp", "selfLink"} & set(metadata)


def test_kind_and_api_version_may_be_left_out(api) -> None:
    lease = {"metadata": {"name": "a"}, "spec": {}}
    assert api.ok("POST", api.leases, lease)["kind"] == "Lease"


def test_creating_twice_says_already_exists(api) -> None:
    api.ok("POST", api.leases, api.lease("a"))
    answer = api("POST", api.leases, api.lease("a"))
    assert answer.status == 409
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'leases.coordination.k8s.io "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "group": "coordination.k8s.io", "kind": "leases"},
        "code": 409,
    }


def test_a_missing_object_is_not_found(api) -> None:
    answer = api("GET", f"{api.claims}/none")
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'persistentvolumeclaims "none" not found',
        "reason": "NotFound",
        "details": {"name": "none", "kind": "persistentvolumeclaims"},
        "code": 404,
    }


def test_a_namespace_must_exist(api) -> None:
    answer = api("POST", "/api/v1/namespaces/not-there/persistentvolumeclaims", api.claim("a"))
    assert (answer.status, answer.message) == (404, 'namespaces "not-there" not found')
    assert api.ok("GET", "/api/v1/namespaces/not-there/persistentvolumeclaims")["items"] == []


def test_the_namespace_of_the_object_must_be_that_of_the_path(api) -> None:
    claim = api.claim("a")
    claim["metadata"]["namespace"] = "other"
    answer = api("POST", api.claims, claim)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "the namespace of the provided object does not match the namespace sent on the request"


def test_a_name_is_generated_from_its_prefix(api) -> None:
    lease = {"metadata": {"generateName": "gen-"}, "spec": {}}
    names = {api.ok("POST", api.leases, lease)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("gen-") and len(name) == 9 for name in names)


def test_a_resource_version_is_refused(api) -> None:
    lease = api.lease("a")
    lease["metadata"]["resourceVersion"] = "5"
    answer = api("POST", api.leases, lease)
    assert (answer.status, answer.message) == (500, "resourceVersion should not be set on objects to be created")


def test_a_dry_run_answers_as_a_create_and_stores_nothing(api) -> None:
    answer = api("POST", api.claims, api.claim("a"), dryRun="All")
    assert answer.status == 201
    assert answer.body["status"] == {"phase": "Pending"}
    assert "resourceVersion" not in answer.body["metadata"]
    assert api("GET", f"{api.claims}/a").status == 404
    assert api("POST", api.claims, api.claim("a"), dryRun="Some").fields == [("FieldValueNotSupported", "dryRun")]


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({}, ("FieldValueRequired", "metadata.name")),
        ({"name": "A_b"}, ("FieldValueInvalid", "metadata.name")),
        ({"name": "a" * 254}, ("FieldValueInvalid", "metadata.name")),
        ({"name": "a", "labels": {"a b": "c"}}, ("FieldValueInvalid", "metadata.labels")),
        ({"name": "a", "labels": {"a": "b c"}}, ("FieldValueInvalid", "metadata.labels")),
        ({"name": "a", "labels": {"a": "b" * 64}}, ("FieldValueInvalid", "metadata.labels")),
        ({"name": "a", "annotations": {"a b": "c"}}, ("FieldValueInvalid", "metadata.annotations")),
        ({"name": "a", "annotations": {"a": "x" * 262145}}, ("FieldValueTooLong", "metadata.annotations")),
        ({"name": "a", "finalizers": ["x/y z"]}, ("FieldValueInvalid", "metadata.finalizers")),
    ],
)
def test_metadata_that_cannot_be_is_invalid(api, metadata, cause) -> None:
    answer = api("POST", api.leases, {"metadata": metadata, "spec": {}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert cause in answer.fields
    assert answer.details["kind"] == "Lease"


def test_finalizers_of_core_kinds_need_a_domain(api) -> None:
    claim = api.claim("a")
    claim["metadata"]["finalizers"] = ["plain"]
    assert api("POST", api.claims, claim).fields == [("FieldValueInvalid", "metadata.finalizers[0]")]


def test_a_refusal_names_every_mistake_in_words_and_as_causes(api) -> None:
    answer = api("POST", api.claims, {"metadata": {"name": "a"}, "spec": {}})
    assert answer.message == (
        'PersistentVolumeClaim "a" is invalid: [spec.accessModes: Required value: at least 1 access mode is required, '
        "spec.resources[storage]: Required value]"
    )
    assert answer.details == {
        "name": "a",
        "kind": "PersistentVolumeClaim",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: at least 1 access mode is required",
                "field": "spec.accessModes",
            },
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.resources[storage]"},
        ],
    }


@pytest.mark.parametrize("body", ["{not json", "[]", '"text"', ""])
def test_what_is_no_object_is_a_bad_request(api, body) -> None:
    answer = api("POST", api.claims, body)
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_an_object_of_another_kind_is_a_bad_request(api) -> None:
    answer = api("POST", api.claims, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"}})
    assert answer.status == 400
    assert "cannot be handled as a PersistentVolumeClaim" in answer.message
    answer = api("POST", api.claims, {**api.claim("a"), "apiVersion": "v2"})
    assert answer.status == 400
    assert 'no kind "PersistentVolumeClaim" is registered for version "v2"' in answer.message


def test_a_value_of_the_wrong_type_is_a_bad_request(api) -> None:
    claim = api.claim("a")
    claim["metadata"]["labels"] = {"a": 1}
    answer = api("POST", api.claims, claim)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "json: cannot unmarshal number into Go struct field" in answer.message
    assert api("POST", api.leases, api.lease("a", leaseDurationSeconds="15")).status == 400


def test_unknown_fields_are_dropped_with_a_warning(api) -> None:
    answer = api("POST", api.leases, {**api.lease("a"), "bogus": 1})
    assert answer.status == 201
    assert "bogus" not in answer.body
    assert answer.headers["warning"] == '299 - "unknown field \\"bogus\\""'


def test_unknown_fields_are_refused_on_demand(api) -> None:
    answer = api("POST", api.leases, {**api.lease("a"), "bogus": 1}, fieldValidation="Strict")
    assert answer.status == 400
    assert answer.message.endswith('strict decoding error: unknown field "bogus"')
    ignored = api("POST", api.leases, {**api.lease("a"), "bogus": 1}, fieldValidation="Ignore")
    assert ignored.status == 201
    assert "warning" not in ignored.headers
    assert api("POST", api.leases, api.lease("b"), fieldValidation="Maybe").status == 422


def test_empty_and_null_values_are_as_good_as_absent(api) -> None:
    lease = api.lease("a", leaseTransitions=None)
    lease["metadata"] |= {"labels": {}, "annotations": None, "finalizers": []}
    stored = api.ok("POST", api.leases, lease)
    assert not {"labels", "annotations", "finalizers"} & set(stored["metadata"])
    assert stored["spec"] == {"holderIdentity": "me"}


def test_a_body_can_be_yaml(api) -> None:
    text = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: text}\nspec: {leaseDurationSeconds: 15}\n"
    assert api.ok("POST", api.leases, text, type="application/yaml")["spec"] == {"leaseDurationSeconds": 15}


def test_other_content_types_are_not_understood(api) -> None:
    answer = api("POST", api.leases, "x", type="text/plain")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/persistentvolumeclaims"),
        ("DELETE", "/api/v1/persistentvolumeclaims"),
        ("PUT", "/api/v1/persistentvolumes"),
        ("PATCH", "/api/v1/persistentvolumes"),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", "/api/v1/persistentvolumes/x"),
    ],
)
def test_methods_that_a_path_does_not_have_are_refused(api, method, path) -> None:
    answer = api(method, path, {})
    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")
    assert answer.message == "the server does not allow this method on the requested resource"


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nothings", "/apis/storage.k8s.io/v9/storageclasses", "/api/v1/namespaces/default/persistentvolumes"],
)
def test_unknown_resources_are_not_found(api, path) -> None:
    answer = api("GET", path)
    assert (answer.status, answer.message) == (404, "the server could not find the requested resource")


@pytest.mark.parametrize("path", ["/nothing", "/apis/nothing.example.com/v1/things"])
def test_unknown_paths_are_not_found(api, path) -> None:
    answer = api("GET", path)
    assert (answer.status, answer.body) == (404, "404 page not found\n")


def test_a_body_beyond_the_limit_is_refused(api) -> None:
    answer = api("POST", api.leases, "x" * (3 * 1024 * 1024 + 1))
    assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")
