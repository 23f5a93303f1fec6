"""Decisions that change while an operation waits, and requests for a volume that are refused for good."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller_scene import Scene
from controller_world import ScriptedBackend, World
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.model import ANN_ON_DELETE, ANN_PROVISIONED_BY, FINALIZER

RETAIN = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
BARE = pytest.mark.parametrize("scene", ["bare"], indirect=True)


async def a_waiting_deletion(scene: Scene, *, archive: bool = False) -> World:
    """A volume that was judged, and whose operation waits for its turn."""
    await scene.a_volume()
    backend = ScriptedBackend(archive=archive)
    backend.storage.assets["volume-1"] = "uid"
    backend.turn = asyncio.Event()
    world = await scene.start(scene.world(backend))
    assert world.gate.sent("GET persistentvolumes")
    return world


@BARE
@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        RETAIN,
        {"metadata": {"annotations": {ANN_PROVISIONED_BY: "somebody.else/now"}}},
        {"metadata": {"annotations": {ANN_ON_DELETE: "retain"}}},
        {"metadata": {"annotations": {ANN_ON_DELETE: "nonsense"}}},
    ],
)
async def test_who_keeps_a_volume_while_its_deletion_waits_keeps_the_data(
    scene: Scene, change: dict[str, Any], archive: bool
) -> None:
    world = await a_waiting_deletion(scene, archive=archive)
    await scene.admin.patch(VOLUMES, "volume-1", change)
    await scene.settle()
    assert world.backend.turn is not None
    world.backend.turn.set()
    await scene.advance(60)
    assert world.backend.storage.assets == {"volume-1": "uid"}
    assert world.backend.storage.deleted == world.backend.storage.archived == []
    assert world.backend.records == []
    assert (await scene.volumes() == {}) is (change == {"metadata": {"annotations": {ANN_ON_DELETE: "retain"}}})


@BARE
async def test_a_volume_made_anew_under_the_name_while_a_deletion_waits_is_not_touched(scene: Scene) -> None:
    world = await a_waiting_deletion(scene)
    await scene.admin.delete(VOLUMES, "volume-1")
    await scene.a_volume(policy="Retain")
    await scene.settle()
    assert world.backend.turn is not None
    world.backend.turn.set()
    await scene.advance(60)
    assert world.backend.storage.assets == {"volume-1": "uid"}
    assert list(await scene.volumes()) == ["volume-1"]
    assert world.events.messages("VolumeFailedDelete") == []


@BARE
async def test_who_changes_his_mind_back_has_it_deleted(scene: Scene) -> None:
    world = await a_waiting_deletion(scene)
    await scene.admin.patch(VOLUMES, "volume-1", RETAIN)
    await scene.settle()
    assert world.backend.turn is not None
    world.backend.turn.set()
    await scene.settle()
    await scene.admin.patch(VOLUMES, "volume-1", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    await scene.advance(5)
    assert world.backend.storage.assets == {}
    assert await scene.volumes() == {}


@BARE
async def test_a_class_that_changes_while_a_deletion_waits_decides_anew(scene: Scene) -> None:
    """For a volume that carries no policy the live class decides; no watch of the volume tells of that."""
    await scene.a_class(parameters={"onDelete": "delete"})
    await scene.a_volume(storageClassName="class-1")
    backend = ScriptedBackend()
    backend.storage.assets["volume-1"] = "uid"
    backend.turn = asyncio.Event()
    await scene.start(scene.world(backend))
    await scene.admin.delete(CLASSES, "class-1")
    await scene.a_class(parameters={"onDelete": "retain"})
    await scene.settle()
    backend.turn.set()
    await scene.advance(5)
    assert backend.storage.assets == {"volume-1": "uid"}
    assert await scene.volumes() == {}


@BARE
async def test_a_volume_kept_while_plugins_vote_is_not_removed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.a_volume(annotations={ANN_PROVISIONED_BY: "foo.bar/baz", ANN_ON_DELETE: "retain"})
    backend = ScriptedBackend()
    voted = asyncio.Event()

    async def vote(volume: Any) -> bool:
        await voted.wait()
        return True

    monkeypatch.setattr(backend, "should_delete", vote)
    await scene.start(scene.world(backend))
    await scene.admin.patch(VOLUMES, "volume-1", RETAIN)
    await scene.settle()
    voted.set()
    await scene.advance(5)
    assert list(await scene.volumes()) == ["volume-1"]


@pytest.mark.parametrize("status", [403, 409, 422, 500])
@pytest.mark.parametrize("verb", ["GET", "DELETE", "PATCH"])
@BARE
async def test_a_volume_whose_requests_are_refused_says_so(scene: Scene, verb: str, status: int) -> None:
    await scene.a_volume(finalizers=(FINALIZER,))
    world = scene.world(options={"add_finalizer": True})
    world.gate.rule = lambda call: status if call.what == f"{verb} persistentvolumes" else None
    await scene.start(world)
    told = world.events.messages("VolumeFailedDelete")[0]
    assert str(status) in told
    assert "volume volume-1" in told
    assert (f"grant the host {verb.lower()} on persistentvolumes" in told) is (status == 403)
    world.gate.rule = None
    await scene.advance(60)
    assert await scene.volumes() == {}
    assert world.backend.count("delete") == 1


async def test_a_saved_volume_that_no_watch_ever_shows_is_not_shown_to_plugins_for_ever(scene: Scene) -> None:
    await scene.a_class()
    world = scene.world(options={"add_finalizer": True})
    await scene.wait_for(world.fill())
    world._tasks[1].cancel()  # the watch of volumes
    await scene.settle()
    await scene.wait_for(world.controller.start())
    first = await scene.a_claim()
    await scene.settle()
    assert [volume.claim_uid for volume in world.controller.unsaved_volumes()] == [first.uid]
    await scene.advance(61)
    assert world.controller.unsaved_volumes() == ()
    second = await scene.a_claim("claim-2")
    await scene.settle()
    assert [volume.claim_uid for volume in world.controller.unsaved_volumes()] == [second.uid]
    assert list(world.controller.claim_path.saver._fresh) == [f"pvc-{second.uid}"]


async def test_a_volume_that_was_bound_and_deleted_before_its_saving_was_known_is_saved(scene: Scene) -> None:
    """It stays until its claim goes; waiting for that showed an unsaved volume for as long as the claim lives."""
    await scene.a_class()
    world = scene.world(options={"add_finalizer": True, "failed_provision_threshold": 0})
    fates = iter(["lose"])
    world.gate.rule = lambda call: next(fates, 500) if call.what == "POST persistentvolumes" else None
    await scene.start(world)
    claim = await scene.a_claim()
    await scene.settle()
    await scene.admin.delete(VOLUMES, f"pvc-{claim.uid}")
    world.gate.rule = None
    await scene.advance(300)
    assert (await scene.claim()).spec.volume_name == f"pvc-{claim.uid}"
    assert world.controller.claim_path.saver.unsaved == ()
    await scene.admin.delete(CLAIMS, "claim-1", namespace="default")
    await scene.advance(60)
    assert await scene.volumes() == {}
    assert world.backend.storage.assets == {}
