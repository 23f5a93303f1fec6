"""Rows T, DE, CP, SI, IR, ST, QS, TH, SL, PR, RS, DL: one operation each. SL3, PR3, RS4 and DL are inferred."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from controller_scene import P, Scene, is_marked
from controller_world import Call, ScriptedBackend, World
from prov_host.controller import Backoff, ExponentialLimit
from prov_host.controller.saving import attempts
from prov_host.errors import (
    ConfigurationError,
    DeleteError,
    HookTimeout,
    Ignored,
    InBackground,
    Infeasible,
    Outcome,
    ProvisionError,
    Reschedule,
    VolumeInUse,
)
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.model import ANN_PROVISIONED_BY, ANN_SELECTED_NODE, FINALIZER, Provisioned, ProvisionRequest, Volume

ANYWHERE = pytest.mark.parametrize("scene", ["embedded", pytest.param("real", marks=pytest.mark.e2e)], indirect=True)
EMBEDDED = pytest.mark.parametrize("scene", ["embedded"], indirect=True)
WFFC = {"volumeBindingMode": "WaitForFirstConsumer"}
TOPOLOGY = [{"matchLabelExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone", "values": ["zone1"]}]}]
NODE = {ANN_SELECTED_NODE: "node-1"}
FAILED_TOTAL = "controller_persistentvolumeclaim_provision_failed_total"


def failing(error: BaseException) -> ScriptedBackend:
    backend = ScriptedBackend()

    def provision(request: ProvisionRequest) -> None:
        raise error

    backend.on_provision = provision
    return backend


async def plain(scene: Scene) -> str:
    """class-1 and claim-1; the claim's uid."""
    await scene.a_class()
    return (await scene.a_claim()).uid


def failures(world: World, name: str = FAILED_TOTAL) -> float:
    return sum(world.metric(name).values())


# ---------------------------------------------------------------------- T: what the plugin is told


@ANYWHERE
@pytest.mark.parametrize(
    ("fields", "annotations", "node", "topology"),
    [
        pytest.param({}, {}, "", False, id="T1"),
        pytest.param({"allowedTopologies": TOPOLOGY}, {}, "", True, id="T2"),
        pytest.param(WFFC, NODE, "node-1", False, id="T3"),
        pytest.param({**WFFC, "allowedTopologies": TOPOLOGY}, NODE, "node-1", True, id="T4"),
    ],
)
async def test_parameters(
    scene: Scene, fields: dict[str, Any], annotations: dict[str, str], node: str, topology: bool
) -> None:
    await scene.a_class(**fields)
    await scene.a_claim(annotations=annotations)
    world = await scene.start(scene.world())
    (request,) = world.backend.requests
    assert request.selected_node == node
    assert request.storage_class.allowed_topologies == (tuple(TOPOLOGY) if topology else None)


# ---------------------------------------------------------------------- DE, DL: deleting


@ANYWHERE
@pytest.mark.parametrize(
    ("error", "events", "counted"),
    [
        pytest.param(DeleteError("fake error"), [("Warning", "VolumeFailedDelete", "fake error")], (0, 1), id="DE1"),
        pytest.param(
            VolumeInUse("volume is still attached to node-1"),
            [("Normal", "VolumeDelete", "volume is still attached to node-1")],
            (0, 0),
            id="DE2",
        ),
        pytest.param(Ignored("not ours"), [], (1, 0), id="DE3"),
    ],
)
async def test_delete_errors(
    scene: Scene, error: Outcome, events: list[tuple[str, str, str]], counted: tuple[int, int]
) -> None:
    await scene.a_volume()
    backend = ScriptedBackend()

    def delete(volume: Volume) -> None:
        raise error

    backend.on_delete = delete
    world = await scene.start(scene.world(backend))
    assert list(await scene.volumes()) == ["volume-1"]
    assert [event[1:] for event in world.events.seen] == events
    assert counted == (
        failures(world, "controller_persistentvolume_delete_total"),
        failures(world, "controller_persistentvolume_delete_failed_total"),
    )
    assert world.controller.volume_queue.delayed("volume-1") is (not isinstance(error, Ignored))


@EMBEDDED
@pytest.mark.parametrize("row", ["DL1"])
async def test_a_volume_that_is_gone_when_it_is_to_be_removed_was_deleted(scene: Scene, row: str) -> None:
    """The reference counts a 404 of its own delete as a failure."""
    await scene.a_volume()
    world = scene.world()
    world.gate.rule = lambda call: 404 if call.what == "DELETE persistentvolumes" else None
    await scene.start(world)
    assert failures(world, "controller_persistentvolume_delete_total") == 1
    assert failures(world, "controller_persistentvolume_delete_failed_total") == 0


