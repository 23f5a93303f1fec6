"""What marking a claim relies on of the API, in both worlds: one patch that is a live read as well."""

from __future__ import annotations

import pytest

from controller_scene import Scene, is_marked
from prov_host.errors import NotFound
from prov_host.kube.api import CLAIMS, VOLUMES
from prov_host.model import FINALIZER

ANYWHERE = pytest.mark.parametrize("scene", ["embedded", pytest.param("real", marks=pytest.mark.e2e)], indirect=True)


@ANYWHERE
async def test_a_mark_holds_a_claim_and_lets_it_go(scene: Scene) -> None:
    world = scene.world()
    intents = world.controller.claim_path.intents
    claim = await scene.a_claim()
    held = await intents.hold(claim)
    assert (held.state, held.claim is not None and is_marked(held.claim)) == ("held", True)
    again = await intents.hold(claim)
    assert again.claim == held.claim  # nothing changed, so nothing was written
    await scene.admin.delete(CLAIMS, "claim-1", namespace="default")
    held = await intents.hold(claim)
    assert held.state == "held"
    assert held.claim is not None
    assert held.claim.terminating
    intents.release(held.claim)
    await intents.process(claim.uid)
    assert intents.pending == 0
    with pytest.raises(NotFound):
        await scene.claim()


@ANYWHERE
@pytest.mark.parametrize("persist", [True, False])
async def test_a_claim_that_is_gone_or_on_its_way_is_not_marked(scene: Scene, persist: bool) -> None:
    world = scene.world(options={"persist_intent": persist})
    intents = world.controller.claim_path.intents
    claim = await scene.a_claim()
    await scene.admin.delete(CLAIMS, "claim-1", namespace="default")
    assert (await intents.hold(claim)).state == "gone"
    another = await scene.a_claim(finalizers=("example.com/keep",))
    assert (await intents.hold(claim)).state == "gone"
    assert not is_marked(await scene.claim())
    await scene.admin.delete(CLAIMS, "claim-1", namespace="default")
    assert (await intents.hold(another)).state == "terminating"
    assert not is_marked(await scene.claim())
    assert not intents.knows(claim.uid)
    assert not intents.knows(another.uid)


@ANYWHERE
async def test_taking_a_mark_away_touches_no_other_claim_and_no_other_finalizer(scene: Scene) -> None:
    world = scene.world()
    intents = world.controller.claim_path.intents
    claim = await scene.a_claim()
    held = await intents.hold(claim)
    assert held.claim is not None
    await scene.unprotected(CLAIMS, "claim-1")
    await scene.admin.delete(CLAIMS, "claim-1", namespace="default")
    await scene.a_claim(finalizers=("prov-host/provisioning", "example.com/keep"))
    intents.release(held.claim)
    await intents.process(claim.uid)
    assert intents.pending == 0
    assert is_marked(await scene.claim())  # another's
    new = await scene.claim()
    intents.release(new)
    await intents.process(new.uid)
    assert (await scene.claim()).finalizers == ("example.com/keep",)


@ANYWHERE
async def test_a_volume_s_finalizer_is_not_added_when_it_is_on_its_way(scene: Scene) -> None:
    """A stale cache says Bound and nobody deletes it; the API knows better, and nothing breaks over it."""
    await scene.a_volume(phase="Bound", finalizers=("example.com/keep",))
    world = scene.world(options={"add_finalizer": True})
    await scene.wait_for(world.fill())
    for task in world._tasks:
        task.cancel()
    await scene.settle()
    await scene.admin.delete(VOLUMES, "volume-1")
    result = await world.controller.volume_path.process("volume-1")
    assert result.kind.value == "retry"
    assert FINALIZER not in (await scene.volumes())["volume-1"].finalizers
