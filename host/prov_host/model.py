"""The API objects the host reads, and what a plugin is asked and answers: frozen msgspec Structs.

Only the fields in use are decoded; everything else of an object is dropped at the door (which is most of a cache's
memory: managedFields alone outweigh the rest). Every field may be missing or null on the wire, because an odd object
must never fail a whole list; the properties give the value a user of the object wants. Structs are frozen, but the
mappings inside are plain dicts: the host hands plugins a private copy (:func:`private_copy`), so a plugin that
changes its input changes nothing.

A future enum value (a new phase, a new reclaim policy) is just another string here; who decides on it compares with
the values it knows and does nothing on others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from prov_host.quantity import parse_bytes

__all__ = [
    "ANN_ALPHA_SELECTED_NODE",
    "ANN_BETA_STORAGE_CLASS",
    "ANN_BETA_STORAGE_PROVISIONER",
    "ANN_MIGRATED_TO",
    "ANN_ON_DELETE",
    "ANN_PLUGIN",
    "ANN_PROVISIONED_BY",
    "ANN_RECORD",
    "ANN_SELECTED_NODE",
    "ANN_STORAGE_PROVISIONER",
    "FINALIZER",
    "INTENT_FINALIZER",
    "POLICIES",
    "Asset",
    "Claim",
    "ClaimSpec",
    "ClaimStatus",
    "DataSource",
    "Note",
    "ObjectMeta",
    "ObjectReference",
    "ProvisionRequest",
    "Provisioned",
    "Record",
    "Removed",
    "Resources",
    "StorageClass",
    "Volume",
    "VolumeSpec",
    "VolumeStatus",
    "private_copy",
]

ANN_STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
ANN_BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
ANN_BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
ANN_SELECTED_NODE = "volume.kubernetes.io/selected-node"
ANN_ALPHA_SELECTED_NODE = "volume.alpha.kubernetes.io/selected-node"
ANN_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
ANN_MIGRATED_TO = "pv.kubernetes.io/migrated-to"
FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
# Ours. On a claim while a volume for it may be in the making and is not saved yet: it cannot vanish under us, and a
# restarted host finds it again.
INTENT_FINALIZER = "prov-host/provisioning"
# Ours, on volumes; frozen at provision time so that deleting one needs no StorageClass.
ANN_ON_DELETE = "prov-host/on-delete"
ANN_PLUGIN = "prov-host/plugin"
ANN_RECORD = "prov-host/record"

POLICIES = ("delete", "archive", "retain")
"""What becomes of an asset when its volume is released under reclaim policy Delete."""

_T = TypeVar("_T", bound=msgspec.Struct)


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The part of an object's metadata that the host reads. Since 0.1."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class _Object(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What claims, volumes and classes have in common."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """The object's name, "" if it has none."""
        return self.metadata.name or ""

    @property
    def uid(self) -> str:
        """The object's uid, "" if it has none."""
        return self.metadata.uid or ""

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels; hostile text."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations; hostile text."""
        return self.metadata.annotations or {}

    @property
    def finalizers(self) -> tuple[str, ...]:
        """The object's finalizers."""
        return self.metadata.finalizers or ()

    @property
    def terminating(self) -> bool:
        """True once the object has a deletion timestamp."""
        return bool(self.metadata.deletion_timestamp)


class DataSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a claim wants its volume filled from. Since 0.1."""

    kind: str | None = None
    name: str | None = None
    api_group: str | None = None


class Resources(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A claim's resource requests; quantities as written. Since 0.1."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ClaimSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A claim's spec. Since 0.1."""

    access_modes: tuple[str, ...] | None = None
    storage_class_name: str | None = None
    volume_name: str | None = None
    volume_mode: str | None = None
    resources: Resources | None = None
    selector: dict[str, Any] | None = None
    data_source: DataSource | None = None
    data_source_ref: DataSource | None = None


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A claim's status. Since 0.1."""

    phase: str | None = None