@EMBEDDED
@pytest.mark.parametrize("row", ["DL2"])
async def test_the_plugin_is_not_called_again_when_only_the_object_is_left(scene: Scene, row: str) -> None:
    """Reference repository #176: with the finalizer the plugin's delete ran twice."""
    await scene.a_volume(finalizers=(FINALIZER, "other/one"))
    world = scene.world(options={"add_finalizer": True})
    refusals = iter([500, 500])
    world.gate.rule = lambda call: next(refusals, None) if call.what == "PATCH persistentvolumes" else None
    await scene.start(world)
    await scene.advance(100)
    assert world.backend.count("delete") == 1
    volume = (await scene.volumes())["volume-1"]
    assert volume.finalizers == ("other/one",)
    assert failures(world, "controller_persistentvolume_delete_total") == 1
    await scene.admin.patch(VOLUMES, "volume-1", {"metadata": {"labels": {"a": "b"}}})
    await scene.settle()
    assert world.backend.count("delete") == 1


@EMBEDDED
@pytest.mark.parametrize("row", ["DL3"])
async def test_the_live_volume_is_judged_not_the_cached_one(scene: Scene, row: str) -> None:
    await scene.a_volume()
    world = scene.world()
    await scene.wait_for(world.fill())
    assert scene.cluster is not None
    for task in world._tasks:  # the cache is stale from now on
        task.cancel()
    await scene.settle()
    await scene.admin.patch(VOLUMES, "volume-1", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    await scene.wait_for(world.controller.start())
    await scene.settle()
    assert world.backend.count("delete") == 0
    assert list(await scene.volumes()) == ["volume-1"]


@EMBEDDED
@pytest.mark.parametrize("row", ["DL4"])
async def test_an_unreadable_api_is_no_reason_to_delete(scene: Scene, row: str) -> None:
    await scene.a_volume()
    world = scene.world()
    world.gate.rule = lambda call: 500 if call.what == "GET persistentvolumes" else None
    await scene.start(world)
    assert world.backend.count("delete") == 0
    assert failures(world, "controller_persistentvolume_delete_failed_total") == 1
    world.gate.rule = None
    await scene.advance(15)
    assert await scene.volumes() == {}


# ---------------------------------------------------------------------- CP: block volumes


@ANYWHERE
@pytest.mark.parametrize(
    ("supports", "mode", "allowed"),
    [
        pytest.param(supports, mode, mode != "Block" or supports is True, id=f"CP{number}")
        for number, (supports, mode) in enumerate(
            [(s, m) for s in (None, False, True) for m in (None, "Filesystem", "Block")], start=1
        )
    ],
)
async def test_can_provision(scene: Scene, supports: bool | None, mode: str | None, allowed: bool) -> None:
    await scene.a_class()
    await scene.a_claim(**({"volumeMode": mode} if mode else {}))
    backend = ScriptedBackend()
    backend.block = bool(supports)
    world = await scene.start(scene.world(backend))
    assert len(await scene.volumes()) == int(allowed)
    if not allowed:
        assert world.events.messages("ProvisioningFailed") == ["foo.bar/baz does not support block volume provisioning"]


# ---------------------------------------------------------------------- SI: caches filled outside


@EMBEDDED
@pytest.mark.parametrize("first", ["caches", "controller"])
@pytest.mark.parametrize("row", ["SI1", "SI2"])
async def test_caches_may_be_filled_before_or_after_the_start(scene: Scene, row: str, first: str) -> None:
    if row == "SI1":
        await plain(scene)
    else:
        await scene.a_volume()
    world = scene.world()
    if first == "caches":
        await scene.wait_for(world.fill())
        await scene.wait_for(world.controller.start())
    else:
        starting = asyncio.create_task(world.controller.start())
        await scene.settle()
        assert not starting.done()
        assert world.idle
        await scene.wait_for(world.fill())
        await starting
    await scene.settle()
    assert len(await scene.volumes()) == (1 if row == "SI1" else 0)


# ---------------------------------------------------------------------- IR, SL: claims that cannot work


@EMBEDDED
@pytest.mark.parametrize(
    ("error", "time_passes", "calls"),
    [
        pytest.param(ProvisionError("fake non-infeasible error"), False, 2, id="IR1"),
        pytest.param(Infeasible("fake infeasible error"), False, 1, id="IR2"),
        pytest.param(Infeasible("fake infeasible error"), True, 2, id="IR3"),
    ],
)
async def test_infeasible_claims_are_left_alone(scene: Scene, error: Outcome, time_passes: bool, calls: int) -> None:
    uid = await plain(scene)
    world = await scene.start(scene.world(failing(error)))
    infeasible = isinstance(error, Infeasible)
    assert (uid in world.controller.claim_path.slow) is infeasible
    text = world.events.messages("ProvisioningFailed")[0]
    prefix = "Volume provisioning failed with infeasible error. Retries will be delayed. " if infeasible else ""
    assert text == prefix + str(error)
    if time_passes:
        await scene.advance(300)
    else:
        await scene.touch()
    assert world.backend.count("provision") == calls
    assert len(world.events.messages("ProvisioningFailed")) == calls
    assert failures(world) == calls
    assert not is_marked(await scene.claim())


@EMBEDDED
@pytest.mark.parametrize("row", ["SL1"])
async def test_the_retention_is_an_option(scene: Scene, row: str) -> None:
    """The reference ignores the option."""
    uid = await plain(scene)
    options = {"retry_interval_start": 0.001, "retry_interval_max": 0.001}
    world = await scene.start(scene.world(failing(Infeasible("bad")), options))
    assert uid in world.controller.claim_path.slow
    await scene.advance(0.001)
    assert world.backend.count("provision") == 2


@EMBEDDED
@pytest.mark.parametrize("row", ["SL2"])
async def test_a_bound_claim_is_not_held_up_by_its_past(scene: Scene, row: str) -> None:
    """The reference goes on to report an error until the entry expires."""
    uid = await plain(scene)
    world = await scene.start(scene.world(failing(Infeasible("bad"))))
    await scene.admin.patch(CLAIMS, "claim-1", {"spec": {"volumeName": "some-volume"}}, namespace="default")
    await scene.settle()
    assert not world.controller.claim_queue.failures(uid)
    assert failures(world) == 1
    assert len(world.events.seen) == 2


@EMBEDDED
@pytest.mark.parametrize("row", ["SL3"])
@pytest.mark.parametrize("how", ["re-created", "changed"])
async def test_a_class_that_changes_ends_the_delay_at_once(scene: Scene, row: str, how: str) -> None:
    await plain(scene)
    backend = failing(Infeasible("bad"))
    world = await scene.start(scene.world(backend))
    backend.on_provision = None
    if how == "re-created":
        await scene.admin.delete(CLASSES, "class-1")
        await scene.settle()
        await scene.a_class()
    else:
        await scene.admin.patch(CLASSES, "class-1", {"mountOptions": ["hard"]})
    await scene.settle()
    assert world.backend.count("provision") == 2
    assert len(await scene.volumes()) == 1


@EMBEDDED
@pytest.mark.parametrize("row", ["SL4"])
async def test_skipped_passes_are_no_failures(scene: Scene, row: str) -> None:
    """The reference gives up after three skipped passes; ours counts attempts only."""
    uid = await plain(scene)
    options = {"failed_provision_threshold": 3}
    world = await scene.start(scene.world(failing(Infeasible("bad")), options))
    for _ in range(5):
        await scene.touch()
    assert world.backend.count("provision") == 1
    assert world.controller.claim_queue.failures(uid) == 1
    await scene.advance(1000)
    assert world.backend.count("provision") == 4
    assert world.controller.in_progress == set()


@EMBEDDED
@pytest.mark.parametrize("row", ["SL5"])
async def test_the_infeasible_text_and_its_subclasses(scene: Scene, row: str) -> None:
    class Wrapped(Infeasible):
        """What a plugin's own hierarchy may look like."""

    await plain(scene)
    world = await scene.start(scene.world(failing(Wrapped("rpc error: code = InvalidArgument desc = bad"))))
    (message,) = world.events.messages("ProvisioningFailed")
    prefix = "Volume provisioning failed with infeasible error. Retries will be delayed. "
    assert message == prefix + "rpc error: code = InvalidArgument desc = bad"


# ---------------------------------------------------------------------- ST, QS: saving


def refuse_creates(times: int = 1_000_000, then: int | None = None) -> Callable[[Call], int | None]:
    left = [times]

    def rule(call: Call) -> int | None:
        if call.what != "POST persistentvolumes":
            return None
        if left[0]:
            left[0] -= 1
            return 500
        return then

    return rule


@EMBEDDED
@pytest.mark.parametrize("row", ["ST1"])
async def test_a_volume_that_cannot_be_saved_is_deleted_again(scene: Scene, row: str) -> None:
    await plain(scene)
    world = scene.world(options={"pv_create_retry_count": 3, "pv_create_interval": 0.01})
    world.gate.rule = refuse_creates()
    await scene.start(world)
    await scene.advance(1)
    assert len(world.gate.sent("POST persistentvolumes")) == 3
    assert world.backend.count("delete") == 1
    assert world.events.of("claim-1") == ["Normal Provisioning", "Warning ProvisioningFailed"]
    assert failures(world) == 1
    assert not is_marked(await scene.claim())
    world.gate.rule = None
    await scene.advance(15)
    assert len(await scene.volumes()) == 1


@EMBEDDED
@pytest.mark.parametrize("row", ["ST2"])
async def test_an_asset_that_cannot_be_deleted_either_is_not_forgotten(scene: Scene, row: str) -> None:
    uid = await plain(scene)
    world = scene.world(options={"pv_create_retry_count": 3, "pv_create_interval": 0.01})
    world.gate.rule = refuse_creates()

    def delete(volume: Volume) -> None:
        raise DeleteError("del boom")

    world.backend.on_delete = delete
    await scene.start(world)
    await scene.advance(1)
    assert (len(world.gate.sent("POST persistentvolumes")), world.backend.count("delete")) == (3, 3)
    assert world.events.messages("ProvisioningCleanupFailed") == [
        "Error cleaning provisioned volume for claim default/claim-1: del boom. Please delete manually."
    ]
    # The reference takes the claim for finished here, and a deletion of it would leak the asset.
    assert world.controller.in_progress == {uid}
    assert is_marked(await scene.claim())


@EMBEDDED
@pytest.mark.parametrize("row", ["ST3"])
async def test_a_volume_that_was_saved_without_our_knowing_is_saved(scene: Scene, row: str) -> None:
    await plain(scene)
    world = scene.world(options={"pv_create_retry_count": 3, "pv_create_interval": 0.01})
    fates = iter(["lose"])
    world.gate.rule = lambda call: next(fates, None) if call.what == "POST persistentvolumes" else None
    await scene.start(world)
    await scene.advance(1)
    assert world.backend.count("delete") == 0
    assert world.events.of("claim-1") == ["Normal Provisioning", "Normal ProvisioningSucceeded"]


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        pytest.param(Backoff(duration=0.01, factor=2, steps=10, cap=0.03), 2, id="ST4-cap"),
        pytest.param(Backoff(duration=0.01, factor=1, steps=5), 5, id="ST4"),
        pytest.param(Backoff(duration=0.01, factor=0, steps=3), 3, id="ST4-factor-0"),
    ],
)
def test_a_schedule_ends_at_its_cap(schedule: Backoff, times: int) -> None:
    waits = list(attempts(schedule, lambda: 0.0))
    assert len(waits) == times
    assert waits[-1] is None


