"""Merge patch (RFC 7386), JSON patch (RFC 6902) and the strategic merge patch of built-in kinds.

The functions return new values and leave their arguments alone, but share what did not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prov_host.embedded.failures import ApiFailure, bad_request
from prov_host.embedded.schema import Type

__all__ = ["json_patch", "merge_patch", "strategic_patch"]

_DELETE_LIST = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"
_MAX_OPERATIONS = 10_000


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# ---------------------------------------------------------------------------------------------- JSON patch


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON patch.

    Raises:
        ApiFailure: 400 for what is no patch, 413 for too many operations, 422 for one that cannot be applied (a test
            that fails, a path that is not there).
    """
    if not isinstance(operations, list):
        kind = "object" if isinstance(operations, Mapping) else "value"
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
        )
    if len(operations) > _MAX_OPERATIONS:
        raise ApiFailure(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{_MAX_OPERATIONS}, got {len(operations)}",
        )
    if not all(isinstance(operation, Mapping) for operation in operations):
        why = "json: cannot unmarshal into Go value of type handlers.jsonPatchOp"
        raise bad_request(f"error decoding patch: {why}")
    try:
        for operation in operations:
            target = _apply(target, operation)
    except (LookupError, TypeError, ValueError, AttributeError):
        # The real server answers every one of them with the same words.
        raise ApiFailure(422, "Invalid", "the server rejected our request due to an error in our request", {}) from None
    return target


def _apply(target: Any, operation: Mapping[str, Any]) -> Any:
    op, path = operation["op"], _pointer(operation["path"])
    if op == "test":
        found = _lookup(target, path, missing=None)
        # Like the real server's library: a missing member is null, a missing parent is an error.
        if not _equal(found, operation.get("value")):
            raise ValueError("test failed")
        return target
    if op == "add":
        return _add(target, path, operation["value"])
    if op == "remove":
        return _remove(target, path)
    if op == "replace":
        # Like the real server's library, which makes a missing member of an object that is there.
        return _replace(target, path, operation["value"]) if path else operation["value"]
    if op == "copy":
        return _add(target, path, _lookup(target, _pointer(operation["from"])))
    if op == "move":
        source = _pointer(operation["from"])
        value = _lookup(target, source)
        return _add(_remove(target, source), path, value)
    raise ValueError(f"unknown operation {op}")


def _equal(left: Any, right: Any) -> bool:
    """Equality that tells true from 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


_REQUIRED = object()


def _lookup(target: Any, path: Sequence[str], *, missing: Any = _REQUIRED) -> Any:
    """What is at a path; ``missing`` if only the last step leads nowhere."""
    for step, part in enumerate(path, start=1):
        if isinstance(target, Mapping) and part not in target and missing is not _REQUIRED and step == len(path):
            return missing
        target = target[_index(part, len(target))] if isinstance(target, list) else target[part]
    return target


def _replace(target: Any, path: Sequence[str], value: Any) -> Any:
    part, rest = path[0], path[1:]
    copy: Any = list(target) if isinstance(target, list) else dict(target)
    key: Any = _index(part, len(copy)) if isinstance(copy, list) else part
    copy[key] = _replace(copy[key], rest, value) if rest else value
    return copy


def _index(part: str, length: int) -> int:
    index = int(part)
    if not -length <= index < length:
        raise IndexError(part)
    return index


def _add(target: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(target, list):
        items = list(target)
        if rest:
            index = _index(part, len(items))
            items[index] = _add(items[index], rest, value)
        elif part == "-":
            items.append(value)
        else:
            index = int(part)
            if not 0 <= index <= len(items):
                raise IndexError(part)
            items.insert(index, value)
        return items
    copy = dict(target)
    copy[part] = _add(copy[part], rest, value) if rest else value
    return copy


def _remove(target: Any, path: Sequence[str]) -> Any:
    part, rest = path[0], path[1:]
    copy: Any = list(target) if isinstance(target, list) else dict(target)
    key: Any = _index(part, len(copy)) if isinstance(copy, list) else part
    if rest:
        copy[key] = _remove(copy[key], rest)
    else:
        del copy[key]
    return copy


# ---------------------------------------------------------------------------------------- strategic merge patch


def strategic_patch(target: Mapping[str, Any], patch: Mapping[str, Any], type: Type) -> dict[str, Any]:
    """Apply a strategic merge patch.

    Args:
        target: the object.
        patch: with the directives ``$patch``, ``$deleteFromPrimitiveList``, ``$setElementOrder``, ``$retainKeys``.
        type: says which lists merge and by which key.

    Raises:
        ApiFailure: 400 for a patch that contradicts itself or the type.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive is not None and directive != "merge":
        raise bad_request(f"unable to find api field: unknown patch type: {directive}")
    merged = dict(target)
    retain = patch.get(_RETAIN)
    if isinstance(retain, list):
        merged = {key: value for key, value in merged.items() if key in retain}
    for key, value in patch.items():
        if key in {"$patch", _RETAIN} or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_LIST):
            name = key.removeprefix(_DELETE_LIST)
            _need_list(value, key)
            if name in merged:
                merged[name] = [item for item in merged[name] or [] if item not in value]
            continue
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(merged.get(key), value, _field(type, key))
    for key in {key.removeprefix(_ORDER) for key in patch}:
        field, order = _field(type, key), patch.get(_ORDER + key, patch.get(key))
        if _ORDER + key in patch:
            _need_list(order, _ORDER + key)
        if field is not None and (field.merge or field.merge_key) and isinstance(order, list) and merged.get(key):
            merged[key] = _ordered(merged[key], target.get(key) or [], order, field.merge_key)
    return merged


