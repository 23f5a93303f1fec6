"""Other shapes of objects: tables, from which kubectl gets its columns, and metadata alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from prov_host.embedded.lists import Page
from prov_host.embedded.store import Stored
from prov_host.embedded.types import ResourceType

__all__ = ["Shape", "list_metadata", "metadata_list", "metadata_only", "render", "wanted"]

Object = Mapping[str, Any]
Shape = Literal["", "table", "metadata", "metadata list"]
_META_VERSION = "meta.k8s.io/v1"
Column = tuple[str, str, int]  # name, format, priority
_NAME: Column = ("Name", "name", 0)
_SHORT_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_UNSET = "<unset>"


def wanted(accept: str) -> Shape:
    """The shape that a client prefers; "" for whole objects."""
    parameters = accept.partition(",")[0].replace(" ", "").split(";")[1:]
    if "v=v1" not in parameters:
        return ""
    if "as=Table" in parameters:
        return "table"
    if "as=PartialObjectMetadata" in parameters:
        return "metadata"
    return "metadata list" if "as=PartialObjectMetadataList" in parameters else ""


def metadata_only(stored: Stored) -> bytes:
    """An object without everything but its metadata."""
    return msgspec.json.encode(_partial(stored))


def metadata_list(page: Page) -> bytes:
    """A page of objects without everything but their metadata."""
    head = {"kind": "PartialObjectMetadataList", "apiVersion": _META_VERSION, "metadata": list_metadata(page)}
    return msgspec.json.encode({**head, "items": [_partial(stored) for stored in page.items]})


def _partial(stored: Stored) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META_VERSION, "metadata": stored.obj["metadata"]}


def list_metadata(page: Page) -> dict[str, Any]:
    """The metadata of a list."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_:
        metadata["continue"] = page.continue_
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def render(resource: ResourceType, page: Page, now: dt.datetime, *, columns: bool = True) -> bytes:
    """A page as a Table.

    Args:
        resource: the kind.
        page: the objects.
        now: for ages.
        columns: whether to describe the columns; a watch does it in its first event only.
    """
    definitions, cells = _TABLES.get(resource.plural, (_PLAIN, _plain))
    rows = [{"cells": cells(stored.obj, now), "object": _partial(stored)} for stored in page.items]
    table = {
        "kind": "Table",
        "apiVersion": _META_VERSION,
        "metadata": list_metadata(page),
        "columnDefinitions": [
            {"name": name, "type": "string", "format": style, "description": "", "priority": priority}
            for name, style, priority in definitions
        ]
        if columns
        else None,
        "rows": rows,
    }
    return msgspec.json.encode(table)


def _ago(stamp: str | None, now: dt.datetime) -> str:
    if not stamp:
        return "<unknown>"
    seconds = int((now - dt.datetime.fromisoformat(stamp)).total_seconds())
    return _duration(seconds)