@pytest.mark.parametrize("row", ["ST5"])
def test_a_schedule_without_attempts_is_refused(row: str) -> None:
    """The reference leaks the asset and reports success."""
    from prov_host.controller import ControllerOptions

    with pytest.raises(ConfigurationError, match="steps is 0"):
        ControllerOptions(pv_create_backoff=Backoff(steps=0)).check()


@EMBEDDED
@pytest.mark.parametrize("row", ["QS1"])
async def test_saving_in_the_background_ends_when_the_volume_exists(scene: Scene, row: str) -> None:
    await plain(scene)
    world = scene.world(options={"pv_create_limiter": ExponentialLimit(base=0.001)})
    fates: Any = iter([500, "lose"])
    world.gate.rule = lambda call: next(fates, None) if call.what == "POST persistentvolumes" else None
    await scene.start(world)
    assert world.metric("controller_persistentvolumeclaim_provision_total") == {("class-1", ""): 1}
    await scene.advance(1)
    assert len(world.gate.sent("POST persistentvolumes")) == 3
    assert world.backend.count("delete") == 0
    # Ours tells of the failures in between.
    assert world.events.of("claim-1")[0] == "Normal Provisioning"
    assert world.events.of("claim-1")[-1] == "Normal ProvisioningSucceeded"
    assert world.controller.claim_path.saver.unsaved == ()
    assert not is_marked(await scene.claim())


