"""What the control plane does with claims and volumes, as a watch sees it."""

from __future__ import annotations

from typing import Any

import pytest

MERGE = "application/merge-patch+json"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
COMPLETED, BY_CONTROLLER = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


@pytest.fixture
def its(api):
    """What a claim or a volume looks like now."""

    class Look:
        def claim(self, name: str = "c") -> dict[str, Any]:
            return api.ok("GET", f"{api.claims}/{name}")

        def volume(self, suffix: str = "v") -> dict[str, Any]:
            return api.ok("GET", f"{api.volumes}/{api.name(suffix)}")

        def claim_becomes(self, phase: str, name: str = "c") -> dict[str, Any]:
            return api.until(lambda: (c := self.claim(name))["status"]["phase"] == phase and c)

        def volume_becomes(self, phase: str, suffix: str = "v") -> dict[str, Any]:
            return api.until(lambda: (v := self.volume(suffix))["status"]["phase"] == phase and v)

    return Look()


@pytest.fixture
def provisioned(api, its):
    """A claim, and a volume as an external provisioner makes it for the claim."""
    api.ok("POST", api.classes, api.storage_class())

    def make(claim: str = "c", suffix: str = "v", **spec: Any) -> dict[str, Any]:
        if api("GET", f"{api.claims}/{claim}").status == 404:
            api.ok("POST", api.claims, api.claim(claim, api.name("class")))
            api.until(lambda: PROVISIONER in its.claim(claim)["metadata"].get("annotations", {}))
        metadata = its.claim(claim)["metadata"]
        reference = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
        reference |= {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        policy = {"persistentVolumeReclaimPolicy": "Delete"}
        volume = api.volume(suffix, api.name("class"), claimRef=reference, **policy, **spec)
        volume["metadata"]["annotations"] = {PROVISIONED_BY: "example.com/conformance"}
        return api.ok("POST", api.volumes, volume)

    return make


def test_a_claim_of_an_external_class_is_annotated_for_its_provisioner(api, its) -> None:
    api.ok("POST", api.classes, api.storage_class())
    api.ok("POST", api.claims, api.claim("c", api.name("class")))
    annotations = api.until(lambda: its.claim()["metadata"].get("annotations"))
    assert annotations == {PROVISIONER: "example.com/conformance", BETA_PROVISIONER: "example.com/conformance"}
    assert its.claim()["status"] == {"phase": "Pending"}
    event = api.until(lambda: api.ok("GET", api.events, fieldSelector="involvedObject.name=c")["items"])[0]
    assert (event["type"], event["reason"]) == ("Normal", "ExternalProvisioning")
    assert event["source"] == {"component": "persistentvolume-controller"}
    assert "'example.com/conformance'" in event["message"]


def test_a_claim_waits_for_its_node_if_the_class_says_so(api, its) -> None:
    api.ok("POST", api.classes, api.storage_class(volumeBindingMode="WaitForFirstConsumer"))
    api.ok("POST", api.claims, api.claim("c", api.name("class")))
    event = api.until(lambda: api.ok("GET", api.events, fieldSelector="involvedObject.name=c")["items"])[0]
    assert event["reason"] == "WaitForFirstConsumer"
    assert "annotations" not in its.claim()["metadata"]
    node = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}
    api.ok("PATCH", f"{api.claims}/c", node, type=MERGE)
    api.until(lambda: PROVISIONER in its.claim()["metadata"]["annotations"])


def test_a_claim_of_a_missing_class_is_told(api) -> None:
    api.ok("POST", api.claims, api.claim("c", api.name("missing")))
    event = api.until(lambda: api.ok("GET", api.events, fieldSelector="involvedObject.name=c")["items"])[0]
    assert (event["type"], event["reason"]) == ("Warning", "ProvisioningFailed")
    assert event["message"] == f'storageclass.storage.k8s.io "{api.name("missing")}" not found'


