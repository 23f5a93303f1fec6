"""Which volume belongs to which claim: the binder's questions about two objects, without side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cmp_to_key
from typing import Any

from prov_host.embedded import quantities
from prov_host.embedded.store import key_of
from prov_host.embedded.volume_rules import BETA_CLASS

__all__ = [
    "annotations_of",
    "best_match",
    "claim_key",
    "class_name",
    "is_bound_to",
    "mismatch",
    "reference_to",
    "same_mode",
]

Object = dict[str, Any]


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """An object's annotations, or an empty mapping."""
    return obj["metadata"].get("annotations", {})  # type: ignore[no-any-return]  # a map of strings after decoding


def class_name(obj: Object) -> str:
    """A claim's or a volume's class, the old annotation first; "" for none."""
    return annotations_of(obj).get(BETA_CLASS) or obj["spec"].get("storageClassName") or ""


def claim_key(volume: Object) -> str:
    """The store's key of the claim that a volume refers to, or ""."""
    about = volume["spec"].get("claimRef") or {}
    return f"{about.get('namespace', '')}/{about.get('name', '')}" if about.get("name") else ""


def reference_to(claim: Object) -> Object:
    """What a volume's ``claimRef`` says about a claim."""
    metadata = claim["metadata"]
    fields = {field: metadata[field] for field in ("namespace", "name", "uid", "resourceVersion")}
    return {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **fields}


def is_bound_to(volume: Object, claim: Object) -> bool:
    """Whether a volume was meant for a claim; a reference without uid means whichever claim has the name."""
    about = volume["spec"].get("claimRef")
    if about is None or claim_key(volume) != key_of(claim):
        return False
    return about.get("uid", "") in {"", claim["metadata"]["uid"]}


def same_mode(volume: Object, claim: Object) -> bool:
    """Whether both are files, or both are blocks."""
    return bool(volume["spec"]["volumeMode"] == claim["spec"]["volumeMode"])


def _large_enough(volume: Object, claim: Object) -> bool:
    wanted = claim["spec"]["resources"].get("requests", {}).get("storage", "0")
    return quantities.compare(volume["spec"]["capacity"]["storage"], wanted) >= 0


def _same_class(volume: Object, claim: Object) -> bool:
    return class_name(volume) == class_name(claim)


def _all_modes(volume: Object, claim: Object) -> bool:
    return set(claim["spec"]["accessModes"]) <= set(volume["spec"]["accessModes"])


_CHECKS: tuple[tuple[Callable[[Object, Object], bool], str], ...] = (
    (_large_enough, "requested PV is too small"),
    (_same_class, "storageClassName does not match"),
    (same_mode, "incompatible volumeMode"),
    (_all_modes, "incompatible accessMode"),
)


def mismatch(volume: Object, claim: Object) -> str:
    """Why a volume does not satisfy a claim, or ""."""
    return next((problem for fits, problem in _CHECKS if not fits(volume, claim)), "")


def best_match(claim: Object, reserved: Iterable[Object], free: Iterable[Object]) -> str:
    """The name of the volume to bind to a claim that names none, or "".

    Args:
        claim: the claim.
        reserved: volumes that refer to it.
        free: volumes that refer to no claim and may be taken.
    """
    for volume in reserved:
        # Its maker may have chosen another class, but not less than the claim asks for.
        fits = _large_enough(volume, claim) and same_mode(volume, claim) and _all_modes(volume, claim)
        if fits and is_bound_to(volume, claim) and "deletionTimestamp" not in volume["metadata"]:
            return str(volume["metadata"]["name"])
    fitting = [volume for volume in free if not mismatch(volume, claim) and _selected(volume, claim)]
    best = min(fitting, key=cmp_to_key(_by_size), default=None)
    return best["metadata"]["name"] if best else ""


def _by_size(left: Object, right: Object) -> int:
    order = quantities.compare(left["spec"]["capacity"]["storage"], right["spec"]["capacity"]["storage"])
    return order or (-1 if left["metadata"]["name"] < right["metadata"]["name"] else 1)


def _selected(volume: Object, claim: Object) -> bool:
    selector, labels = claim["spec"].get("selector") or {}, volume["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for requirement in selector.get("matchExpressions", ()):
        key, values = requirement["key"], requirement.get("values", ())
        fits = {
            "In": key in labels and labels[key] in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not fits[requirement["operator"]]:
            return False
    return True
