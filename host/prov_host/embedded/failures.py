"""Everything the embedded API server answers that is not a success, in the shapes of the real one.

Code anywhere in the package raises :class:`ApiFailure` (through the functions below, which know the wording); the
cluster turns it into a ``Status`` body in one place. Validation collects :class:`FieldError` items, because the real
server reports all of an object's mistakes together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

__all__ = [
    "ApiFailure",
    "ConnectionLost",
    "FieldError",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "not_found",
    "too_large_version",
]

_encode = msgspec.json.encode


class ConnectionLost(Exception):
    """The connection breaks instead of an answer being sent; only injected faults raise it."""


class ApiFailure(Exception):
    """A ``Status`` of failure.

    Args:
        code: the HTTP status code.
        reason: CamelCase, or "" for the rare answers that have none.
        message: for people.
        details: ``name``, ``group``, ``kind``, ``uid``, ``causes``, ``retryAfterSeconds``.
        continue_token: of an expired list: how to go on inconsistently.
        headers: further HTTP headers.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        continue_token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.continue_token = continue_token
        self.headers = dict(headers or {})

    def status(self) -> dict[str, Any]:
        """The ``Status`` object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = dict(self.details)
        status["code"] = self.code
        return status

    def body(self) -> bytes:
        """The ``Status`` object as JSON."""
        return _encode(self.status())


class FieldError(msgspec.Struct, frozen=True):
    """One mistake in an object.

    Attributes:
        reason: ``FieldValueInvalid``, ``FieldValueRequired``, ``FieldValueForbidden``, ``FieldValueNotSupported``...
        field: the field's path.
        message: without the path.
    """

    reason: str
    field: str
    message: str

    @classmethod
    def required(cls, field: str, detail: str = "") -> FieldError:
        """A value is missing."""
        return cls("FieldValueRequired", field, "Required value" + (f": {detail}" if detail else ""))

    @classmethod
    def wrong(cls, field: str, value: Any, detail: str) -> FieldError:
        """A value cannot be."""
        return cls("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {detail}")

    @classmethod
    def unsupported(cls, field: str, value: Any, supported: Sequence[str]) -> FieldError:
        """A value is none of the few possible ones."""
        choices = ", ".join(f'"{choice}"' for choice in supported)
        return cls("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {choices}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> FieldError:
        """A value must not be set, or not be changed."""
        return cls("FieldValueForbidden", field, f"Forbidden: {detail}")


def _shown(value: Any) -> str:
    return _encode(value).decode()


def _name_details(name: str, group: str, kind: str) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, group: str, name: str) -> ApiFailure:
    """404 of a named object."""
    return ApiFailure(
        404, "NotFound", f'{_qualified(resource, group)} "{name}" not found', _name_details(name, group, resource)
    )


def already_exists(resource: str, group: str, name: str) -> ApiFailure:
    """409 of a create."""
    return ApiFailure(
        409,
        "AlreadyExists",
        f'{_qualified(resource, group)} "{name}" already exists',
        _name_details(name, group, resource),
    )


def conflict(resource: str, group: str, name: str, why: str = "") -> ApiFailure:
    """409 of a stale resourceVersion or a broken precondition.

    ``why`` defaults to the words about a stale resourceVersion.
    """
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return ApiFailure(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {_qualified(resource, group)} "{name}": {why}',
        _name_details(name, group, resource),
    )


def forbidden(resource: str, group: str, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()) -> ApiFailure:
    """403 of an admission check."""
    details = _name_details(name, group, resource)
    if causes:
        details["causes"] = list(causes)
    return ApiFailure(403, "Forbidden", f'{_qualified(resource, group)} "{name}" is forbidden: {why}', details)


def bad_request(message: str) -> ApiFailure:
    """400."""
    return ApiFailure(400, "BadRequest", message)


def invalid(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> ApiFailure:
    """422 with all mistakes."""
    texts = [f"{error.field}: {error.message}" for error in errors]
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _name_details(name, group, kind)
    details["causes"] = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    return ApiFailure(422, "Invalid", f'{_qualified(kind, group)} "{name}" is invalid: {listed}', details)


def expired(message: str, continue_token: str = "") -> ApiFailure:
    """410: the history of that resourceVersion is gone."""
    return ApiFailure(410, "Expired", message, continue_token=continue_token)


def too_large_version(asked: int, current: int) -> ApiFailure:
    """504: a resourceVersion from the future."""
    return ApiFailure(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"retry-after": "1"},
    )
