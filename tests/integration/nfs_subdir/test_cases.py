"""The sixteen reported cases, by number, from the claim to the share and back, in the real host."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from faulty_sys import FaultySys
from prov_host import ProvisionRequest, hookimpl
from prov_host.embedded import InProcessTransport
from prov_host.kube.transport import Reply
from prov_host_hostpath import HostpathPlugin

if TYPE_CHECKING:
    from conftest import World

EXPORT = "/exports/k8s"


def test_case_1_and_2_only_the_volume_s_own_directory_goes(world: World) -> None:
    (world.share / "data").mkdir()
    (world.share / "data" / "precious").write_text("precious")
    world.by_name(onDelete="delete")
    with world.host():
        volume = world.claim("ns1", "data")
        (world.share / "ns1" / "data" / "f").write_text("f")
        world.delete("ns1", "data", volume)
        assert not (world.share / "ns1").exists()
        assert world.files() == {"data/precious": "precious"}
        assert f"{EXPORT}/ns1/data" in world.told(volume["metadata"]["name"], "VolumeDeleted")


@pytest.mark.parametrize("path", ["/", "/exports/k8s/", "//exports/k8s", "/exports/../exports/k8s"])
def test_case_3_every_spelling_of_the_exported_path(world: World, path: str) -> None:
    world.by_name(onDelete="delete")
    with world.host(path=path):
        volume = world.claim("ns1", "data")
        assert (world.share / "ns1" / "data").is_dir()
        world.delete("ns1", "data", volume)
    assert not (world.share / "ns1").exists()


@pytest.mark.parametrize("path", ["/other/x", "/exports/k8s2/x"])
def test_case_3_a_volume_elsewhere_is_told_and_left(world: World, path: str) -> None:
    (world.share / "x").mkdir()
    (world.share / "x" / "f").write_text("f")
    world.by_name()
    with world.host():
        world.claim("ns1", "data")
        world.old_volume("pv-elsewhere", path)
        assert path in world.told("pv-elsewhere", "VolumeFailedDelete")
        world.claim("ns1", "other")
    assert world.files() == {"x/f": "f"}
    assert world.cluster.get("PersistentVolume", "pv-elsewhere")


def test_case_4_archives_never_mix(world: World) -> None:
    world.by_name()
    with world.host():
        for namespace, content in (("ns1", "f1"), ("ns2", "g"), ("ns1", "f2")):
            volume = world.claim(namespace, "data")
            (world.share / namespace / "data" / content).write_text(content)
            world.delete(namespace, "data", volume)
            world.told(volume["metadata"]["name"], "VolumeArchived")
    assert sorted(world.files().values()) == ["f1", "f2", "g"]
    archives = [path for path in world.share.iterdir() if path.is_dir() and path.name.startswith("archived-")]
    assert sorted(len(list(path.iterdir())) for path in archives) == [1, 1, 1]
    assert not (world.share / "ns1").exists()


def test_case_5_only_empty_parents_go(world: World) -> None:
    deep = "/".join(f"l{n}" for n in range(12))
    world.cluster.create_class(
        "example.com/nfs", {"pathPattern": f"{deep}/${{.PVC.namespace}}/${{.PVC.name}}", "onDelete": "delete"}
    )
    with world.host():
        first = world.claim("ns1", "a")
        world.claim("ns2", "b")
        world.delete("ns1", "a", first)
    assert not (world.share / deep / "ns1").exists()
    assert (world.share / deep / "ns2" / "b").is_dir()


def test_case_6_what_was_frozen_counts_whatever_becomes_of_the_class(world: World) -> None:
    world.by_name(onDelete="retain")
    with world.host():
        gone, changed = world.claim("ns1", "gone"), world.claim("ns1", "changed")
        for name in ("gone", "changed"):
            (world.share / "ns1" / name / "f").write_text(name)
        world.cluster.delete("StorageClass", "tested")
        world.delete("ns1", "gone", gone)
        world.by_name(onDelete="delete")
        world.delete("ns1", "changed", changed)
        world.told(gone["metadata"]["name"], "VolumeRetained")
    assert world.files() == {"ns1/gone/f": "gone", "ns1/changed/f": "changed"}


@pytest.mark.parametrize("value", ["../finance", "a/../../x", "..", "..\\x"])
def test_case_7_hostile_annotations_are_refused(world: World, value: str) -> None:
    world.cluster.create_class(
        "example.com/nfs", {"pathPattern": "${.PVC.annotations.p}", "allowSlashInValues": "true"}
    )
    before = sorted(world.share.parent.rglob("*"))
    with world.host():
        world.cluster.create_claim("data", "ns1", annotations={"p": value})
        assert "ns1/data" in world.told("data", "ProvisioningFailed")
    assert sorted(world.share.parent.rglob("*")) == before


def test_case_8_an_existing_directory_is_refused_or_adopted_unchanged(world: World) -> None:
    data = world.share / "ns1" / "data"
    data.mkdir(parents=True)
    (data / "f").write_text("mine")
    data.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(data, 999, 999)
    before = data.stat()
    world.by_name()
    with world.host():
        world.cluster.create_claim("data", "ns1")
        world.told("data", "ProvisioningFailed", "exists already")
        world.cluster.delete("StorageClass", "tested")
        world.by_name(adoptExisting="true")
        world.cluster.wait_bound("data", "ns1")
        assert "adopted" in world.told("data", "VolumeAdopted")
    after = data.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert world.files() == {"ns1/data/f": "mine"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_case_9_mode_and_owner(world: World) -> None:
    world.by_name(mode="0770", uid="1000", gid="2000")
    old = os.umask(0o077)
    try:
        with world.host():
            world.claim("ns1", "data")
    finally:
        os.umask(old)
    status = (world.share / "ns1" / "data").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o770, 1000, 2000)
    assert stat.S_IMODE((world.share / "ns1").stat().st_mode) == 0o755


def test_case_9_a_chown_that_is_not_permitted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(world.sys, "fchown", refuse, raising=False)
    world.by_name(uid="1000")
    with world.host():
        world.cluster.create_claim("data", "ns1")
        assert "1000" in world.told("data", "ProvisioningFailed")
    assert [path.name for path in world.share.iterdir()] == [".prov-host"]


def test_case_10_a_hung_backend_holds_up_no_other_and_goes_on_when_healed(world: World, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    world.by_name()
    world.cluster.create_class("prov-host/hostpath", name="local")
    gate = threading.Event()
    options = {"worker_threads": "2", "provision_timeout": "300ms", "node_name": "node-1"}
    host = world.host(options=options, more={"hostpath": HostpathPlugin})
    host._tables["hostpath"] = {"directories": [str(tmp_path / "local")]}
    try:
        with host:
            world.claim("ns1", "before")
            world.sys.hang = gate
            world.sys.break_now(errno.EIO)
            for n in range(6):
                world.cluster.create_claim(f"hung{n}", "ns1")
            world.told("hung0", "ProvisioningFailed", "timed out")
            world.cluster.create_claim("quick", "ns1", class_name="local")
            world.cluster.wait_bound("quick", "ns1", timeout=5)
            world.sys.heal()
            for n in range(6):
                world.cluster.wait_bound(f"hung{n}", "ns1")
    finally:
        gate.set()
    assert len(list((world.share / "ns1").iterdir())) == 7


def test_case_11_a_claim_that_failed_twenty_times_is_bound_when_the_cause_heals(world: World) -> None:
    world.by_name()
    with world.host() as host:
        world.sys.break_now(errno.ENOSPC)
        world.cluster.create_claim("data", "ns1")
        failed = "controller_persistentvolumeclaim_provision_failed_total"

        def count() -> bool:
            return sum(s.value for m in host.registry.collect() for s in m.samples if s.name == failed) >= 20

        world.cluster.wait_for(count, "twenty failures")
        world.sys.heal()
        world.cluster.wait_bound("data", "ns1")
    assert (world.share / "ns1" / "data").is_dir()


def test_case_12_a_claim_re_created_at_once_gets_a_directory_of_its_own(world: World) -> None:
    world.by_name(onDelete="delete")
    with world.host():
        for n in range(5):
            volume = world.claim("ns1", "data")
            (world.share / "ns1" / "data" / "f").write_text(str(n))
            world.cluster.delete("PersistentVolumeClaim", "data", "ns1")
            world.cluster.wait_gone("PersistentVolumeClaim", "data", "ns1")
            new = world.claim("ns1", "data")
            assert list((world.share / "ns1" / "data").iterdir()) == []
            (world.share / "ns1" / "data" / "g").write_text("new")
            world.cluster.wait_gone("PersistentVolume", volume["metadata"]["name"])
            assert world.files() == {"ns1/data/g": "new"}
            world.delete("ns1", "data", new)


def test_case_13_a_volume_without_an_nfs_source(world: World) -> None:
    world.by_name()
    with world.host():
        world.claim("ns1", "a")
        world.old_volume("pv-local", "", hostPath={"path": "/etc"})
        world.old_volume("pv-other", "", nfs={"server": "other.example.com", "path": f"{EXPORT}/ns1/a"})
        world.told("pv-local", "VolumeFailedDelete", "no NFS source")
        world.told("pv-other", "VolumeFailedDelete", "other.example.com")
        world.claim("ns1", "b")
    assert (world.share / "ns1" / "a").is_dir()


def test_case_14_a_link_on_the_way(world: World, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (target / "data").mkdir()
    (target / "data" / "f").write_text("f")
    world.by_name(onDelete="delete")
    with world.host():
        volume = world.claim("ns1", "data")
        (world.share / "ns1").rename(tmp_path / "aside")
        (world.share / "ns1").symlink_to(target)
        world.cluster.delete("PersistentVolumeClaim", "data", "ns1")
        world.told(volume["metadata"]["name"], "VolumeFailedDelete", "symbolic link")
        world.cluster.create_claim("other", "ns1")
        world.told("other", "ProvisioningFailed", "symbolic link")
    assert (target / "data" / "f").read_text() == "f"
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert [path.name for path in target.iterdir()] == ["data"]


def test_case_15_adopted_data_survives_that_no_volume_can_be_saved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = world.share / "ns1" / "data"
    data.mkdir(parents=True)
    (data / "f").write_text("mine")
    world.by_name(adoptExisting="true", onDelete="delete")
    real: Any = InProcessTransport.request
    refused: list[str] = []

    async def request(self: Any, method: str, path: str, **options: Any) -> Any:
        if method == "POST" and path.partition("?")[0].endswith("/persistentvolumes"):
            refused.append(path)
            status = {"kind": "Status", "status": "Failure", "message": "quota", "reason": "Forbidden", "code": 403}
            return Reply(403, json.dumps(status).encode())
        return await real(self, method, path, **options)

    monkeypatch.setattr(InProcessTransport, "request", request)
    options = {"pv_create_retry_count": "2", "pv_create_interval": "20ms"}
    with world.host(options=options):
        world.cluster.create_claim("data", "ns1")
        world.cluster.wait_for(lambda: len(refused) > 4, "several refused volumes")
        world.cluster.delete("PersistentVolumeClaim", "data", "ns1")
        world.cluster.wait_gone("PersistentVolumeClaim", "data", "ns1")
    assert world.files() == {"ns1/data/f": "mine"}


def test_case_16_a_volume_deleted_before_its_claim(world: World) -> None:
    world.by_name(onDelete="delete")
    with world.host():
        volume = world.claim("ns1", "data")
        name = volume["metadata"]["name"]
        finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
        world.cluster.wait_for(
            lambda: finalizer in (world.cluster.get("PersistentVolume", name) or volume)["metadata"]["finalizers"]
        )
        world.cluster.delete("PersistentVolume", name)
        assert (world.share / "ns1" / "data").is_dir()
        world.cluster.delete("PersistentVolumeClaim", "data", "ns1")
        world.cluster.wait_gone("PersistentVolume", name)
    assert not (world.share / "ns1").exists()


def test_a_restart_in_the_middle_finishes_what_was_begun(world: World) -> None:
    world.by_name(onDelete="delete")
    with world.host():
        volume = world.claim("ns1", "data")
        (world.share / "ns1" / "data" / "f").write_text("f")
    world.cluster.delete("PersistentVolumeClaim", "data", "ns1")
    world.cluster.create_claim("other", "ns1")
    world.sys = FaultySys()
    with world.host():
        world.cluster.wait_gone("PersistentVolume", volume["metadata"]["name"])
        world.cluster.wait_bound("other", "ns1")
        trash = world.share / ".prov-host" / "trash"
        world.cluster.wait_for(lambda: not list(trash.iterdir()), "the trash is empty")
    assert [path.name for path in (world.share / "ns1").iterdir()] == ["other"]


def test_readiness_follows_the_share(world: World, tmp_path: Path) -> None:
    world.by_name()
    with world.host() as host:
        world.claim("ns1", "data")
        world.share.rename(tmp_path / "aside")
        world.share.mkdir()
        world.cluster.create_claim("other", "ns1")
        assert "sentinel" in world.told("other", "ProvisioningFailed")
        world.share.rmdir()
        (tmp_path / "aside").rename(world.share)
        world.cluster.wait_bound("other", "ns1")
        assert host.exit_code is None


def test_the_wrapper_of_another_plugin_sees_every_provisioning(world: World) -> None:
    seen: list[str] = []

    class Audit:
        @hookimpl(wrapper=True)
        def provision(self, request: ProvisionRequest):  # type: ignore[no-untyped-def]
            result = yield
            seen.append(request.claim.key)
            return result

    world.by_name()
    with world.host(more={"audit": Audit}):
        world.claim("ns1", "data")
    assert seen == ["ns1/data"]
