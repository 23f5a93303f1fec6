"""Who owns a directory: other clusters on the same share, lost records, other spellings, what is left behind.

Each cluster knows its own volumes only; on the share there are the ownership records of all. A directory may be used
or removed only if both agree, and a record that is missing says nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from faulty_sys import QuickSys
from nfs_rig import Rig
from prov_host import DeleteError, ProvisionError, Volume
from prov_host.testing.objects import make_claim
from prov_host_nfs_subdir.records import stem

BY_NAME = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}
ADOPT = {**BY_NAME, "adoptExisting": "true"}
SHARED = {"pathPattern": "shared/x", "adoptExisting": "true"}
ANY = {"pathPattern": "${.PVC.annotations.p}", "allowSlashInValues": "true", "adoptExisting": "true"}


def cluster_on(rig: Rig) -> Rig:
    second = Rig(rig.share)
    second._ids = iter(range(900, 1000))  # type: ignore[assignment]
    second.start()
    return second


@pytest.fixture
def two(rig: Rig) -> Iterator[tuple[Rig, Rig]]:
    second = cluster_on(rig)
    yield rig, second
    second.stop()


def lose_record(rig: Rig, volume: Volume) -> None:
    (rig.share / ".prov-host" / "owners" / f"{stem(volume.name)}.json").unlink()


def record_of(rig: Rig, volume: Volume) -> Path:
    return rig.share / ".prov-host" / "owners" / f"{stem(volume.name)}.json"


# --- several clusters on one share --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["app/data", "app", "app/data/inside"])
@pytest.mark.parametrize("first", [BY_NAME, ADOPT])
def test_a_directory_that_another_cluster_uses_is_neither_adopted_nor_entered(
    two: tuple[Rig, Rig], path: str, first: dict[str, str]
) -> None:
    one, second = two
    for name in ("y", "z"):
        second.make("x", name, BY_NAME)  # its index of records is older than the volume
    volume = one.make("app", "data", first)
    (one.directory(volume) / "precious").write_text("A")
    (one.directory(volume) / "inside").mkdir()
    before = one.tree()
    if path == "app/data" and first is ADOPT:
        return  # that is sharing on purpose
    with pytest.raises(ProvisionError, match=volume.name):
        second.make("ns", "data", ANY, annotations={"p": path})
    assert one.tree() == before


def test_clusters_share_a_directory_if_both_say_so_and_the_last_volume_acts(two: tuple[Rig, Rig]) -> None:
    one, second = two
    here, there = one.make("ns1", "a", SHARED), second.make("ns1", "b", SHARED)
    data = one.directory(here) / "precious"
    data.write_text("A")
    assert there.name in second.delete(there).message or data.exists()
    assert data.read_text() == "A"
    one.delete(here)
    assert not data.exists()
    assert one.owners() == []


def test_a_shared_directory_is_left_to_the_other_cluster_s_volume(two: tuple[Rig, Rig]) -> None:
    one, second = two
    here, there = one.make("ns1", "a", SHARED), second.make("ns1", "b", SHARED)
    removed = one.archive(here)
    assert there.name in removed.message
    assert one.directory(here).is_dir()
    assert one.archives() == []
    second.archive(there)
    assert len(one.archives()) == 1


@pytest.mark.parametrize("shared", ["true", "false"])
def test_a_volume_of_another_cluster_inside_an_adopted_directory_stops_its_removal(
    two: tuple[Rig, Rig], shared: str
) -> None:
    """Two clusters that provision at the same moment do not see each other; the deletion looks again."""
    one, second = two
    (one.share / "team").mkdir()
    outer = one.make("ns1", "team", {"pathPattern": "team", "adoptExisting": "true"})
    inner = second.make("x", "y", {"adoptExisting": shared})
    second.directory(inner).rename(one.share / "team" / "data")
    record = msgspec.json.decode(record_of(second, inner).read_bytes())
    record_of(second, inner).write_bytes(msgspec.json.encode({**record, "path": "team/data"}))
    for hook in (one.plugin.delete, one.plugin.archive):
        with pytest.raises(DeleteError, match=inner.name):
            hook(outer)
    assert (one.share / "team" / "data").is_dir()


def test_a_parent_that_was_adopted_since_is_a_volume_for_the_other_cluster_at_once(two: tuple[Rig, Rig]) -> None:
    one, second = two
    for name in ("y", "z"):
        second.make("x", name, BY_NAME)
    first = one.make("team", "a", BY_NAME)
    (one.share / "team" / "notes").write_text("kept")  # so it stays when it is not a parent any more
    one.delete(first)
    volume = one.make("ns", "a", ANY, annotations={"p": "team"})
    with pytest.raises(ProvisionError, match=volume.name):
        second.make("ns", "b", ANY, annotations={"p": "team/inside"})


def test_a_record_that_cannot_be_read_is_nobody_s_permission(two: tuple[Rig, Rig]) -> None:
    one, second = two
    here = one.make("ns1", "a", SHARED)
    there = second.make("ns1", "b", SHARED)
    record_of(one, there).write_text("{")
    with pytest.raises(DeleteError, match=stem(there.name)):
        one.plugin.delete(here)
    with pytest.raises(ProvisionError, match=stem(there.name)):
        one.make("ns1", "c", SHARED)
    assert one.directory(here).is_dir()


def test_a_record_without_a_directory_blocks_nobody(two: tuple[Rig, Rig]) -> None:
    one, second = two
    gone = one.make("ns1", "data", BY_NAME)
    one.directory(gone).rmdir()
    volume = second.make("ns1", "data", BY_NAME)
    assert second.directory(volume).is_dir()
    second.delete(volume)


# --- what was retained can be adopted again --------------------------------------------------------------------------


def _retained(rig: Rig) -> Volume:
    """The volume object was deleted by hand, or its policy is retain: nobody called the plugin."""
    volume = rig.make("ns1", "data", BY_NAME)
    (rig.directory(volume) / "f").write_text("kept")
    rig.drop(volume)
    rig.start()
    return volume


def test_a_retained_directory_is_adopted_by_a_new_claim_and_then_its_alone(rig: Rig) -> None:
    old = _retained(rig)
    new = rig.make("ns1", "data", ADOPT)
    assert (rig.directory(new) / "f").read_text() == "kept"
    assert rig.owners() == [record_of(rig, new).name], "the old record is gone"
    rig.delete(new)
    assert not rig.directory(old).exists()


@pytest.mark.parametrize("what", ["class", "claim", "volume"])
def test_but_only_if_it_is_proved_that_nobody_uses_it(rig: Rig, what: str) -> None:
    old = _retained(rig)
    if what == "class":
        rig.classes.clear()  # another cluster has other classes
    elif what == "claim":
        rig.host.known_claims.append(make_claim("data", "ns1", uid=old.claim_uid))
    else:
        rig.put(old)
    before = rig.tree()
    with pytest.raises(ProvisionError, match=old.name):
        rig.make("ns1", "data", ADOPT)
    assert rig.tree() == before


def test_a_retained_directory_inside_is_not_removed_with_the_one_around_it(rig: Rig) -> None:
    old = _retained(rig)
    with pytest.raises(ProvisionError, match=old.name):
        rig.make("ns1", "all", {"pathPattern": "ns1", "adoptExisting": "true"})


# --- lost records ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["delete", "archive"])
@pytest.mark.parametrize("restart", [True, False])
def test_a_volume_whose_record_was_lost_still_uses_its_directory(rig: Rig, hook: str, restart: bool) -> None:
    first, second = rig.make("ns1", "a", SHARED), rig.make("ns1", "b", SHARED)
    (rig.directory(first) / "precious").write_text("A")
    lose_record(rig, first)
    if restart:
        rig.start()
    removed = getattr(rig, hook)(second)
    assert first.name in removed.message
    assert (rig.directory(first) / "precious").read_text() == "A"
    getattr(rig, hook)(first)
    assert not rig.directory(first).exists()


@pytest.mark.parametrize("path", ["app", "app/one/x", "app/one"])
def test_a_volume_whose_record_was_lost_is_not_adopted(rig: Rig, path: str) -> None:
    volume = rig.make("app", "one", BY_NAME)
    (rig.directory(volume) / "x").mkdir()
    lose_record(rig, volume)
    rig.start()
    before = rig.tree()
    with pytest.raises(ProvisionError, match=volume.name):
        rig.make("evil", "x", ANY, annotations={"p": path})
    assert rig.tree() == before


def test_that_a_volume_was_released_counts_for_that_very_volume_only(rig: Rig) -> None:
    """Its object is deleted and restored from a backup under the same name: it has another uid, and counts."""
    old = rig.make("ns1", "data", BY_NAME)
    rig.plugin.delete(old)
    wire = msgspec.to_builtins(old)
    wire["metadata"]["uid"] = "another"
    rig.put(msgspec.convert(wire, Volume))
    with pytest.raises(ProvisionError, match=old.name):
        rig.make("ns1", "data", BY_NAME)


# --- other spellings --------------------------------------------------------------------------------------------------


class IgnoringCase(QuickSys):
    """A share on which ``data`` is ``Data``, and ``data`` with a space behind it too: it ignores case and spaces."""

    def _real(self, name: str, dir_fd: int | None) -> str:
        if dir_fd is None or name == ".":
            return name
        names = os.listdir(f"/proc/self/fd/{dir_fd}")
        return next((one for one in names if one.casefold().rstrip() == name.casefold().rstrip()), name)

    def open(self, path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> int:
        return super().open(self._real(path, dir_fd), flags, mode, dir_fd=dir_fd)

    def lstat(self, name: str, *, dir_fd: int) -> os.stat_result:
        return super().lstat(self._real(name, dir_fd), dir_fd=dir_fd)

    def mkdir(self, name: str, mode: int, *, dir_fd: int) -> None:
        super().mkdir(self._real(name, dir_fd), mode, dir_fd=dir_fd)

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        old, new = self._real(old, src_dir_fd), self._real(new, dst_dir_fd)
        super().rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def rename_noreplace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        old, new = self._real(old, src_dir_fd), self._real(new, dst_dir_fd)
        super().rename_noreplace(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


@pytest.mark.parametrize(
    ("first", "second"),
    [("Data", "data"), ("Data", "DATA/x"), ("team/Data", "Team"), ("Straße", "STRASSE"), ("a/B/c", "A/b")],
)
@pytest.mark.parametrize("adopt", ["true", "false"])
@pytest.mark.parametrize("recorded", [True, False])
def test_another_spelling_of_a_volume_s_directory_is_refused(
    rig: Rig, first: str, second: str, adopt: str, recorded: bool
) -> None:
    rig.sys = IgnoringCase()
    rig.start()
    volume = rig.make("victim", "a", {**ANY, "adoptExisting": "false"}, annotations={"p": first})
    (rig.share / first / "precious").write_text("v")
    (rig.share / first / "x").mkdir()
    if not recorded:
        rig.put(rig.without_record(volume))
        lose_record(rig, volume)
        rig.start()
    before = rig.tree()
    with pytest.raises(ProvisionError):
        rig.make("evil", "b", {**ANY, "adoptExisting": adopt}, annotations={"p": second})
    assert rig.tree() == before


def test_so_is_a_spelling_that_only_the_server_takes_for_the_same(rig: Rig) -> None:
    rig.sys = IgnoringCase()
    rig.start()
    rig.make("victim", "a", ANY, annotations={"p": "Data"})
    before = rig.tree()
    for path in ("Data ", "data ", "data /x"):
        with pytest.raises(ProvisionError, match="or inside it"):
            rig.make("evil", "b", ANY, annotations={"p": path})
    assert rig.tree() == before


def test_a_directory_around_another_cluster_s_volume_is_known_in_any_spelling(rig: Rig) -> None:
    rig.sys = IgnoringCase()
    rig.start()
    rig.make("victim", "a", ANY, annotations={"p": "team/data"})
    second = cluster_on(rig)
    second.sys = rig.sys
    second.start()
    before = rig.tree()
    with pytest.raises(ProvisionError, match="around it"):
        second.make("evil", "b", ANY, annotations={"p": "Team"})
    assert rig.tree() == before
    second.stop()


def test_parents_may_be_spelled_differently(rig: Rig) -> None:
    rig.sys = IgnoringCase()
    rig.start()
    paths = ("Team/one", "team/two")
    volumes = [rig.make("x", f"c{n}", ANY, annotations={"p": path}) for n, path in enumerate(paths)]
    for volume in volumes:
        assert rig.plugin.delete(volume).already_absent is False


# --- other shares inside this one -----------------------------------------------------------------------------------


def _inner(rig: Rig, where: str) -> Volume:
    """Another host's share, whose root is a directory of this one; it has an archive and a volume."""
    (rig.share / where).mkdir(parents=True)
    inner = Rig(rig.share / where)
    inner.environ = {**inner.environ, "NFS_PATH": f"/exports/k8s/{where}"}
    inner._ids = iter(range(900, 1000))  # type: ignore[assignment]
    inner.start()
    inner.make("x", "y")
    volume = inner.make("victim", "secret")
    inner.archive(volume)
    inner.stop()
    (name,) = (path.name for path in (rig.share / where).glob("archived-*") if path.is_dir())
    (rig.share / where / name / "precious").write_text("S")
    return volume


