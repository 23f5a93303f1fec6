"""Rows SP, SD, OW, SF, RF, AF, CP and OP: decisions that need no cluster. SP8 and OW6 are inferred."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from controller_scene import P, Q
from controller_world import ScriptedBackend, World
from prov_host.controller import Backoff, ControllerOptions, ExponentialLimit
from prov_host.controller.claims import ClaimPath
from prov_host.controller.finalizers import add_finalizer, remove_finalizer
from prov_host.embedded import Cluster, InProcessTransport
from prov_host.errors import ConfigurationError
from prov_host.model import (
    ANN_ALPHA_SELECTED_NODE,
    ANN_BETA_STORAGE_PROVISIONER,
    ANN_MIGRATED_TO,
    ANN_PROVISIONED_BY,
    ANN_SELECTED_NODE,
    ANN_STORAGE_PROVISIONER,
    FINALIZER,
    Claim,
    ClaimSpec,
    ObjectMeta,
    StorageClass,
    Volume,
    VolumeSpec,
    VolumeStatus,
)
from prov_host.testing.clock import FakeClock

OTHER = "foo.bar1/baz1"
NOW = "2026-01-01T00:00:00Z"


def a_world(name: str = P, **options: Any) -> World:
    clock = FakeClock()
    cluster = Cluster(clock, controllers=False)
    return World(InProcessTransport(cluster), clock, ScriptedBackend(), ControllerOptions(**options), name=name)


MOCK = {"name": "csi.com/mock-csi", "additional_provisioner_names": (P, "foo.xyz/baz")}
BETA = {ANN_BETA_STORAGE_PROVISIONER: P}
WFFC = "WaitForFirstConsumer"


@pytest.mark.parametrize(
    ("controller", "provisioner", "binding", "class_name", "annotations", "volume_name", "qualifier", "wanted"),
    [
        pytest.param({}, P, None, "class-1", BETA, None, None, True, id="SP1"),
        pytest.param(MOCK, P, None, "class-1", BETA, None, None, True, id="SP2"),
        pytest.param({}, P, None, "class-1", BETA, "foo", None, False, id="SP3"),
        pytest.param({}, P, None, "class-2", {}, None, None, False, id="SP4"),
        pytest.param({}, Q, None, "class-1", {ANN_BETA_STORAGE_PROVISIONER: Q}, None, None, False, id="SP5"),
        pytest.param({}, P, None, "class-1", {ANN_BETA_STORAGE_PROVISIONER: Q}, None, None, False, id="SP6"),
        pytest.param({}, P, None, "class-1", {}, None, None, False, id="SP7"),
        pytest.param({}, P, None, "class-1", {ANN_STORAGE_PROVISIONER: Q, **BETA}, None, None, False, id="SP8"),
        pytest.param({}, P, None, "class-1", BETA, None, False, False, id="SP9"),
        pytest.param({}, P, None, "class-1", BETA, None, True, True, id="SP10"),
        pytest.param({}, P, WFFC, "class-1", BETA, None, None, False, id="SP11"),
        pytest.param({}, P, WFFC, "class-1", {**BETA, ANN_SELECTED_NODE: "node1"}, None, None, True, id="SP12"),
        pytest.param(
            {},
            P,
            WFFC,
            "class-1",
            {ANN_STORAGE_PROVISIONER: P, ANN_SELECTED_NODE: "node1"},
            None,
            None,
            True,
            id="SP13",
        ),
        pytest.param({}, P, WFFC, "class-1", {**BETA, ANN_ALPHA_SELECTED_NODE: "n"}, None, None, False, id="SP-alpha"),
        pytest.param({}, P, WFFC, "class-1", {**BETA, ANN_SELECTED_NODE: ""}, None, None, False, id="RS5"),
    ],
)
async def test_should_provision(
    *,
    controller: Mapping[str, Any],
    provisioner: str,
    binding: str | None,
    class_name: str,
    annotations: dict[str, str],
    volume_name: str | None,
    qualifier: bool | None,
    wanted: bool,
) -> None:
    world = a_world(**controller)
    if qualifier is not None:
        world.backend.qualifies = lambda claim: qualifier
    world.classes.apply(
        StorageClass(metadata=ObjectMeta(name="class-1"), provisioner=provisioner, volume_binding_mode=binding)
    )
    claim = Claim(
        metadata=ObjectMeta(name="claim-1", namespace="default", uid="1-1", annotations=annotations),
        spec=ClaimSpec(storage_class_name=class_name, volume_name=volume_name),
    )
    path: ClaimPath = world.controller.claim_path
    assert (await path.should_provision(claim) is not None) is wanted


OURS = {ANN_PROVISIONED_BY: P}


def a_volume(
    phase: str = "Released",
    *,
    policy: str = "Delete",
    annotations: Mapping[str, str] = OURS,
    finalizers: tuple[str, ...] = (),
    deleted: str | None = None,
    driver: str = "",
) -> Volume:
    return Volume(
        metadata=ObjectMeta(
            name="volume-1", annotations=dict(annotations), finalizers=finalizers, deletion_timestamp=deleted
        ),
        spec=VolumeSpec(
            persistent_volume_reclaim_policy=policy,
            csi={"driver": driver, "volumeHandle": "x"} if driver else None,
            nfs=None if driver else {"server": "foo", "path": "bar"},
        ),
        status=VolumeStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("name", "volume", "wanted"),
    [
        pytest.param(P, a_volume(), True, id="SD1"),
        pytest.param(P, a_volume("Failed"), False, id="SD2"),
        pytest.param(P, a_volume("Bound"), False, id="SD3"),
        pytest.param(P, a_volume(policy="Retain"), False, id="SD4"),
        pytest.param(P, a_volume(deleted=NOW), False, id="SD5"),
        pytest.param(P, a_volume(deleted=None), True, id="SD6"),
        pytest.param(
            "csi.driver",
            a_volume(annotations={ANN_PROVISIONED_BY: P, ANN_MIGRATED_TO: "csi.driver"}),
            True,
            id="SD7",
        ),
        pytest.param(P, a_volume("SomethingNew"), False, id="SD-future-phase"),
        pytest.param(P, a_volume(policy="Shred"), False, id="SD-future-policy"),
    ],
)
async def test_should_delete_without_finalizer(name: str, volume: Volume, wanted: bool) -> None:
    world = a_world(name, add_finalizer=False)
    assert await world.controller.volume_path.should_delete(volume) is wanted


@pytest.mark.parametrize(
    ("volume", "wanted"),
    [
        pytest.param(a_volume(finalizers=(FINALIZER,)), True, id="SF1"),
        pytest.param(a_volume(finalizers=(FINALIZER,), deleted=NOW), True, id="SF2"),
        pytest.param(a_volume("Bound", finalizers=(FINALIZER,)), False, id="SF3"),
        pytest.param(a_volume(policy="Retain"), False, id="SF4"),
        pytest.param(a_volume(deleted=NOW), False, id="SF-without"),
    ],
)
async def test_should_delete_with_finalizer(volume: Volume, wanted: bool) -> None:
    world = a_world(add_finalizer=True)
    assert await world.controller.volume_path.should_delete(volume) is wanted


async def test_a_guard_that_says_no_is_heard() -> None:
    world = a_world()
    world.backend.guards = lambda volume: False
    assert not await world.controller.volume_path.should_delete(a_volume())


MIGRATED = {ANN_PROVISIONED_BY: P, ANN_MIGRATED_TO: P}


@pytest.mark.parametrize(
    ("name", "volume", "ours"),
    [
        pytest.param(P, a_volume("Available"), True, id="OW1"),
        pytest.param(P, a_volume("Available", annotations=MIGRATED), True, id="OW2"),
        pytest.param(OTHER, a_volume("Available"), False, id="OW3"),
        pytest.param(OTHER, a_volume("Available", annotations=MIGRATED), False, id="OW4"),
        pytest.param(P, a_volume("Bound", driver=P), True, id="OW5"),
        pytest.param(OTHER, a_volume("Bound", driver=OTHER), False, id="OW6"),
        pytest.param(P, a_volume("Bound", annotations={}, driver=P), True, id="OW7"),
        pytest.param(OTHER, a_volume("Bound", annotations={}, driver=P), False, id="OW8"),
        pytest.param(P, a_volume("Available", annotations={}), False, id="OW9"),
        pytest.param(P, a_volume("Available", annotations={ANN_MIGRATED_TO: P}), True, id="OW10"),
        pytest.param(OTHER, a_volume("Available", annotations={ANN_MIGRATED_TO: P}), False, id="OW11"),
        # 3.16: rows of older generations that still hold
        pytest.param(
            "csi.driver",
            a_volume(annotations={ANN_PROVISIONED_BY: P, ANN_MIGRATED_TO: "some.foo.driver"}),
            False,
            id="OW-v4",
        ),
        pytest.param("csi.driver", a_volume(), False, id="OW-v8"),
    ],
)
async def test_ownership(name: str, volume: Volume, ours: bool) -> None:
    assert a_world(name).controller.parts.ours(volume) is ours


@pytest.mark.parametrize(
    ("before", "after", "modified"),
    [
        pytest.param((FINALIZER,), None, True, id="RF1"),
        pytest.param(("dummy",), ("dummy",), False, id="RF2"),
        pytest.param(("dummy", FINALIZER), ("dummy",), True, id="RF3"),
        pytest.param((), None, False, id="RF4"),
        pytest.param(None, None, False, id="RF5"),
    ],
)
def test_remove_finalizer(before: tuple[str, ...] | None, after: tuple[str, ...] | None, modified: bool) -> None:
    given = None if before is None else list(before)
    assert remove_finalizer(given, FINALIZER) == (after, modified)
    assert given == (None if before is None else list(before))


@pytest.mark.parametrize(
    ("before", "after", "modified"),
    [
        pytest.param((FINALIZER,), (FINALIZER,), False, id="AF1"),
        pytest.param(None, (FINALIZER,), True, id="AF2"),
        pytest.param((), (FINALIZER,), True, id="AF3"),
        pytest.param(("dummy",), ("dummy", FINALIZER), True, id="AF4"),
    ],
)
def test_add_finalizer(before: tuple[str, ...] | None, after: tuple[str, ...], modified: bool) -> None:
    assert add_finalizer(before, FINALIZER) == (after, modified)


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        pytest.param(
            {"pv_create_backoff": Backoff(), "pv_create_retry_count": 3, "pv_create_interval": 1},
            {
                "CreateProvisionedPVBackoff cannot be used together with CreateProvisionedPVRetryCount",
                "CreateProvisionedPVBackoff cannot be used together with CreateProvisionedPVInterval",
            },
            id="OP1-backoff",
        ),
        pytest.param(
            {
                "pv_create_limiter": ExponentialLimit(),
                "pv_create_retry_count": 3,
                "pv_create_interval": 1,
            },
            {
                # The reference names the wrong option here.
                "CreateProvisionedPVLimiter cannot be used together with CreateProvisionedPVRetryCount",
                "CreateProvisionedPVLimiter cannot be used together with CreateProvisionedPVInterval",
            },
            id="OP1-limiter",
        ),
        pytest.param(
            {"pv_create_limiter": ExponentialLimit(), "pv_create_backoff": Backoff()},
            {"CreateProvisionedPVLimiter cannot be used together with CreateProvisionedPVBackoff"},
            id="OP1-both",
        ),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], texts: set[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        a_world(**options)
    assert set(caught.value.problems) == texts


async def test_options_cannot_change_after_the_start() -> None:
    """OP1; frozen, so from the very beginning."""
    world = a_world()
    with pytest.raises(AttributeError):
        world.controller.parts.options.worker_threads = 1  # type: ignore[misc]
