"""What is mounted in a tree, be it a part of the same file system, is noticed, never entered and never emptied."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from faulty_sys import FaultySys
from mount_space import run_with_mounts
from prov_host.safedir import Dir, OtherFilesystem, RealSys, remove_tree, syscalls


class Bound(RealSys):
    """Says of directories named ``bound`` that they are on another mount; all else is as on the same."""

    def mount_id(self, fd: int) -> int:
        return super().mount_id(fd) + (1000 if self.real_path(fd).endswith("/bound") else 0)


def test_a_bind_mount_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "a" / "bound").mkdir(parents=True)
    with Dir.open_root(str(tmp_path), Bound()) as root:
        root.walk(["a"]).close()
        for readable in (True, False):
            with root.child("a") as a, pytest.raises(OtherFilesystem, match="bind mount"):
                a.child("bound", readable=readable)
            with pytest.raises(OtherFilesystem):
                root.walk(["a", "bound"], readable=readable)


def test_a_bind_mount_in_the_trash_is_left_and_the_rest_goes(tmp_path: Path) -> None:
    (tmp_path / "t" / "deep" / "bound").mkdir(parents=True)
    for where in (".", "deep", "deep/bound"):
        (tmp_path / "t" / where / "f").touch()
    with Dir.open_root(str(tmp_path), Bound()) as trash:
        result = remove_tree(trash, "t")
    assert not result.done
    assert "bind mount" in result.problems[0]
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("f")] == ["t/deep/bound/f"]


def test_a_kernel_that_does_not_tell_the_mount_is_asked_for_the_device_alone(tmp_path: Path) -> None:
    class Old(RealSys):
        def mount_id(self, fd: int) -> int:
            return 0

    (tmp_path / "a").mkdir()
    with Dir.open_root(str(tmp_path), Old()) as root, root.child("a") as below:
        assert (below.mount, below.device) == (0, os.stat(tmp_path).st_dev)


def test_a_mount_that_cannot_be_told_is_not_entered(tmp_path: Path) -> None:
    """An error is no answer."""
    (tmp_path / "a").mkdir()
    with Dir.open_root(str(tmp_path), sys := FaultySys()) as root:
        sys.calls, sys.at, sys.error = 0, 3, errno.EIO
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match="Input/output"):
            root.child("a")
        assert sys.what.startswith("mount_id ")
        assert len(os.listdir("/proc/self/fd")) == before


def test_both_ways_to_ask_the_kernel_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/", "/proc", "."):
        with Dir.open_root(path) as there:
            quick = there.sys.mount_id(there.fd)
            found = there.sys.mount_of(there.fd)
            assert found is not None
            assert quick == int(found.id) > 0
            with monkeypatch.context() as patch:
                patch.setattr(syscalls, "_statx", lambda: None)
                assert there.sys.mount_id(there.fd) == quick


def test_a_mount_point_is_known_by_any_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    with Dir.open_root(str(tmp_path / "link")) as proc, Dir.open_root(str(tmp_path)) as other:
        assert proc.is_mount_point()
        assert not other.is_mount_point()


def test_what_is_mounted_inside_is_found_by_any_path(tmp_path: Path) -> None:
    run_with_mounts(
        """
        from prov_host.safedir import Dir
        for name in ("real/volume/inside", "real/volume-2", "out"):
            (base / name).mkdir(parents=True)
        (base / "link").symlink_to(base / "real")
        bind(base / "out", base / "real/volume/inside")
        bind(base / "out", base / "real/volume-2")
        for path in ("link", "real"):
            with Dir.open_root(str(base / path)) as root, root.child("volume") as volume:
                (mount,) = volume.mounts_inside()
                assert mount.point == str(base / "real/volume/inside"), mount
                assert len(root.mounts_inside()) == 2
        """,
        tmp_path,
    )


@pytest.mark.parametrize("where", ["inside", "inside/deeper", "."])
def test_a_real_bind_mount_is_never_emptied(tmp_path: Path, where: str) -> None:
    """As found: the file system's number is the same on both sides, so only the mount's tells."""
    run_with_mounts(
        f"""
        from prov_host.safedir import Dir, remove_tree
        for name in ("trash/t/inside/deeper", "out"):
            (base / name).mkdir(parents=True)
        (base / "out/precious").touch()
        (base / "trash/t/f").touch()
        bind(base / "out", base / "trash/t" / {where!r})
        with Dir.open_root(str(base / "trash")) as trash:
            try:
                result = remove_tree(trash, "t")
                assert not result.done, result
            except OSError as error:
                assert {where!r} == ".", error
        assert (base / "out/precious").exists()
        """,
        tmp_path,
    )
