from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from html.parser import HTMLParser

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily

from prov_host.clock import SystemClock
from prov_host.errors import ConfigurationError
from prov_host.web import BackendStatus, LeaseStatus, QueueStatus, RecentFailure, Status, WebServer, render

GOOD = BackendStatus(plugin="nfs", title="plugin nfs (nfs-dist 1)", provisioners=("a/b",))


class World:
    def __init__(self) -> None:
        self.status = Status(version="1.2.3", state="running", backends=(GOOD,))
        self.registry = CollectorRegistry()
        self.address = ""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    server = WebServer(lambda: world.status, world.registry, SystemClock())
    world.address = await server.start("127.0.0.1", 0)
    yield world
    await server.stop()
    await server.stop()


@pytest.fixture
async def get(world: World) -> AsyncIterator[Callable[..., object]]:
    async with aiohttp.ClientSession() as session:

        async def fetch(path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
            async with session.get(f"http://{world.address}{path}", headers=headers) as answer:
                return answer.status, await answer.text(), dict(answer.headers)

        yield fetch


async def test_alive_is_who_answers(get) -> None:
    assert (await get("/healthz"))[:2] == (200, "ok\n")


async def test_ready_when_everything_is_as_it_should_be(world: World, get) -> None:
    assert (await get("/readyz"))[:2] == (200, "[+] host: ok\n[+] caches: ok\n[+] plugin nfs: ok\nready\n")


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (Status(version="1"), "[-] host: the host is starting"),
        (Status(version="1", state="stopping"), "[-] host: the host is stopping"),
        (Status(version="1", state="running", not_synced=("claims",)), "[-] caches: claims not filled yet"),
        (Status(version="1", state="running", stale=("claims: forbidden",)), "[-] caches: claims: forbidden"),
        (
            Status(version="1", state="running", backends=(BackendStatus(plugin="n", title="t", problems=("hung",)),)),
            "[-] plugin n: hung",
        ),
        (
            Status(version="1", state="running", backends=(BackendStatus(plugin="n", title="t", checked=False),)),
            "[-] plugin n: not checked yet",
        ),
        (
            Status(
                version="1",
                state="running",
                leases=(LeaseStatus(provisioner="a/b", leading=False, problem="forbidden; allow it"),),
            ),
            "[-] lease of a/b: forbidden; allow it",
        ),
    ],
)
async def test_not_ready_says_why(world: World, get, status: Status, line: str) -> None:
    world.status = status
    code, text, _ = await get("/readyz")
    assert code == 503
    assert line in text.splitlines()
    assert text.endswith("not ready\n")


async def test_metrics_in_the_format_that_is_asked_for(world: World, get) -> None:
    Counter("things", "Things.", registry=world.registry).inc()
    code, text, headers = await get("/metrics")
    assert code == 200
    assert "things_total 1.0" in text
    assert headers["Content-Type"].startswith("text/plain")
    code, text, headers = await get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


async def test_a_broken_collector_of_a_plugin_breaks_a_scrape_and_nothing_else(world: World, get) -> None:
    class Broken:
        def collect(self) -> Iterator[GaugeMetricFamily]:
            raise OSError("stale handle")

    world.registry.register(Broken())  # type: ignore[arg-type]
    code, text, _ = await get("/metrics")
    assert (code, text) == (500, "OSError: stale handle\n")
    assert (await get("/healthz"))[0] == 200


async def test_a_hung_collector_does_not_hang_the_probes(world: World, get) -> None:
    import asyncio

    gate, begun = threading.Event(), threading.Event()

    class Hung:
        def collect(self) -> Iterator[GaugeMetricFamily]:
            begun.set()
            gate.wait(10)
            yield GaugeMetricFamily("x", "X.", value=1)

    world.registry.register(
        Hung(),
    )  # type: ignore[arg-type]
    begun.clear()
    scrape = asyncio.ensure_future(get("/metrics"))
    while not begun.is_set():
        await asyncio.sleep(0.005)
    assert (await get("/readyz"))[0] == 200
    assert not scrape.done()
    gate.set()
    assert (await scrape)[0] == 200


async def test_the_page_is_html_that_runs_nothing(world: World, get) -> None:
    code, text, headers = await get("/")
    assert code == 200
    assert headers["Content-Type"].startswith("text/html")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "prov-host 1.2.3" in text
    assert "<script" not in text


async def test_an_unknown_page_is_not_found(get) -> None:
    assert (await get("/etc/passwd"))[0] == 404


async def test_an_address_in_use_is_a_configuration_error(world: World) -> None:
    server = WebServer(lambda: world.status, world.registry, SystemClock())
    host, port = world.address.rsplit(":", 1)
    with pytest.raises(ConfigurationError, match=rf"http-address: cannot listen on {host}:{port}"):
        await server.start(host, int(port))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert all(name in {"lang", "charset", "http-equiv", "content", "class", "colspan"} for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@given(
    st.text(min_size=1, max_size=30) | st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=y>', "&lt;"])
)
def test_nothing_hostile_becomes_markup(text: str) -> None:
    page = render(
        Status(
            version=text,
            identity=text,
            state=text,
            not_synced=(text,),
            stale=(text,),
            backends=(BackendStatus(plugin=text, title=text, provisioners=(text,), problems=(text,), late=(text,)),),
            leases=(LeaseStatus(provisioner=text, leading=True, detail=text),),
            queues=(QueueStatus(provisioner=text, name=text, depth=1),),
            failures=(
                RecentFailure(
                    time=text, operation=text, plugin=text, claim=text, volume=text, outcome=text, message=text
                ),
            ),
        )
    )
    parser = _Tags()
    parser.feed(page)
    known = {"html", "meta", "title", "style", "h1", "h2", "p", "span", "table", "tr", "th", "td"}
    assert parser.tags <= known


async def test_what_is_no_text_is_shown_and_keeps_nothing_back(world: World, get) -> None:
    """Paths in messages and labels are bytes of anybody's choosing."""
    path = "/srv/caf\udce9\x1b[2J"
    Gauge("used", "Bytes.", ["path"], registry=world.registry).labels(path).set(7)
    Counter("other", "Other.", registry=world.registry).inc()
    failed = RecentFailure(time="", operation="delete", plugin="n", claim="a/b", volume="v", outcome="x", message=path)
    broken = BackendStatus(plugin="n", title="t", problems=(path,))
    world.status = Status(version="1", state="running", backends=(broken,), failures=(failed,))
    code, text, _ = await get("/readyz")
    assert (code, "[-] plugin n: /srv/caf\\xe9\\x1b[2J" in text) == (503, True)
    code, text, _ = await get("/")
    assert (code, text.count("/srv/caf\\xe9")) == (200, 3)
    for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
        code, text, _ = await get("/metrics", Accept=accept)
        assert code == 200
        assert "caf\\\\xe9" in text
        assert "other_total 1.0" in text
