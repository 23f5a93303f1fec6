"""From bytes to objects: bodies in JSON, YAML or (for namespaces) protobuf, and kubectl's options of a delete.

An object is decoded in two steps, because a patch comes between them: :func:`decode_body` makes what the bytes say,
:func:`clean_object` makes it an object of its kind, with warnings about fields that are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from prov_host.embedded import protobuf
from prov_host.embedded.events import from_new_event, is_new_event, to_new_event
from prov_host.embedded.failures import ApiFailure, bad_request, invalid
from prov_host.embedded.requests import Options, Target, propagation_errors, unsupported_media_type
from prov_host.embedded.schema import SchemaError, clean
from prov_host.embedded.store import Stored
from prov_host.embedded.types import DELETE_OPTIONS, ResourceType

__all__ = ["check_kind", "clean_object", "decode", "decode_body", "delete_options", "shown_object"]

Object = dict[str, Any]
_JSON_ERROR = (
    "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error}"
)


def decode_body(body: bytes, content_type: str, resource: ResourceType) -> Any:
    """Decode JSON, or YAML if the content type says so, or the protobuf of a Namespace.

    Raises:
        ValueError: neither; the message says where.
        ApiFailure: 415 for another content type.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media in {"", "application/json"}:
        return msgspec.json.decode(body)
    if media in {"application/yaml", "application/apply-patch+yaml"}:
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError:
            return msgspec.yaml.decode(body)
    if media == protobuf.MEDIA_TYPE and resource.plural == "namespaces":
        return protobuf.decode_namespace(body)
    raise unsupported_media_type()


def decode(target: Target, body: bytes, content_type: str, options: Options) -> tuple[Object, list[str]]:
    """Decode a whole object of a request's kind.

    Returns:
        The object, and warnings about what was dropped.

    Raises:
        ApiFailure: 400 for what is no such object, 415 for another content type.
    """
    resource = target.resource
    try:
        raw = decode_body(body, content_type, resource)
    except (msgspec.DecodeError, ValueError) as error:
        raise bad_request(_JSON_ERROR.format(kind=resource.kind, error=error)) from None
    if not isinstance(raw, dict):
        name = {list: "array", str: "string", bool: "bool"}.get(raw.__class__, "number")
        why = f"json: cannot unmarshal {name} into Go value of type struct {{ APIVersion string; Kind string }}"
        raise bad_request(_JSON_ERROR.format(kind=resource.kind, error=why))
    check_kind(target, raw)
    return clean_object(resource, raw, options)


def check_kind(target: Target, raw: Mapping[str, Any]) -> None:
    """Compare an object's kind and apiVersion, where it has them, with those of the path.

    Raises:
        ApiFailure: 400 if they differ.
    """
    resource = target.resource
    kind, version = raw.get("kind") or resource.kind, raw.get("apiVersion")
    expected = f"{target.group}/v1" if target.group else "v1"
    version = version or expected
    if kind == resource.kind and version == expected:
        return
    what = f'{kind} in version "{version}" cannot be handled as a {resource.kind}'
    if kind != resource.kind and version == expected:
        raise bad_request(f"{what}: converting (v1.{kind}) to (core.{resource.kind}): unknown conversion")
    raise bad_request(
        f'{what}: no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    )


def clean_object(resource: ResourceType, raw: Object, options: Options) -> tuple[Object, list[str]]:
    """Make an object of its kind.

    Returns:
        The object, and warnings about what was dropped.

    Raises:
        ApiFailure: 400 for a value of the wrong type, and for unknown fields if the options are strict.
    """
    raw = {key: value for key, value in raw.items() if key not in {"kind", "apiVersion"}}
    if resource.plural == "events" and is_new_event(raw):
        raw = from_new_event(raw)
    unknown: list[str] | None = None if options.validation == "Ignore" else []
    try:
        obj = clean(raw, resource.schema, unknown)
    except SchemaError as error:
        raise _undecodable(resource, str(error)) from None
    warnings = [f'unknown field "{path}"' for path in unknown or ()]
    if warnings and options.validation == "Strict":
        raise _undecodable(resource, "strict decoding error: " + ", ".join(warnings))
    return obj, warnings


def _undecodable(resource: ResourceType, why: str) -> ApiFailure:
    return bad_request(f'{resource.kind} in version "v1" cannot be handled as a {resource.kind}: {why}')


def shown_object(target: Target, stored: Stored) -> Object:
    """A stored object with kind and apiVersion, in the group that was asked for."""
    if target.group == target.resource.group:
        return {"kind": target.resource.kind, "apiVersion": target.resource.api_version, **stored.obj}
    return {"kind": target.resource.kind, "apiVersion": f"{target.group}/v1", **to_new_event(stored.obj)}


def delete_options(body: bytes) -> Object:
    """The options of a delete.

    Raises:
        ApiFailure: 400 for what is no DeleteOptions, 422 for an unknown policy.
    """
    if not body.strip():
        return {}
    try:
        wishes: Object = clean(msgspec.json.decode(body), DELETE_OPTIONS)
    except (msgspec.DecodeError, SchemaError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if wishes.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request("expected DeleteOptions")
    errors = propagation_errors(wishes.get("propagationPolicy", ""))
    if errors:
        raise invalid("DeleteOptions", "meta.k8s.io", "", errors)
    return wishes
