"""The one place where an answer of the API server becomes an exception.

The server explains itself with a ``Status`` object, but proxies and load balancers in between answer too: with HTML,
with plain text or with nothing. Whatever comes, the exception says what was tried, what was answered, and for the
refusals that a user can mend, how.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from prov_host.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
)

__all__ = ["GARBLED", "error_of", "garbled", "is_garbled", "is_too_large_version", "seconds_to_wait"]

GARBLED = "Garbled"
_EXCERPT = 300
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_BY_STATUS: dict[int, type[ApiError]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_ADVICE = {
    401: "the credentials are not accepted: check the token or the exec plugin of the kubeconfig",
    403: "grant the permission to this service account (deploy/ holds the roles it needs)",
}


class _Cause(msgspec.Struct, frozen=True):
    reason: str | None = None


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: float | None = None
    causes: tuple[_Cause, ...] | None = None


class _Status(msgspec.Struct, frozen=True):
    kind: str | None = None
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None


def error_of(what: str, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> ApiError:
    """The exception for an answer that is not the one hoped for.

    Args:
        what: what was tried, for example ``"GET persistentvolumes/pvc-1"``; opens the message.
        status: the HTTP status code; for an ``ERROR`` event of a watch 200, and then the Status object's own code
            counts.
        body: a Status object, or whatever a proxy sent.
        headers: the answer's headers, lower-case names.

    Returns:
        The subclass of :exc:`~prov_host.errors.ApiError` that fits; not raised.

    Callable from any thread. Since 0.1.
    """
    found = _status_of(body)
    code = found.code if status == 200 and found.code else status
    reason = found.reason or ""
    words = found.message or _excerpt(body) or "an empty answer"
    advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
    kind = _BY_STATUS.get(code, ApiError)
    if code == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif reason == "Expired":
        kind = Gone
    # Newer servers tell this one apart by a cause, all of them by these words.
    if any(cause.reason == "ResourceVersionTooLarge" for cause in (found.details and found.details.causes) or ()):
        reason = "ResourceVersionTooLarge"
    return kind(
        f"{what}: {code}{' ' + reason if reason else ''}: {words}{advice}",
        status=code,
        reason=reason,
        retry_after=seconds_to_wait(headers or {}, found.details.retry_after_seconds if found.details else None),
    )


def garbled(what: str, cause: BaseException) -> ApiError:
    """The exception for an answer that is no JSON, or no object of the kind asked for. Since 0.1."""
    return ApiError(f"{what}: the answer cannot be read: {cause}", status=200, reason=GARBLED)


def is_garbled(error: ApiError) -> bool:
    """Whether the answer could not be read at all. Since 0.1."""
    return error.reason == GARBLED


def is_too_large_version(error: ApiError) -> bool:
    """Whether the server is behind the resourceVersion asked for (its storage was restored, or it is another server).

    Since 0.1; the reference's reflector, its answer to a resourceVersion from the future.
    """
    return error.reason == "ResourceVersionTooLarge" or "Too large resource version" in str(error)


def seconds_to_wait(headers: Mapping[str, str], hint: float | None = None) -> float | None:
    """What ``Retry-After`` asks for, else ``hint``; None if neither is usable. Dates are not: clocks differ."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return float(text)
    return hint if hint is not None and 0 <= hint < 1e9 else None


def _status_of(body: bytes) -> _Status:
    try:
        return msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Status()


def _excerpt(body: bytes) -> str:
    text = _TAGS.sub(" ", body[: 16 * _EXCERPT].decode(errors="replace"))
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."
