"""The twelve rules, by number, where the sixteen cases do not show them already."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import msgspec
import pytest

from mount_space import run_with_mounts
from nfs_rig import EXPORT, PROVISIONER, SERVER, Rig
from prov_host import DeleteError, Infeasible, ProvisionError
from prov_host.testing.objects import make_claim

BY_NAME = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}
SHARED = {"pathPattern": "shared/${.PVC.annotations.p}", "adoptExisting": "true"}


# --- what is refused before anything is touched -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"spec": {"selector": {"matchLabels": {"a": "b"}}}}, "selector"),
        ({"spec": {"selector": {}}}, "selector"),
        ({"spec": {"dataSource": {"kind": "VolumeSnapshot", "name": "s"}}}, "dataSource"),
        ({"spec": {"dataSourceRef": {"kind": "Book", "name": "s"}}}, "dataSource"),
        ({"spec": {"volumeMode": "Block"}}, "Block"),
        ({"access_modes": ["ReadOnlyMany"]}, "readOnlyMany: mount"),
        ({"storage": "much"}, "much"),
    ],
)
def test_a_claim_that_cannot_be_served_is_refused_and_leaves_no_trace(rig: Rig, claim: dict, words: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(Infeasible, match=words):
        rig.plugin.provision(rig.request(make_claim(**claim)))
    assert rig.tree(private=True) == {}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"mode": "0o888"}, "mode.*0o888.*allowed"),
        ({"mode": "01777"}, "mode"),
        ({"uid": "-1"}, "uid.*-1.*allowed"),
        ({"gid": "99999"}, "gid.*99999.*65535"),
        ({"adoptExisting": "yes"}, "adoptExisting.*yes.*true"),
        ({"allowSlashInValues": ""}, "allowSlashInValues"),
        ({"readOnlyMany": "true"}, "readOnlyMany.*mount"),
        ({"archiveRetention": "30"}, "archiveRetention.*30d"),
        ({"archiveRetention": "0d"}, "archiveRetention"),
        ({"allowOverride": "owner"}, "allowOverride.*mode, uid, gid"),
        ({"allowOverride": "uid"}, "uidRange"),
        ({"allowOverride": "uid", "uidRange": "9-1"}, "uidRange"),
        ({"export": "nowhere"}, "export.*nowhere.*default"),
        ({"pathpattern": "x"}, "did you mean pathPattern"),
        ({"adoptExistin": "true"}, "did you mean adoptExisting"),
        ({"mode": "x", "uid": "y"}, "mode.*; .*uid"),
    ],
)
def test_a_class_that_cannot_work_is_refused_naming_parameter_value_and_what_is_allowed(
    rig: Rig, parameters: dict[str, str], words: str
) -> None:
    with pytest.raises(Infeasible, match=words):
        rig.plugin.provision(rig.request(parameters=parameters))
    assert rig.tree(private=True) == {}


def test_parameters_of_others_are_left_alone_and_unknown_ones_are_said(rig: Rig) -> None:
    answer = rig.plugin.provision(rig.request(parameters={"quota.example.com/max": "1", "colour": "blue"}))
    (note,) = answer.notes
    assert note.type == "Warning"
    assert "colour" in note.message
    assert "quota" not in note.message


def test_only_read_only_many_is_served_read_only_if_the_class_says_so(rig: Rig) -> None:
    claim = make_claim(access_modes=["ReadOnlyMany"])
    answer = rig.plugin.provision(rig.request(claim, {"readOnlyMany": "mount"}))
    assert answer.source["nfs"]["readOnly"] is True
    both = rig.plugin.provision(rig.request(make_claim(access_modes=["ReadOnlyMany", "ReadWriteOnce"])))
    assert both.source["nfs"]["readOnly"] is False


def test_a_path_too_long_to_be_mounted_is_refused(rig: Rig) -> None:
    with pytest.raises(Infeasible, match="1024"):
        rig.plugin.provision(rig.request(parameters={"pathPattern": "/".join(["d" * 200] * 6)}))
    assert rig.tree(private=True) == {}


def test_a_long_default_name_is_cut_and_stays_unique(rig: Rig) -> None:
    volume = rig.make("n" * 63, "c" * 253)
    name = rig.directory(volume).name
    assert len(name) == 255
    assert name.endswith(volume.name)


# --- 3, 6: nothing that exists is changed --------------------------------------------------------------------------


def test_rule_3_an_existing_parent_keeps_mode_and_owner(rig: Rig) -> None:
    parent = rig.share / "ns1"
    parent.mkdir(mode=0o700)
    before = parent.stat()
    rig.make("ns1", "data", BY_NAME)
    after = parent.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_rule_6_a_parent_that_existed_before_is_never_removed(rig: Rig) -> None:
    (rig.share / "ns1").mkdir()
    rig.delete(rig.make("ns1", "data", BY_NAME))
    assert os.listdir(rig.share / "ns1") == []


def test_rule_6_a_volume_in_a_set_group_id_parent_gets_its_group(rig: Rig) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may choose the group")
    os.chown(rig.share, -1, 4242)
    rig.share.chmod(0o2775)
    volume = rig.make("ns1", "data", BY_NAME)
    assert rig.directory(volume).stat().st_gid == 4242
    assert stat.S_IMODE((rig.share / "ns1").stat().st_mode) == 0o2755
    assert stat.S_IMODE(rig.directory(volume).stat().st_mode) == 0o777


# --- 4: only what is proved ----------------------------------------------------------------------------------------


def test_rule_4_a_directory_that_was_replaced_is_not_removed(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    rig.directory(volume).rename(rig.share / "aside")
    rig.directory(volume).mkdir()
    (rig.directory(volume) / "other").write_text("other")
    before = rig.tree()
    with pytest.raises(DeleteError, match="not the directory that was made"):
        rig.plugin.delete(volume)
    assert rig.tree() == before


@pytest.mark.parametrize(
    "change",
    [{"path": "ns1/other"}, {"path": ""}, {"path": "../x"}, {"root": "id-elsewhere"}, {"root": ""}],
)
def test_rule_4_a_record_that_says_something_else_is_refused(rig: Rig, change: dict[str, str]) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    before = rig.tree(private=True)
    with pytest.raises(DeleteError, match="Nothing was touched"):
        rig.plugin.delete(rig.with_record(volume, **change))
    assert rig.tree(private=True) == before


@pytest.mark.parametrize("annotation", ["", "{", "[]", '{"path": 1}', "null", "\x00"])
def test_rule_4_an_unreadable_record_is_refused(rig: Rig, annotation: str) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    wire = msgspec.to_builtins(volume)
    wire["metadata"]["annotations"]["prov-host/record"] = annotation
    before = rig.tree()
    with pytest.raises(DeleteError):
        rig.plugin.delete(msgspec.convert(wire, type(volume)))
    assert rig.tree() == before


def test_rule_4_an_unreadable_ownership_record_is_an_error_that_names_the_file(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    (name,) = rig.owners()
    (rig.share / ".prov-host" / "owners" / name).write_text("{")
    with pytest.raises(DeleteError, match=name):
        rig.plugin.delete(volume)
    assert rig.directory(volume).is_dir()


def test_rule_4_a_lost_ownership_record_is_replaced_by_the_volume_s_own_proof(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    shutil.rmtree(rig.share / ".prov-host" / "owners")
    rig.delete(volume)
    assert not rig.directory(volume).exists()


def test_rule_4_historical_paths_lead_to_the_same_root(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    rig.environ["NFS_PATH"] = "/new/place"
    rig.start()
    with pytest.raises(DeleteError, match="historical_paths"):
        rig.plugin.delete(volume)
    rig.settings["historical_paths"] = [EXPORT + "/"]
    rig.start()
    rig.delete(volume)
    assert not (rig.share / "ns1").exists()


@pytest.mark.parametrize("server", [SERVER.upper(), SERVER + ".", "10.0.0.9"])
def test_rule_4_a_server_is_known_by_all_its_names(rig: Rig, server: str) -> None:
    rig.settings["server_aliases"] = ["10.0.0.9"]
    rig.start()
    volume = rig.make("ns1", "data", BY_NAME)
    assert volume.spec.nfs is not None
    volume.spec.nfs["server"] = server
    rig.delete(volume)
    assert not (rig.share / "ns1").exists()


def test_rule_4_a_mount_inside_the_directory_is_noticed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from prov_host.safedir import Mount

    volume = rig.make("ns1", "data", BY_NAME)
    mount = Mount("1", str(rig.directory(volume) / "deep" / "mnt"), "ext4", "/dev/sdb")
    monkeypatch.setattr(rig.sys, "mounts", lambda: (mount,))
    with pytest.raises(DeleteError, match="mounted in it"):
        rig.plugin.delete(volume)
    assert rig.directory(volume).is_dir()


@pytest.mark.parametrize("hook", ["delete", "archive"])
@pytest.mark.parametrize("where", [".", "inside", "deep/inside"])
def test_rule_4_a_bind_mount_is_found_whatever_path_the_share_has(tmp_path: Path, hook: str, where: str) -> None:
    run_with_mounts(
        f"""
        from nfs_rig import Rig
        from prov_host import DeleteError
        (base / "share").mkdir()
        (base / "link").symlink_to(base / "share")
        rig = Rig(base / "link")
        rig.start()
        volume = rig.make("ns1", "data")
        target = rig.directory(volume) / {where!r}
        target.mkdir(parents=True, exist_ok=True)
        (base / "out").mkdir()
        (base / "out" / "precious").touch()
        bind(base / "out", target)
        for _ in range(2):
            try:
                rig.plugin.{hook}(volume)
                raise SystemExit("was not refused")
            except DeleteError as error:
                assert "mount" in str(error) and "Nothing was touched" in str(error), error
        subprocess.run(["umount", str(target)], check=True)
        rig.{hook}(volume)
        assert not target.exists()
        assert (base / "out" / "precious").exists()
        rig.stop()
        """,
        tmp_path,
    )


# --- 5, 10: several volumes on one path ----------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["ns1/data", "ns1/data/inside", "ns1"])
def test_rule_5_a_directory_that_another_volume_uses_is_not_removed(rig: Rig, other: str) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    (rig.directory(volume) / "inside").mkdir()
    stranger = rig.make("x", "y")
    assert stranger.spec.nfs is not None
    stranger = rig.without_record(stranger)
    stranger.spec.nfs["path"] = f"{EXPORT}/{other}"
    stranger.annotations.pop("pv.kubernetes.io/provisioned-by")  # type: ignore[attr-defined]
    rig.put(stranger)
    before = rig.tree()
    for hook in (rig.plugin.delete, rig.plugin.archive):
        with pytest.raises(DeleteError, match=stranger.name):
            hook(volume)
    assert rig.tree() == before
    rig.drop(stranger)
    rig.delete(volume)


def test_rule_5_a_volume_of_the_whole_export_does_not_count(rig: Rig) -> None:
    root = rig.without_record(rig.make("x", "y"))
    assert root.spec.nfs is not None
    root.spec.nfs["path"] = EXPORT
    rig.put(root)
    rig.delete(rig.make("ns1", "data", BY_NAME))


def test_rule_10_a_second_claim_on_one_path_waits_until_the_first_volume_is_gone(rig: Rig) -> None:
    pattern = {"pathPattern": "common"}
    first = rig.make("ns1", "a", pattern)
    claim = make_claim("b", "ns2")
    with pytest.raises(ProvisionError, match=f"{first.name}.*ns1/a"):
        rig.plugin.provision(rig.request(claim, pattern))
    rig.delete(first)
    assert rig.provision(rig.request(claim, pattern)).spec.nfs == {
        "server": SERVER,
        "path": f"{EXPORT}/common",
        "readOnly": False,
    }


def test_rule_10_also_while_the_first_volume_is_being_saved(rig: Rig) -> None:
    pattern = {"pathPattern": "common"}
    rig.plugin.provision(rig.request(make_claim("a", "ns1"), pattern))
    with pytest.raises(ProvisionError, match="being saved"):
        rig.plugin.provision(rig.request(make_claim("b", "ns2"), pattern))


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a")])
@pytest.mark.parametrize("adopt", ["true", "false"])
def test_rule_10_volumes_never_lie_inside_each_other(rig: Rig, first: str, second: str, adopt: str) -> None:
    rig.make("ns1", "a", {"pathPattern": first})
    before = rig.tree()
    with pytest.raises(ProvisionError, match="inside each other"):
        rig.make("ns2", "b", {"pathPattern": second, "adoptExisting": adopt})
    assert rig.tree() == before


def test_rule_10_the_same_claim_retried_is_not_a_second_one(rig: Rig) -> None:
    request = rig.request(make_claim("data", "ns1"), BY_NAME)
    first = rig.plugin.provision(request)
    rig.save(request, first)
    assert rig.plugin.provision(request) == first
    rig.start()
    assert rig.plugin.provision(request) == first
    changed = msgspec.structs.replace(
        request, storage_class=msgspec.structs.replace(request.storage_class, parameters={"pathPattern": "elsewhere"})
    )
    assert rig.plugin.provision(changed).source == first.source


@pytest.mark.parametrize("hook", ["delete", "archive"])
def test_rule_10_only_the_last_of_the_volumes_that_share_acts(rig: Rig, hook: str) -> None:
    volumes = [rig.make(f"ns{n}", "data", SHARED, annotations={"p": "x"}) for n in range(3)]
    shared = rig.share / "shared" / "x"
    (shared / "f").write_text("common")
    for volume in volumes[:2]:
        removed = getattr(rig, hook)(volume)
        assert (shared / "f").read_text() == "common"
        assert "left" in removed.message
    getattr(rig, hook)(volumes[2])
    assert not shared.exists()
    assert len(rig.archives()) == (hook == "archive")


def test_rule_10_volumes_that_share_and_are_deleted_at_once_leave_nothing(rig: Rig) -> None:
    """Their objects are all still in the cache: each must not wait for the others for ever."""
    volumes = [rig.make(f"ns{n}", "data", SHARED, annotations={"p": "x"}) for n in range(3)]
    for volume in volumes:
        rig.plugin.delete(volume)
    assert not (rig.share / "shared" / "x").exists()
    assert rig.owners() == []


def test_rule_10_a_class_that_does_not_share_is_not_made_to(rig: Rig) -> None:
    rig.make("ns1", "data", {"pathPattern": "shared/x"})
    with pytest.raises(ProvisionError, match="does not share"):
        rig.make("ns2", "data", SHARED, annotations={"p": "x"})


# --- 7, 8: leaving in one step ---------------------------------------------------------------------------------------


def test_rule_7_a_deleted_directory_is_gone_at_once_and_removed_later(rig: Rig) -> None:
    for served in rig.plugin._served.values():
        served.trash.add = lambda _name: None  # type: ignore[method-assign]
    volume = rig.make("ns1", "data", BY_NAME)
    (rig.directory(volume) / "f").write_text("x")
    rig.plugin.delete(volume)
    assert not (rig.share / "ns1").exists()
    assert len(rig.trash()) == 1
    # The next process finds it.
    rig.start()
    rig.host.jobs["nfs_subdir trash of default"][1]()
    assert rig.plugin.wait_for_trash(10)
    assert rig.trash() == []


def test_rule_8_archives_keep_namespace_claim_volume_and_time_and_have_a_record(rig: Rig) -> None:
    volume = rig.make("ns1", "data", {**BY_NAME, "archiveRetention": "30d"})
    removed = rig.archive(volume)
    (path,) = rig.archives()
    assert path.name == f"archived-ns1-data-{volume.name}-20260101T000000Z"
    assert removed.path == f"{EXPORT}/{path.name}"
    record = msgspec.json.decode((rig.share / (path.name + ".json")).read_bytes())
    assert record["namespace"] == "ns1"
    assert record["claim"] == "data"
    assert record["pv"] == volume.name
    assert record["path"] == "ns1/data"
    assert record["archived"] == "2026-01-01T00:00:00Z"
    assert record["retention"] == 30 * 86400


def test_rule_8_a_second_archiving_of_one_volume_changes_nothing(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    rig.archive(volume)
    before = rig.tree()
    assert rig.plugin.archive(volume).already_absent
    assert rig.plugin.delete(volume).already_absent
    assert rig.tree() == before


def test_rule_8_an_archive_never_takes_a_name_that_is_used(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    name = f"archived-ns1-data-{volume.name}-20260101T000000Z"
    (rig.share / name).mkdir()
    (rig.share / f"{name}-1.json").write_text("mine")
    rig.archive(volume)
    assert os.listdir(rig.share / name) == []
    assert (rig.share / f"{name}-1.json").read_text() == "mine"
    assert (rig.share / f"{name}-2").is_dir()


@pytest.mark.parametrize("where", ["${name}", "${name}/x", "${name}.json"])
@pytest.mark.parametrize("adopt", ["true", "false"])
def test_no_pattern_leads_into_an_archive(rig: Rig, where: str, adopt: str) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    rig.archive(volume)
    name = rig.archives()[0].name
    before = rig.tree()
    with pytest.raises(ProvisionError):
        rig.make("ns2", "evil", {"pathPattern": where.replace("${name}", name), "adoptExisting": adopt})
    assert rig.tree() == before


def test_archives_of_the_go_provisioner_are_not_reachable_either(rig: Rig) -> None:
    (rig.share / "archived-ns1-data-pvc-11111111-0000-4000-8000-000000000001").mkdir()
    for pattern in ("archived-ns1-data-pvc-11111111-0000-4000-8000-000000000001/x",):
        with pytest.raises(ProvisionError, match="archive"):
            rig.make("ns2", "evil", {"pathPattern": pattern, "adoptExisting": "true"})


def test_a_namespace_may_be_called_archived(rig: Rig) -> None:
    by_pattern = rig.make("archived-team", "data", BY_NAME)
    default = rig.make("archived-team", "data2")
    also = rig.make("archived-team", "data3", BY_NAME)
    assert {asset.kind for asset in rig.plugin.inventory()} == {"volume"}
    for volume in (by_pattern, default, also):
        rig.delete(volume)
    assert rig.tree() == {}


# --- 11: owners ----------------------------------------------------------------------------------------------------

OVERRIDE = {"allowOverride": "mode,uid,gid", "uidRange": "1000-1999", "gidRange": "500-500", "modeMask": "0770"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_rule_11_a_claim_chooses_what_the_class_allows(rig: Rig) -> None:
    claim = {"prov-host/mode": "0750", "prov-host/uid": "1999", "prov-host/gid": "500"}
    volume = rig.make("ns1", "data", OVERRIDE, annotations=claim)
    status = rig.directory(volume).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o750, 1999, 500)


@pytest.mark.parametrize(
    ("annotations", "parameters"),
    [
        ({"prov-host/uid": "1000"}, {}),
        ({"prov-host/uid": "0"}, OVERRIDE),
        ({"prov-host/uid": "2000"}, OVERRIDE),
        ({"prov-host/uid": "-1"}, OVERRIDE),
        ({"prov-host/uid": "0x3e8"}, OVERRIDE),
        ({"prov-host/gid": "501"}, OVERRIDE),
        ({"prov-host/mode": "0777"}, OVERRIDE),
        ({"prov-host/mode": "4750"}, OVERRIDE),
        ({"prov-host/mode": "0o888"}, OVERRIDE),
        ({"prov-host/mode": ""}, OVERRIDE),
    ],
)
def test_rule_11_and_nothing_else(rig: Rig, annotations: dict[str, str], parameters: dict[str, str]) -> None:
    with pytest.raises(Infeasible, match="default/data"):
        rig.plugin.provision(rig.request(make_claim(annotations=annotations), parameters))
    assert rig.tree(private=True) == {}


def test_rule_11_a_process_that_may_not_chown_removes_what_it_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(rig.sys, "fchown", refuse)
    with pytest.raises(ProvisionError, match=r"cannot be given to 1000:-1.*removed again"):
        rig.make("ns1", "data", {**BY_NAME, "uid": "1000"})
    assert rig.tree() == {}
    assert rig.owners() == []
    assert rig.staged() == []


# --- capacity ------------------------------------------------------------------------------------------------------


def test_a_claim_for_more_than_is_free_is_refused_with_numbers(rig: Rig) -> None:
    with pytest.raises(ProvisionError, match=r"asks for 900Ei, but only .* are free"):
        rig.make("ns1", "data", storage="900Ei")
    assert rig.tree() == {}
    rig.settings["capacity_check"] = "full"
    rig.start()
    rig.make("ns1", "data", storage="900Ei")


def test_a_full_share_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(rig.share)
    full = os.statvfs_result((*tuple(real)[:3], 0, 0, *tuple(real)[5:]), {"f_fsid": 0})
    monkeypatch.setattr(rig.sys, "fstatvfs", lambda _fd: full)
    rig.settings["capacity_check"] = "full"
    rig.start()
    with pytest.raises(ProvisionError, match="is full"):
        rig.make("ns1", "data")


# --- take-over -----------------------------------------------------------------------------------------------------


def _go_volume(rig: Rig, namespace: str = "ns1", name: str = "data", pattern: str = "") -> msgspec.Struct:
    """A directory and a volume as the Go provisioner makes them, on a share this program has not seen."""
    uid = "22222222-0000-4000-8000-000000000002"
    path = pattern or f"{namespace}-{name}-pvc-{uid}"
    (rig.share / path).mkdir(parents=True)
    (rig.share / path / "f").write_text("old")
    wire = {
        "metadata": {
            "name": f"pvc-{uid}",
            "uid": "33333333-0000-4000-8000-000000000003",
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "nfs": {"server": SERVER, "path": f"{EXPORT}/{path}"},
            "claimRef": {"namespace": namespace, "name": name, "uid": uid},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "nfs-client",
        },
        "status": {"phase": "Released"},
    }
    from prov_host import Volume

    volume = msgspec.convert(wire, Volume)
    rig.put(volume)
    return volume


@pytest.mark.parametrize("pattern", ["", "ns1/data"])
def test_a_volume_of_the_go_provisioner_is_deleted(rig: Rig, pattern: str) -> None:
    volume = _go_volume(rig, pattern=pattern)
    removed = rig.delete(volume)  # type: ignore[arg-type]
    assert "removed" in removed.message
    assert not any(path.is_file() for path in rig.share.rglob("f"))
    # Whether its parents were there before nobody knows: they stay.
    assert (rig.share / "ns1").exists() == bool(pattern)


def test_a_volume_of_the_go_provisioner_is_archived_and_listed(rig: Rig) -> None:
    volume = _go_volume(rig)
    rig.archive(volume)  # type: ignore[arg-type]
    (path,) = rig.archives()
    assert (path / "f").read_text() == "old"
    assert "ns1-data-pvc-22222222" in path.name
    assert [asset.claim for asset in rig.plugin.inventory()] == ["ns1/data"]


def test_a_volume_of_another_provisioner_is_not_taken(rig: Rig) -> None:
    volume = _go_volume(rig)
    volume.annotations["pv.kubernetes.io/provisioned-by"] = "other.example.com/nfs"  # type: ignore[attr-defined]
    with pytest.raises(DeleteError, match=r"other\.example\.com"):
        rig.plugin.delete(volume)  # type: ignore[arg-type]


def test_a_forged_volume_without_record_does_not_get_another_volume_s_directory(rig: Rig) -> None:
    victim = rig.make("ns1", "data", BY_NAME)
    rig.drop(victim)  # not even in the cache: retained, and its object deleted by hand
    forged = _go_volume(rig, "evil", "evil", pattern="evil")
    forged.spec.nfs["path"] = f"{EXPORT}/ns1/data"  # type: ignore[attr-defined]
    with pytest.raises(DeleteError, match=victim.name):
        rig.plugin.delete(forged)  # type: ignore[arg-type]
    assert rig.directory(victim).is_dir()


def test_a_claim_shares_a_directory_of_the_go_provisioner_only_on_purpose(rig: Rig) -> None:
    _go_volume(rig, pattern="shared/x")
    with pytest.raises(ProvisionError, match="used by"):
        rig.make("ns2", "b", {"pathPattern": "shared/x"})
    rig.make("ns2", "b", SHARED, annotations={"p": "x"})


@pytest.fixture
def two(rig: Rig, tmp_path: Path) -> Rig:
    other = tmp_path / "other"
    other.mkdir()
    rig.environ = {}
    rig.settings = {
        "provisioner": [PROVISIONER],
        "exports": [
            {"name": "one", "server": SERVER, "path": EXPORT, "mount": str(rig.share)},
            {"name": "two", "server": SERVER, "path": "/exports/inner", "mount": str(other)},
        ],
    }
    rig.start()
    return rig


def test_with_several_exports_the_class_chooses(two: Rig, tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match=r"several exports.*one, two"):
        two.make("ns1", "data")
    one = two.make("ns1", "data", {**BY_NAME, "export": "one"})
    inner = two.make("ns1", "data", {**BY_NAME, "export": "two"})
    assert two.directory(one).is_dir()
    assert (tmp_path / "other" / "ns1" / "data").is_dir()
    two.delete(inner)
    assert not (tmp_path / "other" / "ns1").exists()
    assert two.directory(one).is_dir()
    two.delete(one)


def test_a_volume_without_record_goes_to_the_export_its_source_names(two: Rig, tmp_path: Path) -> None:
    volume = two.without_record(two.make("ns1", "data", {**BY_NAME, "export": "two"}))
    shutil.rmtree(tmp_path / "other" / ".prov-host" / "owners")
    two.put(volume)
    two.start()
    two.delete(volume)
    assert not (tmp_path / "other" / "ns1" / "data").exists()