def _need_list(value: Any, key: str) -> None:
    if not isinstance(value, list):
        raise bad_request(f"invalid patch: {key} must be a list")


def _field(type: Type | None, key: str) -> Type | None:
    if type is None:
        return None
    return type.item if type.kind == "map" else type.fields.get(key)


def _merge_value(current: Any, value: Any, type: Type | None) -> Any:
    if isinstance(value, Mapping):
        if not isinstance(current, Mapping):
            current = {}
        return strategic_patch(current, value, type or _UNTYPED)
    if isinstance(value, list) and type is not None and type.kind == "list":
        current = current if isinstance(current, list) else []
        if type.merge:
            return current + [
                item for index, item in enumerate(value) if item not in current and item not in value[:index]
            ]
        if type.merge_key and type.item is not None:
            return _merge_items(current, value, type.merge_key, type.item)
    return value


_UNTYPED = Type("object")


def _merge_items(current: list[Any], items: list[Any], key: str, type: Type) -> list[Any]:
    if any(isinstance(item, Mapping) and item.get("$patch") == "replace" for item in items):
        return [item for item in items if not (isinstance(item, Mapping) and item.get("$patch") == "replace")]
    merged = list(current)
    for item in items:
        if not isinstance(item, Mapping) or item.get(key) is None:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {key}")
        found = next((index for index, old in enumerate(merged) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if old.get(key) != item[key]]
        elif found is None:
            merged.append(strategic_patch({}, item, type))
        else:
            merged[found] = strategic_patch(merged[found], item, type)
    return merged


def _ordered(items: list[Any], before: list[Any], order: list[Any], merge_key: str) -> list[Any]:
    """Items as the real server sorts them: the patch's in its order, the others between them in the old order.

    Args:
        items: merged.
        before: as they were.
        order: items or their keys, as the patch wants them.
        merge_key: of the items, "" for scalars.
    """

    def identity(item: Any) -> Any:
        key = item.get(merge_key) if merge_key and isinstance(item, Mapping) else item
        return repr(key) if isinstance(key, (dict, list)) else key

    wanted = {identity(item): position for position, item in reversed(list(enumerate(order)))}
    old = {identity(item): position for position, item in enumerate(before)}
    ours = sorted((item for item in items if identity(item) in wanted), key=lambda item: wanted[identity(item)])
    theirs = [item for item in items if identity(item) not in wanted]
    result: list[Any] = []
    while ours and theirs:
        mine, other = old.get(identity(ours[0])), old.get(identity(theirs[0]))
        first = theirs if mine is not None and other is not None and other < mine else ours
        result.append(first.pop(0))
    return result + theirs + ours
