"""OpenAPI documents of the served kinds, as far as kubectl needs them.

``kubectl explain`` reads the fields; ``kubectl create`` and ``apply`` look in the paths whether writes take
``fieldValidation``, and in the schemas how lists merge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prov_host.embedded.schema import Type
from prov_host.embedded.types import RESOURCES, ResourceType

__all__ = ["version_2", "version_3"]

_SCALARS: dict[str, dict[str, str]] = {
    "string": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bool": {"type": "boolean"},
    "quantity": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "intstr": {"type": "string", "format": "int-or-string"},
    "raw": {"type": "object"},
}
_PACKAGES = {
    "": "io.k8s.api.core.v1",
    "coordination.k8s.io": "io.k8s.api.coordination.v1",
    "storage.k8s.io": "io.k8s.api.storage.v1",
}
_QUERY = ("dryRun", "fieldManager", "fieldValidation")


Definitions = dict[str, dict[str, Any]]


def _schema(type: Type, package: str, prefix: str, found: Definitions) -> dict[str, Any]:
    """A field's schema; structs become definitions of their own in ``found``, named as kubectl shows them."""
    if type.kind == "object":
        name = f"{package}.{type.go}"
        if name not in found:
            found[name] = {}
            fields = {field: _schema(inner, package, prefix, found) for field, inner in type.fields.items()}
            found[name] = {"type": "object", "properties": fields}
        return {"$ref": f"{prefix}{name}"}
    if type.kind == "map" and type.item is not None:
        return {"type": "object", "additionalProperties": _schema(type.item, package, prefix, found)}
    if type.kind == "list" and type.item is not None:
        schema: dict[str, Any] = {"type": "array", "items": _schema(type.item, package, prefix, found)}
        if type.merge_key:
            schema |= {
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": type.merge_key,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": list(type.map_keys),
            }
        elif type.merge:
            schema |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-list-type": "set"}
        else:
            schema["x-kubernetes-list-type"] = "atomic"
        return schema
    return dict(_SCALARS[type.kind])


def _definitions(resources: Iterable[ResourceType], prefix: str) -> Definitions:
    found: Definitions = {}
    for resource in resources:
        _schema(resource.schema, _PACKAGES[resource.group], prefix, found)
        definition = found[_name(resource)]
        texts = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        definition["properties"] = {**texts, **definition["properties"]}
        kind = {"group": resource.group, "kind": resource.kind, "version": "v1"}
        definition["x-kubernetes-group-version-kind"] = [kind]
    return found


def _name(resource: ResourceType) -> str:
    return f"{_PACKAGES[resource.group]}.{resource.kind}"


def _paths(resource: ResourceType, parameter: Any, reference: str) -> dict[str, Any]:
    base = f"/apis/{resource.group}/v1" if resource.group else "/api/v1"
    collection = (
        f"{base}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"
    )
    kind = {"group": resource.group, "kind": resource.kind, "version": "v1"}

    def operation(action: str) -> dict[str, Any]:
        return {
            "operationId": f"{action}{resource.kind}",
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "parameters": [parameter(name) for name in _QUERY],
            "responses": {"200": {"description": "OK", **({"schema": {"$ref": reference}} if reference else {})}},
        }

    return {
        collection: {"post": operation("post")},
        f"{collection}/{{name}}": {"put": operation("put"), "patch": operation("patch"), "delete": operation("delete")},
    }


def version_2() -> dict[str, Any]:
    """The document of all groups, OpenAPI 2."""

    def parameter(name: str) -> dict[str, Any]:
        return {"name": name, "in": "query", "type": "string", "uniqueItems": True}

    paths: dict[str, Any] = {}
    for resource in RESOURCES:
        paths |= _paths(resource, parameter, f"#/definitions/{_name(resource)}")
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.37.2"},
        "paths": paths,
        "definitions": _definitions(RESOURCES, "#/definitions/"),
    }


def version_3(group_version: str) -> dict[str, Any] | None:
    """The index (for ""), or the OpenAPI 3 document of one group and version (``api/v1``); None if there is none."""
    groups = sorted({resource.group for resource in RESOURCES})
    names = {f"apis/{group}/v1" if group else "api/v1": group for group in groups}
    if not group_version:
        return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"} for name in names}}
    if group_version not in names:
        return None

    def parameter(name: str) -> dict[str, Any]:
        return {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}

    resources = [resource for resource in RESOURCES if resource.group == names[group_version]]
    paths: dict[str, Any] = {}
    for resource in resources:
        paths |= _paths(resource, parameter, "")
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.2"},
        "paths": paths,
        "components": {"schemas": _definitions(resources, "#/components/schemas/")},
    }