class Claim(_Object, frozen=True, rename="camel", omit_defaults=True):
    """A PersistentVolumeClaim. Since 0.1."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus | None = None

    @property
    def namespace(self) -> str:
        """The claim's namespace."""
        return self.metadata.namespace or ""

    @property
    def key(self) -> str:
        """``namespace/name``, as people write it."""
        return f"{self.namespace}/{self.name}"

    @property
    def class_name(self) -> str:
        """The effective class: the beta annotation if present, even empty, else the spec's, else ""."""
        beta = self.annotations.get(ANN_BETA_STORAGE_CLASS)
        return beta if beta is not None else self.spec.storage_class_name or ""

    @property
    def provisioner(self) -> str:
        """Who is asked to provision: the GA annotation if present, else the beta one, else ""."""
        found = self.annotations.get(ANN_STORAGE_PROVISIONER)
        return found if found is not None else self.annotations.get(ANN_BETA_STORAGE_PROVISIONER, "")

    @property
    def selected_node(self) -> str:
        """The node the scheduler chose: the GA annotation if present, even empty, else the alpha one, else ""."""
        found = self.annotations.get(ANN_SELECTED_NODE)
        return found if found is not None else self.annotations.get(ANN_ALPHA_SELECTED_NODE, "")

    @property
    def access_modes(self) -> tuple[str, ...]:
        """The access modes asked for."""
        return self.spec.access_modes or ()

    @property
    def requested(self) -> str:
        """The storage request as written, "" if there is none."""
        requests = (self.spec.resources.requests if self.spec.resources else None) or {}
        return str(requests.get("storage", ""))

    @property
    def requested_bytes(self) -> int:
        """The storage request in whole bytes, 0 if there is none.

        Raises:
            ValueError: the request is not a quantity.
        """
        return parse_bytes(self.requested) if self.requested else 0


class StorageClass(_Object, frozen=True, rename="camel", omit_defaults=True):
    """A StorageClass. Since 0.1."""

    provisioner: str | None = None
    parameters: dict[str, str] | None = None
    reclaim_policy: str | None = None
    mount_options: tuple[str, ...] | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[dict[str, Any], ...] | None = None
    allow_volume_expansion: bool | None = None


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A reference to an object; on a volume, its claim. Since 0.1."""

    api_version: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class VolumeSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A volume's spec. The sources are those of the API; exactly one is set on a valid volume. Since 0.1."""

    capacity: dict[str, str | int | float] | None = None
    access_modes: tuple[str, ...] | None = None
    persistent_volume_reclaim_policy: str | None = None
    storage_class_name: str | None = None
    mount_options: tuple[str, ...] | None = None
    volume_mode: str | None = None
    node_affinity: dict[str, Any] | None = None
    claim_ref: ObjectReference | None = None
    nfs: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    local: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    fc: dict[str, Any] | None = None
    cephfs: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
    glusterfs: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    flex_volume: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    quobyte: dict[str, Any] | None = None
    storageos: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = msgspec.field(default=None, name="awsElasticBlockStore")
    gce_persistent_disk: dict[str, Any] | None = msgspec.field(default=None, name="gcePersistentDisk")


class VolumeStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A volume's status. Since 0.1."""

    phase: str | None = None


class Volume(_Object, frozen=True, rename="camel", omit_defaults=True):
    """A PersistentVolume. Since 0.1."""

    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus | None = None

    @property
    def phase(self) -> str:
        """``Pending``, ``Available``, ``Bound``, ``Released``, ``Failed`` or "" (not set yet)."""
        return (self.status.phase if self.status else None) or ""

    @property
    def reclaim_policy(self) -> str:
        """The reclaim policy; the API's default for a volume is Retain."""
        return self.spec.persistent_volume_reclaim_policy or "Retain"

    @property
    def claim_key(self) -> str:
        """``namespace/name`` of the claim it was made for, "" if none."""
        ref = self.spec.claim_ref
        return f"{ref.namespace or ''}/{ref.name or ''}" if ref else ""

    @property
    def claim_uid(self) -> str:
        """The uid of the claim it was made for, "" if none."""
        return (self.spec.claim_ref.uid if self.spec.claim_ref else None) or ""

    @property
    def policy(self) -> str:
        """The frozen delete policy (one of :data:`POLICIES`), or "" if another program made the volume."""
        return self.annotations.get(ANN_ON_DELETE, "")

    @property
    def record(self) -> Mapping[str, str]:
        """What the plugin wanted to find again; {} if nothing, or nothing readable, is there. Hostile text."""
        try:
            return msgspec.json.decode(self.annotations.get(ANN_RECORD, "{}"), type=dict[str, str])
        except (msgspec.DecodeError, ValueError):
            return {}


class ProvisionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend is asked to make. A private copy: changing it changes nothing. Since 0.1.

    Attributes:
        pv_name: the name the volume will have, ``pvc-<claim uid>`` by default. Provisioning is idempotent for it:
            asked again with the same name, answer with the same asset.
        claim: the claim, as read from the API just now.
        storage_class: the class, as cached.
        provisioner: the provisioner name the class asks for; one of the backend's.
        selected_node: the node the scheduler chose, or "".
        policy: what will be frozen on the volume: one of :data:`POLICIES`.
    """

    pv_name: str
    claim: Claim
    storage_class: StorageClass
    provisioner: str
    selected_node: str = ""
    policy: str = "delete"

    @property
    def parameters(self) -> Mapping[str, str]:
        """The class's parameters."""
        return self.storage_class.parameters or {}


class Note(msgspec.Struct, frozen=True):
    """An event a hook wants on its claim or volume. Since 0.1.

    Attributes:
        reason: CamelCase, for example ``"VolumeAdopted"``.
        message: what happened, naming the path.
        type: ``"Normal"`` or ``"Warning"``.
    """

    reason: str
    message: str
    type: str = "Normal"


class Provisioned(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend made. The host builds the PersistentVolume from it. Since 0.1.

    Attributes:
        source: exactly one volume source as the API writes it, for example ``{"nfs": {"server": ..., "path": ...}}``.
        capacity: bytes; None means what the claim requests.
        access_modes: None means the claim's.
        mount_options: None means the class's.
        node_affinity: as the API writes it, or None.
        labels: for the volume; may not use the ``prov-host/`` prefix.
        annotations: for the volume; those the host writes itself cannot be set.
        record: a small mapping that ``delete`` finds again as ``volume.record``; at most 16 kB as JSON.
        notes: events for the claim.
    """

    source: Mapping[str, Any]
    capacity: int | None = None
    access_modes: tuple[str, ...] | None = None
    mount_options: tuple[str, ...] | None = None
    node_affinity: Mapping[str, Any] | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    record: Mapping[str, str] = msgspec.field(default_factory=dict)
    notes: tuple[Note, ...] = ()


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What ``delete`` or ``archive`` did; returning None instead is fine. Since 0.1.

    Attributes:
        message: for the event on the volume, naming the path.
        already_absent: there was nothing to do, and the storage is proved to be the right one.
        path: where the data was or is now, for logs and observers.
        notes: further events for the volume.
    """

    message: str = ""
    already_absent: bool = False
    path: str = ""
    notes: tuple[Note, ...] = ()


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that exists on a backend's storage, as ``inventory`` reports it. Since 0.1.

    Attributes:
        id: unique within the backend, stable over time: a path or a handle.
        pv_name: the volume it was made for, or "" if that is not known.
        provisioner: the provisioner name it was made under, or "".
        claim: ``namespace/name`` it was made for, or "".
        claim_uid: that claim's uid, or "".
        kind: ``"volume"``, ``"archive"``, ``"trash"`` or ``"unknown"``.
        size: bytes, or None if not measured.
        detail: anything else worth showing.
    """

    id: str
    pv_name: str = ""
    provisioner: str = ""
    claim: str = ""
    claim_uid: str = ""
    kind: str = "volume"
    size: int | None = None
    detail: Mapping[str, str] = msgspec.field(default_factory=dict)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One finished operation, as ``observe`` sees it. Since 0.1.

    Attributes:
        operation: ``"provision"``, ``"delete"`` or ``"archive"``.
        plugin: the backend's plugin name.
        provisioner: the provisioner name.
        outcome: ``"ok"``, or the snake_case name of the outcome raised, for example ``"provision_error"``.
        claim: ``namespace/name``, or "".
        claim_uid: the claim's uid, or "".
        volume: the volume's name.
        class_name: the storage class, or "".
        duration: seconds in the hook.
        message: the error's or the removal's words, or "".
        path: where the data is or was, if the plugin told.
    """

    operation: str
    plugin: str
    provisioner: str
    outcome: str
    claim: str = ""
    claim_uid: str = ""
    volume: str = ""
    class_name: str = ""
    duration: float = 0.0
    message: str = ""
    path: str = ""


def private_copy(value: _T) -> _T:
    """A deep copy of a Struct that shares no mutable part with it.

    Args:
        value: any Struct of this module.

    Returns:
        An equal Struct.

    Callable from any thread. Since 0.1.
    """
    return msgspec.convert(msgspec.to_builtins(value), type(value))
