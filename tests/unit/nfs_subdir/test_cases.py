"""The sixteen reported cases, by number, as far as the plugin alone decides them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nfs_rig import EXPORT, SERVER, Rig
from prov_host import DeleteError, Infeasible, NoChange, Outcome, ProvisionError
from prov_host.testing.objects import make_claim, make_volume

BY_NAME = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}


def test_case_1_the_directory_and_its_empty_parents_are_removed_and_the_event_names_the_path(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    (rig.share / "ns1" / "data" / "f").write_text("content")

    removed = rig.delete(volume)

    assert not (rig.share / "ns1").exists()
    assert rig.share.is_dir()
    assert f"{EXPORT}/ns1/data" in removed.message
    assert not removed.already_absent
    assert rig.trash() == []


def test_case_2_an_unrelated_directory_of_that_name_stays_as_it_is(rig: Rig) -> None:
    precious = rig.share / "data" / "precious"
    precious.parent.mkdir()
    precious.write_bytes(b"precious")
    before = rig.tree()
    volume = rig.make("ns1", "data", BY_NAME)
    (rig.share / "ns1" / "data" / "f").write_text("content")

    rig.delete(volume)

    assert rig.tree() == before


@pytest.mark.parametrize("path", ["/", "/exports/k8s/", "//exports/k8s", "/exports/../exports/k8s", "/exports/k8s"])
def test_case_3_every_spelling_of_the_exported_path_works(rig: Rig, path: str) -> None:
    rig.environ["NFS_PATH"] = path
    rig.start()
    volume = rig.make("ns1", "data", BY_NAME)
    assert volume.spec.nfs is not None
    assert volume.spec.nfs["path"] == ("/ns1/data" if path == "/" else "/exports/k8s/ns1/data")
    assert (rig.share / "ns1" / "data").is_dir()

    removed = rig.delete(volume)

    assert not (rig.share / "ns1").exists()
    assert not removed.already_absent


@pytest.mark.parametrize(
    "path", ["/other/x", "/exports/k8s2/x", "/exports/k8s", "/exports", "/exports/k8s/../x", "x", ""]
)
@pytest.mark.parametrize("ours", [True, False])
def test_case_3_a_volume_elsewhere_is_an_error_and_nothing_is_touched(rig: Rig, path: str, ours: bool) -> None:
    (rig.share / "x").mkdir()
    volume = rig.make("ns1", "data", BY_NAME)
    before = rig.tree()
    assert volume.spec.nfs is not None
    volume.spec.nfs["path"] = path

    with pytest.raises(DeleteError, match=volume.name):
        rig.delete(volume if ours else rig.without_record(volume))

    assert rig.tree() == before


def test_case_4_three_archives_keep_their_content_apart(rig: Rig) -> None:
    first = rig.make("ns1", "data", BY_NAME)
    (rig.directory(first) / "f1").write_text("1")
    rig.archive(first)
    second = rig.make("ns1", "data", BY_NAME)
    (rig.directory(second) / "f2").write_text("2")
    other = rig.make("ns2", "data", BY_NAME)
    (rig.directory(other) / "f3").write_text("3")
    rig.archive(other)
    rig.archive(second)

    found = {tuple(sorted(os.listdir(path))): path.name for path in rig.archives()}
    assert set(found) == {("f1",), ("f2",), ("f3",)}
    assert "ns1-data" in found["f1",]
    assert "ns1-data" in found["f2",]
    assert "ns2-data" in found["f3",]
    assert first.name in found["f1",]


def test_case_5_only_empty_parents_go_whatever_the_depth(rig: Rig) -> None:
    pattern = {"pathPattern": "foo/${.PVC.namespace}/${.PVC.name}"}
    gone = rig.make("ns1", "a", pattern)
    kept = rig.make("ns2", "b", pattern)
    deep = rig.make("ns3", "c", {"pathPattern": "/".join(f"level{n}" for n in range(14)) + "/${.PVC.name}"})

    rig.delete(gone)

    assert not (rig.share / "foo" / "ns1").exists()
    assert rig.directory(kept).is_dir()
    rig.delete(deep)
    assert not (rig.share / "level0").exists()


def test_case_5_a_parent_that_is_missing_already_is_no_error(rig: Rig) -> None:
    volume = rig.make("ns1", "a", {"pathPattern": "foo/${.PVC.namespace}/${.PVC.name}"})
    rig.directory(volume).rmdir()
    (rig.share / "foo" / "ns1").rmdir()

    removed = rig.delete(volume)

    assert removed.already_absent
    assert not (rig.share / "foo").exists()


@pytest.mark.parametrize("value", ["../finance", "a/../../x", "..", "..\\x", "x\0y", ".", "a\\..\\b", "x\ny"])
@pytest.mark.parametrize("slashes", ["true", "false"])
def test_case_7_hostile_annotations_create_nothing(rig: Rig, tmp_path: Path, value: str, slashes: str) -> None:
    finance = tmp_path / "finance"
    finance.mkdir()
    before = {str(path) for path in tmp_path.rglob("*")}
    parameters = {"pathPattern": "${.PVC.annotations.p}", "allowSlashInValues": slashes}
    request = rig.request(make_claim(annotations={"p": value}), parameters)

    with pytest.raises(Infeasible, match="default/data"):
        rig.plugin.provision(request)

    assert {str(path) for path in tmp_path.rglob("*")} == before


def test_case_8_an_existing_directory_is_refused_unless_adopted(rig: Rig) -> None:
    data = rig.share / "ns1" / "data"
    data.mkdir(parents=True)
    (data / "f").write_text("mine")
    data.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(data, 999, 998)
    before = rig.tree()

    with pytest.raises(ProvisionError, match=r"exists already.*adoptExisting"):
        rig.plugin.provision(rig.request(make_claim("data", "ns1"), BY_NAME))
    assert rig.tree() == before

    parameters = {**BY_NAME, "adoptExisting": "true", "mode": "0777"}
    answer = rig.plugin.provision(rig.request(make_claim("data", "ns1"), parameters))
    assert rig.tree() == before
    (note,) = answer.notes
    assert note.reason == "VolumeAdopted"
    assert f"{EXPORT}/ns1/data" in note.message


@pytest.fixture
def umask_077() -> object:
    old = os.umask(0o077)
    yield
    os.umask(old)


@pytest.mark.usefixtures("umask_077")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_case_9_mode_and_owner_are_exact_under_any_umask(rig: Rig) -> None:
    volume = rig.make("ns1", "data", {**BY_NAME, "mode": "0770", "uid": "1000", "gid": "2000"})

    status = rig.directory(volume).stat()
    assert stat.S_IMODE(status.st_mode) == 0o770
    assert (status.st_uid, status.st_gid) == (1000, 2000)
    assert stat.S_IMODE((rig.share / "ns1").stat().st_mode) == 0o755


@pytest.mark.usefixtures("umask_077")
def test_case_9_without_a_mode_everybody_may_write(rig: Rig) -> None:
    volume = rig.make("ns1", "data")
    assert stat.S_IMODE(rig.directory(volume).stat().st_mode) == 0o777
    assert rig.directory(volume).name == f"ns1-data-{volume.name}"


def test_case_12_the_old_volume_never_removes_the_new_one_s_directory(rig: Rig) -> None:
    old = rig.make("ns1", "data", BY_NAME)
    with pytest.raises(ProvisionError, match=old.name):
        rig.make("ns1", "data", BY_NAME)
    rig.plugin.delete(old)
    new = rig.make("ns1", "data", BY_NAME)
    (rig.directory(new) / "f").write_text("new")

    again = rig.plugin.delete(old)

    assert again.already_absent
    assert (rig.directory(new) / "f").read_text() == "new"


@pytest.mark.parametrize("ours", [True, False])
def test_case_13_a_volume_without_nfs_source_or_of_another_server_is_an_error(rig: Rig, ours: bool) -> None:
    volume = rig.make("ns1", "data")
    before = rig.tree()
    change = (lambda v: v) if ours else rig.without_record
    import msgspec

    elsewhere = msgspec.structs.replace(
        volume, spec=msgspec.structs.replace(volume.spec, nfs={**(volume.spec.nfs or {}), "server": "other"})
    )
    sourceless = msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, nfs=None))
    for broken, word in ((elsewhere, "other"), (sourceless, "no NFS source")):
        with pytest.raises(DeleteError, match=word):
            rig.plugin.delete(change(broken))
    assert rig.tree() == before
    assert SERVER


@pytest.mark.parametrize("depth", [1, 2])
def test_case_14_a_link_on_the_way_is_refused_and_its_target_stays(rig: Rig, tmp_path: Path, depth: int) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (target / "keep").write_text("keep")
    pattern = {"pathPattern": "team/${.PVC.namespace}/${.PVC.name}"}
    volume = rig.make("ns1", "data", pattern)
    link = rig.share / "team" if depth == 1 else rig.share / "team" / "ns1"
    link.rename(tmp_path / "aside")
    link.symlink_to(target)
    before = {str(path): path.lstat().st_mode for path in target.rglob("*")}

    with pytest.raises(DeleteError, match="symbolic link"):
        rig.plugin.delete(volume)
    with pytest.raises(Outcome, match="symbolic link"):
        rig.plugin.archive(volume)
    with pytest.raises(NoChange, match="symbolic link"):
        rig.make("ns1", "other", pattern)

    assert {str(path): path.lstat().st_mode for path in target.rglob("*")} == before
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


def test_case_14_a_link_in_place_of_the_volume_is_refused(rig: Rig, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    volume = rig.make("ns1", "data", BY_NAME)
    rig.directory(volume).rename(tmp_path / "aside")
    rig.directory(volume).symlink_to(target)

    with pytest.raises(DeleteError, match="symbolic link"):
        rig.plugin.delete(volume)
    assert rig.directory(volume).is_symlink()
    rig.drop(volume)
    with pytest.raises(ProvisionError, match="symbolic link"):
        rig.make("ns1", "data", {**BY_NAME, "adoptExisting": "true"})


def test_case_15_an_adopted_directory_survives_that_its_volume_cannot_be_saved(rig: Rig) -> None:
    data = rig.share / "ns1" / "data"
    data.mkdir(parents=True)
    (data / "f").write_text("mine")
    before = rig.tree()
    request = rig.request(make_claim("data", "ns1"), {**BY_NAME, "adoptExisting": "true"})
    answer = rig.plugin.provision(request)

    removed = rig.plugin.delete(rig.unsaved(make_volume(request, answer)))

    assert rig.tree() == before
    assert rig.owners() == []
    assert "left" in removed.message


def test_case_15_a_directory_made_for_it_is_removed(rig: Rig) -> None:
    request = rig.request(make_claim("data", "ns1"), BY_NAME)
    answer = rig.plugin.provision(request)

    rig.plugin.delete(rig.unsaved(make_volume(request, answer)))

    assert rig.tree() == {}
    assert rig.owners() == []
