"""The report of orphans: what it finds, what it lets be archived or adopted, and what never."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from nfs_rig import EXPORT, SERVER, Rig
from prov_host import DeleteError, Volume
from prov_host.testing.objects import make_claim
from prov_host_nfs_subdir.records import stem

Run = Callable[..., Result]
BY_NAME = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}


def rows(run: Run, *args: str) -> list[dict[str, str]]:
    result = run("orphans", "--json", *args)
    assert result.exit_code == 0, result.output
    found: list[dict[str, str]] = json.loads(result.stdout)
    return found


def findings(run: Run, *args: str) -> dict[tuple[str, str], str]:
    return {(row["kind"], row["path"]): row["volume"] for row in rows(run, *args)}


def owner_of(rig: Rig, volume: Volume) -> Path:
    return rig.share / ".prov-host" / "owners" / f"{stem(volume.name)}.json"


def change_owner(rig: Rig, volume: Volume, **fields: object) -> None:
    path = owner_of(rig, volume)
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def moved_to(rig: Rig, volume: Volume, **source: str) -> Volume:
    """The volume with another source, as a migration leaves it."""
    assert volume.spec.nfs is not None
    volume.spec.nfs.update(source)
    rig.put(volume)
    return volume


# --- what is found ----------------------------------------------------------------------------------------------------


def test_a_share_in_order_has_no_findings(rig: Rig, run: Run) -> None:
    rig.make("ns1", "a", BY_NAME)
    rig.make("ns1", "b")
    rig.archive(rig.make("ns1", "c", BY_NAME))
    assert findings(run) == {}
    assert "Everything fits together." in run("orphans").stdout


def test_everything_that_does_not_fit_is_found(rig: Rig, run: Run) -> None:
    gone = rig.make("ns1", "gone", BY_NAME)
    rig.drop(gone)
    missing = rig.make("ns1", "missing", BY_NAME)
    rig.directory(missing).rmdir()
    replaced = rig.make("ns1", "replaced", BY_NAME)
    rig.directory(replaced).rename(rig.share / "moved")
    rig.directory(replaced).mkdir()
    foreign = rig.without_record(rig.make("ns2", "foreign", BY_NAME))
    rig.put(foreign)
    owner_of(rig, foreign).unlink()
    (rig.share / "ns1" / "unknown").mkdir()
    (rig.share / ".prov-host" / "trash" / "old").mkdir(parents=True)
    (rig.share / ".prov-host" / "new" / "old").mkdir()
    (rig.share / ".prov-host" / "owners" / "junk.json").write_text("{")
    archive = rig.archive(rig.make("ns3", "a", BY_NAME)).path.rpartition("/")[2]
    (rig.share / archive).rename(rig.share / "taken away")
    rig.clock._move(3600)

    assert findings(run) == {
        ("no-volume", "ns1/gone"): gone.name,
        ("no-directory", "ns1/missing"): missing.name,
        ("replaced", "ns1/replaced"): replaced.name,
        ("unrecorded", "ns2/foreign"): foreign.name,
        ("unknown-directory", "ns1/unknown"): "",
        ("unknown-directory", "moved"): "",
        ("unknown-directory", "taken away"): "",
        ("trash", ".prov-host/trash/old"): "",
        ("staged", ".prov-host/new/old"): "",
        ("unreadable", ".prov-host/owners"): "",
        ("archive-without-directory", f"{archive}.json"): "",
    }


def test_overlapping_volumes_are_found(rig: Rig, run: Run) -> None:
    inner = rig.make("ns1", "a", BY_NAME)
    outer = rig.without_record(rig.make("ns2", "b"))
    (rig.share / "ns1-other").mkdir()
    moved_to(rig, outer, path=f"{EXPORT}/ns1")
    assert findings(run)["overlap", "ns1/a"] == inner.name


def test_a_volume_that_is_being_saved_is_no_orphan(rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prov_host_nfs_subdir.tools._Wall.now", lambda _self: rig.clock.now())
    claim = make_claim("a", "ns1")
    volume = rig.provision(rig.request(claim, BY_NAME))
    rig.drop(volume)
    assert findings(run) == {}
    rig.clock._move(3600)
    assert findings(run) == {("no-volume", "ns1/a"): volume.name}
    rig.host.known_claims.append(claim)
    assert findings(run) == {("unsaved", "ns1/a"): volume.name}
    assert "is nothing to archive" in run("orphans", "--archive", "--yes", "ns1/a").output
    assert rig.directory(volume).is_dir()


def test_a_parent_that_holds_something_else_says_what(rig: Rig, run: Run) -> None:
    gone = rig.make("ns1", "a", BY_NAME)
    (rig.share / "ns1" / "stuff").mkdir()
    for name in ("b", "c", "d"):
        (rig.share / "ns1" / name).write_text("")
    rig.delete(gone)
    (row,) = rows(run)
    assert (row["kind"], row["path"]) == ("unknown-directory", "ns1")
    assert "holds b, c, d and 1 more" in row["detail"]


def test_what_file_servers_make_is_not_mentioned(rig: Rig, run: Run) -> None:
    rig.make("ns1", "a", BY_NAME)
    for parent, name in itertools.product(
        (rig.share, rig.share / "ns1"), ("lost+found", ".snapshot", ".zfs", "#recycle", "@eaDir", ".nfs0001")
    ):
        (parent / name).mkdir()
    assert findings(run) == {}


def test_progress_ends_with_what_was_looked_at(rig: Rig, run: Run) -> None:
    for number in range(3):
        rig.make("ns1", f"a{number}", BY_NAME)
    lines = [line for line in run("orphans").stderr.splitlines() if "volumes" in line]
    assert lines[-1].endswith("3 of 3")


def test_names_that_are_no_text_are_shown_and_harm_nothing(rig: Rig, run: Run) -> None:
    rig.make("ns1", "a", BY_NAME)
    name = b"M\xfcller\x1b[2J"
    os.mkdir(os.fsencode(rig.share) + b"/" + name)
    table = run("orphans")
    assert r"M\xfcller\x1b[2J" in table.stdout
    (row,) = rows(run)
    assert os.fsencode(row["path"]) == name
    result = run("orphans", "--archive", "--yes", os.fsdecode(name))
    assert result.exit_code == 1
    assert "rename the directory first" in result.output
    assert os.path.isdir(os.fsencode(rig.share) + b"/" + name)


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("list",), "no such finding"),
        (("nope",), "no such finding"),
        (("--archive", "nope", "--yes"), "no such finding"),
        (("--adopt", "ns1/gone", "--yes"), "nothing to adopt"),
        (("--archive", "--adopt", "--yes"), "exclude each other"),
        (("--missing", "3"), "--archive"),
    ],
)
def test_wrong_arguments_are_said_and_nothing_is_done(rig: Rig, run: Run, args: tuple[str, ...], words: str) -> None:
    rig.drop(rig.make("ns1", "gone", BY_NAME))
    before = rig.tree(private=True)
    result = run("orphans", *args)
    assert result.exit_code == 2
    assert words in result.output
    assert "fits together" not in result.output
    assert rig.tree(private=True) == before | {
        path: what
        for path, what in rig.tree(private=True).items()
        if path.startswith(".prov-host") and path not in before
    }


def test_a_path_may_be_given_alone_to_see_only_that(rig: Rig, run: Run) -> None:
    rig.make("ns1", "a", BY_NAME)
    (rig.share / "one").mkdir()
    (rig.share / "two").mkdir()
    assert list(findings(run, "one/")) == [("unknown-directory", "one")]


# --- archiving --------------------------------------------------------------------------------------------------------


def test_orphans_are_archived_after_asking(rig: Rig, run: Run) -> None:
    volume = rig.make("ns1", "a", BY_NAME)
    kept = [rig.make("ns2", f"k{number}", BY_NAME) for number in range(2)]
    (rig.directory(volume) / "f").write_text("content")
    rig.drop(volume)
    (rig.share / "unknown").mkdir()
    (rig.share / "unknown" / "g").write_text("other")
    before = rig.tree()
    assert "left alone" in run("orphans", "--archive", stdin="n\n").stdout
    assert rig.tree() == before

    assert run("orphans", "--archive", stdin="y\n").exit_code == 0
    (path,) = rig.archives()
    assert (path / "f").read_text() == "content"
    assert "ns1-a" in path.name
    assert not (rig.share / "ns1").exists()
    assert run("orphans", "--archive", "unknown", stdin="y\n").exit_code == 0
    assert not (rig.share / "unknown").exists()
    assert sorted(p.read_text() for p in rig.share.glob("archived-*/*")) == ["content", "other"]
    assert findings(run) == {}
    assert all(rig.directory(one).is_dir() for one in kept)


def test_nobody_to_ask_is_told_how_to_go_on(rig: Rig, run: Run) -> None:
    rig.make("ns1", "a", BY_NAME)
    (rig.share / "unknown").mkdir()
    result = run("orphans", "--archive", "unknown", stdin="")
    assert result.exit_code == 2
    assert "give --yes" in result.output
    assert (rig.share / "unknown").is_dir()


def test_an_action_that_fails_fails_the_command(rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.make("ns1", "a", BY_NAME)
    (rig.share / "unknown").mkdir()

    def fail(*_args: object, **_more: object) -> None:
        raise DeleteError("it is busy")

    monkeypatch.setattr("prov_host_nfs_subdir.mending.release", fail)
    owners = rig.owners()
    result = run("orphans", "--archive", "--yes", "unknown")
    assert result.exit_code == 1
    assert "failed: it is busy" in result.stdout
    assert rig.owners() == owners


def unknown(rig: Rig) -> str:
    (rig.share / "live" / "mine").mkdir()
    return "live/mine"


def retained(rig: Rig) -> str:
    rig.drop(rig.provision(rig.request(make_claim("kept", "ns1"), BY_NAME, policy="retain")))
    return "ns1/kept"


def of_a_class_with_reclaim_policy_retain(rig: Rig) -> str:
    rig.drop(rig.provision(rig.request(make_claim("kept", "ns1"), BY_NAME, reclaim_policy="Retain")))
    return "ns1/kept"


def of_another_cluster(rig: Rig) -> str:
    volume = rig.make("ns1", "theirs", BY_NAME)
    rig.drop(volume)
    change_owner(rig, volume, class_uid="a-class-of-another-cluster")
    return "ns1/theirs"


def of_nobody_knows_which_cluster(rig: Rig) -> str:
    volume = rig.make("ns1", "theirs", BY_NAME)
    rig.drop(volume)
    change_owner(rig, volume, class_uid="")
    return "ns1/theirs"


@pytest.mark.parametrize(
    "make",
    [
        unknown,
        retained,
        of_a_class_with_reclaim_policy_retain,
        of_another_cluster,
        of_nobody_knows_which_cluster,
    ],
)
def test_what_may_be_somebodys_is_archived_only_when_it_is_named(
    rig: Rig, run: Run, make: Callable[[Rig], str]
) -> None:
    for number in range(3):
        rig.make("live", f"a{number}", BY_NAME)
    path = make(rig)
    (rig.share / path / "precious").write_text("x")
    result = run("orphans", "--archive", "--yes")
    assert result.exit_code == 0
    assert "give its path to archive it" in result.stdout
    assert (rig.share / path / "precious").read_text() == "x"
    assert run("orphans", "--archive", "--yes", path).exit_code == 0
    assert not (rig.share / path).exists()
    assert [p.read_text() for p in rig.share.glob("archived-*/precious")] == ["x"]


def of_another_provisioner(rig: Rig) -> str:
    volume = rig.make("ns1", "theirs", BY_NAME)
    rig.drop(volume)
    change_owner(rig, volume, provisioner="example.org/not-here")
    return "ns1/theirs"


def root_of_another_share(rig: Rig) -> str:
    (rig.share / "inner" / ".prov-host").mkdir(parents=True)
    return "inner"


def unmatched(**source: str) -> Callable[[Rig], str]:
    """A live volume whose server or path the configuration does not know, with a record on the share or without."""

    def make(rig: Rig) -> str:
        moved_to(rig, rig.make("ns1", "live", BY_NAME), **source)
        return "ns1/live"

    return make


def unmatched_by_its_name_alone(rig: Rig) -> str:
    """Its record on the share names a volume that the cluster has, wherever that is."""
    moved_to(rig, rig.without_record(rig.make("ns1", "live", BY_NAME)), server="other", path="/elsewhere/entirely")
    return "ns1/live"


def unmatched_under_another_name(rig: Rig) -> str:
    """A cluster that was restored from a backup: the record on the share names a volume that is gone."""
    volume = rig.make("ns1", "live", BY_NAME)
    rig.drop(volume)
    wire = msgspec.to_builtins(rig.without_record(volume))
    wire["metadata"]["name"] = "restored"
    moved_to(rig, msgspec.convert(wire, Volume), server="other")
    return "ns1/live"


def unmatched_of_the_go_provisioner(rig: Rig) -> str:
    volume = rig.make("ns1", "live", BY_NAME)
    owner_of(rig, volume).unlink()
    moved_to(rig, rig.without_record(volume), server="other", path="/exports/slow/ns1/live")
    return "ns1/live"


def unmatched_of_a_default_name(rig: Rig) -> str:
    volume = rig.make("ns1", "live")
    name = rig.directory(volume).name
    owner_of(rig, volume).unlink()
    moved_to(rig, rig.without_record(volume), server="other", path=f"/exports/slow/{name}")
    return name


def unmatched_of_somebody_else(rig: Rig) -> str:
    name = unmatched_of_a_default_name(rig)
    (volume,) = (one for one in rig.volumes.values() if one.spec.nfs and one.spec.nfs["server"] == "other")
    wire = msgspec.to_builtins(volume)
    del wire["metadata"]["annotations"]
    rig.put(msgspec.convert(wire, Volume))
    return name


def unmatched_inside(rig: Rig) -> str:
    (rig.share / "team" / "live").mkdir(parents=True)
    volume = rig.without_record(rig.make("ns9", "x"))
    shutil.rmtree(rig.directory(volume))
    owner_of(rig, volume).unlink()
    moved_to(rig, volume, path="/earlier/team/live")
    return "team"


def unmatched_around(rig: Rig) -> str:
    rig.make("team", "a", BY_NAME)
    (rig.share / "team" / "sub").mkdir(parents=True)
    volume = rig.without_record(rig.make("ns9", "x"))
    shutil.rmtree(rig.directory(volume))
    owner_of(rig, volume).unlink()
    moved_to(rig, volume, path="/earlier/team")
    return "team/sub"


def csi_volume(rig: Rig) -> str:
    volume = rig.without_record(rig.make("ns1", "x"))
    name = rig.directory(volume).name
    owner_of(rig, volume).unlink()
    csi = {"volumeAttributes": {"server": SERVER, "share": EXPORT, "subdir": name}}
    rig.put(msgspec.convert({"metadata": {"name": volume.name, "uid": "u"}, "spec": {"csi": csi}}, Volume))
    return name


NEVER = [
    of_another_provisioner,
    root_of_another_share,
    unmatched(server="other.name", path="/exports/slow/ns1/live"),
    unmatched(path="/exports/slow/ns1/live"),
    unmatched(server="other.name"),
    unmatched(path="nonsense"),
    unmatched_by_its_name_alone,
    unmatched_under_another_name,
    unmatched_of_the_go_provisioner,
    unmatched_of_a_default_name,
    unmatched_of_somebody_else,
    unmatched_inside,
    unmatched_around,
    csi_volume,
]


@pytest.mark.parametrize("make", NEVER)
def test_what_is_or_may_be_in_use_is_never_archived(rig: Rig, run: Run, make: Callable[[Rig], str]) -> None:
    for number in range(3):
        rig.make("live", f"a{number}", BY_NAME)
    path = make(rig)
    (rig.share / path / "precious").write_text("x")
    before = rig.tree()
    assert run("orphans", "--archive", "--yes").exit_code == 0
    for name in (path, path.split("/")[0]):
        assert run("orphans", "--archive", "--yes", name).exit_code == 2
    assert rig.tree() == before


@pytest.mark.parametrize("make", [unmatched(server="other.name"), unmatched_of_the_go_provisioner])
def test_a_volume_on_no_export_is_a_finding_and_a_volume(rig: Rig, run: Run, make: Callable[[Rig], str]) -> None:
    make(rig)
    volume = next(iter(rig.volumes.values()))
    assert volume.spec.nfs is not None
    (row,) = [row for row in rows(run) if row["kind"] == "no-export"]
    source = f"{volume.spec.nfs['server']}:{volume.spec.nfs['path']}"
    assert (row["path"], row["volume"], row["claim"]) == (source, volume.name, "ns1/live")
    assert "server_aliases" in row["detail"]
    assert "historical_paths" in row["detail"]
    table = run("volumes").stdout
    assert source in table
    assert "server_aliases" in table
    rig.settings["server_aliases"] = ["other", "other.name"]
    rig.settings["historical_paths"] = ["/exports/slow"]
    rig.start()
    assert "no-export" not in run("orphans").stdout
    assert "REMARK" not in run("volumes").stdout


def test_a_volume_of_ours_that_is_not_nfs_is_a_finding(rig: Rig, run: Run) -> None:
    volume = rig.make("ns1", "odd", BY_NAME)
    (rig.directory(volume) / "precious").write_text("x")
    wire = msgspec.to_builtins(volume)
    del wire["spec"]["nfs"]
    rig.put(msgspec.convert(wire, Volume))
    owner_of(rig, volume).unlink()
    assert ("no-export", "") in findings(run)
    assert run("orphans", "--archive", "--yes").exit_code == 0
    for path in ("ns1/odd", "ns1"):
        assert run("orphans", "--archive", "--yes", path).exit_code == 2
    assert (rig.directory(volume) / "precious").read_text() == "x"


# --- the wrong cluster ------------------------------------------------------------------------------------------------


def test_the_cluster_is_named_first(rig: Rig, run: Run) -> None:
    rig.make("ns1", "a", BY_NAME)
    for args in ((), ("--archive", "--yes"), ("--adopt", "--yes")):
        assert run("orphans", *args).stderr.startswith("cluster: https://192.0.2.1:6443, from the kubeconfig")


@pytest.mark.parametrize(("there", "refused"), [(0, True), (1, True), (2, False), (4, False)])
def test_a_cluster_that_lacks_most_of_the_volumes_is_taken_for_the_wrong_one(
    rig: Rig, run: Run, there: int, refused: bool
) -> None:
    volumes = [rig.make("ns1", f"a{number}", BY_NAME) for number in range(4)]
    for volume in volumes[there:]:
        rig.drop(volume)
    (rig.share / "unknown").mkdir()
    before = rig.tree()
    for args in ((), ("unknown",)):
        result = run("orphans", "--archive", "--yes", *args)
        if not refused:
            assert result.exit_code == 0
            continue
        assert result.exit_code == 2
        assert f"{4 - there} of the 4 volumes" in " ".join(result.output.split())
        assert "https://192.0.2.1:6443" in result.output
        assert rig.tree() == before


def kept_on_purpose(rig: Rig, name: str) -> None:
    rig.drop(rig.provision(rig.request(make_claim(name, "ns1"), BY_NAME, policy="retain")))


def anothers(rig: Rig, name: str) -> None:
    volume = rig.make("ns1", name, BY_NAME)
    rig.drop(volume)
    change_owner(rig, volume, provisioner="example.org/not-here")


def without_directory(rig: Rig, name: str) -> None:
    volume = rig.make("ns1", name, BY_NAME)
    rig.drop(volume)
    rig.directory(volume).rmdir()


@pytest.mark.parametrize("make", [kept_on_purpose, anothers, without_directory])
def test_what_is_missing_for_a_reason_speaks_for_no_other_cluster(
    rig: Rig, run: Run, make: Callable[[Rig, str], None]
) -> None:
    rig.make("live", "a", BY_NAME)
    (rig.share / "unknown").mkdir()
    for number in range(3):
        make(rig, f"a{number}")
    assert run("orphans", "--archive", "--yes").exit_code == 0


def test_what_was_just_made_speaks_for_no_other_cluster(rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prov_host_nfs_subdir.tools._Wall.now", lambda _self: rig.clock.now())
    rig.make("live", "a", BY_NAME)
    (rig.share / "unknown").mkdir()
    for number in range(3):
        rig.drop(rig.make("ns1", f"a{number}", BY_NAME))
    assert run("orphans", "--archive", "--yes").exit_code == 0
    rig.clock._move(3600)
    assert run("orphans", "--archive", "--yes").exit_code == 2


def test_that_volumes_are_missing_can_be_said_to_be_right(rig: Rig, run: Run) -> None:
    for number in range(3):
        rig.drop(rig.make("ns1", f"a{number}", BY_NAME))
    before = rig.tree()
    assert run("orphans", "--archive", "--yes", "--missing", "2").exit_code == 2
    assert rig.tree() == before
    assert run("orphans", "--archive", "--yes", "--missing", "3").exit_code == 0
    assert len(rig.archives()) == 3


def test_one_that_is_proved_to_be_nobodys_is_archived_when_it_is_named(rig: Rig, run: Run) -> None:
    rig.drop(rig.make("ns1", "a", BY_NAME))
    assert run("orphans", "--archive", "--yes").exit_code == 2
    assert run("orphans", "--archive", "--yes", "ns1/a").exit_code == 0
    assert len(rig.archives()) == 1


# --- restored ---------------------------------------------------------------------------------------------------------


def restore(rig: Rig, run: Run, to: str) -> str:
    volume = rig.make("ns1", "a", BY_NAME)
    (rig.directory(volume) / "f").write_text("content")
    name = rig.archive(volume).path.rpartition("/")[2]
    result = run("archives", "restore", name, "--to", to)
    assert result.exit_code == 0, result.output
    return volume.name


@pytest.mark.parametrize("to", ["back", "team/back", "live/back"])
def test_what_was_restored_is_known_and_not_archived_with_the_rest(rig: Rig, run: Run, to: str) -> None:
    rig.make("live", "b", BY_NAME)
    pv = restore(rig, run, to)
    (row,) = rows(run)
    assert (row["kind"], row["path"], row["volume"], row["claim"]) == ("restored", to, pv, "ns1/a")
    assert run("orphans", "--archive", "--yes").exit_code == 0
    assert (rig.share / to / "f").read_text() == "content"
    assert run("orphans", "--archive", "--yes", to).exit_code == 0
    (archive,) = json.loads(run("archives", "list", "--json").stdout)
    assert archive["claim"] == "ns1/a"
    assert archive["pv"] == pv
    assert findings(run) == {}
    assert list((rig.share / ".prov-host" / "restored").iterdir()) == []


def test_what_was_restored_can_be_adopted_and_is_then_a_volume(rig: Rig, run: Run) -> None:
    restore(rig, run, "ns1/a")
    volume = rig.make("ns1", "a", {**BY_NAME, "adoptExisting": "true"})
    assert findings(run) == {}
    rig.delete(volume)
    assert not (rig.share / "ns1" / "a").exists()


def test_a_note_about_what_is_not_there_any_more_says_nothing_and_goes(
    rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prov_host_nfs_subdir.tools._Wall.now", lambda _self: rig.clock.now())
    restore(rig, run, "back")
    (rig.share / "back").rename(rig.share / "elsewhere")
    (rig.share / "back").mkdir()
    assert findings(run) == {("unknown-directory", "back"): "", ("unknown-directory", "elsewhere"): ""}
    (rig.share / "back").rmdir()
    rig.clock._move(3600)
    rig.host.jobs["nfs_subdir leftovers on default"][1]()
    assert list((rig.share / ".prov-host" / "restored").iterdir()) == []


# --- adopting ---------------------------------------------------------------------------------------------------------


def test_replaced_and_foreign_volumes_are_adopted_after_asking(rig: Rig, run: Run) -> None:
    volume = rig.make("ns1", "a", BY_NAME)
    rig.directory(volume).rename(rig.share / "old")
    rig.directory(volume).mkdir()
    foreign = rig.without_record(rig.make("ns2", "foreign"))
    rig.put(foreign)
    owner_of(rig, foreign).unlink()
    result = run("orphans", "--adopt", "--yes")
    assert result.exit_code == 0
    assert result.stdout.count("from now on") == 2
    assert list(findings(run)) == [("unknown-directory", "old")]
    for one in (volume, foreign):
        assert "confirmed" not in owner_of(rig, one).read_text()
    rig.delete(volume)
    rig.delete(foreign)
    assert [path for path in rig.tree() if "/" not in path] == ["old"]


def without_its_record(volume: Volume, content: str | None) -> Volume:
    """The volume after somebody's tool has cut or garbled its annotation."""
    wire = msgspec.to_builtins(volume)
    del wire["metadata"]["annotations"]["prov-host/record"]
    if content is not None:
        wire["metadata"]["annotations"]["prov-host/record"] = content
    return msgspec.convert(wire, Volume)


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"path": 7}'])
@pytest.mark.parametrize("how", ["delete", "archive"])
def test_a_volume_whose_own_record_is_lost_is_adopted_by_the_one_on_the_share(
    rig: Rig, run: Run, content: str | None, how: str
) -> None:
    volume = without_its_record(rig.make("ns1", "a", BY_NAME), content)
    (rig.directory(volume) / "f").write_text("x")
    rig.put(volume)
    release = rig.delete if how == "delete" else rig.archive
    with pytest.raises(DeleteError, match="prov-host orphans --adopt ns1/a"):
        release(volume)
    assert (rig.directory(volume) / "f").exists()
    (row,) = rows(run)
    assert (row["kind"], row["path"], row["adopt"]) == ("lost-record", "ns1/a", "listed")
    assert run("orphans", "--adopt", "--yes").exit_code == 0
    assert findings(run) == {}
    release(volume)
    assert not rig.directory(volume).exists()
    rig.put(volume)
    rig.start()  # died before the object was gone
    assert rig.plugin.delete(volume).already_absent


