"""What happens to claims, volumes and assets over time, on a cluster whose own controllers are at work."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from controller_scene import P, Q, Scene, is_marked
from controller_world import Call, ScriptedBackend, Storage, World
from prov_host.controller import Backoff, Controller, ControllerOptions, KeyLocks
from prov_host.errors import HookTimeout, InBackground, NoChange, NotFound, ProvisionError, Reschedule
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.model import (
    ANN_ON_DELETE,
    ANN_RECORD,
    ANN_SELECTED_NODE,
    FINALIZER,
    INTENT_FINALIZER,
    Claim,
    Note,
    ObjectMeta,
    Provisioned,
    ProvisionRequest,
    Removed,
    StorageClass,
    Volume,
)

BARE = pytest.mark.parametrize("scene", ["bare"], indirect=True)
DEFAULTS = {"add_finalizer": True, "failed_provision_threshold": 0, "failed_delete_threshold": 0}


def a_world(scene: Scene, backend: ScriptedBackend | None = None, **options: Any) -> World:
    return scene.world(backend, {**DEFAULTS, **options})


async def delete_claim(scene: Scene, name: str = "claim-1") -> None:
    await scene.admin.delete(CLAIMS, name, namespace="default")
    await scene.settle()


async def gone(scene: Scene, name: str = "claim-1") -> bool:
    try:
        await scene.claim(name)
    except NotFound:
        return True
    return False


def background_until(backend: ScriptedBackend, ready: asyncio.Event, *, makes: bool = True) -> None:
    def provision(request: ProvisionRequest) -> None:
        if not ready.is_set():
            if makes:
                backend.storage.assets.setdefault(request.pv_name, request.claim.uid)
            raise InBackground("still copying")

    backend.on_provision = provision


# ---------------------------------------------------------------------- the main line


async def test_a_claim_costs_three_requests_and_its_deletion_three(scene: Scene) -> None:
    await scene.a_class()
    world = await scene.start(a_world(scene))
    await scene.a_claim()
    await scene.settle()
    claim = await scene.claim()
    assert claim.status is not None
    assert claim.status.phase == "Bound"
    assert [call.what for call in world.gate.calls] == [
        "PATCH persistentvolumeclaims",
        "POST persistentvolumes",
        "PATCH persistentvolumeclaims",
    ]
    world.gate.calls.clear()
    await delete_claim(scene)
    assert [call.what for call in world.gate.calls] == [
        "GET persistentvolumes",
        "DELETE persistentvolumes",
        "PATCH persistentvolumes",
    ]
    assert world.backend.storage.assets == {}
    assert await scene.volumes() == {}


async def test_a_hundred_claims_are_served_and_nothing_is_remembered_of_them(scene: Scene) -> None:
    await scene.a_class()
    world = await scene.start(a_world(scene))
    for number in range(100):
        await scene.a_claim(f"claim-{number}")
    await scene.settle()
    volumes = await scene.volumes()
    assert len(volumes) == 100
    assert len({volume.claim_uid for volume in volumes.values()}) == 100
    for number in range(100):
        await scene.admin.delete(CLAIMS, f"claim-{number}", namespace="default")
    await scene.settle()
    assert await scene.volumes() == {}
    assert world.backend.storage.assets == {}
    path = world.controller.claim_path
    assert not path._served
    assert not path.intents._done
    assert not path.intents._held
    assert not path.saver.volumes()
    assert not world.controller.volume_path._gone
    assert not world.controller.claim_queue._limiter._failures
    assert world.controller.parts.locks._locks == {}


async def test_the_policy_is_frozen_and_the_class_may_go(scene: Scene) -> None:
    await scene.a_class(parameters={"onDelete": "archive"})
    world = await scene.start(a_world(scene, ScriptedBackend(archive=True)))
    claim = await scene.a_claim()
    await scene.settle()
    volume = (await scene.volumes())[f"pvc-{claim.uid}"]
    assert volume.annotations[ANN_ON_DELETE] == "archive"
    assert volume.record == {"path": volume.name}
    await scene.admin.delete(CLASSES, "class-1")
    await scene.a_class(parameters={"onDelete": "delete"})
    await delete_claim(scene)
    assert world.backend.storage.archived == [volume.name]
    assert world.backend.storage.deleted == []
    assert world.events.messages("VolumeArchived") == [f"archived /{volume.name}"]


async def test_retain_leaves_the_data_and_removes_the_volume(scene: Scene) -> None:
    await scene.a_class(parameters={"onDelete": "retain"})
    world = await scene.start(a_world(scene))
    claim = await scene.a_claim()
    await scene.settle()
    await delete_claim(scene)
    assert await scene.volumes() == {}
    assert world.backend.storage.assets == {f"pvc-{claim.uid}": claim.uid}
    assert world.backend.count("delete") == 0
    assert "stays where it is" in world.events.messages("VolumeRetained")[0]


async def test_an_asset_that_was_absent_already_has_its_own_event_and_metric(scene: Scene) -> None:
    await scene.a_class()
    world = await scene.start(a_world(scene))
    await scene.a_claim()
    await scene.settle()
    world.backend.storage.assets.clear()
    await delete_claim(scene)
    assert len(world.events.messages("VolumeAlreadyAbsent")) == 1
    assert world.events.messages("VolumeDeleted") == []
    assert world.metric("prov_host_volumes_released_total", result="absent") == {(P, "absent"): 1}


async def test_notes_of_plugins_become_events(scene: Scene) -> None:
    await scene.a_class()
    backend = ScriptedBackend()

    def provision(request: ProvisionRequest) -> Provisioned:
        return Provisioned(
            source={"nfs": {"server": "foo", "path": "/x"}}, notes=(Note("VolumeAdopted", "/x was there", "Odd"),)
        )

    backend.on_provision = provision
    backend.on_delete = lambda volume: Removed(notes=(Note("Emptied", "5 files", "Warning"),))
    world = await scene.start(a_world(scene, backend))
    await scene.a_claim()
    await scene.settle()
    await delete_claim(scene)
    kinds = {(kind, reason) for _, kind, reason, _ in world.events.seen}
    assert {("Normal", "VolumeAdopted"), ("Warning", "Emptied")} <= kinds


async def test_observers_hear_of_every_operation(scene: Scene) -> None:
    await scene.a_class()
    backend = ScriptedBackend()
    fails = iter([True])

    def provision(request: ProvisionRequest) -> None:
        if next(fails, False):
            raise ProvisionError("not yet")

    backend.on_provision = provision
    await scene.start(a_world(scene, backend))
    claim = await scene.a_claim()
    await scene.settle()
    await scene.advance(15)
    await delete_claim(scene)
    pv = f"pvc-{claim.uid}"
    assert [(r.operation, r.outcome, r.volume, r.claim, r.message, r.path) for r in backend.records] == [
        ("provision", "provision_error", pv, "default/claim-1", "not yet", ""),
        ("provision", "ok", pv, "default/claim-1", "", f"/{pv}"),
        ("delete", "ok", pv, "default/claim-1", f"deleted /{pv}", f"/{pv}"),
    ]


# ---------------------------------------------------------------------- claims that go while something is in the making


async def test_a_claim_deleted_in_the_background_leaves_nothing_when_the_plugin_succeeds(scene: Scene) -> None:
    await scene.a_class()
    ready = asyncio.Event()
    backend = ScriptedBackend()
    background_until(backend, ready)
    world = await scene.start(a_world(scene, backend))
    await scene.a_claim()
    await scene.settle()
    await delete_claim(scene)
    assert (await scene.claim()).terminating
    ready.set()
    await scene.advance(20)
    assert await gone(scene)
    assert await scene.volumes() == {}
    assert backend.storage.assets == {}
    assert world.controller.in_progress == set()


async def test_a_claim_deleted_in_the_background_leaves_nothing_when_the_plugin_fails(scene: Scene) -> None:
    await scene.a_class()
    backend = ScriptedBackend()
    background_until(backend, asyncio.Event(), makes=False)
    await scene.start(a_world(scene, backend))
    await scene.a_claim()
    await scene.settle()
    await delete_claim(scene)

    def fail(request: ProvisionRequest) -> None:
        raise ProvisionError("disk full")

    backend.on_provision = fail
    await scene.advance(20)
    assert await gone(scene)
    calls = backend.count("provision")
    await scene.advance(2000)
    assert backend.count("provision") == calls
    assert await scene.volumes() == {}


async def test_the_same_question_is_asked_again_whatever_happened_to_the_claim(scene: Scene) -> None:
    await scene.a_class(parameters={"onDelete": "delete", "x": "1"})
    ready = asyncio.Event()
    backend = ScriptedBackend()
    background_until(backend, ready)
    await scene.start(a_world(scene, backend))
    await scene.a_claim()
    await scene.settle()
    await scene.admin.patch(CLAIMS, "claim-1", {"metadata": {"labels": {"new": "label"}}}, namespace="default")
    await scene.admin.delete(CLASSES, "class-1")
    await scene.a_class(parameters={"onDelete": "delete", "x": "2"})
    await scene.settle()
    ready.set()
    await scene.advance(60)
    assert len(backend.requests) >= 3
    assert all(request == backend.requests[0] for request in backend.requests)


async def test_a_terminating_claim_is_not_begun(scene: Scene) -> None:
    await scene.a_class()
    await scene.a_claim(finalizers=("example.com/keep",))
    await delete_claim(scene)
    world = await scene.start(a_world(scene))
    assert world.backend.count("provision") == 0
    assert world.gate.calls == []


async def test_a_claim_deleted_behind_a_stale_cache_is_not_begun(scene: Scene) -> None:
    """External-provisioner #1469: a second volume for a claim that is gone is a volume nobody owns."""
    await scene.a_class()
    for how in ("deleted", "terminating", "re-created", "bound"):
        await scene.a_claim(finalizers=("example.com/keep",) if how == "terminating" else ())
        world = a_world(scene)
        await scene.wait_for(world.fill())
        for task in world._tasks:
            task.cancel()
        await scene.settle()
        if how == "bound":
            await scene.admin.patch(CLAIMS, "claim-1", {"spec": {"volumeName": "other"}}, namespace="default")
        else:
            await scene.admin.delete(CLAIMS, "claim-1", namespace="default")
        if how == "re-created":
            await scene.a_claim(provisioner=Q)
        await scene.wait_for(world.controller.start())
        await scene.settle()
        assert world.backend.count("provision") == 0, how
        assert world.controller.in_progress == set()
        await world.kill()
        if not await gone(scene):
            assert not is_marked(await scene.claim()), how
            await scene.unprotected(CLAIMS, "claim-1")
        if not await gone(scene):
            await delete_claim(scene)
    assert await scene.volumes() == {}


