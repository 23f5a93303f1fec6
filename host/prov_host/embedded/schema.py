"""The typed view of API objects: what a field may hold, and what happens to what it does not.

The real API server decodes JSON into Go structs, and much of what clients see follows from that: unknown fields are
dropped with a warning, wrong types are refused before any validation, ``null`` is as good as absent, empty values
vanish, quantities and times are rewritten in their canonical form. A :class:`Type` describes as much of a struct as
that takes, plus how strategic merge patch and server-side apply treat a list. :func:`clean` does the decoding.
:mod:`prov_host.embedded.types` has the descriptions themselves.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from prov_host.embedded import quantities

__all__ = ["SchemaError", "Type", "clean", "listing", "mapping", "obj", "primitive"]

Kind = Literal[
    "string", "int32", "int64", "bool", "quantity", "time", "microtime", "intstr", "raw", "map", "list", "object"
]


class SchemaError(Exception):
    """A value of the wrong type; the message is the API server's."""


class Type(msgspec.Struct, frozen=True):
    """What a field may hold.

    Attributes:
        kind: the JSON type, or a scalar with a notation of its own.
        go: the struct's name for an object, for messages and the OpenAPI documents.
        keep: an empty value ("", 0, false, {}) is kept, because it differs from an absent one.
        always: written even when absent, as its empty value (a struct that is not a pointer, a required field).
        fields: of an object.
        item: of a map's values or a list's items.
        merge_key: strategic merge and apply match items of a list by this field.
        merge: how lists of scalars merge: as a set; otherwise they are replaced whole.
        map_keys: server-side apply's keys of an item, if they are more than ``merge_key``.
        open: of an object: fields that are not described are taken as they come.
    """

    kind: Kind
    go: str = ""
    keep: bool = False
    always: bool = False
    fields: Mapping[str, Type] = {}
    item: Type | None = None
    merge_key: str = ""
    merge: bool = False
    map_keys: tuple[str, ...] = ()
    open: bool = False


def primitive(kind: Kind, *, keep: bool = False, always: bool = False) -> Type:
    """A scalar."""
    return Type(kind, keep=keep, always=always)


def obj(go: str, *, always: bool = False, keep: bool = True, open: bool = False, **fields: Type) -> Type:
    """A struct. Field names that are Python keywords end in an underscore here."""
    return Type(
        "object",
        go=go,
        keep=keep,
        always=always,
        open=open,
        fields={name.removesuffix("_"): t for name, t in fields.items()},
    )


def listing(item: Type, *, merge_key: str = "", merge: bool = False, map_keys: tuple[str, ...] = ()) -> Type:
    """A list."""
    return Type(
        "list", item=item, merge_key=merge_key, merge=merge, map_keys=map_keys or tuple(filter(None, [merge_key]))
    )


def mapping(item: Type) -> Type:
    """A map with string keys."""
    return Type("map", item=item)


_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}
_GO_NAMES = {"quantity": "resource.Quantity", "time": "v1.Time", "microtime": "v1.MicroTime"}
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_BOUNDS = {"int32": 2**31, "int64": 2**63}


def clean(value: Any, type: Type, unknown: list[str] | None = None) -> Any:
    """Decode an object: check types, drop what is unknown, write scalars canonically.

    Args:
        value: an object as JSON holds it; it is not changed.
        type: what it must be.
        unknown: collects the paths of the fields that were dropped; None does not collect.

    Returns:
        A new object.

    Raises:
        SchemaError: a value of the wrong type.
    """
    return _object(value, type, "", type.go, unknown)


def _wrong(value: Any, path: str, struct: str, wanted: str) -> SchemaError:
    where = f"field {struct}.{path}" if path else "value"
    name = _JSON_NAMES.get(value.__class__, "value")
    return SchemaError(f"json: cannot unmarshal {name} into Go struct {where} of type {wanted}")