@pytest.mark.parametrize("on_the_share", ["nothing", "another inode"])
def test_a_lost_record_that_nothing_on_the_share_proves_is_adopted_only_when_it_is_named(
    rig: Rig, run: Run, on_the_share: str
) -> None:
    rig.make("ns1", "other", BY_NAME)
    volume = without_its_record(rig.make("ns1", "a", BY_NAME), None)
    rig.put(volume)
    if on_the_share == "nothing":
        owner_of(rig, volume).unlink()
    else:
        change_owner(rig, volume, inode=7)
    assert "give its path to adopt it" in run("orphans", "--adopt", "--yes").stdout
    with pytest.raises(DeleteError, match="lost"):
        rig.delete(volume)
    assert run("orphans", "--adopt", "--yes", "ns1/a").exit_code == 0
    rig.delete(volume)
    assert not rig.directory(volume).exists()


def test_a_record_that_says_something_else_is_a_contradiction_that_nobody_adopts(rig: Rig, run: Run) -> None:
    volume = rig.make("ns1", "a", BY_NAME)
    rig.put(rig.with_record(volume, path="ns2/b"))
    assert findings(run) == {("contradiction", "ns1/a"): volume.name}
    assert run("orphans", "--adopt", "--yes", "ns1/a").exit_code == 2


@pytest.mark.parametrize("there", [True, False])
def test_a_lost_record_is_no_permission_on_the_wrong_share(rig: Rig, run: Run, there: bool) -> None:
    volume = without_its_record(rig.make("ns1", "a", BY_NAME), None)
    rig.drop(volume)
    rig.share.rename(rig.share.with_name("right"))
    rig.share.mkdir()
    rig.make("ns9", "x", BY_NAME)
    for one in list(rig.volumes.values()):
        rig.drop(one)
    if there:
        rig.directory(volume).mkdir(parents=True)
    rig.put(volume)
    rig.start()
    with pytest.raises(DeleteError):
        rig.delete(volume)
    assert rig.directory(volume).exists() == there
