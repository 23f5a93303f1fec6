"""Everything that is not a resource: discovery, OpenAPI, version, health and metrics.

kubectl learns from discovery which kinds there are, and from OpenAPI which fields they have and that writes may ask
for field validation; so the OpenAPI documents are made from the same descriptions that decoding uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from prov_host.embedded import openapi
from prov_host.embedded.metrics import RequestCounter
from prov_host.embedded.types import RESOURCES, ResourceType
from prov_host.kube.transport import Reply

__all__ = ["GROUPS", "answer"]

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUB_VERBS = ["get", "patch", "update"]
GROUPS = ("coordination.k8s.io", "events.k8s.io", "storage.k8s.io")
_VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2+prov-host.embedded",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_AGGREGATED = "as=APIGroupDiscoveryList"
_AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def answer(method: str, path: str, headers: Mapping[str, str], requests: RequestCounter) -> Reply:
    """Answer a request that is not about a resource."""
    path = path.rstrip("/") or "/"
    if method not in {"GET", "HEAD"}:
        return Reply(404, b"404 page not found\n", {"content-type": "text/plain; charset=utf-8"})
    if path in {"/healthz", "/livez", "/readyz"} or path.startswith(("/livez/", "/readyz/", "/healthz/")):
        return Reply(200, b"ok", {"content-type": "text/plain; charset=utf-8"})
    if path == "/metrics":
        return Reply(200, requests.expose().encode(), {"content-type": "text/plain; version=0.0.4; charset=utf-8"})
    if path in {"/api", "/apis"} and _AGGREGATED in headers.get("accept", "").partition(",")[0].replace(" ", ""):
        return Reply(200, _aggregated(path), {"content-type": _AGGREGATED_TYPE, "vary": "Accept"})
    body = _document(path)
    if body is None:
        return Reply(404, b"404 page not found\n", {"content-type": "text/plain; charset=utf-8"})
    return Reply(200, body, {"content-type": "application/json"})


def _in_group(group: str) -> list[ResourceType]:
    if group == "events.k8s.io":
        return [resource for resource in RESOURCES if resource.plural == "events"]
    return [resource for resource in RESOURCES if resource.group == group]


@cache
def _document(path: str) -> bytes | None:
    document: Any = None
    if path == "/":
        document = {"paths": ["/api", "/api/v1", "/apis", *(f"/apis/{group}" for group in GROUPS), "/version"]}
    elif path == "/api":
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
        document = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
    elif path == "/apis":
        document = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in GROUPS]}
    elif path == "/version":
        document = _VERSION
    elif path == "/api/v1":
        document = _resource_list("")
    elif path == "/openapi/v2":
        document = openapi.version_2()
    elif path.startswith("/openapi/v3"):
        document = openapi.version_3(path.removeprefix("/openapi/v3").strip("/"))
    else:
        parts = path.split("/")[1:]
        if parts[0] == "apis" and len(parts) in {2, 3} and parts[1] in GROUPS and parts[2:] in ([], ["v1"]):
            document = (
                _resource_list(parts[1]) if parts[2:] else {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1])}
            )
    return None if document is None else msgspec.json.encode(document)


def _group(group: str) -> dict[str, Any]:
    version = {"groupVersion": f"{group}/v1", "version": "v1"}
    return {"name": group, "versions": [version], "preferredVersion": version}


def _verbs(resource: ResourceType) -> list[str]:
    return [verb for verb in _VERBS if resource.plural != "namespaces" or verb != "deletecollection"]


def _subresources(resource: ResourceType) -> list[tuple[str, list[str]]]:
    found = [("status", _SUB_VERBS)] if resource.status else []
    return [("finalize", ["update"]), *found] if resource.plural == "namespaces" else found


def _resource_list(group: str) -> dict[str, Any]:
    listed = []
    for resource in _in_group(group):
        common = {"namespaced": resource.namespaced, "kind": resource.kind}
        entry = {"name": resource.plural, "singularName": resource.singular_name, **common, "verbs": _verbs(resource)}
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        listed.append(entry)
        listed += [
            {"name": f"{resource.plural}/{name}", "singularName": "", **common, "verbs": verbs}
            for name, verbs in _subresources(resource)
        ]
    version = f"{group}/v1" if group else "v1"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


@cache
def _aggregated(path: str) -> bytes:
    items = []
    for group in ("",) if path == "/api" else GROUPS:
        resources = []
        for resource in _in_group(group):
            kind = {"group": "", "version": "", "kind": resource.kind}
            entry: dict[str, Any] = {
                "resource": resource.plural,
                "responseKind": kind,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "singularResource": resource.singular_name,
                "verbs": _verbs(resource),
            }
            if resource.short_names:
                entry["shortNames"] = list(resource.short_names)
            if resource.categories:
                entry["categories"] = list(resource.categories)
            if _subresources(resource):
                entry["subresources"] = [
                    {"subresource": name, "responseKind": kind, "verbs": verbs}
                    for name, verbs in _subresources(resource)
                ]
            resources.append(entry)
        metadata = {"name": group} if group else {}
        items.append(
            {"metadata": metadata, "versions": [{"version": "v1", "resources": resources, "freshness": "Current"}]}
        )
    return msgspec.json.encode(
        {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
    )