# ---------------------------------------------------------------------- TH: thresholds


@EMBEDDED
@pytest.mark.parametrize("row", ["TH1"])
async def test_a_threshold_of_three_gives_four_attempts_and_one_per_change(scene: Scene, row: str) -> None:
    uid = await plain(scene)
    options = {"failed_provision_threshold": 3, "retry_interval_start": 1}
    world = await scene.start(scene.world(failing(InBackground("busy")), options))
    await scene.advance(10_000)
    assert world.backend.count("provision") == 4
    assert world.controller.claim_queue.failures(uid) == 3
    assert world.controller.in_progress == set()
    assert is_marked(await scene.claim())  # ours: the asset may exist, and a deletion of the claim is noticed
    await scene.touch()
    assert world.backend.count("provision") == 5
    assert world.controller.claim_queue.failures(uid) == 3
    assert world.controller.in_progress == set()
    assert failures(world) == 5


@EMBEDDED
@pytest.mark.parametrize("row", ["TH2"])
async def test_the_threshold_of_deletions(scene: Scene, row: str) -> None:
    await scene.a_volume()
    backend = ScriptedBackend()

    def delete(volume: Volume) -> None:
        raise DeleteError("fake error")

    backend.on_delete = delete
    world = await scene.start(scene.world(backend, {"failed_delete_threshold": 2, "retry_interval_start": 1}))
    await scene.advance(10_000)
    assert backend.count("delete") == 3
    assert world.controller.volume_queue.failures("volume-1") == 2
    assert failures(world, "controller_persistentvolume_delete_failed_total") == 3


