"""Claims with a mark that this process did not set, and words that are not the backend's: nothing is lost over them."""

from __future__ import annotations

import pytest

from controller_scene import Scene, is_marked
from controller_world import ScriptedBackend, Storage, World
from prov_host.errors import Ignored, InBackground, Infeasible, NotFound, Outcome, ProvisionError, Reschedule
from prov_host.kube.api import CLAIMS
from prov_host.model import ANN_SELECTED_NODE, INTENT_FINALIZER, ProvisionRequest

OPTIONS = {"add_finalizer": True, "failed_provision_threshold": 0, "failed_delete_threshold": 0}
FINAL = [ProvisionError, Infeasible, Reschedule, Ignored]


def refuse_all(backend: ScriptedBackend, kind: type[Outcome]) -> None:
    """As a wrapper does that does not ask the backend."""

    def provision(request: ProvisionRequest) -> None:
        error = kind("over budget")
        error.owner_asked = False
        raise error

    backend.on_provision = provision


def leave_open(backend: ScriptedBackend) -> None:
    def provision(request: ProvisionRequest) -> None:
        backend.storage.assets[request.pv_name] = request.claim.uid
        raise InBackground("made the directory")

    backend.on_provision = provision


async def delete_claim(scene: Scene) -> None:
    await scene.admin.delete(CLAIMS, "claim-1", namespace="default")
    await scene.settle()


async def gone(scene: Scene) -> bool:
    try:
        await scene.claim()
    except NotFound:
        return True
    return False


async def left_over(scene: Scene, storage: Storage) -> None:
    """A claim whose asset was made by a process that is no more."""
    first = ScriptedBackend(storage)
    leave_open(first)
    world = await scene.start(scene.world(first, OPTIONS))
    await scene.a_claim()
    await scene.settle()
    await world.kill()
    assert storage.assets


@pytest.mark.parametrize("kind", FINAL)
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_wrappers_refusal_does_not_end_what_was_begun(
    scene: Scene, kind: type[Outcome], *, restarted: bool
) -> None:
    await scene.a_class()
    storage = Storage()
    backend = ScriptedBackend(storage)
    if restarted:
        await left_over(scene, storage)
        refuse_all(backend, kind)
        world = await scene.start(scene.world(backend, OPTIONS))
    else:
        leave_open(backend)
        world = await scene.start(scene.world(backend, OPTIONS))
        await scene.a_claim()
        await scene.settle()
        refuse_all(backend, kind)
        await scene.advance(20)
    await delete_claim(scene)
    await scene.advance(2000)
    assert backend.count("provision") > 2
    assert is_marked(await scene.claim())
    assert "the backend was not asked" in world.events.messages("ProvisioningFailed")[-1]
    assert world.controller.status().in_progress == ("default/claim-1",)
    backend.on_provision = None
    await scene.advance(2000)
    assert await gone(scene)
    assert storage.assets == {}
    assert await scene.volumes() == {}


@pytest.mark.parametrize("kind", FINAL)
async def test_a_wrappers_refusal_of_what_was_not_begun_is_final(scene: Scene, kind: type[Outcome]) -> None:
    await scene.a_class()
    backend = ScriptedBackend()
    refuse_all(backend, kind)
    world = await scene.start(scene.world(backend, OPTIONS))
    await scene.a_claim()
    await scene.settle()
    assert not is_marked(await scene.claim())
    assert not world.controller.in_progress
    assert world.controller.status().infeasible == (kind is Infeasible)
    assert bool(world.events.messages("ProvisioningFailed")) == (kind is not Ignored)
    await delete_claim(scene)
    await scene.advance(5)
    assert await gone(scene)


async def vetoing_world(scene: Scene, storage: Storage) -> World:
    backend = ScriptedBackend(storage)
    backend.qualifies = lambda claim: False
    return await scene.start(scene.world(backend, OPTIONS))


async def test_a_left_over_claim_that_a_plugin_votes_against_does_not_hang_in_silence(scene: Scene) -> None:
    await scene.a_class()
    storage = Storage()
    await left_over(scene, storage)
    world = await vetoing_world(scene, storage)
    await scene.advance(100)
    assert world.events.seen == []  # as long as it lives, nobody misses anything
    await delete_claim(scene)
    await scene.touch()
    assert world.events.seen == []  # another node's process, whose it is, finishes it
    await scene.advance(16)
    assert len(world.events.seen) == 1
    text = world.events.messages("ProvisioningFailed")[0]
    assert "should_provision of a plugin" in text
    assert f"remove finalizer {INTENT_FINALIZER}" in text
    assert "should_provision of a plugin" in world.controller.status().failures[0][2]
    await scene.advance(3600)
    assert 5 < len(world.events.seen) < 15
    assert is_marked(await scene.claim())
    assert storage.assets
    world.backend.qualifies = None
    await scene.advance(1001)
    assert await gone(scene)
    assert storage.assets == {}


async def test_another_process_finishes_it_and_the_one_that_may_not_says_nothing(scene: Scene) -> None:
    await scene.a_class()
    storage = Storage()
    await left_over(scene, storage)
    world = await vetoing_world(scene, storage)
    await delete_claim(scene)
    await scene.start(scene.world(ScriptedBackend(storage), OPTIONS))
    assert await gone(scene)
    await scene.advance(100)
    assert world.events.messages("ProvisioningFailed") == []
    assert world.backend.count("provision") == 0
    assert storage.assets == {}


async def test_a_mark_is_no_reason_to_provision_without_a_node(scene: Scene) -> None:
    await scene.a_class(volumeBindingMode="WaitForFirstConsumer")
    world = await scene.start(scene.world(None, OPTIONS))
    await scene.a_claim(finalizers=(INTENT_FINALIZER,))
    await scene.settle()
    await scene.advance(100)
    assert world.backend.count("provision") == 0
    assert is_marked(await scene.claim())
    patch = {"metadata": {"annotations": {ANN_SELECTED_NODE: "node-1"}}}
    await scene.admin.patch(CLAIMS, "claim-1", patch, namespace="default")
    await scene.settle()
    assert [request.selected_node for request in world.backend.requests] == ["node-1"]
    assert not is_marked(await scene.claim())


async def test_a_node_taken_back_behind_a_stale_cache_is_missed_for_a_left_over_claim_too(scene: Scene) -> None:
    await scene.a_class(volumeBindingMode="WaitForFirstConsumer")
    world = scene.world(None, OPTIONS)

    async def take_back(claim: object) -> bool:
        if world.backend.count("should_provision") == 1:
            patch = {"metadata": {"annotations": {ANN_SELECTED_NODE: None}}}
            await scene.admin.patch(CLAIMS, "claim-1", patch, kind="merge", namespace="default")
        return True

    world.backend.qualifies = take_back
    await scene.a_claim(finalizers=(INTENT_FINALIZER,), annotations={ANN_SELECTED_NODE: "node-1"})
    await scene.start(world)
    await scene.advance(100)
    assert world.backend.count("provision") == 0
    assert is_marked(await scene.claim())
