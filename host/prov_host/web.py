"""What the process tells about itself over HTTP: metrics, probes and a status page.

It serves from the start of the process, on a standby too, and reads a :class:`Status` that the host makes for each
request; nothing here can change anything. Collecting metrics runs collectors of plugins, so it happens on threads with
a time limit: a hung file system delays a scrape and nothing else. Everything on the page is escaped: names,
messages and paths come from whoever may create a claim.
"""

from __future__ import annotations

import html
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from prov_host.clock import Clock
from prov_host.errors import ConfigurationError, HookTimeout
from prov_host.pool import HookPool
from prov_host.printable import encodable, printable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["BackendStatus", "LeaseStatus", "QueueStatus", "RecentFailure", "Status", "WebServer"]

logger = logging.getLogger(__name__)

_SCRAPE_LIMIT = 9.0  # seconds; Prometheus gives up after 10 by default


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one plugin is. Since 0.1.

    Attributes:
        plugin: its name.
        title: with distribution and version.
        provisioners: the names it owns, () for others than backends.
        problems: why it is not ready; empty when it is.
        checked: whether its ``check`` has been asked at least once.
        active: hooks that wait or run.
        late: hooks that hang, a sentence each.
    """

    plugin: str
    title: str
    provisioners: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    checked: bool = True
    active: int = 0
    late: tuple[str, ...] = ()


class LeaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Who serves a provisioner name. Since 0.1.

    Attributes:
        provisioner: the name.
        leading: whether this process serves it.
        detail: who does, if known.
        problem: why this process cannot even stand by; "" if it can.
    """

    provisioner: str
    leading: bool
    detail: str = ""
    problem: str = ""


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What waits to be worked on. Since 0.1.

    Attributes:
        provisioner: the name whose queue it is.
        name: ``claims`` or ``volumes``.
        depth: keys that wait to be worked on now.
    """

    provisioner: str
    name: str
    depth: int


class RecentFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that failed lately. Since 0.1."""

    time: str
    operation: str
    plugin: str
    claim: str
    volume: str
    outcome: str
    message: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The process at one moment. Since 0.1.

    Attributes:
        version: of prov-host.
        identity: as in Leases and events.
        state: ``starting``, ``running`` or ``stopping``.
        not_synced: caches that have not been filled yet.
        stale: why caches cannot be filled, or have not followed the cluster for a while.
        backends: every plugin in use.
        leases: every provisioner name.
        queues: every queue.
        failures: newest first.
    """

    version: str
    identity: str = ""
    state: str = "starting"
    not_synced: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    backends: tuple[BackendStatus, ...] = ()
    leases: tuple[LeaseStatus, ...] = ()
    queues: tuple[QueueStatus, ...] = ()
    failures: tuple[RecentFailure, ...] = ()

    def checks(self) -> list[tuple[str, tuple[str, ...]]]:
        """What readiness consists of: each part and what is wrong with it."""
        state = () if self.state == "running" else (f"the host is {self.state}",)
        caches = (*(f"{name} not filled yet" for name in self.not_synced), *self.stale)
        found = [("host", state), ("caches", caches)]
        for backend in self.backends:
            problems = backend.problems if backend.checked else ("not checked yet",)
            found.append((f"plugin {backend.plugin}", problems))
        found += [(f"lease of {lease.provisioner}", (lease.problem,) if lease.problem else ()) for lease in self.leases]
        return found

    @property
    def ready(self) -> bool:
        """Whether everything is as it should be."""
        return not any(problems for _, problems in self.checks())


class WebServer:
    """Serves ``/metrics``, ``/healthz``, ``/readyz`` and ``/``.

    Args:
        status: makes the status of now.
        registry: what ``/metrics`` shows.
        clock: measures the time limit of a scrape.

    All methods are called on the event loop. Since 0.1.
    """

    def __init__(self, status: Callable[[], Status], registry: CollectorRegistry, clock: Clock) -> None:
        self._status = status
        self._registry = registry
        self._scrapes = HookPool("metrics", size=2, clock=clock, queue_wait=_SCRAPE_LIMIT)
        self._number = itertools.count()
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> str:
        """Listen.

        Args:
            host: address to listen on, "" for every one.
            port: 0 picks a free one.

        Returns:
            ``host:port`` as listened on.

        Raises:
            ConfigurationError: the address cannot be listened on.
        """
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host or None, port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            shown = f"{host}:{port}"
            raise ConfigurationError(f"http-address: cannot listen on {shown}: {error.strerror or error}") from error
        name, bound = self._runner.addresses[0][:2]
        self.address = f"[{name}]:{bound}" if ":" in name else f"{name}:{bound}"
        logger.info("serving /metrics, /healthz, /readyz and a status page on http://%s", self.address)
        return self.address

    async def stop(self) -> None:
        """Stop listening. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        self._scrapes.close()

    async def _healthz(self, request: web.Request) -> web.Response:
        # It is the loop that answers, so an answer is all there is to say.
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        status = self._status()
        lines = [
            f"[-] {part}: {'; '.join(problems)}" if problems else f"[+] {part}: ok"
            for part, problems in status.checks()
        ]
        lines.append("ready" if status.ready else "not ready")
        return web.Response(text="\n".join(map(printable, lines)) + "\n", status=200 if status.ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  the status page does not need it

        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        try:
            body = await self._scrapes.run(
                f"scrape {next(self._number)}", "metrics", lambda: self._encoded(encode), limit=_SCRAPE_LIMIT
            )
        except HookTimeout as error:
            return web.Response(text=f"{error}\n", status=503)
        except Exception as error:
            logger.exception("collecting metrics failed")
            return web.Response(text=f"{type(error).__name__}: {error}\n", status=500)
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _encoded(self, encode: Callable[[Any], bytes]) -> bytes:
        """One label that is not text must not keep all metrics back."""
        try:
            return encode(self._registry)
        except UnicodeEncodeError:
            return encode(_EncodableLabels(self._registry))

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(
            text=encodable(render(self._status())),
            content_type="text/html",
            headers={
                "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store",
            },
        )


class _EncodableLabels:
    """A registry with every label made text."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                sample._replace(labels={name: encodable(value) for name, value in sample.labels.items()})
                for sample in metric.samples
            ]
            yield metric


_STYLE = (
    "body{font:15px/1.4 system-ui,sans-serif;margin:2em;max-width:75em}table{border-collapse:collapse;margin:0 0 1.5em}"
    "td,th{border:1px solid #bbb;padding:.3em .6em;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
    "th{background:#eee}.bad{color:#a00}.good{color:#060}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}th{background:#333}.bad{color:#f77}"
    ".good{color:#7d7}}"
)


def render(status: Status) -> str:
    """The status page as HTML without scripts. Callable from any thread. Since 0.1."""
    verdict = '<span class="good">ready</span>' if status.ready else '<span class="bad">not ready</span>'
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=10>",
        f"<title>prov-host</title><style>{_STYLE}</style>",
        f"<h1>prov-host {_e(status.version)}: {_e(status.state)}, {verdict}</h1><p>{_e(status.identity)}</p>",
    ]
    problems = [(part, "; ".join(wrong)) for part, wrong in status.checks() if wrong]
    if problems:
        parts += ["<h2>Not ready because</h2>", _table(("part", "problem"), problems)]
    parts += [
        "<h2>Plugins</h2>",
        _table(
            ("plugin", "provisioner names", "state", "active hooks", "hanging hooks"),
            [
                (
                    backend.title,
                    ", ".join(backend.provisioners),
                    "; ".join(backend.problems) or ("ok" if backend.checked else "not checked yet"),
                    str(backend.active),
                    "; ".join(backend.late),
                )
                for backend in status.backends
            ],
        ),
        "<h2>Provisioner names</h2>",
        _table(
            ("name", "this process", "detail"),
            [(lease.provisioner, "serves" if lease.leading else "stands by", lease.detail) for lease in status.leases],
        ),
        "<h2>Queues</h2>",
        _table(
            ("name", "queue", "waiting"),
            [(queue.provisioner, queue.name, str(queue.depth)) for queue in status.queues],
        ),
        "<h2>Recent failures</h2>",
        _table(
            ("time", "operation", "plugin", "claim", "volume", "outcome", "message"),
            [(f.time, f.operation, f.plugin, f.claim, f.volume, f.outcome, f.message) for f in status.failures],
        ),
    ]
    return "".join(parts)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_e(title)}" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{_e(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{head}{body or f'<tr><td colspan={len(titles)}>none'}</table>"


def _e(text: str) -> str:
    return html.escape(text, quote=True)
