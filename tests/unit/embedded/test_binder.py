"""What the control plane does for volumes, step by step; tests/conformance/api compares the whole with the real one."""

from __future__ import annotations

import json
from typing import Any

MERGE = "application/merge-patch+json"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"


def claim(name: str, storage_class: str | None = "ext", size: str = "1Gi", **metadata: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def volume(name: str, reference: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "example.com/x"}}
    base = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nfs": {"server": "s", "path": "/x"},
        "storageClassName": "ext",
        "persistentVolumeReclaimPolicy": "Delete",
    }
    if reference is not None:
        base["claimRef"] = reference
    return {"metadata": metadata, "spec": {**base, **spec}}


async def add_class(api, name: str = "ext", **fields: Any) -> None:
    await api.ok("POST", CLASSES, {"metadata": {"name": name}, "provisioner": "example.com/x", **fields})


async def reference_to(api, name: str) -> dict[str, str]:
    metadata = (await api.ok("GET", f"{CLAIMS}/{name}"))["metadata"]
    return {"namespace": "default", "name": name, "uid": metadata["uid"]}


async def test_a_claim_of_an_external_class_is_annotated_for_its_provisioner(api) -> None:
    await add_class(api)
    await api.ok("POST", CLAIMS, claim("a"))
    await api.settle()
    annotations = (await api.ok("GET", f"{CLAIMS}/a"))["metadata"]["annotations"]
    assert annotations == {
        PROVISIONER: "example.com/x",
        "volume.beta.kubernetes.io/storage-provisioner": "example.com/x",
    }


async def test_a_claim_waits_for_its_node_if_the_class_says_so(api) -> None:
    await add_class(api, volumeBindingMode="WaitForFirstConsumer")
    await api.ok("POST", CLAIMS, claim("a"))
    await api.settle()
    assert "annotations" not in (await api.ok("GET", f"{CLAIMS}/a"))["metadata"]
    node = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}
    await api.ok("PATCH", f"{CLAIMS}/a", node, MERGE)
    await api.settle()
    assert PROVISIONER in (await api.ok("GET", f"{CLAIMS}/a"))["metadata"]["annotations"]


async def test_a_class_that_comes_late_wakes_its_claims(api) -> None:
    await api.ok("POST", CLAIMS, claim("a"))
    await api.settle()
    await add_class(api)
    await api.settle()
    assert PROVISIONER in (await api.ok("GET", f"{CLAIMS}/a"))["metadata"]["annotations"]


async def test_a_volume_made_for_a_claim_binds_both_sides(api) -> None:
    await add_class(api)
    await api.ok("POST", CLAIMS, claim("a"))
    await api.settle()
    await api.ok("POST", VOLUMES, volume("v", await reference_to(api, "a"), capacity={"storage": "2Gi"}))
    await api.settle()
    bound, its_volume = await api.ok("GET", f"{CLAIMS}/a"), await api.ok("GET", f"{VOLUMES}/v")
    assert bound["spec"]["volumeName"] == "v"
    assert bound["status"]["phase"] == its_volume["status"]["phase"] == "Bound"
    assert bound["status"]["capacity"] == {"storage": "2Gi"}
    assert bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"


async def test_a_volume_is_released_when_its_claim_goes_and_not_given_to_one_of_the_same_name(api) -> None:
    await add_class(api)
    await api.ok("POST", CLAIMS, claim("a"))
    await api.settle()
    await api.ok("POST", VOLUMES, volume("v", await reference_to(api, "a")))
    await api.settle()
    await api.ok("DELETE", f"{CLAIMS}/a")
    await api.settle()
    assert (await api("GET", f"{CLAIMS}/a"))[0] == 404
    assert (await api.ok("GET", f"{VOLUMES}/v"))["status"]["phase"] == "Released"
    await api.ok("POST", CLAIMS, claim("a"))
    await api.settle()
    assert (await api.ok("GET", f"{VOLUMES}/v"))["status"]["phase"] == "Released"
    assert (await api.ok("GET", f"{CLAIMS}/a"))["status"]["phase"] == "Pending"


async def test_a_second_volume_for_a_bound_claim_is_released(api) -> None:
    await add_class(api)
    await api.ok("POST", CLAIMS, claim("a"))
    await api.settle()
    for name in ("v1", "v2"):
        await api.ok("POST", VOLUMES, volume(name, await reference_to(api, "a")))
        await api.settle()
    phases = [(await api.ok("GET", f"{VOLUMES}/{name}"))["status"]["phase"] for name in ("v1", "v2")]
    assert phases == ["Bound", "Released"]


