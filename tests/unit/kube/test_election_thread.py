"""An election in its thread: on the real clock, with a host loop that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time

import pytest

from prov_host.clock import SystemClock
from prov_host.errors import ApiUnavailable, ConfigurationError
from prov_host.kube.election_thread import ElectionThread
from prov_host.kube.leases import Durations

QUICK = Durations(lease=2, renew=1.5, retry=0.1)


class OneLease:
    """A server with one Lease, for any number of threads."""

    def __init__(self, kit):
        self.kit = kit
        self.lock = threading.Lock()
        self.lease = None
        self.down = False
        self.opened = 0
        self.closed = 0

    async def connect(self):
        self.opened += 1
        return self

    async def request(self, method, path, *, query=None, body=None, content_type="", timeout=30.0):
        with self.lock:
            if self.down:
                raise ApiUnavailable("refused")
            if "/endpoints/" in path or (method == "GET" and self.lease is None):
                return self.kit.status_reply(404, "NotFound")
            if method != "GET":
                self.lease = json.loads(body)
            return self.kit.reply(self.lease)

    @contextlib.asynccontextmanager
    async def stream(self, path, *, query=None, idle_timeout=60.0):
        yield self.kit.ScriptedStream(b"{}", status=403)

    async def close(self):
        self.closed += 1


@pytest.fixture
def server(kit):
    return OneLease(kit)


@pytest.fixture
async def elect(server):
    started = []

    def start(connect=None, **options):
        story = []
        up = threading.Event()
        thread = ElectionThread(
            connect or server.connect,
            provisioner="example.com/nfs",
            namespace="ns",
            identity="me",
            durations=QUICK,
            clock=SystemClock(),
            rng=random.Random(1),
            on_started=lambda: (story.append(("started", threading.current_thread().name)), up.set()),
            on_lost=lambda reason: (story.append(("lost", reason)), up.set()),
            **options,
        )
        started.append(thread)
        thread.start()
        return thread, story, up

    yield start
    server.down = False
    for thread in started:
        await thread.stop(2)


async def test_it_leads_while_the_hosts_loop_is_busy_and_releases_on_stop(elect, server):
    thread, story, up = elect()
    assert up.wait(5)
    assert story == [("started", "lease example.com-nfs")]
    busy_until = time.monotonic() + 2.2  # longer than the lease lasts
    while time.monotonic() < busy_until:
        sum(range(10_000))
    assert thread.leading
    assert thread.holder == "me"
    await thread.stop()
    assert not thread.leading
    assert server.lease["spec"]["holderIdentity"] == ""
    assert server.closed == 1
    assert len(story) == 1


async def test_a_loss_is_told_in_its_thread_while_the_hosts_loop_hangs(elect, server):
    thread, story, up = elect()
    assert up.wait(5)
    up.clear()
    server.down = True
    assert up.wait(5)  # the loop of this test does not run meanwhile
    assert story[-1][0] == "lost"
    assert not thread.leading


async def test_no_way_to_connect_is_told(elect):
    async def connect():
        raise ConfigurationError("no such file")

    _, story, up = elect(connect)
    assert up.wait(5)
    assert story == [("lost", "no such file")]


async def test_a_failure_nobody_thought_of_is_told(elect, caplog):
    async def connect():
        raise KeyError("x")

    _, story, up = elect(connect)
    assert up.wait(5)
    assert story[0][0] == "lost"
    assert "KeyError" in story[0][1]
    assert "the election failed" in caplog.text


async def test_stopping_before_it_has_begun_ends_it(elect, server):
    gate = threading.Event()

    async def connect():
        while not gate.is_set():
            await asyncio.sleep(0.01)
        return await server.connect()

    thread, story, _ = elect(connect)
    stopping = asyncio.create_task(thread.stop())
    await asyncio.sleep(0.05)
    gate.set()
    await stopping
    assert story == []
    assert server.lease is None


async def test_a_thread_that_does_not_end_is_left_alone(elect, caplog):
    async def connect():
        await asyncio.sleep(1)
        raise ConfigurationError("too late")

    thread, _, _ = elect(connect)
    await thread.stop(0.05)
    assert "does not end" in caplog.text


def test_durations_and_names_are_checked_before_it_starts(server):
    def make(**options):
        options = {"provisioner": "a/b", "durations": QUICK} | options
        return ElectionThread(
            server.connect,
            namespace="ns",
            identity="me",
            clock=SystemClock(),
            rng=random.Random(1),
            on_started=lambda: None,
            on_lost=lambda reason: None,
            **options,
        )

    with pytest.raises(ConfigurationError, match="lease duration"):
        make(durations=Durations(lease=1))
    with pytest.raises(ConfigurationError, match="lower-case"):
        make(provisioner="A/b")
