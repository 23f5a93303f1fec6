"""Server-side apply: one merge of what a manager wants into what is there, and the record of who wants what.

A set of fields is a set of paths. A path is a tuple of steps as ``managedFields`` writes them: ``f:name`` for a field
or a map's key, ``k:{...}`` for a list's item by its keys, ``v:value`` for a set's item; ``.`` stands for the item
itself. Ownership is recorded from the first apply of an object on; what was there before belongs to
``before-first-apply``, as on the real server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from prov_host.embedded.failures import ApiFailure
from prov_host.embedded.schema import Type
from prov_host.embedded.types import ResourceType

__all__ = ["apply", "given", "record_update"]

Object = dict[str, Any]
Path = tuple[str, ...]
_NOT_OWNED = frozenset(
    ("f:metadata", f"f:{name}")
    for name in (
        *("name", "namespace", "generateName", "uid", "resourceVersion", "generation", "creationTimestamp"),
        *("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"),
    )
)
_encode = msgspec.json.encode
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


# ------------------------------------------------------------------------------------------ sets of fields


def _item_step(item: Any, type: Type) -> str:
    if type.map_keys and isinstance(item, Mapping):
        return "k:" + _encode({key: item.get(key) for key in sorted(type.map_keys)}).decode()
    return "v:" + _encode(item).decode()


def _is_keyed(type: Type | None) -> bool:
    return type is not None and type.kind == "list" and bool(type.merge or type.map_keys)


def fields_of(value: Any, type: Type | None, path: Path = ()) -> set[Path]:
    """The paths of all leaves of a value, and of the items of its keyed lists."""
    if isinstance(value, Mapping) and type is not None and type.kind in {"object", "map"} and value:
        found: set[Path] = set()
        for name, item in value.items():
            inner = type.item if type.kind == "map" else type.fields.get(name)
            step = (*path, f"f:{name}")
            if step not in _NOT_OWNED:
                found |= fields_of(item, inner, step)
        return found
    if isinstance(value, list) and type is not None and _is_keyed(type) and value:
        found = set()
        for item in value:
            step = (*path, _item_step(item, type))
            if isinstance(item, Mapping):
                found.add((*step, "."))
                found |= fields_of(item, type.item, step)
            else:
                found.add(step)
        return found
    return {path} if path else set()


def _encode_set(paths: set[Path]) -> Object:
    tree: Object = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    return tree


def _decode_set(tree: Mapping[str, Any], path: Path = ()) -> set[Path]:
    if not tree:
        return {path} if path else set()
    found: set[Path] = set()
    for step, inner in tree.items():
        found |= _decode_set(inner, (*path, step))
    return found


# --------------------------------------------------------------------------------------------- merging


def _merge(current: Any, wanted: Any, type: Type | None) -> Any:
    if isinstance(wanted, Mapping) and type is not None and type.kind in {"object", "map"}:
        merged = dict(current) if isinstance(current, Mapping) else {}
        for name, value in wanted.items():
            merged[name] = _merge(merged.get(name), value, type.item if type.kind == "map" else type.fields.get(name))
        return merged
    if isinstance(wanted, list) and type is not None and _is_keyed(type):
        merged_items = list(current) if isinstance(current, list) else []
        steps = [_item_step(item, type) for item in merged_items]
        for item in wanted:
            step = _item_step(item, type)
            if step in steps:
                position = steps.index(step)
                merged_items[position] = _merge(merged_items[position], item, type.item)
            else:
                merged_items.append(item)
                steps.append(step)
        return merged_items
    return wanted


def _inner(schema: Type | None, name: str) -> Type | None:
    if schema is None:
        return None
    return schema.item if schema.kind == "map" else schema.fields.get(name)


def _lookup(value: Any, path: Path, schema: Type | None) -> Any:
    for step in path:
        if step == ".":
            return value
        if step.startswith("f:") and isinstance(value, Mapping):
            name = step[2:]
            value = value.get(name)
            schema = _inner(schema, name)
        elif isinstance(value, list) and schema is not None:
            keyed = schema
            value = next((item for item in value if _item_step(item, keyed) == step), None)
            schema = schema.item
        else:
            return None
    return value


def _remove(value: Any, path: Path, type: Type | None) -> Any:
    """A copy of a value without what is at a path."""
    step, rest = path[0], path[1:]
    if step.startswith("f:") and isinstance(value, Mapping) and step[2:] in value:
        name, copy = step[2:], dict(value)
        if rest:
            copy[name] = _remove(copy[name], rest, _inner(type, name))
        else:
            del copy[name]
        return copy
    if isinstance(value, list) and type is not None:
        if rest in {(), (".",)}:
            return [item for item in value if _item_step(item, type) != step]
        return [_remove(item, rest, type.item) if _item_step(item, type) == step else item for item in value]
    return value


# ------------------------------------------------------------------------------------------- the verbs


def given(raw: Mapping[str, Any], cleaned: Object) -> Object:
    """What a configuration says itself: ``cleaned`` without the empty values that decoding added."""
    return {
        name: given(raw[name], value) if isinstance(value, dict) and isinstance(raw[name], Mapping) else value
        for name, value in cleaned.items()
        if raw.get(name) is not None
    }


def apply(
    resource: ResourceType,
    live: Object | None,
    config: Object,
    *,
    manager: str,
    force: bool,
    subresource: str,
    now: str,
) -> Object:
    """Merge a manager's configuration into an object.

    Args:
        resource: its kind.
        live: the stored object, or None to make one.
        config: what the manager says.
        manager: its name.
        force: take fields over from others.
        subresource: ``status`` or "".
        now: the time, for the record.

    Returns:
        The object with its new ``managedFields``; not yet decoded or validated.

    Raises:
        ApiFailure: 409 if others own fields that the configuration says something else about, and ``force`` is off.
    """
    schema = resource.schema
    wanted = fields_of(config, schema)
    entries = _entries(resource, live, now)
    identity = (manager, "Apply", subresource)
    before = entries.get(identity, (set(), now))[0]
    current: Object = live or {}
    disputed = {
        other: {path for path in owned & wanted if _lookup(current, path, schema) != _lookup(config, path, schema)}
        for other, (owned, _) in entries.items()
        if other != identity
    }
    disputed = {other: paths for other, paths in disputed.items() if paths}
    if disputed and not force:
        raise _conflicts(resource, disputed)
    for other, paths in disputed.items():
        entries[other] = (entries[other][0] - paths, entries[other][1])
    merged = _merge(current, config, schema)
    kept = set().union(*(owned for other, (owned, _) in entries.items() if other != identity))
    for path in sorted(before - wanted - kept, key=len, reverse=True):
        if path[-1] == "." and any(other[: len(path) - 1] == path[:-1] for other in kept):
            continue  # others own parts of the item
        merged = _remove(merged, path, schema)
    _update_last_applied(resource, merged, config, manager)
    time = now if before != wanted or not live else entries.get(identity, (set(), now))[1]
    entries[identity] = (wanted, time)
    merged["metadata"] = {**merged["metadata"], "managedFields": _managed(resource, entries)}
    return dict(merged)


def _update_last_applied(resource: ResourceType, merged: Object, config: Object, manager: str) -> None:
    """Keep the annotation of kubectl's client-side apply true, so that one can go back to it."""
    annotations = merged["metadata"].get("annotations", {})
    if manager != "kubectl" or LAST_APPLIED not in annotations:
        return
    applied = {"apiVersion": resource.api_version, "kind": resource.kind, **config}
    text = _encode(applied, order="deterministic").decode() + "\n"
    merged["metadata"] = {**merged["metadata"], "annotations": {**annotations, LAST_APPLIED: text}}


