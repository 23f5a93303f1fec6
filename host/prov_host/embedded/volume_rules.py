"""Defaults and rules of claims, volumes and storage classes.

Each kind has four functions: ``default_*`` completes an object that :func:`prov_host.embedded.schema.clean` made (and
may change it), ``check_*`` finds the mistakes of an object, ``keep_*`` puts back what an update must not change, and
``check_*_update`` finds forbidden changes. :mod:`prov_host.embedded.rules` calls them.
"""

from __future__ import annotations

from typing import Any

from prov_host.embedded import quantities
from prov_host.embedded.failures import FieldError
from prov_host.embedded.types import SOURCES
from prov_host.embedded.validation import is_qualified_name, label_errors, qualified_name_problems, subdomain_problems

Object = dict[str, Any]

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_VOLUME_MODES = ("Block", "Filesystem")
_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_SELECTOR_OPERATORS = ("DoesNotExist", "Exists", "In", "NotIn")
_CLAIM_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_IMMUTABLE = "field is immutable"
_SOURCE_KINDS = ("PersistentVolumeClaim", "VolumeSnapshot")
_PARAMETERS_LIMIT = 256 * 1024

# ------------------------------------------------------------------------------------------------ claims


def default_claim(claim: Object) -> None:
    """A new claim is pending and holds files; both spellings of its data source are filled."""
    spec = claim["spec"]
    spec.setdefault("volumeMode", "Filesystem")
    if (spec.get("dataSource") or {}).get("kind", _SOURCE_KINDS[0]) not in _SOURCE_KINDS:
        del spec["dataSource"]  # anything else has to be a dataSourceRef
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = {key: value for key, value in reference.items() if key != "namespace"}
    claim["status"] = {"phase": "Pending"}


def check_claim(claim: Object) -> list[FieldError]:
    """The mistakes of a claim."""
    spec, errors = claim["spec"], []
    selector = spec.get("selector") or {}
    errors += label_errors(selector.get("matchLabels", {}), "spec.selector.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions", ())):
        where = f"spec.selector.matchExpressions[{index}]"
        if requirement["operator"] not in _SELECTOR_OPERATORS:
            errors.append(
                FieldError.wrong(f"{where}.operator", requirement["operator"], "not a valid selector operator")
            )
        elif (requirement["operator"] in {"In", "NotIn"}) != bool(requirement.get("values")):
            errors.append(
                FieldError.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            )
    modes = spec.get("accessModes", ())
    if not modes:
        errors.append(FieldError.required("spec.accessModes", "at least 1 access mode is required"))
    errors += _access_mode_errors(modes)
    storage = spec["resources"].get("requests", {}).get("storage")
    if storage is None:
        errors.append(FieldError.required("spec.resources[storage]"))
    elif quantities.compare(storage, "0") <= 0:
        errors.append(FieldError.wrong("spec.resources[storage]", storage, "must be greater than zero"))
    if spec.get("storageClassName"):
        errors += [
            FieldError.wrong("spec.storageClassName", spec["storageClassName"], p)
            for p in subdomain_problems(spec["storageClassName"])
        ]
    if spec.get("volumeMode", "Filesystem") not in _VOLUME_MODES:
        errors.append(FieldError.unsupported("spec.volumeMode", spec["volumeMode"], _VOLUME_MODES))
    return errors


