"""A share without free space or inodes: what makes room works, what needs room says so, nothing is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from faulty_sys import Crash, FaultySys
from nfs_rig import Rig
from prov_host import DeleteError, NoChange, Volume
from prov_host.testing.objects import make_claim
from prov_host_nfs_subdir.records import owner_file

DEEP = {"pathPattern": "team/${.PVC.namespace}/${.PVC.name}"}


class FullSys(FaultySys):
    """Whatever needs a new file, directory, entry or block fails; renaming and removing do not."""

    full = 0

    def _call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        new = name in {"mkdir", "write", "link"} or (name == "open" and args[1] & os.O_CREAT)
        if self.full and new:
            self.log.append(f"refused {name}")
            raise OSError(self.full, os.strerror(self.full))
        return super()._call(name, real, args, options)


def fill(rig: Rig, code: int, **options: Any) -> FullSys:
    """The next process, on the share when it is full."""
    rig.sys = sys = FullSys(**options)
    rig.start()
    sys.full = code
    sys.calls = 0
    sys.log.clear()
    return sys


def filled(rig: Rig, name: str = "data") -> Volume:
    volume = rig.make("ns1", name, DEEP)
    path = rig.directory(volume)
    (path / "deep").mkdir()
    (path / "deep" / "f").write_text("the only copy")
    return volume


def foreign(rig: Rig) -> Volume:
    volume = rig.without_record(filled(rig))
    (rig.share / ".prov-host" / "owners" / owner_file(volume.name)).unlink()
    rig.put(volume)
    return volume


CODES = pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
MADE = pytest.mark.parametrize("made", [filled, foreign])


@CODES
@MADE
@pytest.mark.parametrize("like_nfs", [False, True], ids=["local", "nfs"])
def test_a_volume_is_deleted(rig: Rig, made: Callable[[Rig], Volume], code: int, like_nfs: bool) -> None:
    volume = made(rig)
    sys = fill(rig, code, like_nfs=like_nfs)
    rig.delete(volume)
    assert not (rig.share / "team" / "ns1" / "data").exists()
    assert (rig.owners(), rig.trash()) == ([], [])
    assert made is foreign or not {"refused open", "refused write"}.intersection(sys.log)


def test_a_big_volume_is_removed_by_several_threads(rig: Rig) -> None:
    """Sharing the work out needs entries in the trash; without, one thread does all of it."""
    rig.settings["removal_threads"] = 8
    volume = filled(rig)
    for n in range(50):
        (rig.directory(volume) / f"d{n}" / "below").mkdir(parents=True)
    fill(rig, errno.ENOSPC, like_nfs=True)
    rig.delete(volume)
    assert rig.trash() == []


@MADE
def test_a_crash_while_deleting_is_finished_by_the_next_process(rig: Rig, made: Callable[[Rig], Volume]) -> None:
    at = 0
    finished = False
    neighbour = rig.make("ns2", "neighbour")
    while not finished:
        at += 1
        volume = made(rig)
        sys = fill(rig, errno.ENOSPC, at=at, only_changing=True)
        for served in rig.plugin._served.values():
            served.trash.add = lambda _name: None  # type: ignore[method-assign]
        with suppress(Crash):
            rig.plugin.delete(volume)
            finished = True
        later = fill(rig, errno.ENOSPC)
        rig.plugin.delete(volume)
        rig.drop(volume)
        for served in rig.plugin._served.values():
            served.trash.sweep()
        assert rig.plugin.wait_for_trash(10)
        assert not (rig.share / "team" / "ns1" / "data").exists()
        assert (len(rig.owners()), rig.trash()) == (1, []), sys.what
        assert rig.directory(neighbour).is_dir()
        later.full = 0
    assert at > 2


@CODES
@MADE
def test_an_archive_waits_and_says_for_what(rig: Rig, made: Callable[[Rig], Volume], code: int) -> None:
    volume = made(rig)
    sys = fill(rig, code)
    with pytest.raises(DeleteError, match=rf"cannot be archived: {os.strerror(code)}.*archives prune.*data is where"):
        rig.plugin.archive(volume)
    assert (rig.directory(volume) / "deep" / "f").read_text() == "the only copy"
    assert rig.archives() == []
    sys.full = 0
    rig.archive(volume)
    (archive,) = rig.archives()
    assert (archive / "deep" / "f").read_text() == "the only copy"


def test_an_archive_that_waits_is_deleted_once_its_policy_says_so(rig: Rig) -> None:
    """Nothing is left of the archiving that began."""
    volume = filled(rig)

    class NoMove(FaultySys):
        full = True

        def _call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            if name == "rename_noreplace" and self.full and not args[1].endswith(".json"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super()._call(name, real, args, options)

    rig.sys = NoMove()
    rig.start()
    with pytest.raises(DeleteError, match="cannot be archived"):
        rig.plugin.archive(volume)
    assert len(list(rig.share.glob("archived-*.json"))) == 1
    rig.delete(volume)
    assert list(rig.share.glob("archived-*")) == []


def test_a_claim_is_refused_and_leaves_nothing(rig: Rig) -> None:
    before = filled(rig)
    sys = fill(rig, errno.ENOSPC)
    tree = rig.tree(private=True)
    request = rig.request(make_claim("new", "ns1"), DEEP)
    with pytest.raises(NoChange, match="No space left"):
        rig.plugin.provision(request)
    assert rig.tree(private=True) == tree
    rig.delete(before)
    sys.full = 0
    assert rig.directory(rig.provision(request)).is_dir()


def test_what_deleting_needs_is_made_while_there_is_room(rig: Rig) -> None:
    volume = rig.make("ns1", "data")
    for area in ("trash", "parents", "new", "owners"):
        assert (rig.share / ".prov-host" / area).is_dir()
    assert Path(rig.directory(volume)).is_dir()


def test_archives_expire(rig: Rig) -> None:
    rig.settings["retention_confirm"] = "0"
    rig.start()
    clocked = rig.sys
    rig.archive(rig.make("ns1", "data", {"archiveRetention": "1d"}))
    rig.clock._move(2 * 86400)
    fill(rig, errno.ENOSPC)._real = clocked
    rig.host.jobs["nfs_subdir expired archives of default"][1]()
    assert rig.plugin.wait_for_trash(10)
    assert rig.archives() == []
    assert rig.trash() == []
