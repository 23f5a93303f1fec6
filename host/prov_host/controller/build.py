"""The PersistentVolume that is saved for what a plugin made.

The host builds it, so that its name, the claim it is for, the reclaim policy, the mount options, the class, the
finalizer and the annotations that deleting it will rely on can neither be forgotten nor forged. What a plugin answers
is checked first; a broken promise never reaches the API server, whose refusal would name neither plugin nor promise.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prov_host.controller.options import ControllerOptions
from prov_host.errors import PluginError
from prov_host.model import (
    ANN_ON_DELETE,
    ANN_PLUGIN,
    ANN_PROVISIONED_BY,
    ANN_RECORD,
    FINALIZER,
    Claim,
    ObjectReference,
    Provisioned,
    ProvisionRequest,
    VolumeSpec,
)
from prov_host.quantity import format_bytes

__all__ = ["SOURCES", "build_volume", "claim_reference", "same_source", "source_of", "source_path"]

_RESERVED = "prov-host/"
_MAX_RECORD = 16 * 1024
_SPEC = {
    "capacity",
    "accessModes",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "claimRef",
}
SOURCES = frozenset(field.encode_name for field in msgspec.structs.fields(VolumeSpec)) - _SPEC
"""The volume sources of the API, as it writes them."""


def claim_reference(claim: Claim) -> ObjectReference:
    """The reference to a claim that its volume carries."""
    return ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        resource_version=claim.metadata.resource_version,
    )


def build_volume(
    request: ProvisionRequest, provisioned: Provisioned, *, plugin: str, options: ControllerOptions
) -> dict[str, Any]:
    """The volume, as the API writes it.

    Args:
        request: what the plugin was asked.
        provisioned: what it answered.
        plugin: its name.
        options: the controller's.

    Returns:
        A PersistentVolume in JSON form.

    Raises:
        PluginError: the answer breaks a promise; the message names the plugin and the promise.

    Callable from any thread. Since 0.1. Source: reference controller, provision step P11.
    """

    def broken(what: str) -> PluginError:
        return PluginError(f"plugin {plugin} broke a promise for volume {request.pv_name}: {what}")

    try:
        # Copies, and checks the types that a Struct made in Python does not check.
        answer = msgspec.convert(msgspec.to_builtins(provisioned), Provisioned)
        msgspec.json.encode(answer)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
        raise broken(f"what provision returned is no valid Provisioned ({error})") from error
    if len(answer.source) != 1 or not SOURCES.issuperset(answer.source):
        raise broken(
            f"source must be exactly one volume source of the API, such as nfs; it has {sorted(answer.source)[:5]}"
        )
    if not isinstance(next(iter(answer.source.values())), dict):
        raise broken(f"the volume source {next(iter(answer.source))} must be a mapping")
    for kind, names in (("labels", answer.labels), ("annotations", answer.annotations)):
        reserved = sorted(name for name in names if name.startswith(_RESERVED))
        if reserved:
            raise broken(f"{kind} may not use the prefix {_RESERVED}, as {reserved[0]!r} does")
    claim, storage_class = request.claim, request.storage_class
    record = msgspec.json.encode(answer.record).decode()
    if len(record.encode()) > _MAX_RECORD:
        raise broken(f"record is {len(record.encode())} bytes as JSON; {_MAX_RECORD} are allowed")
    reclaim_policy = storage_class.reclaim_policy or "Delete"
    metadata: dict[str, Any] = {
        "name": request.pv_name,
        "annotations": {
            **answer.annotations,
            ANN_PROVISIONED_BY: storage_class.provisioner or request.provisioner,
            ANN_PLUGIN: plugin,
            ANN_ON_DELETE: request.policy,
        },
    }
    if answer.record:
        metadata["annotations"][ANN_RECORD] = record
    if answer.labels:
        metadata["labels"] = dict(answer.labels)
    if options.add_finalizer and reclaim_policy == "Delete":  # under any other policy it would be removed at once
        metadata["finalizers"] = [FINALIZER]
    access_modes = claim.access_modes if answer.access_modes is None else answer.access_modes
    if not access_modes:
        raise broken("access_modes is empty, and a volume needs at least one")
    spec: dict[str, Any] = {
        "capacity": {"storage": _capacity(claim, answer, broken)},
        "accessModes": list(access_modes),
        "persistentVolumeReclaimPolicy": reclaim_policy,
        "storageClassName": claim.class_name,
        "claimRef": msgspec.to_builtins(claim_reference(claim)),
        **answer.source,
    }
    mount_options = storage_class.mount_options if answer.mount_options is None else answer.mount_options
    if mount_options:
        spec["mountOptions"] = list(mount_options)
    if claim.spec.volume_mode:
        spec["volumeMode"] = claim.spec.volume_mode
    if answer.node_affinity is not None:
        spec["nodeAffinity"] = answer.node_affinity
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _capacity(claim: Claim, answer: Provisioned, broken: Any) -> str:
    """The capacity; never below the request, which would leave the claim pending for ever."""
    try:
        requested = claim.requested_bytes
    except ValueError as error:
        raise broken(f"the claim's request cannot be read ({error}) and the plugin went on all the same") from error
    if answer.capacity is None:
        if not claim.requested:
            raise broken("the claim requests no size, so capacity must say one")
        return claim.requested
    if answer.capacity < max(requested, 1):
        raise broken(f"capacity is {answer.capacity} bytes, below the {requested} that the claim requests")
    return format_bytes(answer.capacity)


def source_of(spec: VolumeSpec) -> dict[str, Any]:
    """The volume source of a spec, as the API writes it: ``{"nfs": {...}}``; {} if there is none we know."""
    return {name: value for name, value in msgspec.to_builtins(spec).items() if name in SOURCES}


def same_source(ours: VolumeSpec, live: VolumeSpec) -> bool:
    """Whether a live volume points to the asset that ours does.

    What the API server adds as a default does not count, and neither do fields that are empty, false or absent.
    """
    wanted, found = source_of(ours), source_of(live)
    if wanted.keys() != found.keys():
        return False
    return all(_covers(found[name], value) for name, value in wanted.items())


def _covers(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        mapping = found if isinstance(found, dict) else {}
        return all(_covers(mapping.get(key), value) for key, value in wanted.items())
    return bool(found == wanted) or (not found and not wanted)


def source_path(spec: VolumeSpec) -> str:
    """Where the data is, if the source says so, for records."""
    for value in source_of(spec).values():
        if isinstance(value, dict) and isinstance(value.get("path"), str):
            return str(value["path"])
    return ""