def record_update(
    resource: ResourceType, old: Object, new: Object, *, manager: str, subresource: str, now: str
) -> Object:
    """Give the fields that an ordinary update changed to the manager that changed them.

    Returns:
        ``new`` with its ``managedFields``.
    """
    schema = resource.schema
    entries = _entries(
        resource, {**old, "metadata": {**old["metadata"], "managedFields": new["metadata"]["managedFields"]}}, now
    )
    present = fields_of(new, schema)
    changed = {path for path in present if _lookup(old, path, schema) != _lookup(new, path, schema)}
    if changed:
        for other, (owned, time) in entries.items():
            entries[other] = (owned - changed, time)
        identity = (manager, "Update", subresource)
        owned = entries.get(identity, (set(), now))[0] | changed
        entries[identity] = (owned, now)
    for other, (owned, time) in entries.items():
        entries[other] = (owned & present if other[1] == "Update" else {p for p in owned if p in present}, time)
    return {**new, "metadata": {**new["metadata"], "managedFields": _managed(resource, entries)}}


Entries = dict[tuple[str, str, str], tuple[set[Path], str]]


def _entries(resource: ResourceType, live: Object | None, now: str) -> Entries:
    if live is None:
        return {}
    recorded = live["metadata"].get("managedFields")
    if not recorded:
        owned = fields_of({name: part for name, part in live.items() if name != "status"}, resource.schema)
        return {("before-first-apply", "Update", ""): (owned, now)} if owned else {}
    return {
        (entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource", "")): (
            _decode_set(entry.get("fieldsV1") or {}),
            entry.get("time", now),
        )
        for entry in recorded
    }


def _managed(resource: ResourceType, entries: Entries) -> list[Object]:
    managed = []
    for (manager, operation, subresource), (owned, time) in entries.items():
        if owned:
            entry = {
                "manager": manager,
                "operation": operation,
                "apiVersion": resource.api_version,
                "time": time,
                "fieldsType": "FieldsV1",
                "fieldsV1": _encode_set(owned),
            }
            managed.append({**entry, "subresource": subresource} if subresource else entry)
    return managed


def _conflicts(resource: ResourceType, disputed: Mapping[tuple[str, str, str], set[Path]]) -> ApiFailure:
    causes, told = [], []
    for (manager, operation, _), paths in disputed.items():
        names = sorted(_spelled(path) for path in paths)
        who = f'"{manager}"' + (f" using {resource.api_version}" if operation == "Update" else "")
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": name} for name in names
        ]
        told.append((who, names))
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: conflict with {told[0][0]}: {told[0][1][0]}"
    else:
        listed = "\n".join(f"conflicts with {who}:\n" + "\n".join(f"- {name}" for name in names) for who, names in told)
        message = f"Apply failed with {len(causes)} conflicts: {listed}"
    return ApiFailure(409, "Conflict", message, {"causes": causes})


def _spelled(path: Path) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += "." + step[2:]
        elif step.startswith("k:"):
            keys = msgspec.json.decode(step[2:])
            text += "[" + ",".join(f"{key}={_encode(value).decode()}" for key, value in keys.items()) + "]"
        elif step != ".":
            text += f"[{step[2:]}]"
    return text
