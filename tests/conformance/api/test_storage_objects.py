"""Claims, volumes and classes: what is completed, what is refused, what may change."""

from __future__ import annotations

import pytest

MERGE = "application/merge-patch+json"
REQUIRED, INVALID, UNSUPPORTED, FORBIDDEN = (
    "FieldValueRequired",
    "FieldValueInvalid",
    "FieldValueNotSupported",
    "FieldValueForbidden",
)

# ------------------------------------------------------------------------------------------------ claims


def test_a_new_claim_is_completed(api) -> None:
    claim = api.claim("a", size="1024Mi")
    claim["status"] = {"phase": "Bound"}
    made = api.ok("POST", api.claims, claim)
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert made["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": api.name("none"),
        "volumeMode": "Filesystem",
    }
    assert made["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1e9", "1e9"),
        ("0.5Ki", "512"),
        ("1500M", "1500M"),
        ("2048Ki", "2Mi"),
        ("1024", "1024"),
    ],
)
def test_quantities_are_written_canonically(api, given, stored) -> None:
    assert api.ok("POST", api.claims, api.claim("a", size=given))["spec"]["resources"]["requests"]["storage"] == stored


def test_a_number_is_a_quantity_too(api) -> None:
    claim = api.claim("a")
    claim["spec"]["resources"]["requests"]["storage"] = 1024
    assert api.ok("POST", api.claims, claim)["spec"]["resources"]["requests"]["storage"] == "1024"


def test_what_is_no_quantity_is_a_bad_request(api) -> None:
    answer = api("POST", api.claims, api.claim("a", size="abc"))
    assert answer.status == 400
    assert "quantities must match the regular expression" in answer.message


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"accessModes": []}, [(REQUIRED, "spec.accessModes")]),
        ({"accessModes": ["Foo"]}, [(UNSUPPORTED, "spec.accessModes")]),
        ({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}, [(FORBIDDEN, "spec.accessModes")]),
        ({"resources": {}}, [(REQUIRED, "spec.resources[storage]")]),
        ({"resources": {"requests": {"storage": "0"}}}, [(INVALID, "spec.resources[storage]")]),
        ({"volumeMode": "Foo"}, [(UNSUPPORTED, "spec.volumeMode")]),
        ({"storageClassName": "A_b"}, [(INVALID, "spec.storageClassName")]),
        ({"selector": {"matchLabels": {"a b": "c"}}}, [(INVALID, "spec.selector.matchLabels")]),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            [(REQUIRED, "spec.selector.matchExpressions[0].values")],
        ),
    ],
)
def test_a_claim_that_cannot_be_is_invalid(api, spec, causes) -> None:
    answer = api("POST", api.claims, api.claim("a", **spec))
    assert (answer.status, answer.fields) == (422, causes)


def test_a_claims_spec_is_fixed(api) -> None:
    api.ok("POST", api.claims, api.claim("a"))
    for change in (
        {"storageClassName": "other"},
        {"accessModes": ["ReadWriteMany"]},
        {"resources": {"requests": {"storage": "2Gi"}}},
        {"volumeMode": "Block"},
    ):
        answer = api("PATCH", f"{api.claims}/a", {"spec": change}, type=MERGE)
        assert (answer.status, answer.fields[0]) == (422, (FORBIDDEN, "spec"))
        assert (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName" in answer.message
        )


def test_a_data_source_is_written_both_ways(api) -> None:
    claim = api.claim("a", dataSource={"kind": "PersistentVolumeClaim", "name": "other"})
    spec = api.ok("POST", api.claims, claim)["spec"]
    assert (
        spec["dataSource"]
        == spec["dataSourceRef"]
        == {"apiGroup": None, "kind": "PersistentVolumeClaim", "name": "other"}
    )
    claim = api.claim("b", dataSource={"apiGroup": "example.com", "kind": "Backup", "name": "other"})
    assert not {"dataSource", "dataSourceRef"} & set(api.ok("POST", api.claims, claim)["spec"])


