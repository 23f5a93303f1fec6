"""What the API server does to an object between decoding and storing, per kind: defaults, admission, validation.

Claims, volumes and classes are in :mod:`prov_host.embedded.volume_rules`; the smaller kinds are here. ``create`` and
``update`` are the two ways in.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from prov_host.embedded import volume_rules
from prov_host.embedded.failures import FieldError, bad_request, forbidden, invalid
from prov_host.embedded.types import ResourceType
from prov_host.embedded.validation import check_metadata, check_metadata_update, qualified_name_problems

__all__ = ["BOUND_FINALIZERS", "create", "update"]

Object = dict[str, Any]
BOUND_FINALIZERS = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}
"""The protection finalizers, which admission adds to every new claim and volume."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion"),
    *("kubeProxyVersion", "operatingSystem", "architecture"),
)
_NEW_STYLE_EVENT = ("reportingComponent", "reportingInstance", "action", "reason")
_SYSTEM_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
)


def create(resource: ResourceType, obj: Object, *, now: str, classes: Iterable[Mapping[str, Any]]) -> None:
    """Complete and check a new object; its metadata is complete but for the revision.

    Args:
        resource: its kind.
        obj: fresh from :func:`~prov_host.embedded.schema.clean`; changed in place.
        now: the time, as in metadata.
        classes: all storage classes, for the default one.

    Raises:
        ApiFailure: 422 with all mistakes.
    """
    metadata, kind = obj["metadata"], resource.plural
    if kind in BOUND_FINALIZERS:
        finalizers = metadata.get("finalizers", [])
        if BOUND_FINALIZERS[kind] not in finalizers:
            metadata["finalizers"] = [*finalizers, BOUND_FINALIZERS[kind]]
    if kind == "persistentvolumeclaims":
        volume_rules.default_claim(obj)
        _choose_default_class(obj, classes)
    elif kind == "persistentvolumes":
        volume_rules.default_volume(obj, now)
    elif kind == "storageclasses":
        volume_rules.default_class(obj)
    elif kind == "namespaces":
        metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata.get("name", "")}
        obj["spec"]["finalizers"] = ["kubernetes"]
        obj["status"] = {"phase": "Active"}
    elif kind == "nodes":
        _default_node(obj)
    elif kind == "pods":
        obj["status"].setdefault("phase", "Pending")
    errors = check_metadata(resource, metadata) + _check(resource, obj)
    if errors:
        raise invalid(resource.kind, resource.group, metadata.get("name", ""), errors)


def update(
    resource: ResourceType, new: Object, old: Object, *, status: bool, now: str, classes: Iterable[Mapping[str, Any]]
) -> None:
    """Complete and check a changed object.

    Args:
        resource: its kind.
        new: fresh from :func:`~prov_host.embedded.schema.clean`; changed in place.
        old: as it is stored.
        status: whether the request went to the status subresource.
        now: the time, as in metadata.
        classes: all storage classes, for the right to resize.

    Raises:
        ApiFailure: 422 with all mistakes, 403 of admission.
    """
    metadata, kind = new["metadata"], resource.plural
    for field in _SYSTEM_FIELDS:
        if field in old["metadata"]:
            if field != "uid" or "uid" not in metadata:
                metadata[field] = old["metadata"][field]
        else:
            metadata.pop(field, None)
    if "generateName" in old["metadata"]:
        metadata.setdefault("generateName", old["metadata"]["generateName"])
    if resource.status:
        part = "spec" if status else "status"
        if part in old:
            new[part] = old[part]
        else:
            new.pop(part, None)
    errors = check_metadata_update(resource, metadata, old["metadata"])
    if kind == "persistentvolumeclaims" and not status:
        volume_rules.keep_claim(new, old)
        errors += volume_rules.check_claim_update(new, old)
    elif kind == "persistentvolumes":
        if status:
            _stamp_phase(new, old, now)
        else:
            volume_rules.keep_volume(new, old)
            errors += volume_rules.check_volume(new) + volume_rules.check_volume_update(new, old)
    elif kind == "storageclasses":
        volume_rules.default_class(new)
        errors += volume_rules.check_class_update(new, old)
    elif kind == "namespaces":
        metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata["name"]}
        if not status:
            new["spec"] = old["spec"]
    elif not status:
        errors += _check(resource, new)
    if errors:
        raise invalid(resource.kind, resource.group, metadata["name"], errors)
    if kind == "persistentvolumeclaims" and not status:
        _admit_resize(new, old, classes)


