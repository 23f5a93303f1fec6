"""Removing trees: any depth and width, nothing outside, whatever cannot go is said and left."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faulty_sys import Crash, FaultySys
from prov_host.safedir import MAX_DEPTH, Dir, Removal, remove_tree


@pytest.fixture
def trash(tmp_path: Path) -> Iterator[Dir]:
    directory = tmp_path / "trash"
    directory.mkdir()
    with Dir.open_root(str(directory), FaultySys()) as opened:
        yield opened


def empty(trash: Dir, name: str) -> list[Removal]:
    """Remove a tree and all that it was split into."""
    results, names = [], [name]
    while names:
        results.append(remove_tree(trash, names.pop()))
        names += results[-1].spilled
    return results


def build(path: Path, depth: int, width: int) -> int:
    made = 0
    for _ in range(depth):
        path.mkdir()
        for n in range(width):
            (path / f"f{n}").touch()
            made += 1
        path /= "d"
    return made


def test_a_tree_is_removed_and_counted(trash: Dir) -> None:
    files = build(Path(trash.path, "t"), 5, 10)
    (result,) = empty(trash, "t")
    assert result.done
    assert (result.files, result.directories) == (files, 5)
    assert trash.names() == []


def test_a_tree_deeper_than_any_path_is_removed_with_few_descriptors(trash: Dir) -> None:
    """PATH_MAX is 4096, and the process may have no more than a few dozen files open."""
    fd = os.open(trash.path, os.O_RDONLY)
    os.mkdir("t", dir_fd=fd)
    here = os.open("t", os.O_RDONLY, dir_fd=fd)
    for _ in range(3000):
        os.mkdir("d" * 50, dir_fd=here)
        below = os.open("d" * 50, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, open_now + 2 * MAX_DEPTH + 10), hard))
    try:
        results = empty(trash, "t")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sum(result.directories for result in results) == 3001
    assert trash.names() == []


def test_links_are_removed_and_never_followed(trash: Dir, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    tree = Path(trash.path, "t")
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    (tree / "loop").symlink_to(".")
    (Path(trash.path) / "itself").symlink_to(outside)
    assert empty(trash, "t")[0].done
    assert empty(trash, "itself")[0].done
    assert trash.names() == []
    assert (outside / "keep").exists()


def test_a_directory_swapped_for_a_link_in_the_middle_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    base = tmp_path / "trash"
    (base / "t" / "d").mkdir(parents=True)

    class Swapping(FaultySys):
        def _call(self, name, real, args, options):  # type: ignore[no-untyped-def]
            if name == "open" and args[0] == "d":
                (base / "t" / "d").rmdir()
                (base / "t" / "d").symlink_to(outside)
            return super()._call(name, real, args, options)

    with Dir.open_root(str(base), Swapping()) as trash:
        assert empty(trash, "t")[0].done
    assert os.listdir(base) == []
    assert (outside / "keep").exists()


_AS_NOBODY = """
import os
import sys
from prov_host.safedir import Dir, remove_tree
os.setuid(int(sys.argv[2]))  # after the imports: the interpreter may be where only root can read
with Dir.open_root(sys.argv[1]) as trash:
    result = remove_tree(trash, "t")
    assert result.done, result
    assert trash.names() == []
"""


def test_directories_without_permissions_are_removed_by_their_owner() -> None:
    """Not by root, who needs no permission."""
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    with tempfile.TemporaryDirectory() as base:  # tmp_path is closed to other users
        trash = Path(base)
        (trash / "t" / "closed" / "inner").mkdir(parents=True)
        (trash / "t" / "closed" / "f").touch()
        for mode in (0o400, 0o300):
            (trash / "t" / f"{mode:o}" / "inner").mkdir(parents=True)
            (trash / "t" / f"{mode:o}" / "inner" / "f").touch()
        for path in (trash, *trash.rglob("*")):
            os.chown(path, user, -1)
        for mode in (0o400, 0o300):
            (trash / "t" / f"{mode:o}").chmod(mode)
        (trash / "t" / "closed").chmod(0o000)
        (trash / "t").chmod(0o500)
        done = subprocess.run([sys.executable, "-c", _AS_NOBODY, base, str(user)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert os.listdir(trash) == []


def test_what_cannot_be_removed_is_said_and_left_and_the_rest_goes(trash: Dir) -> None:
    tree = Path(trash.path, "t")
    build(tree, 3, 5)

    class Stubborn(FaultySys):
        def _call(self, name, real, args, options):  # type: ignore[no-untyped-def]
            if name == "unlink" and args[0] == "f3":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super()._call(name, real, args, options)

    trash.sys = Stubborn()
    (result,) = empty(trash, "t")
    assert not result.done
    assert result.failed == 3
    assert any("f3" in problem and "Input/output" in problem for problem in result.problems)
    assert sorted(os.listdir(tree)) == ["d", "f3"]
    trash.sys = FaultySys()
    assert empty(trash, "t")[0].done
    assert trash.names() == []


def test_a_mount_in_the_tree_is_left(trash: Dir) -> None:
    tree = Path(trash.path, "t")
    (tree / "mounted").mkdir(parents=True)
    (tree / "f").touch()

    class Mounted(FaultySys):
        def _call(self, name, real, args, options):  # type: ignore[no-untyped-def]
            result = super()._call(name, real, args, options)
            if name == "fstat" and os.path.realpath(f"/proc/self/fd/{args[0]}").endswith("mounted"):
                values = list(result)
                values[2] = 1  # st_dev
                return os.stat_result(values)
            return result

    trash.sys = Mounted()
    (result,) = empty(trash, "t")
    assert not result.done
    assert "another file system" in result.problems[0]
    assert os.listdir(tree) == ["mounted"]


def test_subtrees_are_handed_out_when_somebody_asks(trash: Dir) -> None:
    build(Path(trash.path, "t"), 4, 3)
    result = remove_tree(trash, "t", spill=lambda: True)
    assert len(result.spilled) == 1
    assert trash.names() == result.spilled
    assert all(one.done for one in empty(trash, result.spilled[0]))
    assert trash.names() == []


def test_a_removal_stops_when_told_and_goes_on_later(trash: Dir) -> None:
    build(Path(trash.path, "t"), 1, 1000)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 2

    assert not remove_tree(trash, "t", stop=stop).done
    assert 0 < len(os.listdir(Path(trash.path, "t"))) < 1000
    assert empty(trash, "t")[0].done


def test_nothing_there_is_nothing_to_do(trash: Dir) -> None:
    assert empty(trash, "t") == [Removal()]


def test_a_crash_at_any_call_is_finished_later(tmp_path: Path) -> None:
    at = 0
    while True:
        at += 1
        base = tmp_path / f"{at}"
        base.mkdir()
        build(base / "t", 3, 2)
        sys = FaultySys(at=at, only_changing=True)
        with Dir.open_root(str(base), sys) as trash:
            try:
                remove_tree(trash, "t", spill=lambda: True)
            except Crash:
                pass
            else:
                break
        with Dir.open_root(str(base), FaultySys()) as trash:
            for name in trash.names():
                empty(trash, name)
            assert trash.names() == []
    assert at > 4
