"""Session, client, reflector, leases and events against a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from prov_host import errors
from prov_host.clock import SystemClock
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES, Resource
from prov_host.kube.client import Client
from prov_host.kube.election_thread import ElectionThread
from prov_host.kube.events import EventRecorder
from prov_host.kube.failures import is_too_large_version
from prov_host.kube.leases import ANN_ENDPOINTS_LEADER, ENDPOINTS, LEASES, Durations
from prov_host.kube.reflector import Reflector
from prov_host.kube.session import load
from prov_host.kube.store import Store
from prov_host.model import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from harness.controlplane import ControlPlane
    from prov_host.kube.session import SdkTransport

pytestmark = pytest.mark.e2e

CLOCK = SystemClock()
QUICK = Durations(lease=2, renew=1.5, retry=0.2)


@pytest.fixture
async def transport(control_plane: ControlPlane) -> AsyncIterator[SdkTransport]:
    found = await load(str(control_plane.kubeconfig), environ={})
    yield found
    await found.close()


@pytest.fixture
def client(transport: SdkTransport) -> Client:
    return Client(transport, CLOCK)


@pytest.fixture
async def cleaned(client: Client) -> AsyncIterator[Callable[[Any, str], None]]:
    """Deletes objects of the default namespace at the end."""
    made: list[tuple[Any, str]] = []
    yield lambda resource, name: made.append((resource, name))
    for resource, name in made:
        with contextlib.suppress(errors.NotFound):
            await client.delete(resource, name, namespace="default" if resource.namespaced else "")


@pytest.fixture
def unique() -> str:
    return f"kube-{uuid.uuid4().hex[:8]}"


class SeenEvent(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    reason: str
    message: str
    count: int | None = None
    source: dict[str, str] | None = None


def _volume(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "kube-tests-only",
            "nfs": {"server": "localhost", "path": "/none"},
        }
        | spec,
    }


async def _until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_operations_and_errors_are_those_of_the_real_server(client, cleaned, unique):
    cleaned(VOLUMES, unique)
    made = await client.create(VOLUMES, _volume(unique))
    assert made.uid
    with pytest.raises(errors.AlreadyExists):
        await client.create(VOLUMES, _volume(unique))
    patched = await client.patch(VOLUMES, unique, {"metadata": {"annotations": {"a": "b"}}})
    assert patched.annotations["a"] == "b"
    finalizer = [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/hold"}]
    assert "example.com/hold" in (await client.patch(VOLUMES, unique, finalizer, kind="json")).finalizers
    stale = _volume(unique)
    stale["metadata"]["resourceVersion"] = made.metadata.resource_version
    with pytest.raises(errors.Conflict):
        await client.update(VOLUMES, stale)
    with pytest.raises(errors.Conflict):
        await client.delete(VOLUMES, unique, uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(errors.Invalid, match="accessModes"):
        await client.create(VOLUMES, _volume(unique + "x", accessModes=[]))
    with pytest.raises(errors.NotFound):
        await client.get(CLASSES, unique)
    await client.delete(VOLUMES, unique, uid=made.uid)
    assert (await client.get(VOLUMES, unique)).terminating
    await client.patch(VOLUMES, unique, {"metadata": {"finalizers": None}}, kind="merge")
    await _gone(client, unique)


async def _gone(client: Client, name: str) -> None:
    for _ in range(100):
        try:
            await client.get(VOLUMES, name)
        except errors.NotFound:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{name} is still there")


async def test_lists_in_pages_are_complete_and_of_one_moment(client, cleaned, unique):
    names = [f"{unique}-{number}" for number in range(7)]
    for name in names:
        cleaned(VOLUMES, name)
        await client.create(VOLUMES, _volume(name))
    whole = await client.list_all(VOLUMES)
    paged = await client.list_all(VOLUMES, page=2)
    assert set(names) <= {one.name for one in paged.items}
    assert len(paged.items) == len(whole.items)
    assert (await client.list_all(VOLUMES, version=paged.version)).version


async def test_a_version_the_server_has_not_reached_is_told_without_retries(client):
    started = CLOCK.monotonic()
    with pytest.raises(errors.ApiError) as caught:
        await client.list_all(VOLUMES, version="999999999999")
    assert is_too_large_version(caught.value)
    assert CLOCK.monotonic() - started < 6  # the server itself waits for three seconds


@pytest.mark.parametrize("watch_list", [True, False])
async def test_a_reflector_keeps_its_store_equal_to_the_server(client, transport, cleaned, unique, watch_list):
    asked: list[str] = []

    class Spy:
        def stream(self, path, *, query=None, idle_timeout=60.0):
            asked.append("watch list" if query.get("sendInitialEvents") else "watch")
            return transport.stream(path, query=query, idle_timeout=idle_timeout)

        def request(self, method, path, **options):
            asked.append("list")
            return transport.request(method, path, **options)

    for name in (f"{unique}-before", f"{unique}-during"):
        cleaned(VOLUMES, name)
    await client.create(VOLUMES, _volume(f"{unique}-before"))
    store = Store(VOLUMES)
    reflector = Reflector(
        Client(Spy(), CLOCK), VOLUMES, store, clock=CLOCK, rng=random.Random(1), watch_list=watch_list
    )
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(10):
            await store.wait_synced()
        assert asked[0] == ("watch list" if watch_list else "list")
        assert store.get(f"{unique}-before") is not None
        made = await client.create(VOLUMES, _volume(f"{unique}-during"))
        await _until(lambda: store.by_uid(made.uid))
        await client.patch(VOLUMES, f"{unique}-during", {"metadata": {"labels": {"x": "y"}}})
        await _until(lambda: store.by_uid(made.uid).labels.get("x") == "y")
        await client.delete(VOLUMES, f"{unique}-during")
        await _until(lambda: store.by_uid(made.uid) is None)
        assert asked.count("list") <= 1
        assert reflector.problem == ""
        truth = await client.list_all(VOLUMES)
        await _until(lambda: {one.uid for one in store.values()} == {one.uid for one in truth.items})
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_watch_that_the_server_ends_can_be_gone_on_with(client, cleaned, unique):
    version = (await client.list_all(VOLUMES)).version
    async with asyncio.timeout(20):
        async with client.watch(VOLUMES, version=version, seconds=1) as events:
            versions = [event.version async for event in events]
        cleaned(VOLUMES, unique)
        await client.create(VOLUMES, _volume(unique))
        async with client.watch(VOLUMES, version=versions[-1] if versions else version, seconds=30) as events:
            async for event in events:
                if event.object is not None and event.object.name == unique:
                    break


class Contender:
    def __init__(self, control_plane: ControlPlane, identity: str, provisioner: str) -> None:
        self.story: list[str] = []
        self.up = threading.Event()
        self.thread = ElectionThread(
            lambda: load(str(control_plane.kubeconfig), environ={}),
            provisioner=provisioner,
            namespace="default",
            identity=identity,
            durations=QUICK,
            clock=CLOCK,
            rng=random.Random(identity),
            on_started=lambda: self.story.append("started"),
            on_lost=self.story.append,
        )
        self.thread.start()


async def test_two_contenders_on_a_real_lease_hand_over_at_once(control_plane, client, cleaned, unique):
    name = f"{unique}.example.com-nfs"
    cleaned(LEASES, name)
    one = Contender(control_plane, "one", f"{unique}.example.com/nfs")
    two = None
    try:
        await _until(lambda: one.thread.leading)
        two = Contender(control_plane, "two", f"{unique}.example.com/nfs")
        await _until(lambda: two.thread.holder == "one")
        lease = await client.get(LEASES, name, namespace="default")
        assert (lease.holder, lease.seconds, lease.transitions) == ("one", 2, 0)
        await asyncio.sleep(2.5)  # longer than the lease lasts
        assert one.thread.leading
        assert not two.thread.leading
        started = CLOCK.monotonic()
        await one.thread.stop()
        await _until(lambda: two.thread.leading)
        assert CLOCK.monotonic() - started < 1.0
        assert one.story == ["started"]
        lease = await client.get(LEASES, name, namespace="default")
        assert (lease.holder, lease.transitions) == ("two", 1)
    finally:
        await one.thread.stop()
        if two:
            await two.thread.stop()


async def test_a_lease_taken_away_is_lost_at_once(control_plane, client, cleaned, unique):
    cleaned(LEASES, f"{unique}.example.com-nfs")
    one = Contender(control_plane, "one", f"{unique}.example.com/nfs")
    try:
        await _until(lambda: one.thread.leading)
        await client.patch(
            LEASES,
            f"{unique}.example.com-nfs",
            {"spec": {"holderIdentity": "thief"}},
            kind="merge",
            namespace="default",
        )
        await _until(lambda: len(one.story) == 2, 3)
        assert "thief" in one.story[1]
    finally:
        await one.thread.stop()


async def test_a_real_endpoints_lock_is_waited_for(control_plane, client, cleaned, unique):
    name = f"{unique}.example.com-nfs"
    cleaned(LEASES, name)
    cleaned(ENDPOINTS, name)

    def record(number: int) -> dict[str, Any]:
        text = f'{{"holderIdentity":"go","leaseDurationSeconds":1,"renewTime":"{number}"}}'
        return {"metadata": {"name": name, "annotations": {ANN_ENDPOINTS_LEADER: text}}}

    await client.create(ENDPOINTS, {"apiVersion": "v1", "kind": "Endpoints"} | record(0), namespace="default")
    one = Contender(control_plane, "one", f"{unique}.example.com/nfs")
    try:
        for number in range(6):
            await client.patch(ENDPOINTS, name, record(number), namespace="default")
            await asyncio.sleep(0.3)
            assert not one.thread.leading
        await _until(lambda: one.thread.leading)
    finally:
        await one.thread.stop()


async def test_events_are_accepted_and_counted_up(client, cleaned, unique):
    cleaned(CLAIMS, unique)
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": unique},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "kube-tests-only",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    claim = await client.create(CLAIMS, body, namespace="default")
    cleaned(VOLUMES, unique)
    volume = await client.create(VOLUMES, _volume(unique))
    recorder = EventRecorder(client, component="example.com/nfs_one", clock=CLOCK, rng=random.Random(1))
    recorder.start()
    for _ in range(3):
        recorder.emit(claim, type="Warning", reason="ProvisioningFailed", message="it failed: \udcff\x00")
    recorder.emit(volume, type="Normal", reason="VolumeDelete", message="x" * 5000)
    await recorder.stop(10)
    kind = Resource(SeenEvent, "", "v1", "events", "Event", True)
    events = [one for one in (await client.list_all(kind, namespace="default")).items if unique in one.metadata.name]
    ours = {(e.reason, e.count, e.message) for e in events if e.source == {"component": "example.com/nfs_one"}}
    # What is not printable is shown as people write it, as everywhere else.
    assert ours == {("ProvisioningFailed", 3, r"it failed: \xff\x00"), ("VolumeDelete", 1, "x" * 1024)}
