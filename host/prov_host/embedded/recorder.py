"""Events of the cluster's own controllers."""

from __future__ import annotations

from typing import Any

from prov_host.embedded.store import Store
from prov_host.embedded.writes import Writer

__all__ = ["Recorder"]


class Recorder:
    """Writes each event once per object.

    The real controllers repeat events at every resync and count; there is no resync here.

    Args:
        store: where events go.
        writer: for time and names.
        component: the source.
    """

    def __init__(self, store: Store, writer: Writer, component: str) -> None:
        self._events = store.tables["events"]
        self._namespaces = store.tables["namespaces"]
        self._writer = writer
        self._component = component
        self._told: dict[tuple[str, str, str], None] = {}

    def emit(self, about: dict[str, Any], type: str, reason: str, message: str) -> None:
        """Record an event about a claim or a volume."""
        metadata = about["metadata"]
        identity = (metadata["uid"], reason, message)
        if identity in self._told:
            return
        self._told[identity] = None
        if len(self._told) > 50_000:
            del self._told[next(iter(self._told))]
        namespace = metadata.get("namespace", "default")
        home = self._namespaces.get(namespace)
        if home is None or "deletionTimestamp" in home.obj["metadata"]:
            return
        now, uid = self._writer.now(), self._writer.uid()
        regarding = {
            "kind": "PersistentVolumeClaim" if "namespace" in metadata else "PersistentVolume",
            **({"namespace": namespace} if "namespace" in metadata else {}),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "apiVersion": "v1",
            "resourceVersion": metadata["resourceVersion"],
        }
        event = {
            "metadata": {
                "name": f"{metadata['name'][:200]}.{uid.replace('-', '')[:16]}",
                "namespace": namespace,
                "uid": uid,
                "creationTimestamp": now,
            },
            "involvedObject": regarding,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": type,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        self._events.put(event)