def test_a_volume_made_for_a_claim_binds_both_sides(api, its, provisioned) -> None:
    made = provisioned(capacity={"storage": "2Gi"})
    claim = its.claim_becomes("Bound")
    assert claim["spec"]["volumeName"] == api.name("v")
    assert claim["metadata"]["annotations"] == {
        PROVISIONER: "example.com/conformance",
        BETA_PROVISIONER: "example.com/conformance",
        COMPLETED: "yes",
        BY_CONTROLLER: "yes",
    }
    assert claim["status"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["status"]["capacity"] == {"storage": "2Gi"}
    volume = its.volume_becomes("Bound")
    assert volume["spec"]["claimRef"] == made["spec"]["claimRef"]
    assert volume["metadata"]["annotations"] == {PROVISIONED_BY: "example.com/conformance"}
    unused = api.until(lambda: its.claim()["status"].get("conditions"))
    assert [(c["type"], c["status"], c["reason"]) for c in unused] == [("Unused", "True", "NoPodsUsingPVC")]


def test_a_watch_sees_the_steps_of_binding(api, its, provisioned) -> None:
    start = api.ok("GET", api.volumes)["metadata"]["resourceVersion"]
    provisioned()
    bound = its.claim_becomes("Bound")
    events = api.lines(api.volumes, resourceVersion=start, fieldSelector=f"metadata.name={api.name('v')}")
    assert [(e["type"], e["object"]["status"]["phase"]) for e in events] == [
        ("ADDED", "Pending"),
        ("MODIFIED", "Bound"),
    ]
    events = api.lines(api.claims, resourceVersion=start)
    steps = [(e["type"], e["object"]["status"]["phase"], bool(e["object"]["spec"].get("volumeName"))) for e in events]
    expected = [
        ("ADDED", "Pending", False),
        ("MODIFIED", "Pending", False),
        ("MODIFIED", "Pending", True),
        ("MODIFIED", "Bound", True),
    ]
    assert steps[:4] == expected
    assert bound["metadata"]["resourceVersion"] in {e["object"]["metadata"]["resourceVersion"] for e in events[3:]}


def test_a_volume_is_released_when_its_claim_goes(api, its, provisioned) -> None:
    provisioned()
    its.claim_becomes("Bound")
    api.ok("DELETE", f"{api.claims}/c")
    volume = its.volume_becomes("Released")
    assert api("GET", f"{api.claims}/c").status == 404
    assert volume["spec"]["claimRef"]["name"] == "c"


def test_a_released_volume_is_not_given_to_a_new_claim_of_the_same_name(api, its, provisioned) -> None:
    provisioned()
    its.claim_becomes("Bound")
    api.ok("DELETE", f"{api.claims}/c")
    its.volume_becomes("Released")
    api.ok("POST", api.claims, api.claim("c", api.name("class")))
    api.until(lambda: PROVISIONER in its.claim()["metadata"].get("annotations", {}))
    assert its.claim()["status"]["phase"] == "Pending"
    assert its.volume()["status"]["phase"] == "Released"


def test_a_volume_for_a_claim_that_is_not_there_is_released(api, its) -> None:
    reference = {"kind": "PersistentVolumeClaim", "namespace": api.namespace, "name": "gone", "uid": "1"}
    api.ok("POST", api.volumes, api.volume("v", claimRef=reference))
    its.volume_becomes("Released")


def test_a_second_volume_for_a_bound_claim_is_released(api, its, provisioned) -> None:
    provisioned()
    its.claim_becomes("Bound")
    provisioned(suffix="second")
    its.volume_becomes("Released", "second")
    assert its.claim()["spec"]["volumeName"] == api.name("v")


def test_a_bound_volume_that_is_deleted_stays_until_its_claim_is_gone(api, its, provisioned) -> None:
    provisioned()
    its.claim_becomes("Bound")
    its.volume_becomes("Bound")
    api.ok("DELETE", f"{api.volumes}/{api.name('v')}")
    assert its.volume()["status"]["phase"] == "Bound"
    api.ok("DELETE", f"{api.claims}/c")
    api.until(lambda: api("GET", f"{api.volumes}/{api.name('v')}").status == 404)


def test_a_finalizer_of_others_keeps_a_released_volume(api, its, provisioned) -> None:
    provisioned()
    its.claim_becomes("Bound")
    path = f"{api.volumes}/{api.name('v')}"
    finalizers = {"metadata": {"finalizers": ["example.com/mine", "kubernetes.io/pv-protection"]}}
    api.ok("PATCH", path, finalizers, type=MERGE)
    api.ok("DELETE", f"{api.claims}/c")
    its.volume_becomes("Released")
    api.ok("DELETE", path)
    api.until(lambda: its.volume()["metadata"].get("finalizers") == ["example.com/mine"])
    api.ok("PATCH", path, {"metadata": {"finalizers": None}}, type=MERGE)
    assert api("GET", path).status == 404


def test_a_free_volume_becomes_available(api, its) -> None:
    api.ok("POST", api.volumes, api.volume("v"))
    its.volume_becomes("Available")


def test_a_static_volume_that_fits_is_bound(api, its) -> None:
    api.ok("POST", api.volumes, api.volume("small"))
    api.ok("POST", api.volumes, api.volume("big", capacity={"storage": "5Gi"}))
    api.ok("POST", api.volumes, api.volume("fitting", capacity={"storage": "2Gi"}))
    for suffix in ("small", "big", "fitting"):
        its.volume_becomes("Available", suffix)
    api.ok("POST", api.claims, api.claim("c", size="1500Mi"))
    assert its.claim_becomes("Bound")["spec"]["volumeName"] == api.name("fitting")
    volume = its.volume("fitting")
    assert volume["metadata"]["annotations"] == {BY_CONTROLLER: "yes"}
    reference = volume["spec"]["claimRef"]
    assert (reference["kind"], reference["uid"]) == ("PersistentVolumeClaim", its.claim()["metadata"]["uid"])
    assert its.volume("big")["status"]["phase"] == "Available"


def test_a_volume_reserved_by_name_waits_for_its_claim(api, its) -> None:
    reference = {"kind": "PersistentVolumeClaim", "namespace": api.namespace, "name": "c"}
    api.ok("POST", api.volumes, api.volume("v", claimRef=reference))
    assert "uid" not in its.volume_becomes("Available")["spec"]["claimRef"]
    api.ok("POST", api.claims, api.claim("c"))
    its.claim_becomes("Bound")
    volume = its.volume_becomes("Bound")
    assert volume["spec"]["claimRef"]["uid"] == its.claim()["metadata"]["uid"]
    assert BY_CONTROLLER not in volume["metadata"].get("annotations", {})


def test_a_claim_may_name_its_volume(api, its) -> None:
    api.ok("POST", api.volumes, api.volume("v"))
    its.volume_becomes("Available")
    api.ok("POST", api.claims, api.claim("c", volumeName=api.name("v")))
    claim = its.claim_becomes("Bound")
    assert COMPLETED in claim["metadata"]["annotations"]
    assert BY_CONTROLLER not in claim["metadata"]["annotations"]


def test_a_selector_chooses_among_static_volumes(api, its) -> None:
    for suffix in ("one", "two"):
        volume = api.volume(suffix)
        volume["metadata"]["labels"] = {"which": suffix}
        api.ok("POST", api.volumes, volume)
        its.volume_becomes("Available", suffix)
    api.ok("POST", api.claims, api.claim("c", selector={"matchLabels": {"which": "two"}}))
    assert its.claim_becomes("Bound")["spec"]["volumeName"] == api.name("two")


def test_a_claim_whose_volume_vanished_is_lost(api, its) -> None:
    api.ok("POST", api.volumes, api.volume("v"))
    its.volume_becomes("Available")
    api.ok("POST", api.claims, api.claim("c"))
    its.claim_becomes("Bound")
    path = f"{api.volumes}/{api.name('v')}"
    api.ok("DELETE", path)

    def remove() -> bool:
        return api("PATCH", path, {"metadata": {"finalizers": None}}, type=MERGE).status == 404

    api.until(remove)
    status = its.claim_becomes("Lost")["status"]
    assert not {"accessModes", "capacity"} & set(status)


def test_a_static_volume_that_nobody_can_delete_fails(api, its) -> None:
    reference = {"kind": "PersistentVolumeClaim", "namespace": api.namespace, "name": "gone", "uid": "1"}
    api.ok("POST", api.volumes, api.volume("v", claimRef=reference, persistentVolumeReclaimPolicy="Delete"))
    message = its.volume_becomes("Failed")["status"]["message"]
    assert message == (
        f'error getting deleter volume plugin for volume "{api.name("v")}": no deletable volume plugin matched'
    )


def test_the_controllers_give_protection_back(api, its) -> None:
    api.ok("POST", api.volumes, api.volume("v"))
    api.ok("POST", api.claims, api.claim("c", api.name("other")))
    for path, finalizer in (
        (f"{api.volumes}/{api.name('v')}", "kubernetes.io/pv-protection"),
        (f"{api.claims}/c", "kubernetes.io/pvc-protection"),
    ):
        api.ok("PATCH", path, {"metadata": {"finalizers": None}}, type=MERGE)
        api.until(lambda: api.ok("GET", path)["metadata"].get("finalizers") == [finalizer])  # noqa: B023


def test_a_bound_claim_grows_only_if_its_class_allows_it(api, its, provisioned) -> None:
    provisioned()
    its.claim_becomes("Bound")
    path = f"{api.claims}/c"
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    answer = api("PATCH", path, larger, type=MERGE)
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert "only dynamically provisioned pvc can be resized" in answer.message
    api.ok("PATCH", f"{api.classes}/{api.name('class')}", {"allowVolumeExpansion": True}, type=MERGE)
    api.until(lambda: api("PATCH", path, larger, type=MERGE).status == 200)
    smaller = {"spec": {"resources": {"requests": {"storage": "500Mi"}}}}
    answer = api("PATCH", path, smaller, type=MERGE)
    assert answer.fields == [("FieldValueForbidden", "spec.resources.requests.storage")]


def test_a_claim_in_use_by_a_scheduled_pod_is_kept(api, its) -> None:
    api.ok("POST", api.claims, api.claim("c"))
    spec = {
        "nodeName": "somewhere",
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
    }
    pods = f"/api/v1/namespaces/{api.namespace}/pods"
    api.ok("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
    api.ok("DELETE", f"{api.claims}/c")
    assert "deletionTimestamp" in its.claim()["metadata"]
    api.ok("DELETE", f"{pods}/p", gracePeriodSeconds="0")
    api.until(lambda: api("GET", f"{api.claims}/c").status == 404)


@pytest.mark.parametrize(
    "lacking",
    [{"capacity": {"storage": "500Mi"}}, {"accessModes": ["ReadOnlyMany"]}, {"volumeMode": "Block"}],
    ids=["size", "access mode", "volume mode"],
)
def test_a_volume_that_is_less_than_its_claim_asks_for_is_not_bound(api, its, provisioned, lacking) -> None:
    provisioned(suffix="lacking", **lacking)
    provisioned(suffix="right")
    assert its.claim_becomes("Bound")["spec"]["volumeName"] == api.name("right")
    its.volume_becomes("Released", "lacking")


def test_a_volume_made_for_a_claim_may_have_another_class(api, its, provisioned) -> None:
    provisioned(storageClassName=api.name("other"))
    assert its.claim_becomes("Bound")["spec"]["volumeName"] == api.name("v")


def test_a_static_volume_reserved_for_a_claim_that_is_bound_elsewhere_is_free_for_the_next(
    api, its, provisioned
) -> None:
    provisioned()
    claim = its.claim_becomes("Bound")
    reference = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
    reference["kind"] = "PersistentVolumeClaim"
    api.ok("POST", api.volumes, api.volume("second", claimRef=reference))
    assert "uid" not in its.volume_becomes("Available", "second")["spec"]["claimRef"]


def test_a_claim_that_names_a_volume_that_does_not_fit_is_told(api, its) -> None:
    api.ok("POST", api.volumes, api.volume("v"))
    its.volume_becomes("Available")
    api.ok("POST", api.claims, api.claim("c", size="2Gi", volumeName=api.name("v")))
    event = api.until(lambda: api.ok("GET", api.events, fieldSelector="involvedObject.name=c")["items"])[0]
    assert (event["reason"], event["message"]) == (
        "VolumeMismatch",
        f'Cannot bind to requested volume "{api.name("v")}": requested PV is too small',
    )
    assert its.claim()["status"]["phase"] == "Pending"


def test_a_claim_that_names_a_volume_of_another_waits(api, its, provisioned) -> None:
    provisioned()
    its.claim_becomes("Bound")
    api.ok("POST", api.claims, api.claim("late", api.name("class"), volumeName=api.name("v")))
    assert its.claim("late")["status"]["phase"] == "Pending"
    assert its.volume()["spec"]["claimRef"]["name"] == "c"


def test_a_claim_without_class_gets_a_default_class_that_comes_late(api, its) -> None:
    claim = api.claim("c")
    del claim["spec"]["storageClassName"]
    api.ok("POST", api.claims, claim)
    marked = api.storage_class("default")
    marked["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    api.ok("POST", api.classes, marked)
    api.until(lambda: its.claim()["spec"].get("storageClassName") == api.name("default"))
    api.until(lambda: PROVISIONER in its.claim()["metadata"].get("annotations", {}))


def test_a_volume_is_released_only_once(api, its, provisioned) -> None:
    """A phase that somebody set stays as it is: Failed is not made Released."""
    provisioned()
    its.claim_becomes("Bound")
    api.ok("DELETE", f"{api.claims}/c")
    its.volume_becomes("Released")
    path = f"{api.volumes}/{api.name('v')}"
    api.ok("PATCH", f"{path}/status", {"status": {"phase": "Failed"}}, type=MERGE)
    api.ok("PATCH", path, {"metadata": {"labels": {"touched": "1"}}}, type=MERGE)
    api.ok("POST", api.volumes, api.volume("later"))
    its.volume_becomes("Available", "later")
    assert its.volume()["status"]["phase"] == "Failed"
