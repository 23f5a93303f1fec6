"""A transport to an embedded cluster without sockets: for tests with a clock of their own, and for one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from prov_host.embedded.cluster import Cluster
from prov_host.embedded.failures import ConnectionLost
from prov_host.embedded.lists import WatchStream
from prov_host.errors import ApiUnavailable
from prov_host.kube.transport import Reply, Stream

__all__ = ["InProcessTransport"]


class InProcessTransport:
    """Implements :class:`prov_host.kube.transport.Transport`; timeouts pass on the cluster's clock.

    Args:
        cluster: where to.
        user_agent: who asks.
        dispatch: yield to the event loop before each request, as a network would; on by default.

    Since 0.1.
    """

    def __init__(self, cluster: Cluster, *, user_agent: str = "prov-host", dispatch: bool = True) -> None:
        self._cluster = cluster
        self._agent = user_agent
        self._dispatch = dispatch
        self._closed = False

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
        reply = await self._ask(method, path, query, body, content_type=content_type, timeout=timeout)
        if isinstance(reply, WatchStream):
            reply.close()
            raise ApiUnavailable(f"{method} {path} is a watch; use stream()")
        return reply

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        *,
        content_type: str,
        timeout: float,
    ) -> Reply | WatchStream:
        if self._closed:
            raise ApiUnavailable(f"{method} {path}: the transport is closed")
        if self._dispatch:
            await asyncio.sleep(0)
        headers = {"user-agent": self._agent, "accept": "application/json"}
        if body is not None:
            headers["content-type"] = content_type
        asked = self._cluster.handle(method, path, query=query, headers=headers, body=body or b"")
        faults = self._cluster.faults
        try:
            if not faults.rules and not faults.latency:
                return await asked
            return await self._within(asked, timeout, f"{method} {unquote(path)}")
        except ConnectionLost as error:
            raise ApiUnavailable(f"{method} {unquote(path)}: connection reset by peer") from error

    async def _within(self, asked: Any, timeout: float, what: str) -> Reply | WatchStream:
        loop = asyncio.get_running_loop()
        request: asyncio.Task[Reply | WatchStream] = loop.create_task(asked)
        timer = loop.create_task(self._cluster.clock.sleep(timeout))
        try:
            await asyncio.wait((request, timer), return_when=asyncio.FIRST_COMPLETED)
            if request.done():
                return request.result()
            raise ApiUnavailable(f"{what}: no answer within {timeout:g} s")
        finally:
            # A request that nobody waits for any more ends as one whose connection was closed.
            request.cancel()
            timer.cancel()

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, idle_timeout: float = 60.0
    ) -> AsyncIterator[Stream]:
        """See :meth:`prov_host.kube.transport.Transport.stream`."""
        reply = await self._ask("GET", path, query, None, content_type="", timeout=idle_timeout)
        if isinstance(reply, Reply):
            yield _Answer(reply)
            return
        try:
            yield _Watch(reply, self._cluster, idle_timeout)
        finally:
            reply.close()

    async def close(self) -> None:
        """See :meth:`prov_host.kube.transport.Transport.close`."""
        self._closed = True


class _Answer:
    """An ordinary answer as a stream."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self._reply.body.splitlines():
            yield line


class _Watch:
    """A watch as a stream."""

    def __init__(self, watch: WatchStream, cluster: Cluster, idle_timeout: float) -> None:
        self._watch = watch
        self._cluster = cluster
        self._idle_timeout = idle_timeout

    @property
    def status(self) -> int:
        return 200

    @property
    def headers(self) -> Mapping[str, str]:
        return {"content-type": "application/json"}

    async def lines(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        silent = asyncio.Event()

        async def watchdog() -> None:
            await self._cluster.clock.sleep(self._idle_timeout)
            silent.set()
            self._watch.close()

        while True:
            for ready in self._watch.take():
                yield ready
            timer = loop.create_task(watchdog())
            try:
                line = await self._watch.next()
            finally:
                timer.cancel()
            if line is not None:
                yield line
            elif silent.is_set():
                raise ApiUnavailable(f"the watch was silent for {self._idle_timeout:g} s")
            else:
                return