def test_a_claim_without_class_gets_the_default_class(api) -> None:
    marked = api.storage_class("default")
    marked["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    api.ok("POST", api.classes, marked)
    claim = api.claim("a")
    del claim["spec"]["storageClassName"]

    def its_class() -> str | None:
        answer = api("POST", api.claims, claim, dryRun="All")
        return answer.body["spec"].get("storageClassName")

    assert api.until(its_class) == api.name("default")
    api.ok("DELETE", f"{api.classes}/{api.name('default')}")


# ----------------------------------------------------------------------------------------------- volumes


def test_a_new_volume_is_completed(api) -> None:
    volume = api.volume("v", capacity={"storage": "1024Mi"})
    volume["status"] = {"phase": "Bound"}
    made = api.ok("POST", api.volumes, volume)
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert made["spec"] == {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nfs": {"server": "nfs.example.com", "path": "/share"},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": api.name("none"),
        "volumeMode": "Filesystem",
    }
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["lastPhaseTransitionTime"] == made["metadata"]["creationTimestamp"]


HOST_PATH = {"nfs": None, "hostPath": {"path": "/x"}}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"nfs": None}, [(REQUIRED, "spec")]),
        ({"hostPath": {"path": "/x"}}, [(FORBIDDEN, "spec.nfs")]),
        (
            {"nfs": {"server": "", "path": ""}},
            [(REQUIRED, "spec.nfs.server"), (REQUIRED, "spec.nfs.path"), (INVALID, "spec.nfs.path")],
        ),
        ({"nfs": {"server": "s", "path": "x"}}, [(INVALID, "spec.nfs.path")]),
        ({"nfs": None, "hostPath": {"path": "/x/../y"}}, [(INVALID, "spec.hostPath.path")]),
        ({"nfs": None, "hostPath": {"path": "/x", "type": "Foo"}}, [(UNSUPPORTED, "spec.hostPath.type")]),
        ({"nfs": None, "local": {"path": "/x"}}, [(REQUIRED, "spec.nodeAffinity")]),
        ({"nfs": None, "csi": {"driver": "d"}}, [(REQUIRED, "spec.csi.volumeHandle")]),
        ({"capacity": None}, [(REQUIRED, "spec.capacity"), (UNSUPPORTED, "spec.capacity")]),
        ({"capacity": {"storage": "1", "cpu": "1"}}, [(UNSUPPORTED, "spec.capacity")]),
        ({"capacity": {"storage": "0"}}, [(INVALID, "spec.capacity[storage]")]),
        ({"accessModes": []}, [(REQUIRED, "spec.accessModes")]),
        ({"accessModes": ["Foo"]}, [(UNSUPPORTED, "spec.accessModes")]),
        ({"persistentVolumeReclaimPolicy": "Foo"}, [(UNSUPPORTED, "spec.persistentVolumeReclaimPolicy")]),
        ({"volumeMode": "Foo"}, [(UNSUPPORTED, "spec.volumeMode")]),
        ({"storageClassName": "A_b"}, [(INVALID, "spec.storageClassName")]),
        (
            {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}},
            [(REQUIRED, "spec.nodeAffinity.required.nodeSelectorTerms")],
        ),
    ],
)
def test_a_volume_that_cannot_be_is_invalid(api, spec, causes) -> None:
    answer = api("POST", api.volumes, api.volume("v", **spec))
    assert (answer.status, answer.fields) == (422, causes)


def test_a_volumes_source_mode_and_affinity_are_fixed(api) -> None:
    api.ok("POST", api.volumes, api.volume("v"))
    path = f"{api.volumes}/{api.name('v')}"

    def affinity(value: str) -> dict:
        term = {"matchExpressions": [{"key": "a", "operator": "In", "values": [value]}]}
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}

    def patch(spec):
        answer = api("PATCH", path, {"spec": spec}, type=MERGE)
        return answer.status, answer.fields

    assert patch({"nfs": {"path": "/other"}}) == (422, [(FORBIDDEN, "spec.persistentvolumesource")])
    assert patch({"volumeMode": "Block"}) == (422, [(INVALID, "volumeMode")])
    assert patch(affinity("x")) == (200, [])
    assert patch(affinity("y")) == (422, [(INVALID, "nodeAffinity")])


def test_the_rest_of_a_volume_may_change(api) -> None:
    api.ok("POST", api.volumes, api.volume("v"))
    change = {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteMany"],
        "mountOptions": ["hard"],
        "storageClassName": api.name("other"),
        "persistentVolumeReclaimPolicy": "Delete",
    }
    spec = api.ok("PATCH", f"{api.volumes}/{api.name('v')}", {"spec": change}, type=MERGE)["spec"]
    assert {key: spec[key] for key in change} == change


# ----------------------------------------------------------------------------------------------- classes


def test_a_new_class_is_completed(api) -> None:
    made = api.ok("POST", api.classes, api.storage_class(parameters={"a": "b"}))
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    assert made["parameters"] == {"a": "b"}
    assert "finalizers" not in made["metadata"]


def test_a_class_that_cannot_be_is_invalid(api) -> None:
    wrong = api.storage_class(reclaimPolicy="Foo", volumeBindingMode="Foo", provisioner="")
    answer = api("POST", api.classes, wrong)
    assert answer.fields == [
        (UNSUPPORTED, "reclaimPolicy"),
        (UNSUPPORTED, "volumeBindingMode"),
        (REQUIRED, "provisioner"),
    ]
    assert answer.details["group"] == "storage.k8s.io"
    assert api("POST", api.classes, api.storage_class(provisioner="a b")).fields == [(INVALID, "provisioner")]
    assert api("POST", api.classes, api.storage_class(parameters={"": "x"})).status == 422


def test_what_a_class_decides_is_fixed(api) -> None:
    api.ok("POST", api.classes, api.storage_class(parameters={"a": "b"}))
    path = f"{api.classes}/{api.name('class')}"
    for change, field in (
        ({"parameters": {"a": "c"}}, "parameters"),
        ({"provisioner": "other"}, "provisioner"),
        ({"reclaimPolicy": "Retain"}, "reclaimPolicy"),
        ({"volumeBindingMode": "WaitForFirstConsumer"}, "volumeBindingMode"),
    ):
        answer = api("PATCH", path, change, type=MERGE)
        assert (answer.status, answer.fields) == (422, [(INVALID, field)])
    changed = api.ok("PATCH", path, {"mountOptions": ["hard"], "allowVolumeExpansion": True}, type=MERGE)
    assert (changed["mountOptions"], changed["allowVolumeExpansion"]) == (["hard"], True)