def _check(resource: ResourceType, obj: Object) -> list[FieldError]:
    kind = resource.plural
    if kind == "persistentvolumeclaims":
        return volume_rules.check_claim(obj)
    if kind == "persistentvolumes":
        return volume_rules.check_volume(obj)
    if kind == "storageclasses":
        return volume_rules.check_class(obj)
    if kind == "leases":
        return _check_lease(obj["spec"])
    if kind == "events":
        return _check_event(obj)
    if kind == "endpoints":
        return _check_endpoints(obj)
    return []


def _choose_default_class(claim: Object, classes: Iterable[Mapping[str, Any]]) -> None:
    if "storageClassName" in claim["spec"] or volume_rules.BETA_CLASS in claim["metadata"].get("annotations", {}):
        return
    name = default_class_name(classes)
    if name:
        claim["spec"]["storageClassName"] = name


def default_class_name(classes: Iterable[Mapping[str, Any]]) -> str:
    """The youngest of the classes marked as default, or "" if there is none."""
    marked = [
        (c["metadata"]["creationTimestamp"], c["metadata"]["name"])
        for c in classes
        if c["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true"
    ]
    return max(marked)[1] if marked else ""


def _admit_resize(new: Object, old: Object, classes: Iterable[Mapping[str, Any]]) -> None:
    sizes = [o["spec"]["resources"].get("requests", {}).get("storage") for o in (new, old)]
    if sizes[0] == sizes[1]:
        return
    name = old["metadata"].get("annotations", {}).get(volume_rules.BETA_CLASS, old["spec"].get("storageClassName"))
    if not any(c["metadata"]["name"] == name and c.get("allowVolumeExpansion") for c in classes):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support "
            "resize"
        )
        raise forbidden("persistentvolumeclaims", "", new["metadata"]["name"], why)


def _stamp_phase(new: Object, old: Object, now: str) -> None:
    before, after = old["status"], new["status"]
    if before.get("phase") != after.get("phase"):
        if after.get("lastPhaseTransitionTime") == before.get("lastPhaseTransitionTime"):
            after["lastPhaseTransitionTime"] = now
    elif "lastPhaseTransitionTime" in before:
        after.setdefault("lastPhaseTransitionTime", before["lastPhaseTransitionTime"])


def _default_node(node: Object) -> None:
    node["spec"].setdefault("taints", [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    node["status"].setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    node["status"].setdefault("nodeInfo", dict.fromkeys(_NODE_INFO, ""))


def _check_lease(spec: Object) -> list[FieldError]:
    errors = []
    if "leaseDurationSeconds" in spec and spec["leaseDurationSeconds"] <= 0:
        errors.append(
            FieldError.wrong("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
        )
    if "leaseTransitions" in spec and spec["leaseTransitions"] < 0:
        why = "must be greater than or equal to 0"
        errors.append(FieldError.wrong("spec.leaseTransitions", spec["leaseTransitions"], why))
    return errors


def _check_event(event: Object) -> list[FieldError]:
    namespace, about = event["metadata"].get("namespace", ""), event["involvedObject"].get("namespace", "")
    errors = []
    if about != namespace and not (not about and namespace in {"default", "kube-system"}):
        errors.append(FieldError.wrong("involvedObject.namespace", about, "does not match event.namespace"))
    if event.get("eventTime") is not None:
        errors += [FieldError.required(field) for field in _NEW_STYLE_EVENT if not event.get(field)]
        name = event["reportingComponent"]
        errors += [FieldError.wrong("reportingComponent", name, why) for why in qualified_name_problems(name)]
    return errors


def _check_endpoints(endpoints: Object) -> list[FieldError]:
    errors = []
    for number, subset in enumerate(endpoints.get("subsets", ())):
        for field in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(field, ())):
                where, text = f"subsets[{number}].{field}[{index}].ip", address["ip"]
                try:
                    parsed = ipaddress.ip_address(text)
                except ValueError:
                    errors.append(
                        FieldError.wrong(where, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
                    )
                    continue
                if parsed.is_loopback:
                    errors.append(
                        FieldError.wrong(where, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
                    )
    return errors


def check_names(resource: ResourceType, obj: Object, name: str, namespace: str) -> None:
    """Compare an update's names with its path, and fill the namespace in.

    Raises:
        ApiFailure: 400 if they differ.
    """
    metadata = obj["metadata"]
    if not metadata.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if metadata["name"] != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    check_namespace(resource, obj, namespace)


def check_namespace(resource: ResourceType, obj: Object, namespace: str) -> None:
    """Compare an object's namespace with its path, and fill it in.

    Raises:
        ApiFailure: 400 if they differ.
    """
    metadata = obj["metadata"]
    if metadata.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if resource.namespaced:
        metadata["namespace"] = namespace
