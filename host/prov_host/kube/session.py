"""The transport over the ``kubernetes`` package: its configuration, authentication and TLS, and raw JSON on aiohttp.

The package knows every way in which a cluster can be reached (service accounts, kubeconfigs, contexts, token files,
exec plugins, OIDC, client certificates); that is what it is used for. Its models are not used: decoding one claim with
them costs twenty times what it costs here. Importing it takes a second, so that only happens in :func:`load`.

What it leaves to us:

* **Credentials age.** A 401 makes the transport read the configuration again (the token file, the exec plugin), once,
  and send the request once more; not more often than every ten seconds, whoever asks. Certificates that have been
  replaced on disk are noticed the same way, by the failing handshake.
* **Time-outs.** aiohttp ends every answer after five minutes by default, watches too; here a request has its own limit
  and a stream only one between bytes.
* **Lines.** A watch sends objects of any size as lines; they are cut here, with each byte looked at once.
* **What the environment means well.** Proxies of the environment are not used for loopback, netrc files never.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from prov_host.clock import Clock, SystemClock
from prov_host.errors import ApiUnavailable, ConfigurationError
from prov_host.kube.connection import Connection, find_connection
from prov_host.kube.transport import Reply

if TYPE_CHECKING:
    import aiohttp

__all__ = ["SdkTransport", "load", "split_lines"]

logger = logging.getLogger(__name__)

_REFRESH_INTERVAL = 10.0
_CONNECT_TIMEOUT = 30.0
_CONNECTIONS = 100


async def load(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    connections: int = _CONNECTIONS,
) -> SdkTransport:
    """Find out how to reach the cluster, and make a transport for it. No request is made yet.

    In this order: ``kubeconfig``, the variable ``KUBECONFIG`` (a list of paths is merged), the service account of the
    pod, ``~/.kube/config``.

    Args:
        kubeconfig: a path, or several separated by colons; None or "" if not given.
        context: a context of the kubeconfig; None or "" for its current one.
        clock: the host's clock.
        environ: the environment; None means this process's.
        connections: how many to keep at most, watches included.

    Returns:
        A transport for the running event loop.

    Raises:
        ConfigurationError: what was tried, what is wrong with it, and what to do.

    On the event loop of the transport's later use. Since 0.1.
    """
    clock = clock or SystemClock()

    async def connect() -> Connection:
        return await find_connection(
            kubeconfig or None, context or None, environ=os.environ if environ is None else environ, clock=clock
        )

    return SdkTransport(await connect(), connect, clock=clock, connections=connections)


class SdkTransport:
    """Implements :class:`prov_host.kube.transport.Transport`; made by :func:`load`.

    Args:
        connection: where the server is, and the credentials.
        reconnect: reads them again.
        clock: the host's clock.
        connections: how many to keep at most.

    All methods are called on the event loop it was made on. Since 0.1.
    """

    def __init__(
        self,
        connection: Connection,
        reconnect: Callable[[], Awaitable[Connection]],
        *,
        clock: Clock,
        connections: int = _CONNECTIONS,
    ) -> None:
        self._connection = connection
        self._reconnect = reconnect
        self._clock = clock
        self._limit = connections
        self._session = self._new_session()
        self._generation = 0
        self._refreshed_at: float | None = None
        self._refreshing = asyncio.Lock()
        self._closed = False

    @property
    def source(self) -> str:
        """Where the configuration came from, for people."""
        return self._connection.source

    @property
    def host(self) -> str:
        """The server's URL."""
        return self._connection.host

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
        import aiohttp  # noqa: PLC0415 - `prov-host --help` must not pay for it

        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, _CONNECT_TIMEOUT))

        async def once() -> Reply:
            what = f"{method} {path}"
            answer = await self._send(what, method, path, query, limits=limits, body=body, content_type=content_type)
            try:
                return Reply(answer.status, await answer.read(), _headers(answer))
            except _failures() as error:
                raise await self._unavailable(what, error) from error
            finally:
                answer.release()

        generation = self._generation
        reply = await once()
        if reply.status == 401 and await self._refresh(generation, f"{method} {path} was answered with 401"):
            return await once()
        return reply

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, idle_timeout: float = 60.0
    ) -> AsyncIterator[_Stream]:
        """See :meth:`prov_host.kube.transport.Transport.stream`."""
        import aiohttp  # noqa: PLC0415

        what = f"watch {path}"
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=idle_timeout)
        generation = self._generation
        answer = await self._send(what, "GET", path, query, limits=limits)
        if answer.status == 401 and await self._refresh(generation, f"{what} was answered with 401"):
            answer.close()
            answer = await self._send(what, "GET", path, query, limits=limits)
        _probe_when_idle(answer)
        try:
            yield _Stream(self, answer, what, idle_timeout)
        finally:
            # Left in the middle of an answer: its connection cannot be used for anything else.
            answer.close()

    async def close(self) -> None:
        """See :meth:`prov_host.kube.transport.Transport.close`."""
        self._closed = True
        await self._session.close()

    async def _send(
        self,
        what: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        *,
        limits: aiohttp.ClientTimeout,
        body: bytes | None = None,
        content_type: str = "",
    ) -> aiohttp.ClientResponse:
        import yarl  # noqa: PLC0415

        if self._closed:
            raise ApiUnavailable(f"{what}: the connections to the API server have been closed")
        connection = self._connection
        url = yarl.URL(connection.host + path, encoded=True)
        headers = {"Content-Type": content_type} if body is not None else {}
        options: dict[str, Any] = {}
        if connection.server_name:
            options["server_hostname"] = connection.server_name
        if connection.proxy:
            options["proxy"] = connection.proxy
        try:
            authorization = await connection.authorization()
            if authorization:
                headers["Authorization"] = authorization
            return await self._session.request(
                method,
                url.with_query(dict(query)) if query else url,
                data=body,
                headers=headers,
                timeout=limits,
                allow_redirects=False,  # to wherever, with our token
                **options,
            )
        except _failures() as error:
            raise await self._unavailable(what, error) from error

    async def _unavailable(self, what: str, error: Exception) -> ApiUnavailable:
        words = _words(error)
        # With TLS 1.3 a server that does not accept our certificate just hangs up on the first request.
        if _is_tls(error) or (self._connection.shows_certificate and _hung_up(error)):
            words += f"; check the certificates of {self._connection.source}"
            # Perhaps they were replaced on disk: whoever comes next has the new ones.
            await self._refresh(self._generation, words)
        return ApiUnavailable(f"{what}: no answer from {self._connection.host}: {words}")

    async def _refresh(self, generation: int, why: str) -> bool:
        """Read the credentials again unless that has just been done; whether there is a point in trying again."""
        async with self._refreshing:
            if self._generation != generation:
                return True  # somebody else has done it while this request was on its way
            now = self._clock.monotonic()
            if self._closed or (self._refreshed_at is not None and now - self._refreshed_at < _REFRESH_INTERVAL):
                return False
            self._refreshed_at = now
            try:
                fresh = await self._reconnect()
            except ConfigurationError as error:
                logger.warning("%s, and the credentials cannot be read again: %s", why, error)
                return False
            logger.info("%s: the credentials were read again from %s", why, fresh.source)
            old, self._connection = self._connection, fresh
            self._generation += 1
            if fresh.fingerprint != old.fingerprint:
                retired, self._session = self._session, self._new_session()
                await retired.close()
            return True

    def _new_session(self) -> aiohttp.ClientSession:
        import aiohttp  # noqa: PLC0415

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._limit, ssl=self._connection.ssl),
            headers={"User-Agent": f"prov-host/{_version()}", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,  # netrc would put a password in the place of our token; proxies are seen to elsewhere
            read_bufsize=2**18,
        )