# ---------------------------------------------------------------------- RS: another node


def with_rule(scene: Scene, fates: Callable[[Call], int | str | None]) -> World:
    world = scene.world(failing(Reschedule("no room")))

    def rule(call: Call) -> int | str | None:
        taking_off = call.what == "PATCH persistentvolumeclaims" and "annotations" in call.body["metadata"]
        return fates(call) if taking_off else None

    world.gate.rule = rule
    return world


async def with_node(scene: Scene) -> str:
    await scene.a_class(**WFFC)
    return (await scene.a_claim(annotations=NODE)).uid


def writes(world: World) -> int:
    return sum(1 for call in world.gate.sent("PATCH persistentvolumeclaims") if "annotations" in call.body["metadata"])


@EMBEDDED
@pytest.mark.parametrize("row", ["RS1"])
async def test_conflicts_are_retried_four_times(scene: Scene, row: str) -> None:
    uid = await with_node(scene)
    world = with_rule(scene, lambda call: 409)
    await scene.start(world)
    await scene.advance(1)
    assert writes(world) == 4
    assert world.controller.claim_queue.delayed(uid)
    assert world.controller.in_progress == set()
    assert (await scene.claim()).annotations[ANN_SELECTED_NODE] == "node-1"


@EMBEDDED
@pytest.mark.parametrize("row", ["RS2"])
async def test_any_other_error_is_not_retried_at_once(scene: Scene, row: str) -> None:
    uid = await with_node(scene)
    world = with_rule(scene, lambda call: 500)
    await scene.start(world)
    await scene.advance(1)
    assert writes(world) == 1
    assert world.controller.claim_queue.delayed(uid)
    assert not is_marked(await scene.claim())


@EMBEDDED
@pytest.mark.parametrize("row", ["RS3"])
async def test_a_claim_that_vanished_meanwhile(scene: Scene, row: str) -> None:
    await with_node(scene)
    world = with_rule(scene, lambda call: 404)
    await scene.start(world)
    assert writes(world) == 1
    assert failures(world) == 1
    assert world.controller.in_progress == set()


@EMBEDDED
@pytest.mark.parametrize("row", ["RS4"])
async def test_a_node_that_someone_else_took_off_meanwhile(scene: Scene, row: str) -> None:
    await with_node(scene)
    world = with_rule(scene, lambda call: None)

    def provision(request: ProvisionRequest) -> None:
        scene_changes.append(
            asyncio.get_running_loop().create_task(
                scene.admin.patch(
                    CLAIMS, "claim-1", {"metadata": {"annotations": {ANN_SELECTED_NODE: None}}}, namespace="default"
                )
            )
        )
        raise Reschedule("no room")

    scene_changes: list[asyncio.Task[Any]] = []
    world.backend.on_provision = provision
    world.gate.rule = lambda call: 409 if "annotations" in (call.body or {}).get("metadata", {}) else None
    await scene.start(world)
    await scene.advance(1)
    assert writes(world) == 1
    assert world.controller.in_progress == set()
    assert not is_marked(await scene.claim())
    assert scene_changes[0].done()


