"""The real parts themselves: what the other tests stand on is tested first."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from harness import MissingPart
from harness.binaries import NAMES, find_control_plane, unpack
from harness.client import ApiClient, ApiError, wait_until
from harness.controlplane import ControlPlane
from harness.nfs import NfsServer
from harness.process import ChildProcess, ProcessFailed, free_ports


def _archive(directory: Path, names: tuple[str, ...] = NAMES, *, checksum: str | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "controlplane-v1-linux-amd64.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    checksum = checksum or hashlib.sha256(path.read_bytes()).hexdigest()
    (directory / "SHA256SUMS").write_text(f"{checksum}  {path.name}\n")
    return path


def test_an_archive_is_unpacked_once_and_found_again(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "shared")
    first = unpack(archive, tmp_path / "cache")
    (first / "etcd").write_text("kept")
    assert unpack(archive, tmp_path / "cache") == first
    assert (first / "etcd").read_text() == "kept"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == sorted(["controlplane.lock", first.name])


def test_a_damaged_archive_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "shared", checksum="0" * 64)
    with pytest.raises(MissingPart, match="damaged"):
        unpack(archive, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["controlplane.lock"]


def test_an_archive_without_a_checksum_is_refused(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "shared")
    (tmp_path / "shared/SHA256SUMS").unlink()
    with pytest.raises(MissingPart, match="no checksum"):
        unpack(archive, tmp_path / "cache")


def test_an_incomplete_archive_says_what_it_lacks(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "shared", ("etcd", "kube-apiserver"))
    with pytest.raises(MissingPart, match="has no kube-controller-manager"):
        unpack(archive, tmp_path / "cache")


def test_the_directory_of_the_environment_comes_first_and_must_be_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(
        MissingPart, match=r"has no etcd, kube-apiserver, kube-controller-manager: set KUBEBUILDER_ASSETS"
    ):
        find_control_plane()
    for name in NAMES:
        (tmp_path / name).touch(mode=0o755)
    assert find_control_plane() == tmp_path


def test_without_any_control_plane_the_message_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingPart, match="make controlplane"):
        find_control_plane(tmp_path / "repository")


def test_what_make_controlplane_built_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = tmp_path / "prov-host/controlplane-v1.37.2-built"
    built.mkdir(parents=True)
    for name in NAMES:
        (built / name).touch(mode=0o755)
    assert find_control_plane(tmp_path / "repository") == built


def test_a_child_ends_with_its_group_and_keeps_its_log(tmp_path: Path) -> None:
    script = "echo started; sleep 600 & echo $!; wait"
    child = ChildProcess("shell", ["sh", "-c", script], log=tmp_path / "log")
    child.wait_until(lambda: len(child.log_text().split()) == 2, timeout=10)
    grandchild = int(child.log_text().split()[1])
    child.kill()
    assert child.returncode == -9
    wait_until(lambda: not _alive(grandchild), timeout=5, what="the end of the child's child")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_that_ends_early_shows_its_log(tmp_path: Path) -> None:
    child = ChildProcess("shell", ["sh", "-c", "echo the reason; exit 3"], log=tmp_path / "log")
    with pytest.raises(ProcessFailed, match=r"(?s)shell ended before it was ready \(it ended with 3.*the reason"):
        child.wait_until(lambda: False, timeout=10)


@pytest.mark.parametrize("number", ["TERM", "KILL", "INT"])
def test_children_end_when_the_parent_is_killed(tmp_path: Path, number: str) -> None:
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[1] / "support")!r})
from pathlib import Path
from harness.process import ChildProcess
child = ChildProcess("sleep", ["sleep", "600"], log=Path({str(tmp_path / "log")!r}))
print(child.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    # setpriv asks for the signal, then becomes the program.
    comm = Path(f"/proc/{child}/comm")
    wait_until(lambda: comm.read_text() == "sleep\n", timeout=10, what="setpriv to become the program")
    os.kill(parent.pid, {"TERM": 15, "KILL": 9, "INT": 2}[number])
    parent.wait(10)
    parent.stdout.close()
    wait_until(lambda: not _alive(child), timeout=5, what="the end of the child")


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


@pytest.mark.e2e
def test_the_control_plane_binds_a_claim_to_a_volume(control_plane: ControlPlane) -> None:
    client = control_plane.client
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "parts"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": "parts",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "parts"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Mi"},
            "hostPath": {"path": "/nowhere"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    client.create(claim)
    client.create(volume)
    wait_until(
        lambda: _phase(client, "PersistentVolumeClaim", "parts") == "Bound", timeout=30, what="the claim to be bound"
    )
    client.delete("PersistentVolumeClaim", "parts")
    wait_until(
        lambda: _phase(client, "PersistentVolume", "parts") == "Released", timeout=30, what="the volume to be released"
    )
    client.delete("PersistentVolume", "parts")
    wait_until(lambda: client.get("PersistentVolume", "parts") is None, timeout=30, what="the volume to be gone")


def _phase(client: ApiClient, kind: str, name: str) -> str:
    obj = client.get(kind, name)
    return str(obj["status"]["phase"]) if obj else ""


@pytest.mark.e2e
def test_rbac_lets_a_service_account_do_only_what_its_roles_say(
    rbac_control_plane: ControlPlane, tmp_path: Path
) -> None:
    admin = rbac_control_plane.client
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "parts"}})
    token = admin.service_account_token("parts", "default")
    path = admin.write_kubeconfig(tmp_path / "kubeconfig", token=token)
    with ApiClient.from_kubeconfig(path) as client:
        with pytest.raises(ApiError, match="system:serviceaccount:default:parts") as caught:
            client.list("PersistentVolume")
        assert caught.value.status == 403


@pytest.mark.nfs
def test_a_file_written_through_nfs_is_on_disk_and_the_other_way_round(nfs_server: NfsServer) -> None:
    directory = nfs_server.export / "parts"
    directory.mkdir()
    volume = {
        "metadata": {"name": "parts"},
        "spec": {"nfs": {"server": nfs_server.server, "path": f"{nfs_server.path}/parts"}},
    }
    nfs_server.write(volume, "through-nfs", b"written by a client")
    assert (directory / "through-nfs").read_bytes() == b"written by a client"
    (directory / "on-disk").write_bytes(b"written on the server")
    assert nfs_server.read(volume, "on-disk") == b"written on the server"


@pytest.mark.nfs
def test_a_path_that_is_not_there_is_an_error_through_nfs(nfs_server: NfsServer) -> None:
    volume = {
        "metadata": {"name": "gone"},
        "spec": {"nfs": {"server": nfs_server.server, "path": f"{nfs_server.path}/gone"}},
    }
    with pytest.raises(FileNotFoundError):
        nfs_server.read(volume, "file")


def test_waiting_in_vain_tells_the_last_state() -> None:
    seen: list[int] = []

    def look() -> bool:
        seen.append(1)
        return False

    with pytest.raises(AssertionError, match="not within -1 s: looked 1 times"):
        wait_until(look, timeout=-1, what=lambda: f"looked {len(seen)} times")
