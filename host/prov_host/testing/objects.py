"""Claims, classes, requests and saved volumes for tests, as the API would have written them.

Everything goes through the wire form: a volume made here has been JSON once, as the one that ``delete`` gets months
later has, so a test never passes on object identity or on a type that JSON does not know.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from prov_host.model import (
    ANN_ON_DELETE,
    ANN_PLUGIN,
    ANN_PROVISIONED_BY,
    ANN_RECORD,
    ANN_STORAGE_PROVISIONER,
    Claim,
    Provisioned,
    ProvisionRequest,
    StorageClass,
    Volume,
)

__all__ = ["make_claim", "make_class", "make_request", "make_volume"]

_numbers = itertools.count(1)
PROVISIONER = "example.com/tested"


def _next_uid() -> str:
    """Uids that look real, never repeat within a run, and read well in a failing test."""
    return str(uuid.UUID(int=next(_numbers), version=4))


def make_claim(
    name: str | None = "data",
    namespace: str | None = "default",
    *,
    uid: str | None = None,
    storage: str | None = "1Gi",
    access_modes: Sequence[str] | None = ("ReadWriteOnce",),
    class_name: str | None = "tested",
    provisioner: str | None = PROVISIONER,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Claim:
    """A pending claim as the API holds it.

    Args:
        name: its name; None leaves the field out, as in all arguments that may be None.
        namespace: its namespace.
        uid: its uid; a new one each time by default.
        storage: the request, as a quantity.
        access_modes: as the API writes them.
        class_name: the class it asks for.
        provisioner: the value of the annotation that the control plane sets.
        labels: hostile text is welcome.
        annotations: further annotations.
        spec: further fields of the spec, in the API's form, for example ``{"volumeMode": "Block"}``.

    Returns:
        The claim.

    Callable from any thread. Since 0.1.
    """
    marks = {ANN_STORAGE_PROVISIONER: provisioner} if provisioner is not None else {}
    fields: dict[str, Any] = {
        "storageClassName": class_name,
        "accessModes": None if access_modes is None else list(access_modes),
        "resources": None if storage is None else {"requests": {"storage": storage}},
        **(spec or {}),
    }
    wire = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid if uid is not None else _next_uid(),
            "resourceVersion": "1",
            "labels": dict(labels or {}),
            "annotations": marks | dict(annotations or {}),
        },
        "spec": fields,
        "status": {"phase": "Pending"},
    }
    return msgspec.json.decode(msgspec.json.encode(wire), type=Claim)


def make_class(
    parameters: Mapping[str, str] | None = None,
    *,
    name: str = "tested",
    provisioner: str = PROVISIONER,
    binding_mode: str = "Immediate",
    reclaim_policy: str = "Delete",
) -> StorageClass:
    """A storage class as the API holds it.

    Args:
        parameters: the class's parameters.
        name: its name.
        provisioner: who serves it.
        binding_mode: ``"Immediate"`` or ``"WaitForFirstConsumer"``.
        reclaim_policy: ``"Delete"`` or ``"Retain"``.

    Returns:
        The class.

    Callable from any thread. Since 0.1.
    """
    wire = {
        "metadata": {"name": name, "uid": _next_uid(), "resourceVersion": "1"},
        "provisioner": provisioner,
        "parameters": dict(parameters or {}),
        "reclaimPolicy": reclaim_policy,
        "volumeBindingMode": binding_mode,
    }
    return msgspec.json.decode(msgspec.json.encode(wire), type=StorageClass)


def make_request(
    claim: Claim | None = None,
    storage_class: StorageClass | None = None,
    *,
    selected_node: str = "",
    policy: str = "delete",
) -> ProvisionRequest:
    """What the host would ask a backend for a claim.

    Args:
        claim: the claim; an ordinary new one by default.
        storage_class: its class; one without parameters by default.
        selected_node: the node the scheduler chose.
        policy: what will be frozen on the volume.

    Returns:
        The request; the volume's name follows from the claim's uid, as in the host.

    Callable from any thread. Since 0.1.
    """
    claim = claim or make_claim()
    storage_class = storage_class or make_class()
    return ProvisionRequest(
        pv_name=f"pvc-{claim.uid}",
        claim=claim,
        storage_class=storage_class,
        provisioner=storage_class.provisioner or "",
        selected_node=selected_node,
        policy=policy,
    )


def make_volume(
    request: ProvisionRequest, provisioned: Provisioned, *, plugin: str = "tested", phase: str = "Released"
) -> Volume:
    """The volume that the host would have saved for an answer, read back from the API.

    Args:
        request: what was asked.
        provisioned: what the backend answered.
        plugin: the backend's plugin name.
        phase: the volume's phase.

    Returns:
        The volume.

    Raises:
        TypeError: the answer cannot be written as JSON.

    Callable from any thread. Since 0.1.
    """
    claim, storage_class = request.claim, request.storage_class
    capacity = provisioned.capacity
    wire = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": request.pv_name,
            "uid": _next_uid(),
            "resourceVersion": "1",
            "labels": provisioned.labels,
            "annotations": {
                **provisioned.annotations,
                ANN_PROVISIONED_BY: storage_class.provisioner,
                ANN_ON_DELETE: request.policy,
                ANN_PLUGIN: plugin,
                ANN_RECORD: msgspec.json.encode(provisioned.record).decode(),
            },
        },
        "spec": {
            **provisioned.source,
            "capacity": {"storage": claim.requested if capacity is None else str(capacity)},
            "accessModes": list(provisioned.access_modes or claim.access_modes),
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
            "storageClassName": claim.class_name,
            "mountOptions": list(provisioned.mount_options or storage_class.mount_options or ()),
            "nodeAffinity": provisioned.node_affinity,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace,
                "name": claim.name,
                "uid": claim.uid,
            },
        },
        "status": {"phase": phase},
    }
    return msgspec.json.decode(msgspec.json.encode(wire), type=Volume)
