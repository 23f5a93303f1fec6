"""The stage for the reference controller's rows: objects as its suite makes them, in two worlds.

*embedded*: the embedded cluster without its volume controllers, and a clock that the test moves. *real*: a real API
server without a controller manager, and real time. Rows that break requests or let time pass run in the first only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from controller_world import NAME, ScriptedBackend, World
from prov_host.clock import SystemClock
from prov_host.controller import ControllerOptions
from prov_host.embedded import Cluster
from prov_host.errors import NotFound
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.kube.client import Client
from prov_host.kube.transport import Transport
from prov_host.model import ANN_BETA_STORAGE_PROVISIONER, ANN_PROVISIONED_BY, INTENT_FINALIZER, Claim, Volume
from prov_host.testing.clock import FakeClock

HOLD = "tests.prov-host/hold"  # keeps an object that is being deleted where a row wants to look at it
P, Q = NAME, "abc.def/ghi"


class Scene:
    """A cluster, the objects of a row, and the processes that serve it."""

    def __init__(self, transport: Transport, clock: FakeClock | SystemClock, cluster: Cluster | None) -> None:
        self.transport = transport
        self.clock = clock
        self.cluster = cluster
        self.admin = Client(transport, clock)
        self.worlds: list[World] = []

    # ------------------------------------------------------------------ objects

    async def a_class(self, name: str = "class-1", provisioner: str = P, **fields: Any) -> None:
        body = {"metadata": {"name": name}, "provisioner": provisioner, **fields}
        await self.admin.create(CLASSES, body)

    async def a_claim(
        self,
        name: str = "claim-1",
        class_name: str | None = "class-1",
        provisioner: str = P,
        *,
        annotations: Mapping[str, str] | None = None,
        finalizers: tuple[str, ...] = (),
        **spec: Any,
    ) -> Claim:
        marks = {ANN_BETA_STORAGE_PROVISIONER: provisioner} if provisioner else {}
        body = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": {**marks, **(annotations or {})},
                "finalizers": list(finalizers),
            },
            "spec": {
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                "resources": {"requests": {"storage": "1Mi"}},
                "storageClassName": class_name,
                **spec,
            },
        }
        await self.admin.create(CLAIMS, body, namespace="default")
        claim: Claim = await self.unprotected(CLAIMS, name, finalizers)
        return claim

    async def a_volume(
        self,
        name: str = "volume-1",
        phase: str = "Released",
        policy: str = "Delete",
        annotations: Mapping[str, str] | None = None,
        finalizers: tuple[str, ...] = (),
        *,
        deleted: bool = False,
        csi_driver: str = "",
        **spec: Any,
    ) -> Volume:
        source: dict[str, Any] = {"nfs": {"server": "foo", "path": "/bar"}}
        if csi_driver:
            source = {"csi": {"driver": csi_driver, "volumeHandle": "test-volume-id-1", "fsType": "ext4"}}
        if deleted and not finalizers:
            finalizers = (HOLD,)
        marks = {ANN_PROVISIONED_BY: P} if annotations is None else dict(annotations)
        body = {
            "metadata": {"name": name, "annotations": marks, "finalizers": list(finalizers)},
            "spec": {
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                "persistentVolumeReclaimPolicy": policy,
                **source,
                **spec,
            },
        }
        await self.admin.create(VOLUMES, body)
        await self.unprotected(VOLUMES, name, finalizers)
        await self.set_phase(name, phase)
        if deleted:
            await self.admin.delete(VOLUMES, name)
        return await self.admin.get(VOLUMES, name)

    async def unprotected(self, resource: Any, name: str, finalizers: tuple[str, ...] = ()) -> Any:
        """Without the finalizers that admission adds: nobody is here to take them off again."""
        patch = {"metadata": {"finalizers": list(finalizers)}}
        namespace = "default" if resource.namespaced else ""
        return await self.admin.patch(resource, name, patch, kind="merge", namespace=namespace)

    async def set_phase(self, name: str, phase: str) -> None:
        reply = await self.transport.request(
            "PATCH",
            f"/api/v1/persistentvolumes/{name}/status",
            body=msgspec.json.encode({"status": {"phase": phase}}),
            content_type="application/merge-patch+json",
        )
        assert reply.status == 200, reply.body

    async def claim(self, name: str = "claim-1") -> Claim:
        return await self.admin.get(CLAIMS, name, namespace="default")

    async def touch(self, name: str = "claim-1") -> None:
        """Change a claim in a way that is no concern of ours, so that it is looked at again."""
        self._touches = getattr(self, "_touches", 0) + 1
        patch = {"metadata": {"annotations": {"touched": str(self._touches)}}}
        await self.admin.patch(CLAIMS, name, patch, namespace="default")
        await self.settle()

    async def volumes(self) -> dict[str, Volume]:
        found = await self.admin.list_all(VOLUMES)
        return {volume.name: volume for volume in found.items}

    # ------------------------------------------------------------------ processes

    def world(
        self, backend: ScriptedBackend | None = None, options: Mapping[str, Any] | None = None, **more: Any
    ) -> World:
        """A process with the reference's defaults, which is not started yet."""
        chosen = {"add_finalizer": False, "failed_provision_threshold": 15, "failed_delete_threshold": 15}
        made = World(
            self.transport,
            self.clock,
            backend or ScriptedBackend(),
            ControllerOptions(**{**chosen, **(options or {})}),
            **more,
        )
        self.worlds.append(made)
        return made

    async def start(self, world: World) -> World:
        await self.wait_for(world.start())
        await self.settle()
        return world

    async def wait_for(self, coroutine: Any) -> Any:
        task = asyncio.ensure_future(coroutine)
        if isinstance(self.clock, FakeClock):
            await self.clock.run_until(task.done)
        return await task

    async def settle(self) -> None:
        """Until all that can happen now has happened."""
        if isinstance(self.clock, FakeClock):
            await self.clock.settle()
            return
        calm = 0
        while calm < 6:
            await asyncio.sleep(0.03)
            calm = calm + 1 if all(world.idle for world in self.worlds) else 0

    async def advance(self, seconds: float) -> None:
        assert isinstance(self.clock, FakeClock)
        await self.clock.advance(seconds)

    async def close(self) -> None:
        for world in self.worlds:
            await world.kill()
        if self.cluster is not None:
            await self.cluster.close()
            return
        kinds: tuple[Any, ...] = (CLAIMS, VOLUMES, CLASSES)
        for resource in kinds:
            namespace = "default" if resource.namespaced else ""
            for obj in (await self.admin.list_all(resource)).items:
                with contextlib.suppress(NotFound):
                    if obj.finalizers:
                        await self.unprotected(resource, obj.name)
                    await self.admin.delete(resource, obj.name, namespace=namespace)
        await self.transport.close()


