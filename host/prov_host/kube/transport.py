"""The one seam between the host and an API server: requests in, replies out.

Everything that talks to the API goes through a :class:`Transport`; tests and the embedded cluster replace it whole
instead of patching a client. A transport knows HTTP, authentication and TLS, and nothing of Kubernetes objects:
status codes are returned, not raised. It raises :exc:`prov_host.errors.ApiUnavailable` when there is no answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

__all__ = ["Reply", "Stream", "Transport"]


class Reply(msgspec.Struct, frozen=True):
    """A whole answer.

    Attributes:
        status: the HTTP status code.
        body: the body's bytes.
        headers: lower-case names.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Stream(Protocol):
    """An answer that comes line by line (a watch)."""

    @property
    def status(self) -> int:
        """The HTTP status code. Anything but 200 has an ordinary body: read it from :meth:`lines`, joined."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers, lower-case names (``retry-after`` of a 429 is among them)."""

    def lines(self) -> AsyncIterator[bytes]:
        """Each line without its newline, of any length, until the server ends the answer.

        Raises:
            ApiUnavailable: the connection broke, or nothing came for the idle timeout.
        """


class Transport(Protocol):
    """Sends one request to one API server. All methods are called on the host's event loop."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> Reply:
        """Send a request and read the whole answer.

        Args:
            method: ``GET``, ``POST``, ``PUT``, ``PATCH`` or ``DELETE``.
            path: absolute, each segment already percent-encoded, for example ``/api/v1/persistentvolumes``.
            query: parameters, not yet encoded.
            body: bytes of the given content type.
            content_type: of the body.
            timeout: seconds for the whole exchange.

        Raises:
            ApiUnavailable: no answer within the timeout, or no connection.
        """

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, idle_timeout: float = 60.0
    ) -> AbstractAsyncContextManager[Stream]:
        """GET an answer that comes line by line; leaving the context ends it.

        Args:
            path: as in :meth:`request`.
            query: as in :meth:`request`.
            idle_timeout: seconds without a byte after which the stream counts as dead.
        """

    async def close(self) -> None:
        """Close all connections. Idempotent."""