def _access_mode_errors(modes: Any) -> list[FieldError]:
    errors = [
        FieldError.unsupported("spec.accessModes", mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES
    ]
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        errors.append(FieldError.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes"))
    return errors


def keep_claim(new: Object, old: Object) -> None:
    """Defaults of an update."""
    new["spec"].setdefault("volumeMode", "Filesystem")


def check_claim_update(new: Object, old: Object) -> list[FieldError]:
    """A claim's spec is fixed, but for its volume, a late class, and a bound claim's size."""
    errors = []
    before, after = dict(old["spec"]), dict(new["spec"])
    if not before.get("volumeName"):
        before.pop("volumeName", None)
        after.pop("volumeName", None)
    annotated = BETA_CLASS in old["metadata"].get("annotations", {})
    if before.get("storageClassName") is None and after.get("storageClassName") and not annotated:
        after.pop("storageClassName")
    bound = old.get("status", {}).get("phase") == "Bound"
    if bound and before != after:
        errors += _resize_errors(new, old)
        for key in ("resources", "volumeAttributesClassName"):
            before.pop(key, None)
            after.pop(key, None)
    if before != after:
        errors.append(FieldError.forbidden("spec", _CLAIM_IMMUTABLE))
    ours, theirs = (o["metadata"].get("annotations", {}).get(BETA_CLASS) for o in (old, new))
    if ours is not None and ours != theirs:
        errors.append(FieldError.wrong(f"metadata.annotations[{BETA_CLASS}]", theirs, _IMMUTABLE))
    return errors


def _resize_errors(new: Object, old: Object) -> list[FieldError]:
    size = new["spec"]["resources"].get("requests", {}).get("storage", "0")
    before = old["spec"]["resources"].get("requests", {}).get("storage", "0")
    capacity = old["status"].get("capacity", {}).get("storage", "0")
    if quantities.compare(size, before) < 0 and quantities.compare(size, capacity) < 0:
        return [FieldError.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]
    return []


# ------------------------------------------------------------------------------------------------ volumes


def default_volume(volume: Object, now: str) -> None:
    """A new volume is pending, holds files, and is retained unless it says otherwise."""
    keep_volume(volume, volume)
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}


def keep_volume(new: Object, old: Object) -> None:
    """Defaults of an update."""
    spec = new["spec"]
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if "hostPath" in spec:
        spec["hostPath"].setdefault("type", "")


def check_volume(volume: Object) -> list[FieldError]:
    """The mistakes of a volume."""
    spec, errors = volume["spec"], []
    modes = spec.get("accessModes", ())
    if not modes:
        errors.append(FieldError.required("spec.accessModes"))
    errors += _access_mode_errors(modes)
    errors += _capacity_errors(spec)
    errors += _source_errors(spec)
    if spec.get("persistentVolumeReclaimPolicy") not in _RECLAIM_POLICIES:
        policy = spec.get("persistentVolumeReclaimPolicy", "")
        errors.append(FieldError.unsupported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES))
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        errors += _affinity_errors(affinity)
    elif "local" in spec:
        errors.append(FieldError.required("spec.nodeAffinity", "Local volume requires node affinity"))
    if spec.get("storageClassName"):
        errors += [
            FieldError.wrong("spec.storageClassName", spec["storageClassName"], p)
            for p in subdomain_problems(spec["storageClassName"])
        ]
    if spec["volumeMode"] not in _VOLUME_MODES:
        errors.append(FieldError.unsupported("spec.volumeMode", spec["volumeMode"], _VOLUME_MODES))
    return errors


def _capacity_errors(spec: Object) -> list[FieldError]:
    capacity, errors = spec.get("capacity"), []
    if not capacity:
        errors.append(FieldError.required("spec.capacity"))
    if not capacity or set(capacity) != {"storage"}:
        errors.append(FieldError.unsupported("spec.capacity", capacity, ["storage"]))
    for name, size in (capacity or {}).items():
        if quantities.compare(size, "0") <= 0:
            errors.append(FieldError.wrong(f"spec.capacity[{name}]", size, "must be greater than zero"))
    return errors


def _source_errors(spec: Object) -> list[FieldError]:
    present = [name for name in SOURCES if name in spec]
    if not present:
        return [FieldError.required("spec", "must specify a volume type")]
    # The real server looks at hostPath before nfs, and complains about every one after the first.
    present.sort(key=lambda name: ("hostPath", "nfs", "local", "csi").index(name) if name in SOURCES[:4] else -1)
    errors = [FieldError.forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in present[1:]]
    name = present[0]
    source, where = spec[name], f"spec.{name}"
    if name == "nfs":
        if not source["server"]:
            errors.append(FieldError.required(f"{where}.server"))
        if not source["path"]:
            errors.append(FieldError.required(f"{where}.path"))
        if not source["path"].startswith("/"):
            errors.append(FieldError.wrong(f"{where}.path", source["path"], "must be an absolute path"))
    elif name in {"hostPath", "local"}:
        if not source["path"]:
            errors.append(FieldError.required(f"{where}.path"))
        elif ".." in source["path"].split("/"):
            errors.append(FieldError.wrong(f"{where}.path", source["path"], "must not contain '..'"))
        if name == "hostPath" and source.get("type", "") not in _HOST_PATH_TYPES:
            errors.append(FieldError.unsupported(f"{where}.type", source["type"], _HOST_PATH_TYPES))
    elif name == "csi":
        errors += [FieldError.required(f"{where}.{field}") for field in ("driver", "volumeHandle") if not source[field]]
    return errors