@pytest.mark.parametrize("adopt", ["true", "false"])
@pytest.mark.parametrize("where", ["k8s", "deep/er/k8s"])
def test_the_root_of_another_share_is_neither_adopted_nor_entered(rig: Rig, where: str, adopt: str) -> None:
    _inner(rig, where)
    archive = next(path.name for path in (rig.share / where).glob("archived-*") if path.is_dir())
    before = rig.tree(private=True)
    top = where.partition("/")[0]
    for path in (top, where, f"{where}/{archive}", f"{where}/{archive}/x", f"{where}/new", f"{where}/x/y"):
        with pytest.raises(ProvisionError):
            rig.make("evil", "a", {**ANY, "adoptExisting": adopt}, annotations={"p": path})
        assert {k: v for k, v in rig.tree(private=True).items() if not k.startswith(".prov-host")} == before
    rig.make("nice", "a", ANY, annotations={"p": "beside/it"})


@pytest.mark.parametrize("taken_over", [True, False])
def test_the_root_of_another_share_is_not_removed_with_a_directory_around_it(rig: Rig, taken_over: bool) -> None:
    """Somebody began to use a share inside a directory after it was adopted."""
    (rig.share / "team").mkdir()
    volume = rig.make("ns", "a", ANY, annotations={"p": "team"})
    if taken_over:
        volume = rig.without_record(volume)
        rig.put(volume)
        lose_record(rig, volume)
        rig.start()
    _inner(rig, "team/k8s")
    for hook in (rig.plugin.delete, rig.plugin.archive):
        with pytest.raises(DeleteError, match="another share"):
            hook(volume)
    assert (rig.share / "team/k8s/.prov-host/sentinel").is_file()