async def test_a_restarted_process_finds_what_was_in_the_making(scene: Scene) -> None:
    await scene.a_class()
    storage, ready = Storage(), asyncio.Event()
    first = ScriptedBackend(storage)
    background_until(first, ready)
    world = await scene.start(a_world(scene, first))
    await scene.a_claim()
    await scene.settle()
    await world.kill()
    await delete_claim(scene)
    assert list(storage.assets)
    await scene.start(a_world(scene, ScriptedBackend(storage)))
    assert await gone(scene)
    assert storage.assets == {}
    assert await scene.volumes() == {}


async def test_a_restarted_process_that_cannot_finish_says_what_to_do(scene: Scene) -> None:
    await scene.a_class()
    storage = Storage()
    first = ScriptedBackend(storage)
    background_until(first, asyncio.Event())
    world = await scene.start(a_world(scene, first))
    await scene.a_claim()
    await scene.settle()
    await world.kill()
    await delete_claim(scene)
    await scene.admin.delete(CLASSES, "class-1")
    world = await scene.start(a_world(scene, ScriptedBackend(storage)))
    assert INTENT_FINALIZER in world.events.messages("ProvisioningFailed")[0]
    assert storage.assets
    await scene.a_class()
    await scene.settle()
    assert storage.assets == {}
    assert await gone(scene)