def _object(value: Any, type: Type, path: str, struct: str, unknown: list[str] | None) -> dict[str, Any]:
    if value.__class__ is not dict:
        raise _wrong(value, path, struct, type.go)
    fields, cleaned, prefix = type.fields, {}, f"{path}." if path else ""
    for name, field in fields.items():
        item = value.get(name)
        if item is not None:
            item = _value(item, field, prefix + name, type.go, unknown)
            if (
                item
                or field.keep
                or field.always
                or (item is not None and item.__class__ is dict and field.kind == "raw")
            ):
                cleaned[name] = item
                continue
        if field.always:
            cleaned[name] = _empty(field)
    if type.open:
        cleaned.update((name, item) for name, item in value.items() if name not in fields and item is not None)
    elif unknown is not None:
        unknown.extend(f"{prefix}{name}" for name in value if name not in fields)
    return cleaned


def _value(value: Any, type: Type, path: str, struct: str, unknown: list[str] | None) -> Any:
    kind = type.kind
    if kind == "string":
        if value.__class__ is not str:
            raise _wrong(value, path, struct, "string")
        return value
    if kind == "object":
        return _object(value, type, path, struct, unknown)
    if kind == "map":
        if value.__class__ is not dict:
            raise _wrong(value, path, struct, "map[string]" + _go_name(type.item))
        item_type = type.item
        assert item_type is not None
        if item_type.kind == "string":
            for text in value.values():
                if text.__class__ is not str and text is not None:
                    raise _wrong(text, path, struct, "string")
            return {key: text or "" for key, text in value.items()}
        return {key: _value(item, item_type, path, struct, unknown) for key, item in value.items()}
    if kind == "list":
        if value.__class__ is not list:
            raise _wrong(value, path, struct, "[]" + _go_name(type.item))
        assert type.item is not None
        return [
            _value(
                _empty(type.item) if item is None else item,
                type.item,
                f"{path}[{index}]" if unknown is not None else path,
                struct,
                unknown,
            )
            for index, item in enumerate(value)
        ]
    return _scalar(value, type, path, struct)


def _scalar(value: Any, type: Type, path: str, struct: str) -> Any:
    kind = type.kind
    if kind == "quantity":
        text = str(value) if value.__class__ in {int, float} else value
        if text.__class__ is not str:
            raise SchemaError("json: cannot unmarshal into Go value of type resource.Quantity")
        try:
            return quantities.canonical(text)
        except ValueError as error:
            raise SchemaError(str(error)) from None
    if kind in {"int32", "int64"}:
        if value.__class__ is float and value.is_integer():
            value = int(value)
        if value.__class__ is not int or not -_BOUNDS[kind] <= value < _BOUNDS[kind]:
            raise _wrong(value, path, struct, kind)
        return value
    if kind == "bool":
        if value.__class__ is not bool:
            raise _wrong(value, path, struct, "bool")
        return value
    if kind in {"time", "microtime"}:
        if value.__class__ is not str:
            raise _wrong(value, path, struct, "string")
        return _time(value, micro=kind == "microtime")
    if kind == "intstr" and value.__class__ not in {int, str}:
        raise _wrong(value, path, struct, "intstr.IntOrString")
    return value


def _time(text: str, *, micro: bool) -> str:
    layout = _MICRO_LAYOUT if micro else _LAYOUT
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise SchemaError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')
    fraction = match[7] or ""
    if micro and len(fraction) != 6:
        rest = (f".{fraction}" if fraction else "") + match[8]
        raise SchemaError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"')
    try:
        moment = dt.datetime.fromisoformat(text[:19] + match[8].replace("Z", "+00:00"))
        moment = moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise SchemaError(f'parsing time "{text}": value out of range') from None
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{stamp}.{fraction}Z" if micro else f"{stamp}Z"


def _empty(type: Type) -> Any:
    if type.kind == "object":
        return {name: _empty(field) for name, field in type.fields.items() if field.always}
    if type.keep:
        return None
    return {"string": "", "map": {}, "list": [], "bool": False, "int32": 0, "int64": 0, "quantity": "0"}.get(type.kind)


def _go_name(type: Type | None) -> str:
    if type is None:
        return "interface {}"
    return type.go or _GO_NAMES.get(type.kind, type.kind)
