"""A disk without free space or inodes: deleting makes room, archiving says what it needs, nothing is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prov_host import DeleteError, Volume
from prov_host.safedir import RealSys
from prov_host.testing import FakeHost, make_claim, make_class, make_request, make_volume
from prov_host_hostpath import HostpathPlugin, HostpathSettings


class FullSys(RealSys):
    """Whatever needs a new file, directory or block fails; renaming and removing do not. No rename without replace."""

    full = False

    def _refuse(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, name: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> int:
        if flags & os.O_EXCL:
            self._refuse()
        return super().open(name, flags, mode, dir_fd=dir_fd)

    def mkdir(self, name: str, mode: int, *, dir_fd: int) -> None:
        self._refuse()
        super().mkdir(name, mode, dir_fd=dir_fd)

    def write(self, fd: int, data: bytes) -> int:
        self._refuse()
        return super().write(fd, data)

    def rename_noreplace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class Node:
    """A plugin on a disk that fills up."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        self.sys = FullSys()
        self.plugin = HostpathPlugin(environ={}, sys=self.sys)
        self.host = FakeHost("hostpath", node_name="node-1")
        self.plugin.configure(msgspec.convert({"directories": [str(root)]}, HostpathSettings), self.host)

    def make(self) -> Volume:
        request = make_request(make_claim(), make_class(provisioner="prov-host/hostpath"), selected_node="node-1")
        volume = make_volume(request, self.plugin.provision(request), plugin="hostpath")
        self.path(volume).joinpath("f").write_text("the only copy")
        return volume

    def path(self, volume: Volume) -> Path:
        return self.root / volume.record["name"]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "volumes")


@pytest.fixture
def no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the mark of the lock file can be written."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.pwrite", refuse)


@pytest.mark.parametrize("marked", [True, False])
def test_a_volume_is_deleted(node: Node, request: pytest.FixtureRequest, marked: bool) -> None:
    volume, other = node.make(), node.make()
    node.sys.full = True
    if not marked:
        request.getfixturevalue("no_mark")
    node.plugin.delete(volume)
    node.plugin.empty_trash()
    assert not node.path(volume).exists()
    assert os.listdir(node.root / ".prov-host" / "trash") == []
    assert [asset.pv_name for asset in node.plugin.inventory()] == [other.name]


def test_without_a_mark_the_records_are_read_each_time(node: Node, no_mark: None) -> None:
    volume = node.make()
    node.make()
    (storage,) = node.plugin._storages
    with storage.opened(recorded=frozenset) as opened:
        assert opened.count() == 2
    another = HostpathPlugin(environ={})
    another.configure(msgspec.convert({"directories": [str(node.root)]}, HostpathSettings), node.host)
    another.delete(volume)
    with storage.opened(recorded=frozenset) as opened:
        assert opened.count() == 1


def test_an_archive_waits_and_says_for_what(node: Node) -> None:
    volume = node.make()
    node.sys.full = True
    with pytest.raises(DeleteError, match=r"No space left.*needs room for a small record.*deleting volumes needs none"):
        node.plugin.archive(volume)
    assert node.path(volume).joinpath("f").read_text() == "the only copy"
    node.sys.full = False
    node.plugin.archive(volume)
    (archive,) = [asset for asset in node.plugin.inventory() if asset.kind == "archive"]
    assert Path(archive.id, "f").read_text() == "the only copy"
