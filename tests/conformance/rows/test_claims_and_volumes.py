"""Rows C: the controller end to end. C15 and C36 are not published; they are inferred from the behaviour.

What differs from the reference on purpose, in all rows: Normal events of ours on volumes whose asset was handled, an
event while a volume cannot be saved, and the mark on claims while a volume is in the making, which must be gone
wherever the reference's claim is not in progress.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from controller_scene import NAME, P, Q, Scene, assert_expected_volume, is_marked, our_finalizers
from controller_world import Call, ScriptedBackend, World
from prov_host.controller import Backoff, ExponentialLimit
from prov_host.errors import Ignored, InBackground, NoChange, Outcome, ProvisionError, Reschedule
from prov_host.kube.api import CLAIMS
from prov_host.model import (
    ANN_BETA_STORAGE_PROVISIONER,
    ANN_MIGRATED_TO,
    ANN_PROVISIONED_BY,
    ANN_SELECTED_NODE,
    FINALIZER,
    Claim,
    ClaimSpec,
    ObjectMeta,
    ProvisionRequest,
    Resources,
)

OURS = {"VolumeDeleted", "VolumeArchived", "VolumeRetained", "VolumeAlreadyAbsent", "VolumePolicyAssumed"}
OK = ["Normal Provisioning", "Normal ProvisioningSucceeded"]
FAILED = ["Normal Provisioning", "Warning ProvisioningFailed"]
WFFC = {"volumeBindingMode": "WaitForFirstConsumer"}
NODE = {ANN_SELECTED_NODE: "node-1"}
BACKOFF = Backoff(duration=0.01, steps=5)


@dataclasses.dataclass
class Row:
    """One row of the table; what is not said is expected to be empty."""

    id: str
    given: Callable[[Scene], Awaitable[Any]]
    plugin: Callable[[], ScriptedBackend]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    name: str = NAME
    in_progress_before: bool = False
    rule: Callable[[Call], int | str | None] | None = None
    saved: str = ""  # provisioned-by of the one volume made for claim-1
    policy: str = "Delete"
    volumes: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # others: name -> finalizers
    in_progress: bool = False
    provisioned: tuple[int, int] = (0, 0)  # class-1: success, failed
    deleted: tuple[int, int] = (0, 0)
    events: list[str] = dataclasses.field(default_factory=list)
    text: str = ""  # of the last event of the reference
    calls: dict[str, int] = dataclasses.field(default_factory=dict)
    time: float = 0.0  # that has to pass; embedded only
    more: Callable[[Scene, World], Awaitable[None]] | None = None

    @property
    def anywhere(self) -> bool:
        return self.rule is None and not self.time


def good() -> ScriptedBackend:
    return ScriptedBackend()


def failing(error: Outcome) -> Callable[[], ScriptedBackend]:
    def make() -> ScriptedBackend:
        backend = ScriptedBackend()

        def provision(request: ProvisionRequest) -> None:
            raise error

        backend.on_provision = provision
        return backend

    return make


def bad() -> ScriptedBackend:
    backend = failing(ProvisionError("fake final error"))()

    def delete(volume: object) -> None:
        raise ProvisionError("fake error")

    backend.on_delete = delete
    return backend


def ignore() -> ScriptedBackend:
    backend = ScriptedBackend()

    def provision(request: ProvisionRequest) -> None:
        if request.claim.name == "claim-2":
            raise Ignored("ignored because not ours")

    backend.on_provision = provision
    return backend


def ext(error: Outcome | None) -> Callable[[], ScriptedBackend]:
    return good if error is None else failing(error)


def refuse(what: str, times: int = 1_000_000) -> Callable[[Call], int | None]:
    left = [times]

    def rule(call: Call) -> int | None:
        if call.what != what or not left[0]:
            return None
        left[0] -= 1
        return 500

    return rule


async def c1(scene: Scene) -> None:
    await scene.a_class()
    await scene.a_class("class-2", Q)
    await scene.a_claim()
    await scene.a_claim("claim-2", "class-2", Q)


async def plain(scene: Scene) -> None:
    await scene.a_class()
    await scene.a_claim()


async def with_node(scene: Scene) -> None:
    await scene.a_class(**WFFC)
    await scene.a_claim(annotations=NODE)


async def existing_volume(scene: Scene) -> None:
    await scene.a_class()
    claim = await scene.a_claim()
    reference = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": "default",
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.metadata.resource_version,
    }
    await scene.a_volume(f"pvc-{claim.uid}", "Bound", claimRef=reference, storageClassName="class-1")


async def block(scene: Scene) -> None:
    await scene.a_class()
    await scene.a_claim(volumeMode="Block")


async def two_volumes(scene: Scene) -> None:
    await scene.a_volume()
    await scene.a_volume("volume-2", annotations={ANN_PROVISIONED_BY: Q})


async def bound_without_class(scene: Scene) -> None:
    await scene.a_claim(volumeName="volume-1")


async def no_class(scene: Scene) -> None:
    await scene.a_claim()


async def claim_2_only(scene: Scene) -> None:
    await scene.a_class()
    await scene.a_claim("claim-2")


async def claim_1_and_2(scene: Scene) -> None:
    await plain(scene)
    await scene.a_claim("claim-2")


async def retain_class(scene: Scene) -> None:
    await scene.a_class(reclaimPolicy="Retain")
    await scene.a_claim()


async def class_only(scene: Scene) -> None:
    await scene.a_class()


def a_volume(*args: Any, **fields: Any) -> Callable[[Scene], Awaitable[Any]]:
    async def given(scene: Scene) -> None:
        await scene.a_volume(*args, **fields)

    return given


async def node_removed(scene: Scene, world: World) -> None:
    claim = await scene.claim()
    assert ANN_SELECTED_NODE not in claim.annotations
    assert claim.annotations[ANN_BETA_STORAGE_PROVISIONER] == P


async def node_kept(scene: Scene, world: World) -> None:
    assert (await scene.claim()).annotations[ANN_SELECTED_NODE] == "node-1"


async def safe_removal(scene: Scene, world: World) -> None:
    """3.15a, with the safe body."""
    (call,) = world.gate.sent("PATCH persistentvolumes")
    call.body["metadata"].pop("uid")
    assert call.body == {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}


async def merging_addition(scene: Scene, world: World) -> None:
    """3.15b."""
    (call,) = world.gate.sent("PATCH persistentvolumes")
    call.body["metadata"].pop("uid")
    assert call.body == {"metadata": {"finalizers": [FINALIZER]}}


async def still_unsaved(scene: Scene, world: World) -> None:
    saver = world.controller.claim_path.saver
    claim = await scene.claim()
    assert saver.unsaved == (f"pvc-{claim.uid}",)
    assert saver.queue.failures(f"pvc-{claim.uid}") > 0
    assert len(world.gate.sent("POST persistentvolumes")) >= 6
    assert is_marked(claim)  # ours: it survives a restart
    # The reference tells nothing while it cannot save; ours does.
    assert "fake error" in world.events.messages("ProvisioningFailed")[0]


async def all_saved(scene: Scene, world: World) -> None:
    assert world.controller.claim_path.saver.unsaved == ()


async def asset_deleted_once(scene: Scene, world: World) -> None:
    assert world.backend.count("delete") == 1
    assert world.backend.storage.assets == {}


async def plugin_not_called(scene: Scene, world: World) -> None:
    assert world.backend.count("delete") == 0


async def one_delete_call(scene: Scene, world: World) -> None:
    assert world.backend.count("delete") == 1


SAVE_TEXT = "Error creating provisioned PV object for claim default/claim-1: {}. Deleting the volume."
FOREVER = {"pv_create_limiter": ExponentialLimit(base=0.001, maximum=1000.0)}
FIN = (FINALIZER,)
ON = {"add_finalizer": True}
ROWS = [
    Row("C1", c1, good, saved=P, provisioned=(1, 0), events=OK, calls={"POST persistentvolumes": 1}),
    Row("C2", existing_volume, good, volumes={"pvc": ()}, provisioned=(0, 1), calls={"POST persistentvolumes": 0}),
    Row(
        "C3",
        block,
        good,
        provisioned=(0, 1),
        events=["Warning ProvisioningFailed"],
        text="foo.bar/baz does not support block volume provisioning",
    ),
    Row(
        "C4",
        plain,
        good,
        name="csi.com/mock-csi",
        options={"additional_provisioner_names": (P, "foo.xyz/baz")},
        saved=P,
        provisioned=(1, 0),
        events=OK,
        calls={"POST persistentvolumes": 1},
    ),
    Row("C5", two_volumes, good, volumes={"volume-2": ()}, deleted=(1, 0), calls={"DELETE persistentvolumes": 1}),
    Row("C6", bound_without_class, good, calls={"POST persistentvolumes": 0, "PATCH persistentvolumeclaims": 0}),
    Row("C7", no_class, good, provisioned=(0, 1)),
    Row("C8", a_volume(phase="Bound"), good, volumes={"volume-1": ()}),
    Row("C9", a_volume(policy="Retain"), good, volumes={"volume-1": ()}),
    Row("C10", plain, bad, provisioned=(0, 1), events=FAILED, text="fake final error"),
    Row(
        "C11",
        a_volume(),
        bad,
        volumes={"volume-1": ()},
        deleted=(0, 1),
        events=["Warning VolumeFailedDelete"],
        text="fake error",
        calls={"DELETE persistentvolumes": 0},
    ),
    Row(
        "C12",
        plain,
        good,
        options={"pv_create_backoff": BACKOFF},
        rule=refuse("POST persistentvolumes"),
        time=1.0,
        provisioned=(0, 1),
        events=FAILED,
        calls={"POST persistentvolumes": 5},
        more=asset_deleted_once,
    ),
    Row(
        "C13",
        a_volume(),
        good,
        rule=refuse("DELETE persistentvolumes"),
        volumes={"volume-1": ()},
        deleted=(0, 1),
        calls={"DELETE persistentvolumes": 1},
    ),
    Row("C14", claim_2_only, ignore, provisioned=(0, 1), events=["Normal Provisioning"]),
    Row("C15", claim_1_and_2, ignore, saved=P, provisioned=(1, 1), events=OK, calls={"POST persistentvolumes": 1}),
    Row("C16", retain_class, good, saved=P, policy="Retain", provisioned=(1, 0), events=OK),
    Row("C17", plain, ext(None), saved=P, provisioned=(1, 0), events=OK, calls={"POST persistentvolumes": 1}),
    Row("C18", plain, ext(ProvisionError("mock error")), provisioned=(0, 1), events=FAILED, text="mock error"),
    Row(
        "C19",
        plain,
        ext(InBackground("mock error")),
        in_progress=True,
        provisioned=(0, 1),
        events=FAILED,
        text="mock error",
    ),
    Row("C20", plain, ext(NoChange("mock error")), provisioned=(0, 1), events=FAILED, text="mock error"),
    Row(
        "C21",
        plain,
        ext(ProvisionError("mock error")),
        in_progress_before=True,
        provisioned=(0, 1),
        events=FAILED,
        text="mock error",
    ),
    Row(
        "C22",
        plain,
        ext(InBackground("mock error")),
        in_progress_before=True,
        in_progress=True,
        provisioned=(0, 1),
        events=FAILED,
        text="mock error",
    ),
    Row(
        "C23",
        plain,
        ext(NoChange("mock error")),
        in_progress_before=True,
        in_progress=True,
        provisioned=(0, 1),
        events=FAILED,
        text="mock error",
    ),
    Row(
        "C25",
        plain,
        good,
        options=FOREVER,
        rule=refuse("POST persistentvolumes"),
        time=0.2,
        provisioned=(1, 0),
        events=["Normal Provisioning"],
        more=still_unsaved,
    ),
    Row(
        "C26",
        plain,
        good,
        options=FOREVER,
        rule=refuse("POST persistentvolumes", 2),
        time=0.2,
        saved=P,
        provisioned=(1, 0),
        events=OK,
        calls={"POST persistentvolumes": 3},
        more=all_saved,
    ),
    Row(
        "C27",
        with_node,
        failing(Reschedule("fake error, reschedule")),
        provisioned=(0, 1),
        events=FAILED,
        text="fake error, reschedule",
        more=node_removed,
    ),
    Row("C28", with_node, bad, provisioned=(0, 1), events=FAILED, text="fake final error", more=node_kept),
    Row(
        "C29",
        with_node,
        failing(NoChange("fake error, no change")),
        provisioned=(0, 1),
        events=FAILED,
        text="fake error, no change",
        more=node_kept,
    ),
    Row(
        "C30",
        with_node,
        failing(InBackground("fake error, in progress")),
        in_progress=True,
        provisioned=(0, 1),
        events=FAILED,
        text="fake error, in progress",
        more=node_kept,
    ),
    Row(
        "C31",
        plain,
        good,
        options=ON,
        saved=P,
        provisioned=(1, 0),
        events=OK,
        calls={"POST persistentvolumes": 1, "PATCH persistentvolumes": 0},
    ),
    Row(
        "C32",
        a_volume(phase="Bound", finalizers=FIN),
        good,
        volumes={"volume-1": ()},
        calls={"PATCH persistentvolumes": 1},
        more=safe_removal,
    ),
    Row(
        "C33",
        a_volume(phase="Bound", policy="Retain", finalizers=FIN),
        good,
        options=ON,
        volumes={"volume-1": ()},
        calls={"PATCH persistentvolumes": 1},
        more=safe_removal,
    ),
    Row(
        "C34",
        a_volume(deleted=True),
        good,
        options=ON,
        volumes={"volume-1": ()},
        calls={"PATCH persistentvolumes": 0, "DELETE persistentvolumes": 0},
        more=plugin_not_called,
    ),
    Row(
        "C35",
        a_volume(finalizers=FIN),
        good,
        options=ON,
        deleted=(1, 0),
        calls={"DELETE persistentvolumes": 1, "PATCH persistentvolumes": 1},
        more=one_delete_call,
    ),
    Row("C36", a_volume(finalizers=FIN, deleted=True), good, options=ON, deleted=(1, 0), more=one_delete_call),
    Row(
        "C37",
        a_volume(finalizers=FIN),
        bad,
        options=ON,
        volumes={"volume-1": FIN},
        deleted=(0, 1),
        events=["Warning VolumeFailedDelete"],
        text="fake error",
        calls={"DELETE persistentvolumes": 0, "PATCH persistentvolumes": 0},
    ),
    Row(
        "C38",
        a_volume(finalizers=FIN),
        good,
        options=ON,
        rule=refuse("DELETE persistentvolumes"),
        volumes={"volume-1": FIN},
        deleted=(0, 1),
        calls={"DELETE persistentvolumes": 1, "PATCH persistentvolumes": 0},
    ),
    Row(
        "C39",
        a_volume(phase="Bound", annotations={ANN_MIGRATED_TO: P}),
        good,
        options=ON,
        volumes={"volume-1": FIN},
        more=merging_addition,
    ),
    Row(
        "C40",
        a_volume(phase="Bound", annotations={ANN_MIGRATED_TO: P}),
        good,
        options=ON,
        volumes={"volume-1": FIN},
        more=merging_addition,
    ),
    Row(
        "C41",
        a_volume(phase="Bound", annotations={}, csi_driver="foo.bar"),
        good,
        name="foo.bar",  # no slash: the real API server refuses P as a driver's name
        options=ON,
        volumes={"volume-1": FIN},
        more=merging_addition,
    ),
]


def cases() -> Iterator[Any]:
    for row in ROWS:
        yield pytest.param("embedded", row, id=f"{row.id}-embedded")
        if row.anywhere:
            yield pytest.param("real", row, id=f"{row.id}-real", marks=pytest.mark.e2e)


@pytest.mark.parametrize(("scene", "row"), list(cases()), indirect=["scene"])
async def test_row(scene: Scene, row: Row) -> None:
    await row.given(scene)
    backend = row.plugin()
    world = scene.world(backend, row.options, name=row.name)
    world.gate.rule = row.rule
    if row.in_progress_before:
        world.controller.remember(await scene.claim())
    await scene.start(world)
    if row.time:
        await scene.advance(row.time)

    claims = {claim.name: claim for claim in (await scene.admin.list_all(CLAIMS)).items}
    expected = dict(row.volumes)
    volumes = await scene.volumes()
    if row.saved:
        claim = claims["claim-1"]
        made = volumes.pop(f"pvc-{claim.uid}")
        assert_expected_volume(made, claim, provisioner=row.saved, policy=row.policy)
        assert our_finalizers(made) == (FIN if row.options.get("add_finalizer") else ())
    found = {("pvc" if name.startswith("pvc-") else name): our_finalizers(volume) for name, volume in volumes.items()}
    assert found == expected

    in_progress = {claims["claim-1"].uid} if row.in_progress else set()
    assert world.controller.in_progress == in_progress
    for claim in claims.values():
        if claim.uid not in in_progress and not world.controller.claim_path.saver.unsaved:
            assert not is_marked(claim)

    def counts(success: str, failed: str) -> tuple[float, float]:
        return sum(world.metric(success).values()), sum(world.metric(failed).values())

    assert row.provisioned == counts(
        "controller_persistentvolumeclaim_provision_total", "controller_persistentvolumeclaim_provision_failed_total"
    )
    assert row.deleted == counts(
        "controller_persistentvolume_delete_total", "controller_persistentvolume_delete_failed_total"
    )
    if sum(row.provisioned):
        shown = "" if row.id == "C7" else "class-1"  # unlike the reference: a class that does not exist has no name
        failed = world.metric("controller_persistentvolumeclaim_provision_failed_total")
        assert {labels[0] for labels in failed} <= {shown}
    durations = world.metric("controller_persistentvolumeclaim_provision_duration_seconds_count")
    assert sum(durations.values()) == row.provisioned[0]

    seen = [(about, kind, reason, text) for about, kind, reason, text in world.events.seen if reason not in OURS]
    if row.id == "C12":
        assert SAVE_TEXT.format("").split(":")[0] in seen[-1][3]
        assert "fake error. Deleting the volume." in seen[-1][3]
    if row.options is FOREVER:  # the reference is silent while it cannot save, ours is not
        seen = [event for event in seen if event[2] != "ProvisioningFailed"]
    if row.id in {"C13", "C38"}:  # nor when the object cannot be removed
        seen = [event for event in seen if event[2] != "VolumeFailedDelete"]
    if row.id == "C15":
        assert [event[2] for event in seen if event[0] == "claim-2"] == ["Provisioning"]
        seen = [event for event in seen if event[0] != "claim-2"]
    assert [f"{kind} {reason}" for _, kind, reason, _ in seen] == row.events
    if row.text:
        assert seen[-1][3] == row.text
    for what, times in row.calls.items():
        assert len(world.gate.sent(what)) == times, what
    if row.more:
        await row.more(scene, world)


@pytest.mark.parametrize("scene", ["embedded", pytest.param("real", marks=pytest.mark.e2e)], indirect=True)
@pytest.mark.parametrize("row", ["C24"])
async def test_a_claim_that_is_gone_is_provisioned_from_memory(scene: Scene, row: str) -> None:
    await class_only(scene)
    claim = Claim(
        metadata=ObjectMeta(
            name="claim-1",
            namespace="default",
            uid="uid-1-1",
            resource_version="0",
            annotations={ANN_BETA_STORAGE_PROVISIONER: P},
        ),
        spec=ClaimSpec(
            storage_class_name="class-1",
            access_modes=("ReadWriteOnce", "ReadOnlyMany"),
            resources=Resources(requests={"storage": "1Mi"}),
        ),
    )
    world = scene.world()
    world.controller.remember(claim)
    await scene.start(world)
    assert_expected_volume((await scene.volumes())["pvc-uid-1-1"], claim)
    assert world.controller.in_progress == set()
    assert world.events.of("claim-1") == OK
    assert world.metric("controller_persistentvolumeclaim_provision_total") == {("class-1", ""): 1}
    assert len(world.gate.sent("POST persistentvolumes")) == 1