def test_a_tenant_cannot_keep_a_volume_by_making_it_look_like_a_share(rig: Rig) -> None:
    volume = rig.make("ns", "a")
    (rig.directory(volume) / ".prov-host").mkdir()
    (rig.directory(volume) / ".prov-host" / "sentinel").write_text('{"id": "evil-share-1"}')
    rig.delete(volume)
    assert not rig.directory(volume).exists()


@pytest.mark.parametrize("where", ["", "old/", "a/b/"])
def test_no_archive_is_reached_at_any_depth(rig: Rig, where: str) -> None:
    name = "archived-ns1-data-pvc-11111111-0000-4000-8000-000000000001"
    (rig.share / where / name).mkdir(parents=True)
    before = rig.tree()
    for path in (f"{where}{name}", f"{where}{name}/x"):
        with pytest.raises(ProvisionError, match="archive"):
            rig.make("evil", "a", ANY, annotations={"p": path})
    assert rig.tree() == before
    rig.make("evil", "a", ANY, annotations={"p": f"{where}archived-by-nobody"})


def test_volumes_share_a_directory_that_is_named_like_an_archive(rig: Rig) -> None:
    first = rig.make("a", "a", ANY, annotations={"p": "x/archived-team"})
    second = rig.make("b", "b", ANY, annotations={"p": "x/archived-team"})
    rig.delete(first)
    assert rig.directory(second).is_dir()
    rig.delete(second)
    assert not (rig.share / "x").exists()
