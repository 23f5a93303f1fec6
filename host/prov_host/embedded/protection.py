"""The finalizers that keep claims and volumes while they are in use, and the end of namespaces.

As the protection controllers of kube-controller-manager do it: a claim goes once no pod uses it, a volume once it is
not bound; whoever takes the finalizer off an object that lives on gets it back. A terminating namespace is emptied and
goes when it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prov_host.embedded.rules import BOUND_FINALIZERS
from prov_host.embedded.store import Store, Table
from prov_host.embedded.writes import Writer

__all__ = ["Protection"]

Object = dict[str, Any]


class Protection:
    """Three small controllers; :class:`~prov_host.embedded.binder.VolumeControllers` calls them.

    Args:
        store: what they look at.
        writer: what they write with.
    """

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._claims = store.tables["persistentvolumeclaims"]
        self._pods = store.tables["pods"]
        self._namespaces = store.tables["namespaces"]

    def sync(self, kind: str, key: str) -> None:
        """Look at an object that changed."""
        if kind == "persistentvolumeclaims":
            self._sync_claim(key)
        elif kind == "persistentvolumes":
            self._sync_volume(key)
        elif kind == "pods":
            namespace = key.partition("/")[0] + "/"
            for claim in [claim for claim in self._claims.objects if claim.startswith(namespace)]:
                self._sync_claim(claim)
        elif kind == "namespaces":
            self._sync_namespace(key)

    def namespace_metadata(self, name: str) -> Mapping[str, Any]:
        """The metadata of a namespace, or nothing."""
        stored = self._namespaces.get(name) if name else None
        return stored.obj["metadata"] if stored is not None else {}

    def _sync_claim(self, key: str) -> None:
        stored = self._claims.get(key)
        if stored is None:
            return
        used = self._in_use(stored.obj)
        self._protect(self._claims, key, stored.obj, needed=used)
        if not used and stored.obj["status"].get("phase") == "Bound":
            self._writer.change(self._claims, key, self._mark_unused)

    def _mark_unused(self, claim: Object) -> Object:
        conditions = claim["status"].get("conditions", [])
        if any(condition["type"] == "Unused" for condition in conditions):
            return claim
        condition = {
            "type": "Unused",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": self._writer.now(),
            "reason": "NoPodsUsingPVC",
            "message": "No pods are currently referencing this PVC",
        }
        return {**claim, "status": {**claim["status"], "conditions": [*conditions, condition]}}

    def _sync_volume(self, key: str) -> None:
        table = self._store.tables["persistentvolumes"]
        stored = table.get(key)
        if stored is not None:
            self._protect(table, key, stored.obj, needed=stored.obj["status"].get("phase") == "Bound")

    def _protect(self, table: Table, key: str, obj: Object, *, needed: bool) -> None:
        metadata, finalizer = obj["metadata"], BOUND_FINALIZERS[table.resource.plural]
        finalizers = metadata.get("finalizers", [])
        if "deletionTimestamp" not in metadata:
            if finalizer in finalizers:
                return
            finalizers = [*finalizers, finalizer]
        elif needed or finalizer not in finalizers:
            return
        else:
            finalizers = [name for name in finalizers if name != finalizer]
        self._writer.change(table, key, lambda old: {**old, "metadata": {**old["metadata"], "finalizers": finalizers}})

    def _in_use(self, claim: Object) -> bool:
        metadata = claim["metadata"]
        for key, stored in self._pods.objects.items():
            if not key.startswith(metadata["namespace"] + "/"):
                continue
            spec = stored.obj["spec"]
            if not spec.get("nodeName"):
                continue  # no kubelet will start it with a claim that is terminating
            for volume in spec.get("volumes", ()):
                if volume.get("persistentVolumeClaim", {}).get("claimName") == metadata["name"]:
                    return True
        return False

    def _sync_namespace(self, name: str) -> None:
        if "deletionTimestamp" not in self.namespace_metadata(name):
            return
        left = False
        for table in self._store.tables.values():
            if table.resource.namespaced:
                for key in [key for key in table.objects if key.startswith(f"{name}/")]:
                    self._writer.remove(table, key)
                    left = left or key in table.objects
        if not left:
            self._writer.change(self._namespaces, name, lambda old: {**old, "spec": {}})