@EMBEDDED
@pytest.mark.parametrize("row", ["RS6"])
async def test_a_claim_re_created_under_the_name_keeps_its_node(scene: Scene, row: str) -> None:
    """The reference reads by name and would take the new claim's node."""
    await with_node(scene)
    world = with_rule(scene, lambda call: 409)
    world.backend.after_provision = None

    async def replace() -> None:
        await scene.unprotected(CLAIMS, "claim-1")
        await scene.admin.delete(CLAIMS, "claim-1", namespace="default")
        await scene.a_claim(annotations={ANN_SELECTED_NODE: "node-2"})

    def provision(request: ProvisionRequest) -> None:
        if request.selected_node == "node-1":
            replacing.append(asyncio.get_running_loop().create_task(replace()))
            raise Reschedule("no room")

    replacing: list[asyncio.Task[Any]] = []
    world.backend.on_provision = provision
    await scene.start(world)
    await scene.advance(20)
    assert (await scene.claim()).annotations[ANN_SELECTED_NODE] == "node-2"
    assert len(await scene.volumes()) == 1


# ---------------------------------------------------------------------- PR: odd answers of plugins


@ANYWHERE
@pytest.mark.parametrize("row", ["PR1"])
async def test_a_class_of_someone_else_under_our_annotation(scene: Scene, row: str) -> None:
    await scene.a_class(provisioner="not.ours/x")
    await scene.a_claim()
    world = await scene.start(scene.world())
    assert world.events.seen == []
    assert world.backend.count("provision") == 0
    assert failures(world) == 1


@ANYWHERE
@pytest.mark.parametrize("row", ["PR2"])
async def test_a_volume_of_the_name_stops_the_claim(scene: Scene, row: str) -> None:
    await scene.a_class()
    claim = await scene.a_claim()
    await scene.a_volume(
        f"pvc-{claim.uid}",
        "Available",
        claimRef={"namespace": "default", "name": "claim-1", "uid": claim.uid},
    )
    world = await scene.start(scene.world())
    assert world.events.seen == []
    assert world.backend.count("provision") == 0


@EMBEDDED
@pytest.mark.parametrize("row", ["PR3"])
async def test_a_class_that_vanishes_is_an_error_and_wakes_the_claim_when_it_is_back(scene: Scene, row: str) -> None:
    await scene.a_claim()
    world = await scene.start(scene.world())
    assert failures(world) == 1
    await scene.a_class()
    await scene.settle()
    assert len(await scene.volumes()) == 1


@ANYWHERE
@pytest.mark.parametrize("row", ["PR4"])
async def test_a_plugin_cannot_forge_what_the_host_writes(scene: Scene, row: str) -> None:
    """The reference keeps the plugin's name of the volume, and then provisions again and again."""
    claim_uid = await plain(scene)
    backend = ScriptedBackend()

    def provision(request: ProvisionRequest) -> Provisioned:
        annotations = {ANN_PROVISIONED_BY: "someone/else", "x": "y"}
        return msgspec.structs.replace(ScriptedBackend.answer(request), annotations=annotations)

    backend.on_provision = provision
    await scene.start(scene.world(backend))
    volume = (await scene.volumes())[f"pvc-{claim_uid}"]
    assert volume.annotations[ANN_PROVISIONED_BY] == P
    assert volume.annotations["x"] == "y"
    assert volume.spec.storage_class_name == "class-1"


@ANYWHERE
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(InBackground("plugin scripted returned nothing from provision"), id="PR5"),
        pytest.param(RuntimeError("nobody expected this"), id="PR5-raises"),
        pytest.param(HookTimeout("still running"), id="PR5-hangs"),
    ],
)
async def test_what_nobody_expected_may_still_be_running(scene: Scene, error: Exception) -> None:
    """The reference's process dies of a plugin that returns nothing."""
    uid = await plain(scene)
    world = await scene.start(scene.world(failing(error)))
    assert world.controller.in_progress == {uid}
    assert is_marked(await scene.claim())
    assert str(error) in world.events.messages("ProvisioningFailed")[0]


@ANYWHERE
@pytest.mark.parametrize("row", ["PR6"])
async def test_an_error_that_was_caused_by_ignored_is_an_error(scene: Scene, row: str) -> None:
    await plain(scene)
    error = ProvisionError("wrapped")
    error.__cause__ = Ignored("not ours")
    world = await scene.start(scene.world(failing(error)))
    assert world.events.messages("ProvisioningFailed") == ["wrapped"]