def assert_expected_volume(volume: Volume, claim: Claim, *, provisioner: str = P, policy: str = "Delete") -> None:
    """``PV(C, class)`` of the reference's suite, with what our host adds left out."""
    marks = {key: value for key, value in volume.annotations.items() if not key.startswith("prov-host/")}
    assert marks == {ANN_PROVISIONED_BY: provisioner}
    assert volume.name == f"pvc-{claim.uid}"
    spec = volume.spec
    assert spec.storage_class_name == claim.class_name
    assert spec.persistent_volume_reclaim_policy == policy
    assert spec.access_modes == claim.spec.access_modes
    assert spec.capacity == {"storage": "1Mi"}
    assert spec.nfs is not None
    assert spec.nfs["server"] == "foo"
    ref = spec.claim_ref
    assert ref is not None
    assert (ref.kind, ref.api_version, ref.namespace, ref.name, ref.uid) == (
        "PersistentVolumeClaim",
        "v1",
        "default",
        claim.name,
        claim.uid,
    )
    assert ref.resource_version


def our_finalizers(obj: Claim | Volume) -> tuple[str, ...]:
    """Without those of the API server and of the test."""
    return tuple(name for name in obj.finalizers if not name.startswith("kubernetes.io/") and name != HOLD)


def is_marked(claim: Claim) -> bool:
    return INTENT_FINALIZER in claim.finalizers
