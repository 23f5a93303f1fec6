"""What the control plane does for volumes: annotate claims for provisioners, bind, release, notice what is lost.

As the persistent volume controller of kube-controller-manager 1.37 does it, in the same order of writes, so that a
watch sees the same steps. Two functions hold the rules, one for claims and one for volumes, and each may be called
again at any time. They are called for every object that changed and for those that its change concerns; where the real
controller finds the latter by looking at everything every 15 seconds, this one keeps indexes and acts at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from prov_host.embedded import rules
from prov_host.embedded.matching import (
    annotations_of,
    best_match,
    claim_key,
    class_name,
    is_bound_to,
    mismatch,
    reference_to,
    same_mode,
)
from prov_host.embedded.protection import Protection
from prov_host.embedded.recorder import Recorder
from prov_host.embedded.store import Change, Store
from prov_host.embedded.types import ResourceType
from prov_host.embedded.volume_rules import BETA_CLASS
from prov_host.embedded.writes import Writer

__all__ = ["VolumeControllers"]

logger = logging.getLogger(__name__)
Object = dict[str, Any]

PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_BATCH = 64  # objects per turn of the event loop


class VolumeControllers:
    """The controllers of one cluster. They run on the event loop, a few objects at a time, whenever something changed.

    Args:
        store: what they watch.
        writer: what they write with.
    """

    def __init__(self, store: Store, writer: Writer) -> None:
        self._claims = store.tables["persistentvolumeclaims"]
        self._volumes = store.tables["persistentvolumes"]
        self._classes = store.tables["storageclasses.storage.k8s.io"]
        self._writer = writer
        self._recorder = Recorder(store, writer, "persistentvolume-controller")
        self._protection = Protection(store, writer)
        self._dirty: dict[tuple[str, str], None] = {}
        self._volumes_of: dict[str, set[str]] = {}
        self._available: set[str] = set()
        self._unbound: set[str] = set()
        self._handle: asyncio.Handle | None = None
        self._stopped = False
        store.listeners.append(self._changed)

    def stop(self) -> None:
        """Do nothing any more. Idempotent."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    # -------------------------------------------------------------------------------- what has to be looked at

    def _changed(self, resource: ResourceType, change: Change) -> None:
        kind, obj = resource.plural, change.last.obj
        if kind == "persistentvolumeclaims":
            self._index_claim(change)
            self._touch(kind, change.key)
            for name in self._volumes_of.get(change.key, ()):
                self._touch("persistentvolumes", name)
        elif kind == "persistentvolumes":
            self._index_volume(change)
            self._touch(kind, change.key)
            for reference in {claim_key(stored.obj) for stored in (change.before, change.after) if stored}:
                if reference:
                    self._touch("persistentvolumeclaims", reference)
            if change.key in self._available:
                for key in self._unbound:
                    self._touch("persistentvolumeclaims", key)
        elif kind == "storageclasses":
            for key in self._unbound:
                self._touch("persistentvolumeclaims", key)
        elif kind in {"namespaces", "pods"}:
            self._touch(kind, change.key)
        if "deletionTimestamp" in self._terminating_namespace(obj):
            self._touch("namespaces", obj["metadata"]["namespace"])

    def _terminating_namespace(self, obj: Object) -> Mapping[str, Any]:
        return self._protection.namespace_metadata(obj["metadata"].get("namespace", ""))

    def _index_claim(self, change: Change) -> None:
        waiting = change.after is not None and not change.after.obj["spec"].get("volumeName")
        (self._unbound.add if waiting else self._unbound.discard)(change.key)

    def _index_volume(self, change: Change) -> None:
        for stored, gone in ((change.before, True), (change.after, False)):
            reference = claim_key(stored.obj) if stored is not None else ""
            if reference:
                names = self._volumes_of.setdefault(reference, set())
                (names.discard if gone else names.add)(change.key)
                if not names:
                    del self._volumes_of[reference]
        free = change.after is not None and "claimRef" not in change.after.obj["spec"]
        (self._available.add if free else self._available.discard)(change.key)

    def _touch(self, kind: str, key: str) -> None:
        self._dirty[kind, key] = None
        self._schedule()

    def _schedule(self) -> None:
        if self._handle is None and not self._stopped:
            try:
                self._handle = asyncio.get_running_loop().call_soon(self._run)
            except RuntimeError:  # not on a loop yet: the next change will bring it up
                self._handle = None

    def _run(self) -> None:
        self._handle = None
        for _ in range(_BATCH):
            if not self._dirty or self._stopped:
                return
            kind, key = next(iter(self._dirty))
            del self._dirty[kind, key]
            try:
                self._sync(kind, key)
            except Exception:
                logger.exception("embedded cluster: the volume controller failed on %s %s", kind, key)
        if self._dirty:
            self._schedule()

    def _sync(self, kind: str, key: str) -> None:
        if kind == "persistentvolumeclaims":
            self.sync_claim(key)
        elif kind == "persistentvolumes":
            self.sync_volume(key)
        self._protection.sync(kind, key)

    # ---------------------------------------------------------------------------------------------- claims

    def sync_claim(self, key: str) -> None:
        """Bring a claim forward."""
        stored = self._claims.get(key)
        if stored is None:
            return
        if BIND_COMPLETED in annotations_of(stored.obj):
            self._sync_bound_claim(key, stored.obj)
        else:
            self._sync_unbound_claim(key, stored.obj)

    def _sync_bound_claim(self, key: str, claim: Object) -> None:
        name = claim["spec"].get("volumeName")
        if not name:
            why = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
            self._lose(key, claim, "ClaimLost", why)
            return
        volume = self._volumes.get(name)
        if volume is None:
            self._lose(
                key, claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            )
            return
        reference = volume.obj["spec"].get("claimRef")
        if reference is None or reference.get("uid") == claim["metadata"]["uid"]:
            self._bind(name, key)
        else:
            why = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lose(key, claim, "ClaimMisbound", why)

    def _sync_unbound_claim(self, key: str, claim: Object) -> None:
        name = claim["spec"].get("volumeName")
        if name:
            volume = self._volumes.get(name)
            if volume is None:
                return
            if "claimRef" not in volume.obj["spec"]:
                problem = mismatch(volume.obj, claim)
                if problem:
                    self._recorder.emit(
                        claim, "Warning", "VolumeMismatch", f'Cannot bind to requested volume "{name}": {problem}'
                    )
                    return
                self._bind(name, key)
            elif is_bound_to(volume.obj, claim):
                self._bind(name, key)
            return
        delayed = self._is_delayed(claim)
        match = self._best_match(key, claim, delayed=delayed)
        if match:
            self._bind(match, key)
            return
        if "storageClassName" not in claim["spec"] and BETA_CLASS not in annotations_of(claim):
            default = rules.default_class_name(stored.obj for stored in self._classes.objects.values())
            if default:
                self._writer.change(self._claims, key, lambda old: _with(old, "spec", storageClassName=default))
                return
        if delayed and not annotations_of(claim).get(SELECTED_NODE):
            why = "waiting for first consumer to be created before binding"
            self._recorder.emit(claim, "Normal", "WaitForFirstConsumer", why)
        elif class_name(claim):
            self._request_provisioning(key, claim)
        else:
            why = "no persistent volumes available for this claim and no storage class is set"
            self._recorder.emit(claim, "Normal", "FailedBinding", why)

    def _request_provisioning(self, key: str, claim: Object) -> None:
        name = class_name(claim)
        storage_class = self._classes.get(name)
        if storage_class is None:
            why = f'storageclass.storage.k8s.io "{name}" not found'
            self._recorder.emit(claim, "Warning", "ProvisioningFailed", why)
            return
        provisioner = storage_class.obj["provisioner"]
        if provisioner == _NO_PROVISIONER:
            why = "no volume plugin matched name: kubernetes.io/no-provisioner"
            self._recorder.emit(claim, "Warning", "ProvisioningFailed", why)
            return
        if annotations_of(claim).get(PROVISIONER) != provisioner:
            keys = {BETA_PROVISIONER: provisioner, PROVISIONER: provisioner}
            self._writer.change(self._claims, key, lambda old: _annotated(old, keys))
        why = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._recorder.emit(claim, "Normal", "ExternalProvisioning", why)

    def _is_delayed(self, claim: Object) -> bool:
        storage_class = self._classes.get(class_name(claim))
        return storage_class is not None and storage_class.obj.get("volumeBindingMode") == "WaitForFirstConsumer"

    def _lose(self, key: str, claim: Object, reason: str, message: str) -> None:
        if claim["status"].get("phase") == "Lost":
            return

        def edit(old: Object) -> Object:
            status = {name: value for name, value in old["status"].items() if name not in {"accessModes", "capacity"}}
            return {**old, "status": {**status, "phase": "Lost"}}

        self._writer.change(self._claims, key, edit)
        self._recorder.emit(claim, "Warning", reason, message)

    def _best_match(self, key: str, claim: Object, *, delayed: bool) -> str:
        reserved = (self._volumes.objects[name].obj for name in sorted(self._volumes_of.get(key, ())))
        # With a class that waits for its consumer, the scheduler chooses among free volumes.
        return best_match(claim, reserved, () if delayed else self._free_volumes())

    def _free_volumes(self) -> Iterator[Object]:
        for name in self._available:
            volume = self._volumes.objects[name].obj
            if volume["status"].get("phase") == "Available" and "deletionTimestamp" not in volume["metadata"]:
                yield volume

    # ---------------------------------------------------------------------------------------------- binding

    def _bind(self, name: str, key: str) -> None:
        """Bind both sides: the volume, its phase, the claim, its status. Each step is one write, if it is needed."""
        claim = self._claims.objects[key].obj

        def bind_volume(old: Object) -> Object:
            reference, new = old["spec"].get("claimRef"), old
            if reference is None or any(
                reference.get(field) != claim["metadata"][field] for field in ("namespace", "name", "uid")
            ):
                new = _with(old, "spec", claimRef=reference_to(claim))
            return new if is_bound_to(old, claim) else _annotated(new, {BOUND_BY_CONTROLLER: "yes"})

        def bind_claim(old: Object) -> Object:
            new = old
            if old["spec"].get("volumeName") != name:
                new = _annotated(_with(old, "spec", volumeName=name), {BOUND_BY_CONTROLLER: "yes"})
            return new if BIND_COMPLETED in annotations_of(new) else _annotated(new, {BIND_COMPLETED: "yes"})

        self._writer.change(self._volumes, name, bind_volume)
        self._set_phase(name, "Bound")
        self._writer.change(self._claims, key, bind_claim)
        spec = self._volumes.objects[name].obj["spec"]
        status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}
        self._writer.change(self._claims, key, lambda old: _with(old, "status", **status))

    def _set_phase(self, name: str, phase: str, message: str = "") -> None:
        def edit(old: Object) -> Object:
            if old["status"].get("phase") == phase:
                return old
            fields = {"phase": phase, "lastPhaseTransitionTime": self._writer.now()}
            status = {key: value for key, value in old["status"].items() if key not in {"message", "reason"}}
            return {**old, "status": {**status, **fields, **({"message": message} if message else {})}}

        self._writer.change(self._volumes, name, edit)

    # ---------------------------------------------------------------------------------------------- volumes

    def sync_volume(self, name: str) -> None:
        """Bring a volume forward."""
        stored = self._volumes.get(name)
        if stored is None:
            return
        volume = stored.obj
        reference = volume["spec"].get("claimRef")
        if reference is None or not reference.get("uid"):
            self._set_phase(name, "Available")
            return
        key = claim_key(volume)
        claim = self._claims.get(key)
        if claim is None or claim.obj["metadata"]["uid"] != reference["uid"]:
            self._release(name, volume)
        elif not claim.obj["spec"].get("volumeName"):
            if same_mode(volume, claim.obj):
                self._touch("persistentvolumeclaims", key)
            else:
                about = reference["name"]
                what = f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{about}"'
                self._recorder.emit(volume, "Warning", "VolumeMismatch", f"{what} due to incompatible volumeMode.")
        elif claim.obj["spec"]["volumeName"] == name:
            self._set_phase(name, "Bound")
        elif PROVISIONED_BY in annotations_of(volume) and volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            self._release(name, volume)
        else:
            self._unbind(name)

    def _release(self, name: str, volume: Object) -> None:
        if volume["status"].get("phase") in {"Released", "Failed"}:
            return
        self._set_phase(name, "Released")
        if volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" and PROVISIONED_BY not in annotations_of(volume):
            # Nobody's: the real controller has a deleter of its own for some sources, which touches this machine.
            why = f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
            if "hostPath" in volume["spec"]:
                path = volume["spec"]["hostPath"]["path"]
                why = f"host_path deleter only supports /tmp/.+ but received provided {path}"
            self._set_phase(name, "Failed", why)
            self._recorder.emit(volume, "Warning", "VolumeFailedDelete", why)

    def _unbind(self, name: str) -> None:
        def edit(old: Object) -> Object:
            if BOUND_BY_CONTROLLER in annotations_of(old):
                spec = {key: value for key, value in old["spec"].items() if key != "claimRef"}
                kept = {key: value for key, value in annotations_of(old).items() if key != BOUND_BY_CONTROLLER}
                return {**old, "metadata": {**old["metadata"], "annotations": kept}, "spec": spec}
            reference = {key: value for key, value in old["spec"]["claimRef"].items() if key != "uid"}
            return _with(old, "spec", claimRef=reference)

        self._writer.change(self._volumes, name, edit)
        self._set_phase(name, "Available")


def _with(old: Object, part: str, **fields: Any) -> Object:
    return {**old, part: {**old[part], **fields}}


def _annotated(old: Object, more: Mapping[str, str]) -> Object:
    return _with(old, "metadata", annotations={**annotations_of(old), **more})