def _duration(seconds: int) -> str:
    """As kubectl shows ages: at most two units, coarser as it grows."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        rest = seconds % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = seconds // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    rest = days % 365
    return f"{days // 365}y{rest}d" if days < 365 * 8 and rest else f"{days // 365}y"


def _age(obj: Object, now: dt.datetime) -> str:
    return _ago(obj["metadata"].get("creationTimestamp"), now)


def _modes(modes: Any) -> str:
    return ",".join(_SHORT_MODES.get(mode, mode) for mode in modes or ())


def _claim(obj: Object, now: dt.datetime) -> list[Any]:
    spec, status, metadata = obj["spec"], obj.get("status", {}), obj["metadata"]
    phase = "Terminating" if "deletionTimestamp" in metadata else status.get("phase", "")
    bound = bool(spec.get("volumeName"))
    annotations = metadata.get("annotations", {})
    return [
        metadata["name"],
        phase,
        spec.get("volumeName", ""),
        status.get("capacity", {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        annotations.get("volume.beta.kubernetes.io/storage-class", spec.get("storageClassName", "")),
        spec.get("volumeAttributesClassName") or _UNSET,
        _age(obj, now),
        spec.get("volumeMode", _UNSET),
    ]


def _volume(obj: Object, now: dt.datetime) -> list[Any]:
    spec, status, metadata = obj["spec"], obj.get("status", {}), obj["metadata"]
    reference = spec.get("claimRef") or {}
    return [
        metadata["name"],
        spec.get("capacity", {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if "deletionTimestamp" in metadata else status.get("phase", ""),
        f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else "",
        metadata.get("annotations", {}).get(
            "volume.beta.kubernetes.io/storage-class", spec.get("storageClassName", "")
        ),
        spec.get("volumeAttributesClassName") or _UNSET,
        status.get("reason", ""),
        _age(obj, now),
        spec.get("volumeMode", _UNSET),
    ]


def _class(obj: Object, now: dt.datetime) -> list[Any]:
    metadata = obj["metadata"]
    default = metadata.get("annotations", {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        metadata["name"] + (" (default)" if default else ""),
        obj["provisioner"],
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        obj.get("allowVolumeExpansion", False),
        _age(obj, now),
    ]


def _event(obj: Object, now: dt.datetime) -> list[Any]:
    about, source = obj["involvedObject"], obj.get("source", {})
    kind, name = about.get("kind", "").lower(), about.get("name", "")
    component = source.get("component") or obj.get("reportingComponent", "")
    host = source.get("host") or obj.get("reportingInstance", "")
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    return [
        _ago(obj.get("lastTimestamp") or first, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if component and host else component,
        obj.get("message", "").strip(),
        _ago(first, now),
        obj.get("count") or 1,
        obj["metadata"]["name"],
    ]


def _lease(obj: Object, now: dt.datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj["spec"].get("holderIdentity", ""), _age(obj, now)]


def _endpoints(obj: Object, now: dt.datetime) -> list[Any]:
    addresses = [
        f"{address['ip']}:{port['port']}" if port else address["ip"]
        for subset in obj.get("subsets", ())
        for port in subset.get("ports") or [None]
        for address in subset.get("addresses", ())
    ]
    more = f" + {len(addresses) - 3} more..." if len(addresses) > 3 else ""
    return [obj["metadata"]["name"], ",".join(addresses[:3]) + more or "<none>", _age(obj, now)]


def _namespace(obj: Object, now: dt.datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj["status"].get("phase", ""), _age(obj, now)]


def _node(obj: Object, now: dt.datetime) -> list[Any]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
    ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), None)
    states = [("Ready" if ready["status"] == "True" else "NotReady") if ready else "Unknown"]
    if spec.get("unschedulable"):
        states.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(label.removeprefix(prefix) for label in metadata.get("labels", {}) if label.startswith(prefix))
    addresses = {a["type"]: a["address"] for a in status.get("addresses", ())}
    info = status.get("nodeInfo") or {}
    return [
        metadata["name"],
        ",".join(states),
        ",".join(roles) or "<none>",
        _age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _pod(obj: Object, now: dt.datetime) -> list[Any]:
    containers = obj["spec"].get("containers", ())
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else obj["status"].get("phase", "")
    return [obj["metadata"]["name"], f"0/{len(containers)}", phase, "0", _age(obj, now)]


def _plain(obj: Object, now: dt.datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp", "")]


def _columns(text: str, wide: str = "") -> tuple[Column, ...]:
    names = [_NAME if name == "Name" else (name, "", 0) for name in text.split("|")]
    return (*names, *((name, "", 1) for name in wide.split("|") if name))


_PLAIN = _columns("Name|Created At")
_EVENT_COLUMNS: tuple[Column, ...] = (
    *(("Last Seen", "", 0), ("Type", "", 0), ("Reason", "", 0), ("Object", "", 0), ("Subobject", "", 1)),
    *(("Source", "", 1), ("Message", "", 0), ("First Seen", "", 1), ("Count", "", 1), ("Name", "name", 1)),
)
_CLASS_COLUMNS = "|StorageClass|VolumeAttributesClass|"
_TABLES: dict[str, tuple[tuple[Column, ...], Callable[[Object, dt.datetime], list[Any]]]] = {
    "persistentvolumeclaims": (
        _columns("Name|Status|Volume|Capacity|Access Modes" + _CLASS_COLUMNS + "Age", "VolumeMode"),
        _claim,
    ),
    "persistentvolumes": (
        _columns(
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim" + _CLASS_COLUMNS + "Reason|Age", "VolumeMode"
        ),
        _volume,
    ),
    "storageclasses": (
        _columns("Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age"),
        _class,
    ),
    "events": (_EVENT_COLUMNS, _event),
    "leases": (_columns("Name|Holder|Age"), _lease),
    "endpoints": (_columns("Name|Endpoints|Age"), _endpoints),
    "namespaces": (_columns("Name|Status|Age"), _namespace),
    "nodes": (
        _columns("Name|Status|Roles|Age|Version", "Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime"),
        _node,
    ),
    "pods": (_columns("Name|Ready|Status|Restarts|Age"), _pod),
}