async def test_no_change_from_a_new_process_keeps_the_mark(scene: Scene) -> None:
    await scene.a_class()
    storage = Storage()
    first = ScriptedBackend(storage)
    background_until(first, asyncio.Event())
    world = await scene.start(a_world(scene, first))
    await scene.a_claim()
    await scene.settle()
    await world.kill()
    second = ScriptedBackend(storage)

    def provision(request: ProvisionRequest) -> None:
        raise NoChange("cannot tell")

    second.on_provision = provision
    await scene.start(a_world(scene, second))
    assert is_marked(await scene.claim())


# ---------------------------------------------------------------------- volumes in the way


@pytest.mark.parametrize(
    "options", [{}, {"pv_create_backoff": Backoff(duration=1, steps=2)}], ids=["for-ever", "bounded"]
)
@pytest.mark.parametrize("same_asset", [False, True])
async def test_a_foreign_volume_of_the_name_is_never_taken_for_ours(
    scene: Scene, options: dict[str, Any], same_asset: bool
) -> None:
    await scene.a_class()
    claim = await scene.a_claim()
    pv = f"pvc-{claim.uid}"
    world = a_world(scene, **options)

    async def plant() -> None:
        path = f"/{pv}" if same_asset else "/elsewhere"
        await scene.admin.create(
            VOLUMES,
            {
                "metadata": {"name": pv},
                "spec": {
                    "capacity": {"storage": "1Mi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "nfs": {"server": "foo", "path": path},
                },
            },
        )

    planting: list[asyncio.Task[None]] = []

    def rule(call: Call) -> None:
        if call.what == "PATCH persistentvolumeclaims" and not planting:
            planting.append(asyncio.get_running_loop().create_task(plant()))

    world.gate.rule = rule
    await scene.start(world)
    await scene.advance(5)
    assert planting[0].done()
    assert any("is not the one made for this claim" in text for text in world.events.messages("ProvisioningFailed"))
    assert world.backend.count("delete") == (0 if same_asset else 1)
    assert (pv in world.backend.storage.assets) is same_asset
    assert (await scene.volumes())[pv].reclaim_policy == "Retain"
    assert not is_marked(await scene.claim())
    # Once it is out of the way the claim is served.
    await scene.unprotected(VOLUMES, pv)
    await scene.admin.delete(VOLUMES, pv)
    await scene.advance(100)
    assert (await scene.volumes())[pv].claim_uid == claim.uid


@BARE
async def test_a_volume_on_its_way_out_is_waited_for(scene: Scene) -> None:
    """AlreadyExists is no success while the volume of the name is being deleted."""
    await scene.a_class()
    claim = await scene.a_claim()
    pv = f"pvc-{claim.uid}"
    await scene.a_volume(
        pv,
        "Available",
        finalizers=("example.com/keep",),
        deleted=True,
        claimRef={"namespace": "default", "name": "claim-1", "uid": claim.uid},
    )
    world = await scene.start(a_world(scene))
    await scene.advance(30)
    assert "Normal ProvisioningSucceeded" not in world.events.of("claim-1")
    await scene.unprotected(VOLUMES, pv)
    await scene.advance(30)
    assert not (await scene.volumes())[pv].terminating
    assert pv in world.backend.storage.assets


async def test_an_answer_that_was_lost_does_not_cost_the_asset(scene: Scene) -> None:
    """Every create is carried out or refused without a word: before the asset is deleted the volume is looked for."""
    await scene.a_class()
    world = a_world(scene, pv_create_backoff=Backoff(duration=1, steps=1))
    world.gate.rule = lambda call: "lose" if call.what == "POST persistentvolumes" else None
    await scene.start(world)
    await scene.a_claim()
    await scene.settle()
    await scene.advance(5)
    assert world.backend.count("delete") == 0
    assert len(await scene.volumes()) == 1
    assert world.events.of("claim-1")[-1] == "Normal ProvisioningSucceeded"


async def test_an_asset_is_not_deleted_while_it_is_not_known_whether_a_volume_exists(scene: Scene) -> None:
    await scene.a_class()
    world = a_world(scene, pv_create_backoff=Backoff(duration=1, steps=2))
    world.gate.rule = lambda call: "drop" if call.path.startswith("/api/v1/persistentvolumes") else None
    await scene.start(world)
    claim = await scene.a_claim()
    await scene.settle()
    await scene.advance(10)
    assert world.backend.count("delete") == 0
    assert world.controller.in_progress == {claim.uid}
    world.gate.rule = None
    await scene.advance(60)
    assert len(await scene.volumes()) == 1


async def test_a_volume_that_never_can_be_saved_does_not_keep_its_claim_from_going(scene: Scene) -> None:
    await scene.a_class()
    world = a_world(scene)
    world.gate.rule = lambda call: 422 if call.what == "POST persistentvolumes" else None
    await scene.start(world)
    claim = await scene.a_claim()
    await scene.settle()
    await scene.advance(1000)
    assert list(world.backend.storage.assets) == [f"pvc-{claim.uid}"]  # it may be a webhook that is mended one day
    await delete_claim(scene)
    await scene.advance(400)
    assert await gone(scene)
    assert world.backend.storage.assets == {}
    assert world.controller.claim_path.saver.unsaved == ()


async def test_the_finalizer_keeps_a_volume_that_is_deleted_before_its_claim(scene: Scene) -> None:
    await scene.a_class()
    world = await scene.start(a_world(scene))
    claim = await scene.a_claim()
    await scene.settle()
    pv = f"pvc-{claim.uid}"
    await scene.admin.delete(VOLUMES, pv)
    await scene.settle()
    assert (await scene.volumes())[pv].terminating
    assert pv in world.backend.storage.assets
    await delete_claim(scene)
    assert await scene.volumes() == {}
    assert world.backend.storage.deleted == [pv]


async def test_others_finalizers_survive_the_removal_of_ours(scene: Scene) -> None:
    await scene.a_class()
    world = await scene.start(a_world(scene))
    claim = await scene.a_claim()
    await scene.settle()
    pv = f"pvc-{claim.uid}"
    assert FINALIZER in (await scene.volumes())[pv].finalizers
    await scene.admin.patch(VOLUMES, pv, {"metadata": {"finalizers": ["other/one"]}})
    await delete_claim(scene)
    volume = (await scene.volumes())[pv]
    assert volume.finalizers == ("other/one",)
    assert world.backend.count("delete") == 1


# ---------------------------------------------------------------------- at once


@BARE
async def test_a_claim_is_not_provisioned_while_an_asset_of_its_name_is_being_removed(scene: Scene) -> None:
    await scene.a_class()
    claim = await scene.a_claim()
    pv = f"pvc-{claim.uid}"
    other = {"namespace": "default", "name": "claim-1", "uid": "other"}
    await scene.a_volume(pv, "Released", finalizers=(FINALIZER,), claimRef=other)
    backend = ScriptedBackend()
    backend.gate = asyncio.Event()
    await scene.start(a_world(scene, backend))
    assert backend.calls[-1] == ("delete", pv)
    # Somebody removes the object by force; the plugin is still at work.
    await scene.unprotected(VOLUMES, pv)
    await scene.admin.delete(VOLUMES, pv)
    await scene.settle()
    await scene.touch()
    assert backend.count("provision") == 0
    backend.gate.set()
    await scene.settle()
    await scene.advance(30)
    assert (await scene.volumes())[pv].claim_uid == claim.uid
    assert pv in backend.storage.assets


@BARE
async def test_an_asset_is_not_removed_while_its_name_is_being_provisioned(scene: Scene) -> None:
    await scene.a_class()
    claim = await scene.a_claim()
    pv = f"pvc-{claim.uid}"
    backend = ScriptedBackend()
    backend.gate = asyncio.Event()
    await scene.start(a_world(scene, backend))
    assert backend.calls[-1] == ("provision", pv)
    other = {"namespace": "default", "name": "claim-1", "uid": "other"}
    await scene.a_volume(pv, "Released", finalizers=(FINALIZER,), claimRef=other)
    await scene.settle()
    assert backend.count("delete") == 0
    backend.gate.set()
    await scene.settle()
    await scene.advance(30)
    assert (await scene.volumes())[pv].claim_uid == claim.uid
    assert pv in backend.storage.assets


@BARE
async def test_a_volume_for_the_claim_that_is_being_deleted_is_not_taken_for_a_saved_one(scene: Scene) -> None:
    await scene.a_class()
    claim = await scene.a_claim()
    pv = f"pvc-{claim.uid}"
    planting: list[asyncio.Task[Volume]] = []

    async def plant() -> Volume:
        return await scene.a_volume(
            pv,
            "Available",
            finalizers=("example.com/keep",),
            deleted=True,
            claimRef={"namespace": "default", "name": "claim-1", "uid": claim.uid},
            nfs={"server": "foo", "path": f"/{pv}"},
        )

    world = a_world(scene)

    def rule(call: Call) -> None:
        if call.what == "PATCH persistentvolumeclaims" and not planting:
            planting.append(asyncio.get_running_loop().create_task(plant()))

    world.gate.rule = rule
    world.backend.gate = asyncio.Event()
    await scene.start(world)
    world.backend.gate.set()
    await scene.advance(10)
    assert planting[0].done()
    assert "Normal ProvisioningSucceeded" not in world.events.of("claim-1")
    await scene.unprotected(VOLUMES, pv)
    await scene.advance(300)
    assert not (await scene.volumes())[pv].terminating
    assert world.events.of("claim-1")[-1] == "Normal ProvisioningSucceeded"


@BARE
async def test_the_cache_shows_no_node_that_was_given_back(scene: Scene) -> None:
    await scene.a_class(volumeBindingMode="WaitForFirstConsumer")
    await scene.a_claim(annotations={ANN_SELECTED_NODE: "node-1"})
    backend = ScriptedBackend()

    def provision(request: ProvisionRequest) -> None:
        raise Reschedule("no room")

    backend.on_provision = provision
    world = a_world(scene, backend)
    await scene.wait_for(world.fill())
    for task in world._tasks:
        task.cancel()
    await scene.settle()
    await scene.wait_for(world.controller.start())
    await scene.settle()
    cached = world.claims.get("default/claim-1")
    assert cached is not None
    assert cached.selected_node == ""
    assert not is_marked(cached)


async def test_a_hanging_backend_holds_up_no_other(scene: Scene) -> None:
    await scene.a_class()
    await scene.a_class("class-2", Q)
    hung = ScriptedBackend()
    hung.gate = asyncio.Event()
    world = a_world(scene, hung, worker_threads=2)
    other = ScriptedBackend()
    second = Controller(
        Q,
        other,
        api=world.client,
        claims=world.claims,
        volumes=world.volumes,
        classes=world.classes,
        events=world.events,
        clock=scene.clock,
        rng=random.Random(),
        metrics=world.metrics,
        options=ControllerOptions(),
        locks=KeyLocks(),
    )
    await scene.start(world)
    await scene.wait_for(second.start())
    for number in range(5):
        await scene.a_claim(f"claim-{number}")
    await scene.a_claim("claim-q", "class-2", Q)
    await scene.settle()
    assert hung.count("provision") == 2
    assert [volume.claim_key for volume in (await scene.volumes()).values()] == ["default/claim-q"]
    assert world.metric("workqueue_depth", name="claims") == {("claims",): 3}
    hung.gate.set()
    await scene.settle()
    assert len(await scene.volumes()) == 6
    assert await scene.wait_for(second.drain(5))


async def test_a_hook_that_returns_late_wakes_its_claim(scene: Scene) -> None:
    await scene.a_class()
    backend = ScriptedBackend()
    returned: list[bool] = []

    def provision(request: ProvisionRequest) -> None:
        if not returned:
            raise HookTimeout("not back after 120 s")

    backend.on_provision = provision
    await scene.start(a_world(scene, backend))
    claim = await scene.a_claim()
    await scene.settle()
    assert await scene.volumes() == {}
    returned.append(True)
    for wake in backend.wakes:
        wake(f"pvc-{claim.uid}")
    await scene.settle()
    assert len(await scene.volumes()) == 1


async def test_our_own_mark_is_no_reason_to_try_again(scene: Scene) -> None:
    """Each attempt marks and unmarks the claim: were that news, a failing claim would be hammered."""
    await scene.a_class()
    backend = ScriptedBackend()

    def fail(request: ProvisionRequest) -> None:
        raise ProvisionError("no")

    backend.on_provision = fail
    await scene.start(a_world(scene, backend))
    await scene.a_claim()
    await scene.settle()
    await scene.advance(14)
    first = backend.count("provision")
    assert first <= 3  # annotations of the control plane are changes
    await scene.advance(15)
    assert backend.count("provision") <= first + 1


async def test_a_replay_does_not_cut_delays_short(scene: Scene) -> None:
    await scene.a_class()
    backend = ScriptedBackend()

    def fail(request: ProvisionRequest) -> None:
        raise ProvisionError("no")

    backend.on_provision = fail
    world = scene.world(backend, {**DEFAULTS, "retry_interval_start": 500}, resync=10.0)
    await scene.start(world)
    await scene.a_claim()
    await scene.settle()
    before = backend.count("provision")
    await scene.advance(400)
    assert backend.count("provision") == before


@BARE
async def test_a_claim_that_is_saved_and_not_bound_yet_is_no_failure(scene: Scene) -> None:
    await scene.a_class()
    world = await scene.start(a_world(scene))
    await scene.a_claim()
    await scene.settle()
    requests = len(world.gate.calls)
    for _ in range(3):
        await scene.touch()
    assert world.metric("controller_persistentvolumeclaim_provision_failed_total") == {}
    assert len(world.gate.calls) == requests
    assert world.backend.count("provision") == 1


@BARE
async def test_a_node_that_changed_behind_a_stale_cache_is_asked_about_anew(scene: Scene) -> None:
    """With a process per node, the one that was asked about node-1 must not provision for node-2."""
    await scene.a_class(volumeBindingMode="WaitForFirstConsumer")
    await scene.a_claim(annotations={ANN_SELECTED_NODE: "node-1"})
    backend = ScriptedBackend()
    backend.qualifies = lambda claim: claim.selected_node == "node-1"
    world = a_world(scene, backend)
    await scene.wait_for(world.fill())
    for task in world._tasks:
        task.cancel()
    await scene.settle()
    patch = {"metadata": {"annotations": {ANN_SELECTED_NODE: "node-2"}}}
    await scene.admin.patch(CLAIMS, "claim-1", patch, namespace="default")
    await scene.wait_for(world.controller.start())
    await scene.advance(10)
    assert backend.count("provision") == 0
    assert not is_marked(await scene.claim())


@BARE
async def test_our_own_mark_in_a_stale_cache_is_not_taken_for_a_former_process_s(scene: Scene) -> None:
    await scene.a_class(volumeBindingMode="WaitForFirstConsumer")
    claim = await scene.a_claim(annotations={ANN_SELECTED_NODE: "node-1"})
    backend = ScriptedBackend()

    def provision(request: ProvisionRequest) -> None:
        for task in world._tasks:
            task.cancel()
        world.claims.apply(request.claim)  # marked, and that is the last that the cache hears
        raise ProvisionError("no")

    backend.on_provision = provision
    world = a_world(scene, backend)
    await scene.start(world)
    assert not is_marked(await scene.claim())
    assert is_marked(world.claims.values()[0])
    patch = {"metadata": {"annotations": {ANN_SELECTED_NODE: None}}}
    await scene.admin.patch(CLAIMS, "claim-1", patch, namespace="default")
    world.controller.claim_queue.add(claim.uid)
    await scene.settle()
    assert backend.count("provision") == 1
    assert not is_marked(await scene.claim())


# ---------------------------------------------------------------------- stopping


async def test_draining_finishes_what_is_at_work_and_begins_nothing(scene: Scene) -> None:
    await scene.a_class()
    for number in range(6):
        await scene.a_claim(f"claim-{number}")
    backend = ScriptedBackend()
    backend.gate = asyncio.Event()
    world = await scene.start(a_world(scene, backend, worker_threads=2))
    assert backend.count("provision") == 2
    draining = asyncio.create_task(world.stop(30))
    await scene.advance(5)
    assert not draining.done()
    backend.gate.set()
    assert await scene.wait_for(asyncio.wait_for(draining, None))
    assert len(await scene.volumes()) == 2
    assert backend.count("provision") == 2
    marked = [claim.name for claim in (await scene.admin.list_all(CLAIMS)).items if is_marked(claim)]
    assert marked == []


async def test_draining_gives_up_at_its_limit_and_the_mark_stays(scene: Scene) -> None:
    await scene.a_class()
    await scene.a_claim()
    storage = Storage()
    backend = ScriptedBackend(storage)
    backend.gate = asyncio.Event()
    world = await scene.start(a_world(scene, backend))
    before = scene.clock.monotonic()
    assert not await scene.wait_for(world.stop(10))
    assert scene.clock.monotonic() - before < 11
    assert is_marked(await scene.claim())
    await scene.start(a_world(scene, ScriptedBackend(storage)))
    assert len(await scene.volumes()) == 1
    assert not is_marked(await scene.claim())


async def test_a_bug_in_the_path_costs_one_item_and_no_worker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.a_class()
    world = await scene.start(a_world(scene, worker_threads=1))
    original = world.controller.claim_path._ask
    bugs = iter([True])

    async def ask(request: ProvisionRequest, *, unfinished: bool) -> Any:
        if next(bugs, False):
            raise ZeroDivisionError
        return await original(request, unfinished=unfinished)

    monkeypatch.setattr(world.controller.claim_path, "_ask", ask)
    await scene.a_claim()
    await scene.settle()
    await scene.a_claim("claim-2")
    await scene.settle()
    assert "unexpected error" in caplog.text
    await scene.advance(15)
    assert len(await scene.volumes()) == 2
    assert world.controller.status().failures[-1][2].startswith("ZeroDivisionError")


@pytest.mark.parametrize("hook", ["provision", "delete"])
async def test_a_hook_that_is_cancelled_from_within_costs_no_worker(scene: Scene, hook: str) -> None:
    await scene.a_class()
    backend = ScriptedBackend()
    cancels = iter([True])

    def cancelled(about: object) -> None:
        if next(cancels, False):
            raise asyncio.CancelledError

    if hook == "provision":
        backend.on_provision = cancelled
    else:
        backend.on_delete = cancelled
    await scene.start(a_world(scene, backend, worker_threads=1))
    await scene.a_claim()
    await scene.settle()
    await scene.advance(20)
    assert len(await scene.volumes()) == 1
    await delete_claim(scene)
    await scene.advance(20)
    assert await gone(scene)
    assert await scene.volumes() == {}
    assert backend.storage.assets == {}


async def test_a_claim_that_was_given_up_carries_no_mark_unless_something_may_exist(scene: Scene) -> None:
    await scene.a_class()
    for error, marked in ((ProvisionError("no"), False), (InBackground("busy"), True)):
        backend = ScriptedBackend()

        def fail(request: ProvisionRequest, error: Exception = error) -> None:
            raise error

        backend.on_provision = fail
        world = await scene.start(a_world(scene, backend, failed_provision_threshold=2, retry_interval_start=1))
        await scene.a_claim()
        await scene.settle()
        await scene.advance(100)
        calls = backend.count("provision")
        assert is_marked(await scene.claim()) is marked
        assert world.controller.in_progress == set()
        # Its deletion is a change: what may exist is looked for once more, and the claim goes.
        backend.on_provision = None
        await delete_claim(scene)
        await scene.advance(100)
        assert await gone(scene)
        assert backend.count("provision") == calls + int(marked)
        assert backend.storage.assets == {}
        await world.kill()


async def test_what_was_left_over_is_still_left_over_after_a_failed_look(scene: Scene) -> None:
    await scene.a_class()
    storage = Storage()
    first = ScriptedBackend(storage)
    background_until(first, asyncio.Event())
    world = await scene.start(a_world(scene, first))
    await scene.a_claim()
    await scene.settle()
    await world.kill()
    world = a_world(scene, ScriptedBackend(storage), failed_provision_threshold=1, retry_interval_start=1)
    world.gate.rule = lambda call: 409 if call.what == "PATCH persistentvolumeclaims" else None
    await scene.start(world)
    await scene.advance(100)
    world.gate.rule = None
    await delete_claim(scene)
    await scene.advance(100)
    assert await gone(scene)
    assert storage.assets == {}


async def test_a_volume_planted_for_a_claim_does_not_make_us_forget_what_is_in_the_making(scene: Scene) -> None:
    await scene.a_class()
    ready = asyncio.Event()
    backend = ScriptedBackend()
    background_until(backend, ready)
    await scene.start(a_world(scene, backend))
    claim = await scene.a_claim()
    await scene.settle()
    reference = {"namespace": "default", "name": "claim-1", "uid": claim.uid}
    await scene.a_volume(f"pvc-{claim.uid}", "Available", "Retain", {}, claimRef=reference, storageClassName="class-1")
    ready.set()
    await scene.advance(100)
    assert backend.storage.assets == {}
    assert not is_marked(await scene.claim())
    assert (await scene.volumes())[f"pvc-{claim.uid}"].reclaim_policy == "Retain"


async def test_a_hook_that_fails_to_say_whether_is_reported(scene: Scene) -> None:
    await scene.a_class()
    backend = ScriptedBackend()

    def qualifies(claim: Claim) -> bool:
        raise ProvisionError("plugin quota: KeyError: 'limit'")

    backend.qualifies = qualifies
    world = await scene.start(a_world(scene, backend))
    await scene.a_claim()
    await scene.settle()
    assert world.events.messages("ProvisioningFailed")[0] == "plugin quota: KeyError: 'limit'"
    assert backend.count("provision") == 0


@pytest.mark.parametrize(
    ("what", "where", "text"),
    [
        (
            "PATCH persistentvolumeclaims",
            "ProvisioningFailed",
            "grant the host get and patch on persistentvolumeclaims",
        ),
        ("PATCH persistentvolumes", "VolumeFailedDelete", "grant the host patch on persistentvolumes"),
    ],
)
async def test_missing_permissions_are_told_in_events(scene: Scene, what: str, where: str, text: str) -> None:
    await scene.a_class()
    if what == "PATCH persistentvolumes":
        await scene.a_volume(phase="Bound", policy="Retain", finalizers=(FINALIZER,))
    world = a_world(scene)
    world.gate.rule = lambda call: 403 if call.what == what else None
    await scene.start(world)
    if where == "ProvisioningFailed":
        await scene.a_claim()
        await scene.settle()
    assert text in world.events.messages(where)[0]
    assert world.backend.count("provision") == 0


# ---------------------------------------------------------------------- odd objects


async def test_objects_with_missing_fields_are_survived(scene: Scene) -> None:
    world = await scene.start(a_world(scene))
    for obj in (Claim(), Claim(metadata=_meta("a"))):
        world.controller.claim_changed(obj, None)
        world.controller.claim_vanished(obj)
    for volume in (Volume(), Volume(metadata=_meta("a"))):
        world.controller.volume_changed(volume, None)
        world.controller.volume_vanished(volume)
    world.classes.apply(StorageClass(metadata=_meta("c")))
    odd = Claim(metadata=_meta("b", annotations={"volume.kubernetes.io/storage-provisioner": P}))
    world.claims.apply(odd)
    await scene.settle()
    assert world.idle
    assert world.backend.count("provision") == 0


def _meta(name: str, **fields: Any) -> Any:
    return ObjectMeta(name=name, namespace=None, uid=f"uid-{name}", **fields)


@BARE
async def test_a_hostile_record_is_read_as_none(scene: Scene) -> None:
    await scene.a_volume(annotations={"pv.kubernetes.io/provisioned-by": P, ANN_RECORD: '{"a": [1'})
    world = await scene.start(a_world(scene))
    assert await scene.volumes() == {}
    assert world.backend.count("delete") == 1


async def test_a_mark_that_a_user_set_is_harmless(scene: Scene) -> None:
    """Finalizers of claims belong to their users: a forged mark may cost work, never data."""
    await scene.a_class()
    world = await scene.start(a_world(scene))
    claim = await scene.a_claim()
    await scene.settle()
    pv = f"pvc-{claim.uid}"
    patch = {"metadata": {"finalizers": [INTENT_FINALIZER]}}
    await scene.admin.patch(CLAIMS, "claim-1", patch, namespace="default")
    await scene.settle()
    assert list(await scene.volumes()) == [pv]
    await scene.advance(100)
    assert world.backend.count("provision") == 1
    await delete_claim(scene)
    await scene.advance(100)
    assert await gone(scene)
    assert await scene.volumes() == {}


async def test_a_mark_removed_by_hand_is_set_again_with_the_next_attempt(scene: Scene) -> None:
    await scene.a_class()
    backend = ScriptedBackend()
    background_until(backend, asyncio.Event())
    await scene.start(a_world(scene, backend))
    await scene.a_claim()
    await scene.settle()
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": [INTENT_FINALIZER]}}
    await scene.admin.patch(CLAIMS, "claim-1", patch, namespace="default")
    await scene.advance(100)
    assert is_marked(await scene.claim())


async def test_without_marks_and_live_reads_a_claim_costs_one_request(scene: Scene) -> None:
    await scene.a_class()
    world = await scene.start(a_world(scene, persist_intent=False, live_reads=False))
    await scene.a_claim()
    await scene.settle()
    assert [call.what for call in world.gate.calls] == ["POST persistentvolumes"]


async def test_marks_of_an_earlier_process_are_removed_also_when_the_feature_is_off(scene: Scene) -> None:
    await scene.a_class()
    storage = Storage()
    first = ScriptedBackend(storage)
    background_until(first, asyncio.Event())
    world = await scene.start(a_world(scene, first))
    await scene.a_claim()
    await scene.settle()
    await world.kill()
    await scene.start(a_world(scene, ScriptedBackend(storage), persist_intent=False))
    assert not is_marked(await scene.claim())
    assert len(await scene.volumes()) == 1