class _Stream:
    """Implements :class:`prov_host.kube.transport.Stream`."""

    def __init__(self, owner: SdkTransport, answer: aiohttp.ClientResponse, what: str, idle_timeout: float) -> None:
        self._owner = owner
        self._answer = answer
        self._what = what
        self._idle_timeout = idle_timeout

    @property
    def status(self) -> int:
        """See :attr:`prov_host.kube.transport.Stream.status`."""
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        """See :attr:`prov_host.kube.transport.Stream.headers`."""
        return _headers(self._answer)

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """See :meth:`prov_host.kube.transport.Stream.lines`."""
        chunks = split_lines(self._answer.content.iter_any())
        try:
            while True:
                try:
                    line = await anext(chunks, None)
                except TimeoutError as error:
                    words = f"{self._what}: nothing came for {self._idle_timeout:g} s"
                    raise ApiUnavailable(words) from error
                except _failures() as error:
                    raise ApiUnavailable(f"{self._what}: the connection broke: {_words(error)}") from error
                if line is None:
                    return
                yield line
        finally:
            await chunks.aclose()


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Cut a stream of chunks into lines without their newlines; what follows the last newline is a line too.

    Args:
        chunks: of any size, cut anywhere.

    Yields:
        Lines of any length. Each byte is looked at once and copied once, however many chunks a line spans.

    On the event loop. Since 0.1.
    """
    parts: list[bytes] = []
    async for chunk in chunks:
        first, *more = chunk.split(b"\n")
        parts.append(first)
        if more:
            yield b"".join(parts)
            *whole, last = more
            for line in whole:
                yield line
            parts = [last]
    if any(parts):
        yield b"".join(parts)


def _probe_when_idle(answer: aiohttp.ClientResponse) -> None:
    """Let the kernel find out within a minute that the other side is gone, without a byte of ours on the way."""
    link = answer.connection  # None if the whole answer is here already
    sock = link.transport.get_extra_info("socket") if link is not None and link.transport is not None else None
    if sock is None:
        return
    with contextlib.suppress(OSError):  # gone already: reading will tell
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _failures() -> tuple[type[Exception], ...]:
    """What aiohttp, TLS, the resolver and a token file raise; ValueError is for a token with a line break inside."""
    import aiohttp  # noqa: PLC0415

    return (aiohttp.ClientError, OSError, TimeoutError, ValueError)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return " ".join(str(error).split()) or type(error).__name__


def _is_tls(error: BaseException) -> bool:
    import aiohttp  # noqa: PLC0415

    kinds = (ssl.SSLError, ssl.CertificateError, aiohttp.ClientSSLError)
    return isinstance(error, kinds) or isinstance(error.__cause__, kinds) or isinstance(error.__context__, kinds)


def _hung_up(error: BaseException) -> bool:
    import aiohttp  # noqa: PLC0415

    if isinstance(error, aiohttp.ClientConnectorError):  # never connected
        return False
    return isinstance(error, (ConnectionError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {key.lower(): value for key, value in answer.headers.items()}


def _version() -> str:
    try:
        return importlib.metadata.version("prov-host")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "0"
