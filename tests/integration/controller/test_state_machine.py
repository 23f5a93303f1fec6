"""Anything in any order: claims come, go and come back, classes change, plugins and the API fail, processes die.

The model is small on purpose. At every moment: at most one volume per claim, no asset of a volume in use is gone, and
no plugin is asked to remove what is in use. When everything has healed and time has passed: one bound volume for each
claim, an asset for each volume, a volume for each asset, no mark on any claim, and nothing remembered of what is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from controller_world import NAME, Call, ScriptedBackend, Storage, World
from prov_host.controller import Backoff, ControllerOptions
from prov_host.embedded import Cluster, InProcessTransport
from prov_host.errors import (
    AlreadyExists,
    DeleteError,
    HookTimeout,
    InBackground,
    Infeasible,
    NoChange,
    NotFound,
    ProvisionError,
    Reschedule,
    VolumeInUse,
)
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.kube.client import Client
from prov_host.model import ANN_SELECTED_NODE, ProvisionRequest, Volume
from prov_host.testing.clock import FakeClock

T = TypeVar("T")
NAMES = st.sampled_from(["claim-a", "claim-b", "claim-c"])
CLASS_NAMES = st.sampled_from(["class-1", "class-2"])
PROVISION_MODES = [
    "good",
    "good",
    "fail",
    "infeasible",
    "background-before",
    "background-after",
    "no-change",
    "hang",
    "surprise",
    "reschedule",
]
DELETE_MODES = ["good", "good", "fail", "in-use", "half", "hang"]
FATES = st.sampled_from([500, 409, 422, 403, "drop", "lose"])
OPTIONS = [
    ControllerOptions(),
    ControllerOptions(retry_interval_start=1, pv_create_backoff=Backoff(duration=1, steps=2)),
    ControllerOptions(worker_threads=1, failed_provision_threshold=2),
]


class Plugin(ScriptedBackend):
    """A backend that keeps its promises while misbehaving in every way they allow."""

    def __init__(self, storage: Storage, machine: ControllerMachine) -> None:
        super().__init__(storage, archive=True)
        self.machine = machine
        self.busy: dict[str, str] = {}  # volume name -> what a hook that was given up for late still does
        self.on_provision = self._provision
        self.on_delete = self.on_archive = self._remove_first

    def _provision(self, request: ProvisionRequest) -> None:
        name, assets = request.pv_name, self.storage.assets
        if name in self.busy:
            raise HookTimeout("still running")
        match self.machine.provision_mode:
            case "fail":
                assets.pop(name, None)  # "nothing is left behind"
                raise ProvisionError("no")
            case "infeasible":
                assets.pop(name, None)
                raise Infeasible("bad parameters")
            case "reschedule":
                assets.pop(name, None)
                raise Reschedule("no room")
            case "background-before":
                raise InBackground("still working")
            case "background-after":
                assets.setdefault(name, request.claim.uid)
                raise InBackground("still working")
            case "no-change":
                raise NoChange("cannot tell")
            case "surprise":
                assets.setdefault(name, request.claim.uid)
                raise KeyError("a bug")
            case "hang":
                self.busy[name] = request.claim.uid
                raise HookTimeout("not back in time")

    def _remove_first(self, volume: Volume) -> None:
        self.machine.check_removal(volume)
        if volume.name in self.busy:
            raise HookTimeout("still running")
        match self.machine.delete_mode:
            case "fail":
                raise DeleteError("no")
            case "in-use":
                raise VolumeInUse("attached")
            case "half":
                self.storage.assets.pop(volume.name, None)
                raise DeleteError("the answer got lost")
            case "hang":
                self.busy[volume.name] = ""
                raise HookTimeout("not back in time")

    def return_late(self) -> None:
        """The hooks that were given up for late end, and did their work."""
        for name, uid in tuple(self.busy.items()):
            if uid:
                self.storage.assets.setdefault(name, uid)
            else:
                self.storage.assets.pop(name, None)
            del self.busy[name]
            for wake in self.wakes:
                wake(name)


class ControllerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.storage = Storage()
        self.provision_mode = self.delete_mode = "good"
        self.violations: list[str] = []
        self.touches = 0

    def run(self, work: Awaitable[T]) -> T:
        async def whole() -> T:
            task = asyncio.ensure_future(work)
            if not task.done():
                await self.clock.run_until(task.done)
            result = await task
            await self.clock.settle()
            return result

        return self.loop.run_until_complete(whole())

    def advance(self, seconds: float) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))

    @initialize(
        number=st.integers(0, len(OPTIONS) - 1),
        resync=st.sampled_from([0.0, 900.0]),
        mode=st.sampled_from(PROVISION_MODES),
    )
    def begin(self, number: int, resync: float, mode: str) -> None:
        self.options, self.resync = OPTIONS[number], resync
        self.provision_mode = mode

        async def make() -> None:
            self.cluster = Cluster(self.clock, random.Random(1))
            self.transport = InProcessTransport(self.cluster)
            self.admin = Client(self.transport, self.clock)
            for name in ("class-1", "class-2"):
                await self.admin.create(CLASSES, {"metadata": {"name": name}, "provisioner": NAME})

        self.run(make())
        self.start()
        self.create_claim("claim-a", "class-1")
        self.create_claim("claim-b", "class-2")

    def start(self) -> None:
        async def make() -> World:
            world = World(self.transport, self.clock, Plugin(self.storage, self), self.options, resync=self.resync)
            await world.start()
            return world

        self.world = self.run(make())

    @property
    def plugin(self) -> Plugin:
        assert isinstance(self.world.backend, Plugin)
        return self.world.backend

    # ------------------------------------------------------------------ what happens

    # Few rules with many arguments: hypothesis leaves some rules out of each run, and these are needed in most.

    @rule(name=NAMES, class_name=CLASS_NAMES, what=st.sampled_from(["create", "delete", "re-create", "touch"]))
    def claims_change(self, name: str, class_name: str, what: str) -> None:
        if what in {"delete", "re-create"}:
            with contextlib.suppress(NotFound):
                self.run(self.admin.delete(CLAIMS, name, namespace="default"))
        if what in {"create", "re-create"}:
            self.create_claim(name, class_name)
        if what == "touch":
            self.touch_claim(name)

    def create_claim(self, name: str, class_name: str) -> None:
        body = {
            "metadata": {"name": name, "namespace": "default", "annotations": {ANN_SELECTED_NODE: "node-1"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
                "storageClassName": class_name,
            },
        }
        with contextlib.suppress(AlreadyExists):
            self.run(self.admin.create(CLAIMS, body, namespace="default"))

    def touch_claim(self, name: str) -> None:
        self.touches += 1
        patch = {"metadata": {"annotations": {"touched": str(self.touches)}}}
        with contextlib.suppress(NotFound):
            self.run(self.admin.patch(CLAIMS, name, patch, namespace="default"))

    @rule(number=st.integers(0, 5))
    def a_volume_is_deleted(self, number: int) -> None:
        names = [volume["metadata"]["name"] for volume in self.cluster.objects("persistentvolumes")]
        if names:
            with contextlib.suppress(NotFound):
                self.run(self.admin.delete(VOLUMES, names[number % len(names)]))

    @rule(
        name=CLASS_NAMES,
        policy=st.sampled_from([None, "delete", "archive", "nonsense"]),
        waits=st.booleans(),
        stays=st.booleans(),
    )
    def classes_change(self, name: str, policy: str | None, waits: bool, stays: bool) -> None:
        with contextlib.suppress(NotFound):
            self.run(self.admin.delete(CLASSES, name))
        body = {
            "metadata": {"name": name},
            "provisioner": NAME,
            "parameters": {} if policy is None else {"onDelete": policy},
            "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        }
        if stays:
            self.run(self.admin.create(CLASSES, body))

    @rule(provision=st.sampled_from(PROVISION_MODES), delete=st.sampled_from(DELETE_MODES))
    def plugin_behaves(self, provision: str, delete: str) -> None:
        self.provision_mode, self.delete_mode = provision, delete

    @precondition(lambda self: self.plugin.busy)
    @rule()
    def late_hooks_return(self) -> None:
        self.plugin.return_late()
        self.run(asyncio.sleep(0))

    @rule(
        fates=st.lists(st.one_of(st.none(), FATES), min_size=1, max_size=6), what=st.sampled_from(["", "POST", "PATCH"])
    )
    def api_fails(self, fates: list[int | str | None], what: str) -> None:
        coming = iter(fates)

        def rule(call: Call) -> int | str | None:
            return next(coming, None) if call.method.startswith(what) else None

        self.world.gate.rule = rule

    @rule(dropped=st.booleans())
    def watches_break(self, dropped: bool) -> None:
        if dropped:
            self.cluster.compact()
        self.cluster.faults.close_watches()
        self.run(asyncio.sleep(0))

    @rule(seconds=st.sampled_from([0.5, 20, 400, 2000]), jump=st.sampled_from([0, 0, -86400, 86400]))
    def time_passes(self, seconds: float, jump: float) -> None:
        self.clock.shift_wall_clock(jump)
        self.advance(seconds)

    @rule(orderly=st.booleans())
    def process_ends_and_another_begins(self, orderly: bool) -> None:
        if orderly:
            self.plugin.return_late()
            self.run(self.world.stop(5))
        else:
            late = dict(self.plugin.busy)
            self.run(self.world.kill())
            for number, (name, uid) in enumerate(late.items()):  # its threads die at some moment of their work
                if uid and number % 2 == 0:
                    self.storage.assets.setdefault(name, uid)
        self.start()

    # ------------------------------------------------------------------ what must be so

    def check_removal(self, volume: Volume) -> None:
        """A plugin is asked to remove an asset."""
        for live in self.cluster.objects("persistentvolumes"):
            if live["metadata"]["name"] == volume.name and live["status"].get("phase") in {"Bound", "Available"}:
                self.violations.append(f"asked to remove {volume.name}, which is {live['status']['phase']}")

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "world"):
            return
        assert not self.violations
        claims = [volume["spec"]["claimRef"]["uid"] for volume in self.cluster.objects("persistentvolumes")]
        assert len(claims) == len(set(claims)), "two volumes for one claim"
        for volume in self.cluster.objects("persistentvolumes"):
            meta = volume["metadata"]
            in_use = volume["status"].get("phase") == "Bound" and "deletionTimestamp" not in meta
            assert not in_use or meta["name"] in self.storage.assets, f"the asset of {meta['name']} is gone"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            self.loop.close()
            return
        try:
            self.heal()
            self.check_the_end()
        finally:
            self.run(self.world.kill())
            self.run(self.cluster.close())
            self.loop.close()

    def heal(self) -> None:
        self.provision_mode = self.delete_mode = "good"
        self.world.gate.rule = None
        self.plugin.return_late()
        for name in ("class-1", "class-2"):
            self.classes_change(name, None, waits=False, stays=True)
        self.advance(3000)
        for name in ("claim-a", "claim-b", "claim-c"):  # what was given up waits for a change
            self.touch_claim(name)
        self.advance(3000)

    def check_the_end(self) -> None:
        self.nothing_is_lost()
        claims = self.cluster.objects("persistentvolumeclaims")
        volumes = {volume["metadata"]["name"]: volume for volume in self.cluster.objects("persistentvolumes")}
        alive = set()
        for claim in claims:
            meta, status = claim["metadata"], claim["status"]
            assert "deletionTimestamp" not in meta, f"{meta['name']} hangs: {meta}"
            assert not [name for name in meta.get("finalizers", []) if "prov-host" in name]
            if status["phase"] == "Lost":  # somebody deleted its volume
                continue
            assert status["phase"] == "Bound", f"{meta['name']} is not served: {claim} {self.world.events.seen[-5:]}"
            alive.add(f"pvc-{meta['uid']}")
        assert set(volumes) == alive
        assert set(self.storage.assets) == alive
        controller = self.world.controller
        path = controller.claim_path
        uids = {claim["metadata"]["uid"] for claim in claims}
        assert not path.in_progress
        assert not path.saver.volumes()
        assert not path.intents._pending
        assert not path.intents._held
        assert path._served | path.intents._done <= uids
        assert not controller.volume_path._gone
        assert set(controller.claim_queue._limiter._failures) <= uids | set(volumes)


SETTINGS = settings(
    max_examples=26,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    print_blob=True,
)


@pytest.mark.parametrize("part", range(10))  # about a thousand steps each: in pieces, so that no test is long
def test_anything_in_any_order(part: int) -> None:
    run_state_machine_as_test(ControllerMachine, settings=SETTINGS)
