"""Row LE: the Lease of a provisioner name. LE2 and LE3 are inferred."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from controller_scene import Scene
from controller_world import Events
from prov_host.errors import ConfigurationError
from prov_host.kube.client import Client
from prov_host.kube.election import Elector
from prov_host.kube.leases import Durations, lease_name

PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases/foo.bar-baz-qux"


class Candidate:
    """One process that takes part."""

    def __init__(self, scene: Scene, identity: str) -> None:
        self.events = Events()
        self.started = asyncio.Event()
        self.elector = Elector(
            Client(scene.transport, scene.clock),
            provisioner="foo.bar/baz/qux",
            namespace="default",
            identity=identity,
            durations=Durations(),
            clock=scene.clock,
            rng=random.Random(identity),
            on_started=self.started.set,
            on_lost=lambda reason: None,
            events=self.events,
        )
        self.task = asyncio.create_task(self.elector.run())


async def read_lease(scene: Scene) -> dict[str, dict[str, object]]:
    reply = await scene.transport.request("GET", PATH)
    assert reply.status == 200
    found: dict[str, dict[str, object]] = msgspec.json.decode(reply.body)
    return found


@pytest.mark.parametrize("scene", ["embedded", pytest.param("real", marks=pytest.mark.e2e)], indirect=True)
@pytest.mark.parametrize("row", ["LE1"])
async def test_the_lease_is_the_references_and_is_released(scene: Scene, row: str) -> None:
    candidate = Candidate(scene, "host_1")
    await scene.wait_for(candidate.started.wait())
    lease = await read_lease(scene)
    assert not {"labels", "annotations"} & lease["metadata"].keys()
    assert lease["spec"]["holderIdentity"] == "host_1"
    assert lease["spec"]["leaseDurationSeconds"] == 15
    assert lease["spec"].get("leaseTransitions", 0) == 0
    assert [event[1:] for event in candidate.events.seen] == [("Normal", "LeaderElection", "host_1 became leader")]
    # The reference exits with 1 here and leaves its name in the Lease, for the next one to wait out.
    candidate.elector.stop()
    await scene.wait_for(candidate.task)
    lease = await read_lease(scene)
    assert not lease["spec"].get("holderIdentity")
    assert lease["spec"]["leaseDurationSeconds"] == 1
    reply = await scene.transport.request("DELETE", PATH)
    assert reply.status == 200


@pytest.mark.parametrize("row", ["LE2"])
def test_a_name_that_no_lease_can_have_is_refused(row: str) -> None:
    """The reference tries for ever."""
    assert lease_name("foo.bar/baz/qux") == "foo.bar-baz-qux"
    for name in ("Foo.bar/baz/qux", "foo_bar/baz", "x" * 254):
        with pytest.raises(ConfigurationError, match="which the API refuses"):
            lease_name(name)


@pytest.mark.parametrize("scene", ["embedded"], indirect=True)
@pytest.mark.parametrize("row", ["LE3"])
async def test_two_processes_of_one_name_take_turns(scene: Scene, row: str) -> None:
    first = Candidate(scene, "host_1")
    await scene.wait_for(first.started.wait())
    second = Candidate(scene, "host_2")
    await scene.advance(60)
    assert not second.started.is_set()
    first.elector.stop()
    await scene.wait_for(first.task)
    before = scene.clock.monotonic()
    await scene.wait_for(second.started.wait())
    assert scene.clock.monotonic() - before < 5
    assert (await read_lease(scene))["spec"]["leaseTransitions"] == 1
    second.elector.stop()
    await scene.wait_for(second.task)
