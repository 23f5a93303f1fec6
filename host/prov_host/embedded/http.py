"""The embedded cluster on a port: plain HTTP, on loopback only.

There is no authentication, so nobody but this machine may reach it; any other address is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from prov_host.embedded.cluster import Cluster
from prov_host.embedded.failures import ApiFailure, ConnectionLost
from prov_host.embedded.lists import WatchStream
from prov_host.errors import ConfigurationError

__all__ = ["EMBEDDED_NAME", "Server", "serve", "write_kubeconfig"]

logger = logging.getLogger(__name__)
EMBEDDED_NAME = "prov-host-embedded"
"""The cluster's name in the kubeconfigs that :func:`write_kubeconfig` writes."""

_MAX_BODY = 3 * 1024 * 1024  # the real server's limit
_SHUTDOWN_SECONDS = 0.5


class Server(msgspec.Struct, frozen=True):
    """A cluster that listens.

    Attributes:
        url: for example ``http://127.0.0.1:40123``.
        host: the address.
        port: the port.
    """

    url: str
    host: str
    port: int


@asynccontextmanager
async def serve(cluster: Cluster, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Server]:
    """Let a cluster listen until the context is left, which closes the cluster too.

    Args:
        cluster: what to serve.
        host: a loopback address.
        port: 0 for a free one.

    Yields:
        Where it listens.

    Raises:
        ConfigurationError: an address that is not loopback, or a port that is taken.

    Called on the event loop that the cluster belongs to. Since 0.1.
    """
    if not ipaddress.ip_address(host).is_loopback:
        raise ConfigurationError(
            f"the embedded cluster does not listen on {host}: it has no authentication; use 127.0.0.1 or ::1"
        )
    application = web.Application(client_max_size=_MAX_BODY)
    application.router.add_route("*", "/{path:.*}", _Front(cluster).answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            raise ConfigurationError(f"the embedded cluster cannot listen on {host} port {port}: {error}") from error
        taken = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        yield Server(f"http://{shown}:{taken}", host, taken)
    finally:
        await cluster.close()
        await runner.cleanup()


class _Front:
    """Turns HTTP requests into calls of the cluster, and its answers into HTTP."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.read() if request.body_exists else b""
        except web.HTTPRequestEntityTooLarge:
            failure = ApiFailure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_MAX_BODY}", {})
            return web.Response(status=413, body=failure.body(), content_type="application/json")
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            reply = await self._cluster.handle(
                request.method, request.rel_url.raw_path, query=request.query, headers=headers, body=body
            )
        except ConnectionLost:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        if isinstance(reply, WatchStream):
            return await self._watch(request, reply)
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)

    async def _watch(self, request: web.Request, stream: WatchStream) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "application/json", "cache-control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            async for line in stream.lines():
                lines = [line, *stream.take(), b""]
                await response.write(b"\n".join(lines))
            await response.write_eof()
        except (ConnectionResetError, asyncio.CancelledError):
            # The client has gone, or the server ends; both are the ordinary end of a watch.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
        finally:
            stream.close()
        return response


def write_kubeconfig(path: str | os.PathLike[str], url: str) -> Path:
    """Write a kubeconfig that points at an embedded cluster.

    Args:
        path: the file, replaced if it is there.
        url: of the :class:`Server`.

    Returns:
        The path.

    Callable from any thread. Since 0.1.
    """
    name = EMBEDDED_NAME
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    target = Path(path)
    # JSON is YAML, and needs no YAML library.
    target.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
    return target
