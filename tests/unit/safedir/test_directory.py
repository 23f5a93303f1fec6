"""Open directories: links are never followed, nothing is replaced, modes are exact."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from faulty_sys import FaultySys
from prov_host.safedir import Dir, NotADirectory, OtherFilesystem, RealSys, UnsafeName


@pytest.fixture(params=[False, True], ids=["local", "nfs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dir]:
    """A root on a file system that has a rename that never replaces, and on one that has not."""
    directory = tmp_path / "root"
    directory.mkdir()
    with Dir.open_root(str(directory), FaultySys(like_nfs=request.param)) as opened:
        yield opened


@pytest.fixture
def path(root: Dir) -> Path:
    return Path(root.path)


def test_a_link_is_never_entered(root: Dir, path: Path) -> None:
    (path / "real" / "inner").mkdir(parents=True)
    (path / "link").symlink_to("real")
    (path / "real" / "up").symlink_to("..")
    for names in (["link"], ["link", "inner"], ["real", "up"], ["real", "up", "real"]):
        with pytest.raises(NotADirectory, match="symbolic link"):
            root.walk(names)
    with root.walk(["real", "inner"]) as inner:
        assert inner.path == str(path / "real" / "inner")


def test_what_is_no_directory_is_said_with_its_path(root: Dir, path: Path) -> None:
    (path / "file").touch()
    os.mkfifo(path / "fifo")
    for name in ("file", "fifo"):
        with pytest.raises(NotADirectory) as caught:
            root.child(name)
        assert caught.value.filename == str(path / name)
    with pytest.raises(FileNotFoundError) as missing:
        root.walk(["a", "b"])
    assert missing.value.filename == str(path / "a")


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/", "a\0b"])
def test_names_that_lead_elsewhere_are_refused_by_every_call(root: Dir, name: str) -> None:
    calls = [
        lambda: root.child(name),
        lambda: root.lstat(name),
        lambda: root.make(name, 0o755),
        lambda: root.rename(name, root, "x"),
        lambda: root.rename("x", root, name),
        lambda: root.install(name, root, "x"),
        lambda: root.install("x", root, name),
        lambda: root.rmdir(name),
        lambda: root.unlink(name),
        lambda: root.read_file(name),
        lambda: root.write_file(name, b"", temporary="t"),
    ]
    for call in calls:
        with pytest.raises(UnsafeName):
            call()


def test_another_file_system_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    with Dir.open_root("/") as root, pytest.raises(OtherFilesystem):
        root.child("proc")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize("mode", [0o755, 0o777, 0o700, 0o000, 0o2775])
def test_a_directory_has_exactly_its_mode(root: Dir, path: Path, umask: int, mode: int) -> None:
    old = os.umask(umask)
    try:
        root.make("made", mode).close()
    finally:
        os.umask(old)
    assert stat.S_IMODE((path / "made").stat().st_mode) == mode


def test_making_what_exists_is_refused_and_changes_nothing(root: Dir, path: Path) -> None:
    (path / "there").mkdir(mode=0o711)
    (path / "link").symlink_to("there")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            root.make(name, 0o777)
    assert stat.S_IMODE((path / "there").stat().st_mode) == 0o711


def test_a_directory_that_cannot_be_given_away_is_removed_again(tmp_path: Path) -> None:
    sys = FaultySys()
    with Dir.open_root(str(tmp_path), sys) as root:
        sys.at, sys.error = len(sys.log) + 4, errno.EPERM  # mkdir, open, fstat, fchown
        with pytest.raises(PermissionError):
            root.make("made", 0o755, uid=1)
    assert os.listdir(tmp_path) == []


# --- install, move ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["empty", "full", "file", "link", "dangling"])
def test_installing_never_replaces_anything(root: Dir, path: Path, kind: str) -> None:
    (path / "new").mkdir()
    (path / "new" / "f").touch()
    there = path / "there"
    if kind in {"empty", "full"}:
        there.mkdir()
        if kind == "full":
            (there / "g").touch()
    elif kind == "file":
        there.touch()
    else:
        there.symlink_to("new" if kind == "link" else "nowhere")
    before = there.lstat().st_ino
    with pytest.raises(FileExistsError):
        root.install("new", root, "there")
    assert there.lstat().st_ino == before
    assert (path / "new" / "f").exists()


def test_installing_moves_a_whole_directory(root: Dir, path: Path) -> None:
    (path / "new").mkdir(mode=0o750)
    (path / "new" / "f").touch()
    inode = (path / "new").stat().st_ino
    root.install("new", root, "there")
    assert (path / "there" / "f").exists()
    assert (path / "there").stat().st_ino == inode
    assert not (path / "new").exists()
    with pytest.raises(FileNotFoundError):
        root.install("new", root, "other")
    assert not (path / "other").exists()


def test_an_interrupted_installation_is_taken_over_only_if_asked(root: Dir, path: Path) -> None:
    (path / "new").mkdir()
    (path / "there").mkdir(mode=0o700)
    with pytest.raises(FileExistsError):
        root.install("new", root, "there")
    root.install("new", root, "there", reserved=True)
    (path / "new").mkdir()
    (path / "there").chmod(0o755)
    with pytest.raises(FileExistsError):
        root.install("new", root, "there", reserved=True)
    (path / "there").chmod(0o700)
    (path / "there" / "f").touch()
    with pytest.raises(FileExistsError):
        root.install("new", root, "there", reserved=True)


@pytest.mark.parametrize("kind", ["file", "link", "fifo", "directory"])
def test_any_entry_is_moved_and_nothing_replaced(root: Dir, path: Path, kind: str) -> None:
    (path / "a").mkdir()
    (path / "b").mkdir()
    entry = path / "a" / "x"
    {
        "file": entry.touch,
        "link": lambda: entry.symlink_to("y"),
        "fifo": lambda: os.mkfifo(entry),
        "directory": entry.mkdir,
    }[kind]()
    with root.child("a") as a, root.child("b") as b:
        inode = entry.lstat().st_ino
        a.move("x", b, "x")
        assert (path / "b" / "x").lstat().st_ino == inode
        entry.touch()
        with pytest.raises(FileExistsError):
            a.move("x", b, "x")
    assert (path / "b" / "x").lstat().st_ino == inode
    assert entry.exists()


# --- small files -----------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_with_its_mode(root: Dir, path: Path) -> None:
    root.write_file("f", b"one", temporary="f.tmp")
    root.write_file("f", b"two" * 1000, temporary="f.tmp", mode=0o640)
    assert root.read_file("f") == b"two" * 1000
    assert stat.S_IMODE((path / "f").stat().st_mode) == 0o640
    assert root.names() == ["f"]
    with pytest.raises(FileExistsError):
        root.write_file("f", b"three", temporary="f.tmp", replace=False)
    assert root.names() == ["f"]
    root.write_file("g", b"new", temporary="g.tmp", replace=False)
    assert root.read_file("g") == b"new"


def test_only_small_regular_files_are_read(root: Dir, path: Path) -> None:
    assert root.read_file("missing") is None
    (path / "big").write_bytes(b"x" * 100)
    (path / "link").symlink_to("big")
    os.mkfifo(path / "fifo")
    (path / "directory").mkdir()
    with pytest.raises(OSError, match="longer than 99"):
        root.read_file("big", limit=99)
    assert root.read_file("big", limit=100) == b"x" * 100
    for name in ("link", "fifo", "directory"):
        with pytest.raises(OSError) as caught:
            root.read_file(name)
        assert caught.value.filename == str(path / name)


def test_without_hard_links_a_file_is_still_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "no links")

    sys = RealSys()
    monkeypatch.setattr(sys, "link", refuse, raising=False)
    with Dir.open_root(str(tmp_path), sys) as root:
        root.write_file("f", b"one", temporary="t", replace=False)
        with pytest.raises(FileExistsError):
            root.write_file("f", b"two", temporary="t", replace=False)
        assert root.read_file("f") == b"one"
        assert root.names() == ["f"]


def test_a_directory_is_closed_once(root: Dir) -> None:
    child = root.make("a", 0o755)
    child.close()
    child.close()
    assert root.rmdir("a")
    assert root.rmdir("a")
    assert not Path(root.path, "a").exists()


def test_no_descriptor_is_left_open(root: Dir, path: Path) -> None:
    (path / "a" / "b" / "c").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with root.walk(["a", "b", "c"]):
            pass
        with pytest.raises(FileNotFoundError):
            root.walk(["a", "b", "x", "y"])
        root.is_reservation("a")
        with pytest.raises(FileExistsError):
            root.install("a", root, "a")
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_mount_table_is_read() -> None:
    sys = RealSys()
    mounts = sys.mounts()
    assert any(mount.point == "/" for mount in mounts)
    with Dir.open_root("/proc", sys) as proc:
        mount = sys.mount_of(proc.fd)
    assert mount is not None
    assert (mount.point, mount.type) == ("/proc", "proc")
