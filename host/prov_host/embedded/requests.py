"""What a request asks for: its path and query, taken apart and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import unquote

import msgspec

from prov_host.embedded.failures import ApiFailure, FieldError, bad_request, invalid
from prov_host.embedded.types import ResourceType, by_plural

__all__ = ["Options", "Target", "parse_options", "parse_path", "propagation_errors", "unsupported_media_type"]

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
_SUBRESOURCES = {"status", "finalize"}
_EVENTS_GROUP = "events.k8s.io"


class Target(msgspec.Struct, frozen=True):
    """What a resource request is about.

    Attributes:
        resource: the kind; Events of either group are the core's.
        group: the group that was asked for.
        namespace: "" for cluster-scoped kinds and for lists of all namespaces.
        name: "" for collections.
        subresource: ``status``, ``finalize`` or "".
        verb: as in RBAC.
    """

    resource: ResourceType
    group: str
    namespace: str
    name: str
    subresource: str
    verb: Verb

    @property
    def key(self) -> str:
        """The key in the store of a named object."""
        return f"{self.namespace}/{self.name}" if self.resource.namespaced else self.name

    @property
    def scope(self) -> str:
        """``resource``, ``namespace`` or ``cluster``, as metrics call it."""
        return "resource" if self.name or self.verb == "create" else "namespace" if self.namespace else "cluster"


class Options(msgspec.Struct, frozen=True):
    """The query of a resource request."""

    watch: bool = False
    limit: int = 0
    continue_: str = ""
    resource_version: str = ""
    match: str = ""
    labels: str = ""
    fields: str = ""
    timeout: float | None = None
    bookmarks: bool = False
    initial_events: bool | None = None
    dry_run: bool = False
    validation: str = ""
    manager: str = ""
    force: bool = False
    propagation: str = ""


def parse_path(method: str, path: str, *, watch: bool) -> Target | None:
    """Take the path of a resource request apart.

    Args:
        method: the HTTP method.
        path: absolute, percent-encoded.
        watch: whether the query asks for a watch.

    Returns:
        The target, or None if the path is none of a group and version that are served.

    Raises:
        ApiFailure: 404 for a resource that is not served, 405 for a method that it does not have.
    """
    segments = [unquote(segment) for segment in path.strip("/").split("/")]
    if segments[:2] == ["api", "v1"] and len(segments) > 2:
        group, rest = "", segments[2:]
    elif segments[0] == "apis" and len(segments) > 3:
        group, rest = segments[1], segments[3:]
        if segments[2] != "v1":
            raise _no_such_resource() if group in _served_groups() else _unknown_path()
    else:
        return None
    if rest and rest[0] == "watch":
        rest, watch = rest[1:], True
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in _SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    elif not rest:
        return None
    store_group = "" if group == _EVENTS_GROUP else group
    resource = by_plural(store_group, rest[0])
    if group == _EVENTS_GROUP and rest[0] != "events":
        resource = None
    if resource is None or (namespace and not resource.namespaced):
        if group and group not in _served_groups():
            raise _unknown_path()
        raise _no_such_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if len(rest) > 3 or (subresource and not _has_subresource(resource, subresource)) or (
        name and resource.namespaced and not namespace
    ):  # fmt: skip
        raise _no_such_resource()
    return Target(
        resource,
        group,
        namespace,
        name,
        subresource,
        _verb(method, resource, name, namespace, subresource, watch=watch),
    )


def _served_groups() -> set[str]:
    return {"storage.k8s.io", "coordination.k8s.io", _EVENTS_GROUP}


def _no_such_resource() -> ApiFailure:
    return ApiFailure(404, "NotFound", "the server could not find the requested resource", {})


def _unknown_path() -> ApiFailure:
    return ApiFailure(404, "", "404 page not found")


def _has_subresource(resource: ResourceType, name: str) -> bool:
    return (name == "status" and resource.status) or (name == "finalize" and resource.plural == "namespaces")


def _verb(method: str, resource: ResourceType, name: str, namespace: str, subresource: str, *, watch: bool) -> Verb:
    verb: Verb | None = None
    collection_of_all = resource.namespaced and not namespace
    if method == "GET" and subresource != "finalize":
        verb = "get" if name else "watch" if watch else "list"
    elif method == "PUT" and name:
        verb = "update"
    elif method == "PATCH" and name and subresource != "finalize":
        verb = "patch"
    elif method == "POST" and not name and not collection_of_all:
        verb = "create"
    elif method == "DELETE" and not subresource and (name or not collection_of_all):
        verb = "delete" if name else None if resource.plural == "namespaces" else "deletecollection"
    if verb is None:
        why = "the server does not allow this method on the requested resource"
        raise ApiFailure(405, "MethodNotAllowed", why, {})
    return verb


def parse_options(query: Mapping[str, str], verb: Verb) -> Options:
    """Check the query of a resource request.

    Raises:
        ApiFailure: 400 for values that cannot be parsed, 422 for those that contradict each other.
    """
    if not query:
        return Options()
    initial = query.get("sendInitialEvents")
    options = Options(
        watch=_flag(query.get("watch")),
        limit=_int(query.get("limit", "")),
        continue_=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        timeout=float(_int(query["timeoutSeconds"])) if query.get("timeoutSeconds") else None,
        bookmarks=_flag(query.get("allowWatchBookmarks")),
        initial_events=None if initial is None else _flag(initial),
        dry_run=bool(query.get("dryRun")),
        validation=query.get("fieldValidation", ""),
        manager=query.get("fieldManager", ""),
        force=_flag(query.get("force")),
        propagation=query.get("propagationPolicy", ""),
    )
    errors = _list_errors(options, verb) if verb in {"list", "watch"} else _write_errors(options, query)
    if errors:
        raise invalid(_OPTION_KINDS[verb], "meta.k8s.io", "", errors)
    return options


_OPTION_KINDS: Mapping[Verb, str] = {
    "get": "GetOptions",
    "list": "ListOptions",
    "watch": "ListOptions",
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
    "deletecollection": "DeleteOptions",
}


def _flag(text: str | None) -> bool:
    return text is not None and text.lower() not in {"0", "false", "f"}


def _int(text: str) -> int:
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _list_errors(options: Options, verb: Verb) -> list[FieldError]:
    errors, where = [], "resourceVersionMatch"
    if verb == "list" and options.initial_events is not None:
        return [FieldError.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")]
    if verb == "watch":
        if options.initial_events is None:
            if options.match:
                why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
                errors.append(FieldError.forbidden(where, why))
        elif options.match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            errors.append(FieldError.forbidden(where, why))
        return errors
    if options.match:
        if options.match not in {"Exact", "NotOlderThan"}:
            errors.append(FieldError.unsupported(where, options.match, ("Exact", "NotOlderThan", "")))
        if not options.resource_version:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            errors.append(FieldError.forbidden(where, why))
        elif options.match == "Exact" and options.resource_version == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.append(FieldError.forbidden(where, why))
        if options.continue_:
            errors.append(FieldError.forbidden(where, "resourceVersionMatch is forbidden when continue is provided"))
    return errors


def _write_errors(options: Options, query: Mapping[str, str]) -> list[FieldError]:
    errors = []
    if options.dry_run and query["dryRun"] != "All":
        errors.append(FieldError.unsupported("dryRun", [query["dryRun"]], ("All",)))
    if options.validation not in {"", "Ignore", "Strict", "Warn"}:
        errors.append(FieldError.unsupported("fieldValidation", options.validation, ("", "Ignore", "Strict", "Warn")))
    return errors + propagation_errors(options.propagation)


def propagation_errors(policy: str) -> list[FieldError]:
    """What is wrong with a deletion's propagation policy."""
    choices = ("Foreground", "Background", "Orphan")
    if policy in {"", *choices}:
        return []
    return [FieldError.unsupported("propagationPolicy", policy, (*choices, "nil"))]


def unsupported_media_type(accepted: Sequence[str] = ()) -> ApiFailure:
    """415."""
    message = "415: Unsupported Media Type"
    if accepted:
        message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(
            accepted
        )
    return ApiFailure(415, "UnsupportedMediaType", message)