def _affinity_errors(affinity: Object) -> list[FieldError]:
    required, where = affinity.get("required"), "spec.nodeAffinity.required"
    if required is None:
        return [FieldError.required(where, "must specify required node constraints")]
    terms = required["nodeSelectorTerms"]
    if not terms:
        return [FieldError.required(f"{where}.nodeSelectorTerms", "must have at least one node selector term")]
    errors = []
    for number, term in enumerate(terms):
        for index, requirement in enumerate(term.get("matchExpressions", ())):
            path = f"{where}.nodeSelectorTerms[{number}].matchExpressions[{index}]"
            operator, values = requirement["operator"], requirement.get("values", ())
            if operator in {"In", "NotIn"}:
                if not values:
                    errors.append(
                        FieldError.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
                    )
            elif operator in {"Exists", "DoesNotExist"}:
                if values:
                    errors.append(
                        FieldError.forbidden(
                            f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                        )
                    )
            elif operator not in {"Gt", "Lt"}:
                errors.append(FieldError.wrong(f"{path}.operator", operator, "not a valid selector operator"))
            if not is_qualified_name(requirement["key"]):
                errors.append(FieldError.wrong(f"{path}.key", requirement["key"], "must be a qualified name"))
    return errors


def check_volume_update(new: Object, old: Object) -> list[FieldError]:
    """A volume's source and mode are fixed, and its node affinity once it has one."""
    before, after, errors = old["spec"], new["spec"], []
    if any(before.get(name) != after.get(name) for name in SOURCES):
        why = "spec.persistentvolumesource is immutable after creation"
        errors.append(FieldError.forbidden("spec.persistentvolumesource", why))
    if before["volumeMode"] != after["volumeMode"]:
        errors.append(FieldError.wrong("volumeMode", after["volumeMode"], _IMMUTABLE))
    affinity = before.get("nodeAffinity")
    if affinity is not None and affinity != after.get("nodeAffinity"):
        why = "field is immutable, except for updating from beta label to GA"
        errors.append(FieldError.wrong("nodeAffinity", after.get("nodeAffinity"), why))
    return errors


# ------------------------------------------------------------------------------------------------ classes


def default_class(storage_class: Object) -> None:
    """Volumes of a class are deleted and provisioned at once, unless it says otherwise."""
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def check_class(storage_class: Object) -> list[FieldError]:
    """The mistakes of a class."""
    errors = []
    if storage_class["reclaimPolicy"] not in {"Delete", "Retain"}:
        errors.append(FieldError.unsupported("reclaimPolicy", storage_class["reclaimPolicy"], ("Delete", "Retain")))
    if storage_class["volumeBindingMode"] not in _BINDING_MODES:
        errors.append(FieldError.unsupported("volumeBindingMode", storage_class["volumeBindingMode"], _BINDING_MODES))
    provisioner = storage_class["provisioner"]
    if not provisioner:
        errors.append(FieldError.required("provisioner"))
    else:
        name = provisioner.lower()
        errors += [FieldError.wrong("provisioner", name, problem) for problem in qualified_name_problems(name)]
    for number, term in enumerate(storage_class.get("allowedTopologies", ())):
        for index, requirement in enumerate(term.get("matchLabelExpressions", ())):
            if not requirement["values"]:
                where = f"allowedTopologies[{number}].matchLabelExpressions[{index}].values"
                errors.append(FieldError.required(where))
    parameters = storage_class.get("parameters", {})
    if len(parameters) > 512:
        errors.append(FieldError("FieldValueTooLong", "parameters", "Too long: may not be more than 512 bytes"))
    if any(not key for key in parameters):
        errors.append(FieldError.wrong("parameters", "", "field can not be empty."))
    if sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items()) > _PARAMETERS_LIMIT:
        errors.append(
            FieldError("FieldValueTooLong", "parameters", f"Too long: may not be more than {_PARAMETERS_LIMIT} bytes")
        )
    return errors


def check_class_update(new: Object, old: Object) -> list[FieldError]:
    """What a class decides for volumes is fixed."""
    return [
        FieldError.wrong(field, None, _IMMUTABLE)
        for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        if new.get(field) != old.get(field)
    ]
