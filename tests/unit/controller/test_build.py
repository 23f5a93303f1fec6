"""The volume that is saved: the host's fields cannot be forgotten or forged, broken promises are named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prov_host.controller.build import SOURCES, build_volume, same_source
from prov_host.controller.options import ControllerOptions
from prov_host.errors import PluginError
from prov_host.model import (
    ANN_ON_DELETE,
    ANN_PLUGIN,
    ANN_PROVISIONED_BY,
    ANN_RECORD,
    FINALIZER,
    Claim,
    ClaimSpec,
    ObjectMeta,
    Provisioned,
    ProvisionRequest,
    Resources,
    StorageClass,
    Volume,
    VolumeSpec,
)

NFS = {"nfs": {"server": "foo", "path": "/bar"}}


def request(
    claim: dict[str, Any] | None = None, storage_class: dict[str, Any] | None = None, size: Any = "1Mi"
) -> ProvisionRequest:
    spec = {
        "access_modes": ("ReadWriteOnce",),
        "storage_class_name": "class-1",
        "resources": Resources(requests={"storage": size}) if size is not None else None,
    }
    return ProvisionRequest(
        pv_name="pvc-1",
        claim=Claim(
            metadata=ObjectMeta(name="claim-1", namespace="ns", uid="1", resource_version="7"),
            spec=ClaimSpec(**{**spec, **(claim or {})}),
        ),
        storage_class=StorageClass(metadata=ObjectMeta(name="class-1"), provisioner="p/q", **(storage_class or {})),
        provisioner="p/q",
        policy="archive",
    )


def build(what: ProvisionRequest, options: ControllerOptions | None = None, **provisioned: Any) -> dict[str, Any]:
    answer = Provisioned(**{"source": NFS, **provisioned})
    return build_volume(what, answer, plugin="some", options=options or ControllerOptions())


def test_the_whole_volume() -> None:
    assert build(
        request(storage_class={"mount_options": ("hard",)}),
        labels={"a": "b"},
        annotations={"x": "y"},
        record={"path": "p"},
        node_affinity={"required": {}},
    ) == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "pvc-1",
            "labels": {"a": "b"},
            "annotations": {
                "x": "y",
                ANN_PROVISIONED_BY: "p/q",
                ANN_PLUGIN: "some",
                ANN_ON_DELETE: "archive",
                ANN_RECORD: '{"path":"p"}',
            },
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "class-1",
            "mountOptions": ["hard"],
            "nodeAffinity": {"required": {}},
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": "ns",
                "name": "claim-1",
                "uid": "1",
                "resourceVersion": "7",
            },
            **NFS,
        },
    }


def test_the_plugin_may_choose_capacity_modes_and_mount_options() -> None:
    spec = build(
        request(storage_class={"mount_options": ("hard",)}),
        capacity=2 * 1024**2,
        access_modes=("ReadOnlyMany",),
        mount_options=(),
    )["spec"]
    assert spec["capacity"] == {"storage": "2Mi"}
    assert spec["accessModes"] == ["ReadOnlyMany"]
    assert "mountOptions" not in spec


def test_the_hosts_own_annotations_cannot_be_forged() -> None:
    metadata = build(request(), annotations={ANN_PROVISIONED_BY: "someone/else", "x": "y"})["metadata"]
    assert metadata["annotations"][ANN_PROVISIONED_BY] == "p/q"
    assert metadata["annotations"]["x"] == "y"


@pytest.mark.parametrize("policy", ["Retain", "Recycle"])
def test_no_finalizer_under_a_policy_that_would_have_it_removed(policy: str) -> None:
    volume = build(request(storage_class={"reclaim_policy": policy}))
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == policy
    assert "finalizers" not in volume["metadata"]
    assert "finalizers" not in build(request(), ControllerOptions(add_finalizer=False))["metadata"]


@pytest.mark.parametrize("size", ["1Gi", "1073741824", "1e9", "1.5G", "100m", "0.5Ki", 1024, "1E3"])
def test_the_request_is_kept_as_written_in_every_notation(size: Any) -> None:
    assert build(request(size=size))["spec"]["capacity"] == {"storage": str(size)}


@pytest.mark.parametrize(
    ("provisioned", "promise"),
    [
        ({"source": {}}, "exactly one volume source"),
        ({"source": {"nfs": {}, "hostPath": {}}}, "exactly one volume source"),
        ({"source": {"capacity": {"storage": "1"}}}, "exactly one volume source"),
        ({"source": {"claimRef": {}}}, "exactly one volume source"),
        ({"source": {"nfs": "a string"}}, "must be a mapping"),
        ({"source": None}, "no valid Provisioned"),
        ({"source": {"nfs": {"path": object()}}}, "no valid Provisioned"),
        ({"capacity": "1Gi"}, "no valid Provisioned"),
        ({"capacity": 5}, "below the 1048576"),
        ({"access_modes": ()}, "access_modes is empty"),
        ({"labels": {"prov-host/plugin": "x"}}, "prefix prov-host/"),
        ({"annotations": {"prov-host/new": "x"}}, "prefix prov-host/"),
        ({"annotations": {"a": 5}}, "no valid Provisioned"),
        ({"record": {"a": "x" * 17000}}, "16384 are allowed"),
        ({"record": {"a": ["x"]}}, "no valid Provisioned"),
        ({"notes": ("text",)}, "no valid Provisioned"),
    ],
)
def test_a_broken_promise_names_plugin_and_promise(provisioned: dict[str, Any], promise: str) -> None:
    with pytest.raises(PluginError, match=promise) as caught:
        build(request(), **provisioned)
    assert "plugin some" in str(caught.value)
    assert "pvc-1" in str(caught.value)


def test_a_claim_without_a_readable_request_needs_a_capacity() -> None:
    with pytest.raises(PluginError, match="requests no size"):
        build(request(size=None))
    with pytest.raises(PluginError, match="cannot be read"):
        build(request(size="lots"))
    assert build(request(size=None), capacity=5)["spec"]["capacity"] == {"storage": "5"}


def test_a_claim_without_access_modes_is_not_given_a_volume_that_the_api_refuses() -> None:
    with pytest.raises(PluginError, match="access_modes is empty"):
        build(request(claim={"access_modes": None}))


def test_a_source_object_that_the_plugin_keeps_is_copied() -> None:
    shared = {"nfs": {"server": "foo", "path": "/bar"}}
    volume = build(request(), source=shared)
    shared["nfs"]["path"] = "/changed"
    assert volume["spec"]["nfs"]["path"] == "/bar"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON, JSON, JSON)
def test_whatever_a_plugin_returns_gives_a_volume_or_a_broken_promise(a: Any, b: Any, c: Any, d: Any) -> None:
    answer = Provisioned(source={"nfs": a} if isinstance(b, str) else a, labels=b, record=c, annotations=d)
    try:
        volume = build_volume(request(), answer, plugin="some", options=ControllerOptions())
    except PluginError:
        return
    decoded = msgspec.json.decode(msgspec.json.encode(volume), type=Volume)
    assert decoded.name == "pvc-1"
    assert decoded.claim_uid == "1"


def test_sources_are_the_apis_names() -> None:
    assert {"nfs", "hostPath", "awsElasticBlockStore", "csi", "local"} <= SOURCES
    assert not SOURCES & {"capacity", "claimRef", "nodeAffinity", "volumeMode"}


@pytest.mark.parametrize(
    ("ours", "live", "same"),
    [
        ({"nfs": {"server": "a", "path": "/x"}}, {"nfs": {"server": "a", "path": "/x"}}, True),
        (
            {"nfs": {"server": "a", "path": "/x", "readOnly": False}},
            {"nfs": {"server": "a", "path": "/x"}},
            True,
        ),
        ({"host_path": {"path": "/x"}}, {"host_path": {"path": "/x", "type": ""}}, True),
        ({"nfs": {"server": "a", "path": "/x"}}, {"nfs": {"server": "a", "path": "/y"}}, False),
        ({"nfs": {"server": "a", "path": "/x", "readOnly": True}}, {"nfs": {"server": "a", "path": "/x"}}, False),
        ({"nfs": {"server": "a", "path": "/x"}}, {"host_path": {"path": "/x"}}, False),
        ({"nfs": {"server": "a"}}, {}, False),
    ],
)
def test_a_live_volume_has_the_same_source_or_not(ours: dict[str, Any], live: dict[str, Any], *, same: bool) -> None:
    assert same_source(VolumeSpec(**ours), VolumeSpec(**live)) is same