async def test_the_smallest_fitting_free_volume_is_chosen(api) -> None:
    for name, size in (("big", "5Gi"), ("small", "1Gi"), ("fitting", "2Gi")):
        await api.ok("POST", VOLUMES, volume(name, capacity={"storage": size}, storageClassName=""))
    await api.settle()
    await api.ok("POST", CLAIMS, claim("a", "", "1500Mi"))
    await api.settle()
    assert (await api.ok("GET", f"{CLAIMS}/a"))["spec"]["volumeName"] == "fitting"
    assert (await api.ok("GET", f"{VOLUMES}/big"))["status"]["phase"] == "Available"


async def test_a_free_volume_that_comes_late_is_given_to_a_waiting_claim(api) -> None:
    await api.ok("POST", CLAIMS, claim("a", ""))
    await api.settle()
    await api.ok("POST", VOLUMES, volume("v", storageClassName=""))
    await api.settle()
    assert (await api.ok("GET", f"{CLAIMS}/a"))["spec"]["volumeName"] == "v"


async def test_a_claim_whose_volume_vanished_is_lost(api) -> None:
    await api.ok("POST", CLAIMS, claim("a", ""))
    await api.ok("POST", VOLUMES, volume("v", storageClassName=""))
    await api.settle()
    table = api.cluster.store.tables["persistentvolumes"]
    table.remove("v")
    await api.settle()
    status = (await api.ok("GET", f"{CLAIMS}/a"))["status"]
    assert status["phase"] == "Lost"
    assert "capacity" not in status


async def test_a_static_volume_that_nobody_can_delete_fails(api) -> None:
    static = volume("v", {"namespace": "default", "name": "gone", "uid": "1"})
    del static["metadata"]["annotations"]
    await api.ok("POST", VOLUMES, static)
    await api.settle()
    assert (await api.ok("GET", f"{VOLUMES}/v"))["status"]["phase"] == "Failed"


async def test_a_bound_volume_stays_until_its_claim_is_gone(api) -> None:
    await api.ok("POST", CLAIMS, claim("a", ""))
    await api.ok("POST", VOLUMES, volume("v", storageClassName=""))
    await api.settle()
    await api.ok("DELETE", f"{VOLUMES}/v")
    await api.settle()
    assert "deletionTimestamp" in (await api.ok("GET", f"{VOLUMES}/v"))["metadata"]
    await api.ok("DELETE", f"{CLAIMS}/a")
    await api.settle()
    assert (await api("GET", f"{VOLUMES}/v"))[0] == 404


async def test_a_claim_stays_while_a_pod_uses_it(api) -> None:
    await api.ok("POST", CLAIMS, claim("a", ""))
    spec = {"nodeName": "n", "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "a"}}]}
    pod = {"metadata": {"name": "p"}, "spec": spec}
    await api.ok("POST", "/api/v1/namespaces/default/pods", pod)
    await api.ok("DELETE", f"{CLAIMS}/a")
    await api.settle()
    assert (await api("GET", f"{CLAIMS}/a"))[0] == 200
    await api.ok("DELETE", "/api/v1/namespaces/default/pods/p")
    await api.settle()
    assert (await api("GET", f"{CLAIMS}/a"))[0] == 404


async def test_a_protection_finalizer_that_was_taken_off_comes_back(api) -> None:
    await api.ok("POST", CLAIMS, claim("a", ""))
    await api.ok("PATCH", f"{CLAIMS}/a", {"metadata": {"finalizers": None}}, MERGE)
    await api.settle()
    assert (await api.ok("GET", f"{CLAIMS}/a"))["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


async def test_a_claim_without_class_gets_the_default_class_when_there_is_one(api) -> None:
    await api.ok("POST", CLAIMS, claim("a", None))
    await api.settle()
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    await api.ok("POST", CLASSES, {"metadata": {"name": "ext", "annotations": default}, "provisioner": "example.com/x"})
    await api.settle()
    assert (await api.ok("GET", f"{CLAIMS}/a"))["spec"]["storageClassName"] == "ext"


async def test_a_terminating_namespace_is_emptied_and_goes(api) -> None:
    api.cluster.create_namespace("temporary")
    await api.ok("POST", "/api/v1/namespaces/temporary/persistentvolumeclaims", claim("a", ""))
    await api.ok("DELETE", "/api/v1/namespaces/temporary")
    await api.settle()
    assert (await api("GET", "/api/v1/namespaces/temporary"))[0] == 404
    assert api.cluster.objects("persistentvolumeclaims") == []


async def test_nothing_is_done_without_controllers(bare) -> None:
    await add_class(bare)
    created = await bare.ok("POST", CLAIMS, claim("a"))
    await bare.settle()
    assert await bare.ok("GET", f"{CLAIMS}/a") == created
    assert json.dumps(created).count("kubernetes.io/pvc-protection") == 1
