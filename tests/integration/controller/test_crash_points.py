"""The process dies before and after each request it sends and each hook it calls, and another takes over.

The points are found by running a scenario once without dying. Whatever the point, the end is the same: one volume for
a claim that is there, none for a claim that is gone, and no asset without a volume.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from controller_scene import Scene
from controller_world import Call, Crash, ScriptedBackend, Storage, World
from prov_host.controller import Backoff, ControllerOptions
from prov_host.embedded import Cluster, InProcessTransport
from prov_host.errors import AlreadyExists, InBackground, ProvisionError, Reschedule
from prov_host.kube.api import CLAIMS
from prov_host.model import ANN_SELECTED_NODE, ProvisionRequest
from prov_host.testing.clock import FakeClock

Plugin = Callable[[ScriptedBackend], None]
Rule = Callable[[Call], int | str | None]


@dataclasses.dataclass
class Scenario:
    """What happens while the first process runs.

    Attributes:
        name: of the scenario.
        steps: each is done, then everything that can happen at that moment happens.
        plugin: prepares the backend of each process.
        rule: what becomes of the first process's requests.
        options: of every process.
        claim_stays: whether claim-1 exists at the end.
    """

    name: str
    steps: tuple[Callable[[Scene], Awaitable[Any]], ...]
    plugin: Plugin = lambda backend: None
    rule: Callable[[], Rule | None] = lambda: None
    options: ControllerOptions = dataclasses.field(default_factory=ControllerOptions)
    archive: bool = False
    claim_stays: bool = False


async def create(scene: Scene) -> None:
    await scene.a_class()
    await make_claim(scene)


async def make_claim(scene: Scene) -> None:
    body = {
        "metadata": {"name": "claim-1", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            "storageClassName": "class-1",
        },
    }
    await scene.admin.create(CLAIMS, body, namespace="default")


async def make_again(scene: Scene) -> None:
    with contextlib.suppress(AlreadyExists):  # it is still on its way out when the process died over it
        await make_claim(scene)


async def create_with_node(scene: Scene) -> None:
    await scene.a_class(volumeBindingMode="WaitForFirstConsumer")
    await make_claim(scene)
    patch = {"metadata": {"annotations": {ANN_SELECTED_NODE: "node-1"}}}
    await scene.admin.patch(CLAIMS, "claim-1", patch, namespace="default")


async def delete(scene: Scene) -> None:
    await scene.admin.delete(CLAIMS, "claim-1", namespace="default")


async def choose_another_node(scene: Scene) -> None:
    patch = {"metadata": {"annotations": {ANN_SELECTED_NODE: "node-2"}}}
    await scene.admin.patch(CLAIMS, "claim-1", patch, namespace="default")


async def a_minute(scene: Scene) -> None:
    await scene.advance(60)


def slow_plugin(backend: ScriptedBackend) -> None:
    """Says "still working" twice per process; the asset is there from the first call on."""
    calls: dict[str, int] = {}

    def provision(request: ProvisionRequest) -> None:
        calls[request.pv_name] = calls.get(request.pv_name, 0) + 1
        if calls[request.pv_name] <= 2:
            backend.storage.assets.setdefault(request.pv_name, request.claim.uid)
            raise InBackground("still working")

    backend.on_provision = provision


def failing_once(backend: ScriptedBackend) -> None:
    """Fails for good the first time, and leaves nothing."""
    failed: set[str] = set()

    def provision(request: ProvisionRequest) -> None:
        if request.pv_name not in failed:
            failed.add(request.pv_name)
            raise ProvisionError("no")

    backend.on_provision = provision


def no_room_on_node_1(backend: ScriptedBackend) -> None:
    def provision(request: ProvisionRequest) -> None:
        if request.selected_node == "node-1":
            raise Reschedule("no room")

    backend.on_provision = provision


def broken_creates(times: int) -> Callable[[], Rule]:
    def make() -> Rule:
        left = [times]

        def rule(call: Call) -> int | str | None:
            if call.what != "POST persistentvolumes" or not left[0]:
                return None
            left[0] -= 1
            return "lose" if left[0] % 2 else 500

        return rule

    return make


BOUNDED = ControllerOptions(pv_create_backoff=Backoff(duration=1, steps=2))
SCENARIOS = [
    Scenario("provision", (create,), claim_stays=True),
    Scenario("provision-and-delete", (create, delete)),
    Scenario("provision-and-archive", (create, delete), archive=True),
    Scenario("background", (create, a_minute), slow_plugin, claim_stays=True),
    Scenario("background-deleted", (create, delete, a_minute), slow_plugin),
    Scenario("fails-once", (create, a_minute), failing_once, claim_stays=True),
    Scenario("fails-once-deleted", (create, delete, a_minute), failing_once),
    Scenario("unsaved", (create, a_minute), rule=broken_creates(3), claim_stays=True),
    Scenario("unsaved-deleted", (create, delete, a_minute), rule=broken_creates(3)),
    Scenario("bounded", (create, a_minute), rule=broken_creates(5), options=BOUNDED, claim_stays=True),
    Scenario("bounded-deleted", (create, delete, a_minute), rule=broken_creates(5), options=BOUNDED),
    Scenario("reschedule", (create_with_node, choose_another_node, a_minute), no_room_on_node_1, claim_stays=True),
    Scenario("re-created", (create, delete, make_again, a_minute), claim_stays=True),
]


async def run(scenario: Scenario, at: int, second: int = 0) -> list[str]:
    """Run a scenario, die at a point, let others finish it, and check the end; the points passed."""
    clock = FakeClock()
    cluster = Cluster(clock, random.Random(1))
    transport = InProcessTransport(cluster)
    scene = Scene(transport, clock, cluster)
    storage = Storage()
    crash = Crash(at)

    def process(crash: Crash, rule: Rule | None = None) -> World:
        backend = ScriptedBackend(storage, archive=scenario.archive, crash=crash)
        scenario.plugin(backend)
        world = World(transport, clock, backend, scenario.options)
        world.gate.rule = rule
        scene.worlds.append(world)
        return world

    async def start(world: World) -> None:
        starting = asyncio.create_task(world.start())
        await clock.run_until(starting.done)
        await starting
        await clock.settle()

    first = process(crash, scenario.rule())
    await start(first)
    for step in scenario.steps:
        await step(scene)
        await clock.settle()
    assert crash.happened.is_set() is (0 < at <= len(crash.passed))
    if at:
        await first.kill()
        another = Crash(second)
        await start(process(another))
        await clock.advance(100)
        if second:
            await scene.worlds[-1].kill()
            await start(process(Crash()))
    await clock.advance(3000)
    if make_again in scenario.steps:
        await make_again(scene)
        await clock.advance(100)

    claims = (await scene.admin.list_all(CLAIMS)).items
    volumes = await scene.volumes()
    assert [claim.name for claim in claims] == (["claim-1"] if scenario.claim_stays else [])
    assert list(volumes) == [f"pvc-{claim.uid}" for claim in claims]
    assert set(storage.assets) == set(volumes)
    for claim in claims:
        assert claim.spec.volume_name == f"pvc-{claim.uid}"
        assert [name for name in claim.finalizers if "prov-host" in name] == []
        assert not claim.terminating
    await scene.close()
    return crash.passed


def points() -> Iterator[Any]:
    """Every point of every scenario."""
    for scenario in SCENARIOS:
        for number, name in enumerate(asyncio.run(run(scenario, 0)), start=1):
            yield pytest.param(scenario, number, id=f"{scenario.name}-{number}-{name.replace(' ', '-')}")


@pytest.mark.parametrize(("scenario", "at"), list(points()))
async def test_dying_at_any_point_loses_and_leaks_nothing(scenario: Scenario, at: int) -> None:
    await run(scenario, at)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_dying_twice_loses_and_leaks_nothing(scenario: Scenario) -> None:
    rng = random.Random(scenario.name)
    passed = len(await run(scenario, 0))
    for _ in range(6):
        await run(scenario, rng.randint(1, passed), rng.randint(1, passed))
