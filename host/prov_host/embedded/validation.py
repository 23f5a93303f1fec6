"""Rules that hold for all kinds: names, labels, annotations, finalizers, and what an update may change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prov_host.embedded.failures import FieldError
from prov_host.embedded.types import ResourceType

__all__ = ["check_metadata", "check_metadata_update", "check_name", "is_dns_subdomain", "is_qualified_name"]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_NAME_PART})?"
_LABEL_RE = re.compile(_LABEL, re.ASCII)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN, re.ASCII)
_NAME_RE = re.compile(_NAME_PART, re.ASCII)
_VALUE_RE = re.compile(_VALUE, re.ASCII)

_BAD_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_BAD_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_BAD_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PART}')"
)
_BAD_QUALIFIED = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PART}')"
    " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_BAD_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '{_VALUE}')"
)
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_ANNOTATIONS_LIMIT = 256 * 1024


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def is_dns_subdomain(text: str) -> bool:
    """Whether a text can be most objects' name."""
    return len(text) <= 253 and _SUBDOMAIN_RE.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether a text can be a label's key."""
    return not qualified_name_problems(text)


def check_name(resource: ResourceType, name: str, *, prefix: bool = False) -> list[str]:
    """What is wrong with an object's name, or with the prefix that a name is generated from."""
    if prefix and name.endswith("-"):
        name = name[:-1] + "a"
    if resource.label_names:
        limit, pattern, problem = 63, _LABEL_RE, _BAD_LABEL
    else:
        limit, pattern, problem = 253, _SUBDOMAIN_RE, _BAD_SUBDOMAIN
    problems = [_too_long(limit)] if len(name) > limit else []
    if pattern.fullmatch(name) is None:
        problems.append(problem)
    return problems


def subdomain_problems(text: str) -> list[str]:
    """What is wrong with a name that refers to another object."""
    problems = [_too_long(253)] if len(text) > 253 else []
    return problems if _SUBDOMAIN_RE.fullmatch(text) else [*problems, _BAD_SUBDOMAIN]


def qualified_name_problems(text: str) -> list[str]:
    """What is wrong with a label's key, or with whatever else has the form of one."""
    prefix, slash, name = text.rpartition("/")
    problems = []
    if slash:
        if "/" in prefix:
            return [_BAD_QUALIFIED]
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems.extend("prefix part " + problem for problem in subdomain_problems(prefix))
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part " + _too_long(63))
    if _NAME_RE.fullmatch(name) is None:
        problems.append(_BAD_NAME)
    return problems


def label_errors(labels: Mapping[str, str], path: str) -> list[FieldError]:
    """What is wrong with labels."""
    errors = []
    for key, value in labels.items():
        errors += [FieldError.wrong(path, key, problem) for problem in qualified_name_problems(key)]
        if len(value) > 63:
            errors.append(FieldError.wrong(path, value, _too_long(63)))
        if _VALUE_RE.fullmatch(value) is None:
            errors.append(FieldError.wrong(path, value, _BAD_VALUE))
    return errors


def _finalizer_errors(finalizers: list[str], *, strict: bool) -> list[FieldError]:
    errors = []
    for index, name in enumerate(finalizers):
        problems = qualified_name_problems(name)
        errors += [FieldError.wrong("metadata.finalizers", name, problem) for problem in problems]
        if strict and not problems and "/" not in name and name not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(FieldError.wrong(f"metadata.finalizers[{index}]", name, why))
    return errors


def check_metadata(resource: ResourceType, metadata: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with a new object's metadata."""
    errors = []
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    if prefix:
        errors += [
            FieldError.wrong("metadata.generateName", prefix, p) for p in check_name(resource, prefix, prefix=True)
        ]
    if name:
        errors += [FieldError.wrong("metadata.name", name, problem) for problem in check_name(resource, name)]
    else:
        errors.append(FieldError.required("metadata.name", "name or generateName is required"))
    return errors + _check_common(resource, metadata)


def _check_common(resource: ResourceType, metadata: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    if labels:
        errors += label_errors(labels, "metadata.labels")
    if annotations:
        size = 0
        for key, value in annotations.items():
            # Annotation keys are compared in lower case, so that upper-case prefixes pass.
            errors += [FieldError.wrong("metadata.annotations", key, p) for p in qualified_name_problems(key.lower())]
            size += len(key.encode()) + len(value.encode())
        if size > _ANNOTATIONS_LIMIT:
            errors.append(
                FieldError(
                    "FieldValueTooLong",
                    "metadata.annotations",
                    f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes",
                )
            )
    for index, owner in enumerate(metadata.get("ownerReferences", ())):
        where = f"metadata.ownerReferences[{index}]"
        errors += [
            FieldError.required(f"{where}.{field}", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner[field]
        ]
    if metadata.get("finalizers"):
        # The real server asks leases, alone of these kinds, for nothing more than a name.
        errors += _finalizer_errors(metadata["finalizers"], strict=resource.plural != "leases")
    return errors


def check_metadata_update(resource: ResourceType, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with an update's metadata; name and namespace were compared with the path before."""
    errors = []
    if "deletionTimestamp" in old:
        before = set(old.get("finalizers", ()))
        added = sorted(set(new.get("finalizers", ())) - before)
        if added:
            quoted = ", ".join(f'"{name}"' for name in added)
            why = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{quoted}}}"
            )
            errors.append(FieldError.forbidden("metadata.finalizers", why))
    if new.get("uid", old["uid"]) != old["uid"]:
        errors.append(FieldError.wrong("metadata.uid", new["uid"], "field is immutable"))
    return errors + _check_common(resource, new)
