"""A plugin on a directory of its own, called as the host calls it; shared by the unit and the fuzz tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from faulty_sys import ServerClockSys
from prov_host import Claim, Provisioned, ProvisionRequest, Removed, StorageClass, Volume
from prov_host.model import ANN_RECORD
from prov_host.safedir import Sys
from prov_host.testing.clock import FakeClock
from prov_host.testing.context import FakeHost
from prov_host.testing.objects import make_claim, make_class, make_request, make_volume
from prov_host_nfs_subdir import NfsSubdirPlugin, NfsSubdirSettings

PROVISIONER = "example.com/nfs"
SERVER = "nfs.example.com"
EXPORT = "/exports/k8s"


class Rig:
    """One share, one cluster, and as many processes of the plugin as a test starts."""

    def __init__(self, share: Path) -> None:
        self.share = share
        self.settings: dict[str, Any] = {}
        self.environ = {"NFS_SERVER": SERVER, "NFS_PATH": EXPORT, "PROVISIONER_NAME": PROVISIONER}
        self.clock = FakeClock()
        self.sys: Sys = ServerClockSys(self.clock)
        self.volumes: dict[str, Volume] = {}
        self.classes: list[StorageClass] = []
        self._ids = itertools.count(1)
        self.host: FakeHost
        self.plugin: NfsSubdirPlugin
        self._started: list[NfsSubdirPlugin] = []

    def start(self) -> NfsSubdirPlugin:
        """A new process on the same share."""
        self.host = FakeHost("nfs_subdir", clock=self.clock)
        self.host.known_volumes = list(self.volumes.values())
        self.host.known_classes = self.classes
        plugin = NfsSubdirPlugin(self.environ, self.sys, lambda: f"id-{next(self._ids):08}")
        settings = {"mount": str(self.share), "plain_directory": True, **self.settings}
        plugin.configure(msgspec.convert(settings, NfsSubdirSettings), self.host)
        self.plugin = plugin
        self._started.append(plugin)
        return plugin

    def stop(self) -> None:
        for plugin in self._started:
            plugin.close()

    # --- the host's part -------------------------------------------------------------------------------------

    def request(
        self,
        claim: Claim | None = None,
        parameters: Mapping[str, str] | None = None,
        policy: str = "delete",
        **more: Any,
    ) -> ProvisionRequest:
        storage_class = make_class(parameters, name="nfs", provisioner=PROVISIONER, **more)
        self.classes.append(storage_class)
        return make_request(claim or make_claim(), storage_class, policy=policy)

    def provision(self, request: ProvisionRequest, *, save: bool = True, phase: str = "Bound") -> Volume:
        answer = self.plugin.provision(request)
        return self.save(request, answer, phase=phase) if save else make_volume(request, answer)

    def save(self, request: ProvisionRequest, answer: Provisioned, *, phase: str = "Bound") -> Volume:
        volume = make_volume(request, answer, plugin="nfs_subdir", phase=phase)
        self.put(volume)
        return volume

    def put(self, volume: Volume) -> None:
        self.volumes[volume.name] = volume
        self.host.known_volumes = list(self.volumes.values())

    def drop(self, volume: Volume) -> None:
        self.volumes.pop(volume.name, None)
        self.host.known_volumes = list(self.volumes.values())

    def make(self, namespace: str, name: str, parameters: Mapping[str, str] | None = None, **claim: Any) -> Volume:
        """A claim's volume, provisioned and saved."""
        return self.provision(self.request(make_claim(name, namespace, **claim), parameters))

    def delete(self, volume: Volume) -> Removed:
        """Delete asset and object, as the host does it."""
        removed = self.plugin.delete(volume)
        self.drop(volume)
        assert self.plugin.wait_for_trash(10)
        return removed

    def archive(self, volume: Volume) -> Removed:
        removed = self.plugin.archive(volume)
        self.drop(volume)
        return removed

    # --- looking ---------------------------------------------------------------------------------------------

    def directory(self, volume: Volume) -> Path:
        """Where a volume's directory is on this machine's disk."""
        assert volume.spec.nfs is not None
        path = str(volume.spec.nfs["path"])
        assert path.startswith(EXPORT + "/")
        return self.share / path[len(EXPORT) + 1 :]

    def tree(self, *, private: bool = False) -> dict[str, str]:
        """Everything on the share: kind, mode, owner and content by path."""
        return tree_of(self.share, skip=() if private else (".prov-host",))

    def trash(self) -> list[str]:
        trash = self.share / ".prov-host" / "trash"
        return sorted(os.listdir(trash)) if trash.is_dir() else []

    def owners(self) -> list[str]:
        owners = self.share / ".prov-host" / "owners"
        return sorted(os.listdir(owners)) if owners.is_dir() else []

    def staged(self) -> list[str]:
        new = self.share / ".prov-host" / "new"
        return sorted(os.listdir(new)) if new.is_dir() else []

    def archives(self) -> list[Path]:
        return sorted(p for p in self.share.iterdir() if p.name.startswith("archived-") and p.is_dir())

    @staticmethod
    def without_record(volume: Volume) -> Volume:
        """The volume as the Go provisioner would have made it."""
        wire = msgspec.to_builtins(volume)
        wire["metadata"]["annotations"] = {
            key: value for key, value in volume.annotations.items() if not key.startswith("prov-host/")
        }
        return msgspec.convert(wire, Volume)

    @staticmethod
    def with_record(volume: Volume, **changes: str) -> Volume:
        wire = msgspec.to_builtins(volume)
        record = {**volume.record, **changes}
        wire["metadata"]["annotations"][ANN_RECORD] = msgspec.json.encode(record).decode()
        return msgspec.convert(wire, Volume)

    @staticmethod
    def unsaved(volume: Volume) -> Volume:
        """The volume as it is handed in to undo a provisioning: never saved, so without a uid."""
        wire = msgspec.to_builtins(volume)
        wire["metadata"].pop("uid")
        wire["metadata"].pop("resourceVersion", None)
        return msgspec.convert(wire, Volume)


def tree_of(root: Path, skip: tuple[str, ...] = ()) -> dict[str, str]:
    found = {}
    for where, directories, files in os.walk(root):
        directories[:] = sorted(name for name in directories if name not in skip)
        for name in [*directories, *files]:
            path = Path(where, name)
            status = path.lstat()
            content = path.read_bytes().hex() if path.is_file() and not path.is_symlink() else ""
            link = os.readlink(path) if path.is_symlink() else ""
            found[str(path.relative_to(root))] = (
                f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {status.st_ino} {content}{link}"
            )
    return found
