"""Create, update, patch and delete: from a request's body to a new version of an object in the store.

Every write goes the way it goes in the real API server: decode, compare with the path, preconditions, complete,
validate, admit; then nothing if it is a dry run or if nothing changed, else one revision.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from prov_host.clock import Clock
from prov_host.embedded import apply, failures, patches, rules
from prov_host.embedded.decoding import (
    check_kind,
    clean_object,
    decode,
    decode_body,
    delete_options,
    shown_object,
)
from prov_host.embedded.failures import FieldError, bad_request, invalid
from prov_host.embedded.requests import Options, Target, unsupported_media_type
from prov_host.embedded.store import Store, Stored, Table
from prov_host.embedded.types import ResourceType

__all__ = ["Outcome", "Writer"]

Object = dict[str, Any]
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_NAME_TRIES = 8
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Outcome(msgspec.Struct, frozen=True):
    """What a write did.

    Attributes:
        status: 200 or 201.
        stored: the object to answer with, or None.
        body: the object to answer with, if it is none that is stored (a deletion's Status, a dry run).
        warnings: for Warning headers.
    """

    status: int
    stored: Stored | None = None
    body: Object | None = None
    warnings: tuple[str, ...] = ()


class Writer:
    """All writes to one store.

    Args:
        store: where to.
        clock: for timestamps.
        random: for uids and generated names.
    """

    def __init__(self, store: Store, clock: Clock, random: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._random = random

    def now(self) -> str:
        """The time as metadata has it."""
        return self._clock.now().astimezone(dt.UTC).isoformat(timespec="seconds")[:19] + "Z"

    def uid(self) -> str:
        """A new random uid."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _classes(self) -> Iterable[Mapping[str, Any]]:
        return (stored.obj for stored in self._store.tables["storageclasses.storage.k8s.io"].objects.values())

    # ------------------------------------------------------------------------------------------ create

    def create(self, target: Target, body: bytes, content_type: str, options: Options) -> Outcome:
        """POST to a collection."""
        obj, warnings = decode(target, body, content_type, options)
        if obj["metadata"].get("resourceVersion"):
            raise failures.ApiFailure(500, "", "resourceVersion should not be set on objects to be created")
        rules.check_namespace(target.resource, obj, target.namespace)
        return self._create(target, obj, options, warnings)

    def _create(self, target: Target, obj: Object, options: Options, warnings: Iterable[str]) -> Outcome:
        resource, metadata = target.resource, obj["metadata"]
        table = self._store.tables[resource.id]
        for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(field, None)
        metadata["uid"] = self.uid()
        metadata["creationTimestamp"] = self.now()
        self._check_namespace_exists(target, metadata.get("name", ""))
        prefix = metadata.get("generateName", "")
        generate = bool(prefix) and not metadata.get("name")
        if generate:
            metadata["name"] = self._generated(prefix, table, target)
        key = f"{target.namespace}/{metadata.get('name')}" if resource.namespaced else str(metadata.get("name"))
        rules.create(resource, obj, now=metadata["creationTimestamp"], classes=self._classes())
        if key in table.objects:
            raise failures.already_exists(resource.plural, resource.group, metadata["name"])
        if options.dry_run:
            return Outcome(201, body=obj, warnings=tuple(warnings))
        return Outcome(201, stored=table.put(obj), warnings=tuple(warnings))

    def _generated(self, prefix: str, table: Table, target: Target) -> str:
        for _ in range(_NAME_TRIES):
            name = prefix[:58] + "".join(self._random.choice(_SUFFIX_ALPHABET) for _ in range(5))
            if (f"{target.namespace}/{name}" if target.resource.namespaced else name) not in table.objects:
                return name
        raise failures.already_exists(target.resource.plural, target.resource.group, name)

    def _check_namespace_exists(self, target: Target, name: str) -> None:
        if not target.resource.namespaced:
            return
        namespace = self._store.tables["namespaces"].get(target.namespace)
        if namespace is None:
            raise failures.not_found("namespaces", "", target.namespace)
        if "deletionTimestamp" in namespace.obj["metadata"]:
            why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {target.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise failures.forbidden(target.resource.plural, target.resource.group, name, why, [cause])

    # ------------------------------------------------------------------------------------------ update

    def update(self, target: Target, body: bytes, content_type: str, options: Options, agent: str = "") -> Outcome:
        """PUT of a named object, or of its status; ``agent`` is the client's name, the default field manager."""
        resource = target.resource
        table = self._store.tables[resource.id]
        obj, warnings = decode(target, body, content_type, options)
        rules.check_names(resource, obj, target.name, target.namespace)
        old = table.get(target.key)
        if old is None:
            if resource.create_on_update and not target.subresource:
                if obj["metadata"].get("uid"):
                    raise self._uid_conflict(target, obj["metadata"]["uid"], "")
                return self._create(target, obj, options, warnings)
            raise failures.not_found(resource.plural, resource.group, target.name)
        if target.subresource == "finalize":
            return self._finalize(table, old, obj)
        version = obj["metadata"].get("resourceVersion", "")
        if not version and resource.plural == "leases":
            error = FieldError.wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource.plural, resource.group, target.name, [error])
        uid = obj["metadata"].get("uid")
        if uid and uid != old.obj["metadata"]["uid"]:
            raise self._uid_conflict(target, uid, old.obj["metadata"]["uid"])
        if "managedFields" not in obj["metadata"] and "managedFields" in old.obj["metadata"]:
            obj["metadata"]["managedFields"] = old.obj["metadata"]["managedFields"]
        obj = self._managed(target, old.obj, obj, options, agent)
        return self._replace(target, old, obj, version, options, warnings=warnings)

    def _uid_conflict(self, target: Target, asked: str, found: str) -> failures.ApiFailure:
        key = f"/registry/{target.resource.plural}/{target.key}"
        why = (
            f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
        )
        return failures.conflict(target.resource.plural, target.resource.group, target.name, why)

    def _replace(
        self, target: Target, old: Stored, obj: Object, version: str, options: Options, *, warnings: Iterable[str]
    ) -> Outcome:
        resource = target.resource
        table = self._store.tables[resource.id]
        if version and version != old.obj["metadata"]["resourceVersion"]:
            raise failures.conflict(resource.plural, resource.group, target.name)
        rules.update(
            resource, obj, old.obj, status=target.subresource == "status", now=self.now(), classes=self._classes()
        )
        obj["metadata"]["resourceVersion"] = old.obj["metadata"]["resourceVersion"]
        if obj == old.obj or options.dry_run:
            return (
                Outcome(200, stored=old, warnings=tuple(warnings))
                if obj == old.obj
                else Outcome(200, body=obj, warnings=tuple(warnings))
            )
        return Outcome(200, *self._commit(table, target.key, obj), warnings=tuple(warnings))

    def _commit(self, table: Table, key: str, obj: Object) -> tuple[Stored | None, Object | None]:
        """Store a changed object, or remove it if it is terminating and this took its last finalizer."""
        metadata = obj["metadata"]
        if (
            "deletionTimestamp" in metadata
            and not metadata.get("finalizers")
            and not obj.get("spec", {}).get("finalizers")
        ):
            table.remove(key)
            return None, obj
        return table.put(obj), None

    def _finalize(self, table: Table, old: Stored, obj: Object) -> Outcome:
        new = {**old.obj, "spec": obj["spec"]}
        return Outcome(200, *self._commit(table, old.obj["metadata"]["name"], new))

    # ------------------------------------------------------------------------------------------ patch

    def patch(self, target: Target, body: bytes, content_type: str, options: Options, agent: str = "") -> Outcome:
        """PATCH of a named object, or of its status; ``agent`` is the client's name, the default field manager."""
        resource = target.resource
        media = content_type.partition(";")[0].strip().lower()
        table = self._store.tables[resource.id]
        if media == APPLY_PATCH:
            return self._apply(target, body, content_type, options)
        if media not in {JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH}:
            raise unsupported_media_type()
        old = table.get(target.key)
        if old is None:
            raise failures.not_found(resource.plural, resource.group, target.name)
        try:
            patch = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            message = "invalid JSON patch" if media != JSON_PATCH else f"error decoding patch: {error}"
            raise bad_request(message) from None
        raw = self._patched(target, old, patch, media)
        if not isinstance(raw, dict):
            raise bad_request(
                "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
            )
        check_kind(target, raw)
        obj, warnings = clean_object(resource, raw, options)
        rules.check_names(resource, obj, target.name, target.namespace)
        version = obj["metadata"].get("resourceVersion", "")
        obj = self._managed(target, old.obj, obj, options, agent)
        return self._replace(target, old, obj, version, options, warnings=warnings)

    @staticmethod
    def _patched(target: Target, old: Stored, patch: Any, media: str) -> Any:
        # The patch sees the whole object; a resourceVersion in it is a precondition.
        current = shown_object(target, old)
        if media == JSON_PATCH:
            return patches.json_patch(current, patch)
        if not isinstance(patch, dict):
            name = "array" if isinstance(patch, list) else "value"
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {name} into Go value of type map[string]interface {{}}"
            )
        if media == MERGE_PATCH:
            return patches.merge_patch(current, patch)
        return patches.strategic_patch(current, patch, target.resource.schema)

    def _managed(self, target: Target, old: Object, new: Object, options: Options, agent: str) -> Object:
        """Keep track of who owns which field, for objects that were ever applied."""
        if "managedFields" not in old["metadata"] or "managedFields" not in new["metadata"]:
            return new
        return apply.record_update(
            target.resource, old, new, manager=options.manager or agent, subresource=target.subresource, now=self.now()
        )

    def _apply(self, target: Target, body: bytes, content_type: str, options: Options) -> Outcome:
        resource = target.resource
        if not options.manager:
            raise invalid(
                "PatchOptions", "meta.k8s.io", "", [FieldError.required("fieldManager", "is required for apply patch")]
            )
        try:
            raw = decode_body(body, content_type, resource)
        except (msgspec.DecodeError, ValueError) as error:
            raise bad_request(f"error decoding YAML: {error}") from None
        if not isinstance(raw, dict) or not isinstance(raw.get("metadata", {}), dict):
            raise bad_request("error decoding YAML: the configuration is no object")
        if not raw.get("kind") or not raw.get("apiVersion"):
            raise bad_request(f"invalid object type: /, Kind={raw.get('kind', '')}")
        check_kind(target, raw)
        if raw.get("metadata", {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        scope = {"namespace": target.namespace} if resource.namespaced else {}
        raw = {**raw, "metadata": {"name": target.name, **scope, **raw.get("metadata", {})}}
        config, warnings = clean_object(resource, raw, options)
        if warnings:
            field = warnings[0].partition('"')[2].rstrip('"')
            what = f"({target.namespace}/{target.name}; {resource.api_version}, Kind={resource.kind})"
            why = f"failed to create typed patch object {what}: .{field}: field not declared in schema"
            raise failures.ApiFailure(500, "", why)
        rules.check_names(resource, config, target.name, target.namespace)
        uid = config["metadata"].get("uid")
        version = config["metadata"].pop("resourceVersion", "")
        old = self._store.tables[resource.id].get(target.key)
        if old is None and uid:
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise failures.conflict(resource.plural, resource.group, target.name, why)
        if old is None and target.subresource:
            raise failures.not_found(resource.plural, resource.group, target.name)
        applied = apply.apply(
            resource, old.obj if old else None, apply.given(raw, config), manager=options.manager, force=options.force,
            subresource=target.subresource, now=self.now(),
        )  # fmt: skip
        obj, _ = clean_object(resource, applied, Options(validation="Ignore"))
        if old is None:
            return self._create(target, obj, options, warnings)
        return self._replace(target, old, obj, version, options, warnings=warnings)

    # ------------------------------------------------------------------------------------------ delete

    def delete(self, target: Target, body: bytes, options: Options) -> Outcome:
        """DELETE of a named object."""
        resource = target.resource
        table = self._store.tables[resource.id]
        wishes = delete_options(body)
        dry_run = options.dry_run or bool(wishes.get("dryRun"))
        old = table.get(target.key)
        if old is None:
            raise failures.not_found(resource.plural, resource.group, target.name)
        self._check_preconditions(resource, old, wishes.get("preconditions", {}))
        return self.remove(table, target.key, dry_run=dry_run)

    @staticmethod
    def _check_preconditions(resource: ResourceType, old: Stored, wanted: Mapping[str, str]) -> None:
        metadata = old.obj["metadata"]
        why = ""
        if wanted.get("uid") not in {None, metadata["uid"]}:
            why = (
                f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated"
            )
        elif wanted.get("resourceVersion") not in {None, metadata["resourceVersion"]}:
            why = (
                f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match the "
                f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified"
            )
        if why:
            raise failures.conflict(resource.kind, resource.group, metadata["name"], why)

    def remove(self, table: Table, key: str, *, dry_run: bool = False) -> Outcome:
        """Delete an object, or mark it as terminating while it has finalizers."""
        resource, old = table.resource, table.objects[key]
        metadata = old.obj["metadata"]
        if metadata.get("finalizers") or (resource.plural == "namespaces" and old.obj["spec"].get("finalizers")):
            if "deletionTimestamp" in metadata:
                return Outcome(200, stored=old)
            obj = {**old.obj, "metadata": {**metadata, "deletionTimestamp": self.now()}}
            if resource.plural == "namespaces":
                obj["status"] = {**obj["status"], "phase": "Terminating"}
            else:
                obj["metadata"]["deletionGracePeriodSeconds"] = 0
            if metadata.get("generation"):
                obj["metadata"]["generation"] = metadata["generation"] + 1
            return Outcome(200, body=obj) if dry_run else Outcome(200, stored=table.put(obj))
        last = old if dry_run else table.remove(key)
        if resource.returns_deleted:
            return Outcome(200, stored=last)
        details = {
            "name": metadata["name"],
            **({"group": resource.group} if resource.group else {}),
            "kind": resource.plural,
            "uid": metadata["uid"],
        }
        return Outcome(
            200, body={"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    def delete_collection(self, target: Target, body: bytes, keys: list[str]) -> list[Stored]:
        """DELETE of the given objects of a collection; returns them as they were."""
        wishes = delete_options(body)
        table = self._store.tables[target.resource.id]
        stored = [table.objects[key] for key in keys]
        for key in keys:
            self.remove(table, key, dry_run=bool(wishes.get("dryRun")))
        return stored

    # ------------------------------------------------------------------------------------------ for controllers

    def change(self, table: Table, key: str, edit: Callable[[Object], Object]) -> Stored | None:
        """Change an object as one of the cluster's own controllers: trusted, unvalidated, one revision if it differs.

        Args:
            table: its kind.
            key: its key.
            edit: makes the new object of the stored one, which it must not change.

        Returns:
            The stored object, or None if there is none (any more).
        """
        old = table.get(key)
        if old is None:
            return None
        new = edit(old.obj)
        return old if new == old.obj else self._commit(table, key, new)[0]
