"""A transport that tells how each request went, for the client metrics; what it wraps does not know of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from prov_host.clock import Clock
from prov_host.errors import ApiUnavailable
from prov_host.kube.transport import Reply, Stream, Transport

__all__ = ["NO_ANSWER", "ObservedTransport", "Observer"]

NO_ANSWER = "<error>"
"""The code of a request without an answer, as client-go's ``rest_client_requests_total`` has it."""

Observer = Callable[[str, str, float], None]
"""Told of each request: its method, its status code as text (or :data:`NO_ANSWER`), and the seconds it took.

For a watch, that is until it was answered, not until it ended. Called on the event loop; must not block or raise.
"""


class ObservedTransport:
    """Implements :class:`prov_host.kube.transport.Transport`. On the wrapped one's event loop. Since 0.1.

    Args:
        transport: does the work; closed with this one.
        clock: the host's clock.
        observe: told of each request.
    """

    def __init__(self, transport: Transport, clock: Clock, observe: Observer) -> None:
        self._transport = transport
        self._clock = clock
        self._observe = observe

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
        """See :meth:`prov_host.kube.transport.Transport.request`."""
        started = self._clock.monotonic()
        code = NO_ANSWER
        try:
            reply = await self._transport.request(
                method, path, query=query, body=body, content_type=content_type, timeout=timeout
            )
            code = str(reply.status)
            return reply
        finally:
            self._observe(method, code, self._clock.monotonic() - started)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, idle_timeout: float = 60.0
    ) -> AsyncIterator[Stream]:
        """See :meth:`prov_host.kube.transport.Transport.stream`."""
        started = self._clock.monotonic()
        async with contextlib.AsyncExitStack() as stack:
            try:
                stream = await stack.enter_async_context(
                    self._transport.stream(path, query=query, idle_timeout=idle_timeout)
                )
            except ApiUnavailable:
                self._observe("GET", NO_ANSWER, self._clock.monotonic() - started)
                raise
            self._observe("GET", str(stream.status), self._clock.monotonic() - started)
            yield stream

    async def close(self) -> None:
        """See :meth:`prov_host.kube.transport.Transport.close`."""
        await self._transport.close()
