"""Archives: listed, restored, pruned, expired; by command and by themselves."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from faulty_sys import Crash, FaultySys
from nfs_rig import EXPORT, Rig
from prov_host import Claim
from prov_host_nfs_subdir.values import parse_duration

BY_NAME = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}


def archived(rig: Rig, namespace: str, name: str, content: str, **parameters: str) -> str:
    volume = rig.make(namespace, name, {**BY_NAME, **parameters})
    (rig.directory(volume) / "f").write_text(content)
    (rig.directory(volume) / "d").mkdir()
    (rig.directory(volume) / "l").symlink_to("f")
    removed = rig.archive(volume)
    rig.clock._move(86400)
    return removed.path.rpartition("/")[2]


# --- list, show ---------------------------------------------------------------------------------------------------


def test_archives_are_listed_oldest_first(rig: Rig, run: Callable[..., Result]) -> None:
    first = archived(rig, "ns2", "b", "1")
    second = archived(rig, "ns1", "a", "2", archiveRetention="30d")
    result = run("archives", "list")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["EXPORT", "CLAIM", "VOLUME", "AGE", "KEEP", "NAME"]
    assert [line.split()[-1] for line in lines[1:]] == [first, second]
    assert "ns1/a" in lines[2]
    assert " 30d " in lines[2]
    assert " for ever " in lines[1]
    rows = json.loads(run("archives", "list", "--json").stdout)
    assert rows[1]["retention"] == 30 * 86400
    assert rows[1]["claim"] == "ns1/a"
    assert rows[1]["path"] == "ns1/a"


GO_ARCHIVES = (
    "archived-default-go-pvc-1234",
    "archived-ns1-data-pvc-22222222-0000-4000-8000-000000000002",
    "archived-photos",  # of a class with a pathPattern
)


def test_archives_of_the_go_provisioner_are_listed(rig: Rig, run: Callable[..., Result]) -> None:
    rig.make("x", "y")
    live = rig.make("archived-ns", "data")
    rig.make("archived-team", "data", BY_NAME)
    for name in GO_ARCHIVES:
        (rig.share / name).mkdir()
    (rig.share / "archived-file").write_text("")
    rows = json.loads(run("archives", "list", "--json").stdout)
    assert sorted(row["name"] for row in rows) == list(GO_ARCHIVES)
    assert rig.directory(live).name not in run("archives", "list").stdout
    by_name = {row["name"]: row for row in rows}
    assert by_name[GO_ARCHIVES[1]]["pv"] == "pvc-22222222-0000-4000-8000-000000000002"
    for row in rows:
        assert row["recorded"] is False
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["archived"])


def test_a_directory_that_was_made_to_hold_volumes_is_no_archive(rig: Rig, run: Callable[..., Result]) -> None:
    volume = rig.make("archived-team", "data", BY_NAME)
    rig.drop(volume)
    rig.directory(volume).rmdir()
    for path in (rig.share / ".prov-host" / "owners").iterdir():
        path.unlink()
    assert run("archives", "list").stdout == "No archives.\n"
    assert [one.kind for one in rig.plugin.inventory()] == []


@pytest.mark.parametrize("name", GO_ARCHIVES)
def test_archives_of_the_go_provisioner_are_shown_and_restored(rig: Rig, run: Callable[..., Result], name: str) -> None:
    rig.make("x", "y")
    (rig.share / name).mkdir()
    (rig.share / name / "f").write_text("content")
    assert "no: another program made it" in run("archives", "show", name).stdout
    assert run("archives", "restore", name, "--to", "team/back").exit_code == 0
    assert (rig.share / "team" / "back" / "f").read_text() == "content"
    assert not rig.archives()


@pytest.mark.parametrize("name", GO_ARCHIVES)
def test_archives_of_the_go_provisioner_are_removed_only_when_they_are_named(
    rig: Rig, run: Callable[..., Result], name: str
) -> None:
    kept = archived(rig, "ns1", "a", "1", archiveRetention="1d")
    for one in GO_ARCHIVES:
        (rig.share / one).mkdir()
    assert run("archives", "prune", "--older-than", "0", "--keep-last", "0").stdout.count("archived-") == 1
    assert "Would remove 1" in run("archives", "prune", name).stdout
    assert len(rig.archives()) == 4
    assert "Removed 1." in run("archives", "prune", name, "--yes").stdout
    assert sorted(path.name for path in rig.archives()) == sorted({kept, *GO_ARCHIVES} - {name})
    for wrong in ("archived-", "nothing"):  # the beginning is not enough to remove something
        result = run("archives", "prune", wrong, "--yes")
        assert result.exit_code == 2
        assert "no archive" in result.output


def test_a_volume_that_the_configuration_does_not_recognize_is_no_archive(rig: Rig, run: Callable[..., Result]) -> None:
    rig.make("x", "y")
    foreign = rig.without_record(rig.make("archived-ns", "data"))
    name = rig.directory(foreign).name
    assert foreign.spec.nfs is not None
    foreign.spec.nfs.update(server="other.example.com", path=f"/old/{name}")
    rig.put(foreign)
    for path in (rig.share / ".prov-host" / "owners").iterdir():
        if foreign.name in path.read_text():
            path.unlink()
    assert run("archives", "list").stdout == "No archives.\n"
    assert run("archives", "prune", name, "--yes").exit_code == 2
    assert (rig.share / name).is_dir()


def test_nothing_archived_is_said(rig: Rig, run: Callable[..., Result]) -> None:
    assert run("archives", "list").stdout == "No archives.\n"
    rig.make("x", "y")
    assert run("archives", "list").stdout == "No archives.\n"


def test_a_terminal_is_not_told_what_a_record_says_to_it(rig: Rig, run: Callable[..., Result]) -> None:
    name = archived(rig, "ns1", "a", "1")
    path = rig.share / f"{name}.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "claim": "\x1b[2Jevil"}))
    assert "\x1b" not in run("archives", "list").stdout


@pytest.mark.parametrize("content", ["{", "[]", '{"name": 7}', '{"name": "other"}', "\xff"])
def test_an_unusable_record_does_not_hide_the_archive(rig: Rig, run: Callable[..., Result], content: str) -> None:
    name = archived(rig, "ns1", "a", "1")
    (rig.share / f"{name}.json").write_bytes(content.encode("latin-1"))
    (row,) = json.loads(run("archives", "list", "--json").stdout)
    assert row["name"] == name
    assert row["recorded"] is False


@pytest.mark.parametrize("how", ["name", "beginning", "claim", "volume"])
def test_one_archive_is_shown_with_its_size(rig: Rig, run: Callable[..., Result], how: str) -> None:
    name = archived(rig, "ns1", "a", "x" * 5000)
    archived(rig, "ns2", "b", "2")
    pv = re.search(r"pvc-[0-9a-f-]{36}", name)
    assert pv
    result = run(
        "archives", "show", {"name": name, "beginning": name[:20], "claim": "ns1/a", "volume": pv[0]}[how], "--json"
    )
    facts = json.loads(result.stdout)
    assert facts["name"] == name
    assert facts["used"] >= 5000
    assert facts["files"] == 3
    table = run("archives", "show", name).stdout
    for line in (r"claim +ns1/a", r"capacity +1Gi", r"recorded +yes", r"used +\d[.\d]*Ki", r"retention +for ever"):
        assert re.search(f"^{line}$", table, re.MULTILINE), table


def test_an_archive_that_is_not_there_or_not_clear_is_an_error(rig: Rig, run: Callable[..., Result]) -> None:
    names = [archived(rig, "ns1", "a", "1"), archived(rig, "ns1", "a", "2")]
    assert run("archives", "show", "archived").output.splitlines()[-2:] == [f"  {name}" for name in names]
    for args, words in ((("nothing",), "no archive"), (("ns1/a",), "whole name")):
        result = run("archives", "show", *args)
        assert result.exit_code == 1
        assert words in result.output
        assert "Traceback" not in result.output


# --- restore ------------------------------------------------------------------------------------------------------


def test_an_archive_is_restored_to_a_path_and_adopted_by_a_claim(rig: Rig, run: Callable[..., Result]) -> None:
    name = archived(rig, "ns1", "a", "content")
    result = run("archives", "restore", name, "--to", "ns1/a")
    assert result.exit_code == 0, result.output
    assert (rig.share / "ns1" / "a" / "f").read_text() == "content"
    assert not (rig.share / name).exists()
    assert not (rig.share / f"{name}.json").exists()
    volume = rig.make("ns1", "a", {**BY_NAME, "adoptExisting": "true"})
    assert (rig.directory(volume) / "f").read_text() == "content"


@pytest.mark.parametrize("to", [f"{EXPORT}/team/back", f"/{EXPORT}//team/./back/", "team/back", "/old/team/back"])
def test_a_restore_to_an_absolute_path_means_the_servers(rig: Rig, run: Callable[..., Result], to: str) -> None:
    rig.settings["historical_paths"] = ["/old"]
    rig.start()
    name = archived(rig, "ns1", "a", "content")
    result = run("archives", "restore", name, "--to", to)
    assert result.exit_code == 0, result.output
    assert f"{EXPORT}/team/back" in result.output
    assert (rig.share / "team" / "back" / "f").read_text() == "content"


@pytest.mark.parametrize("to", ["/exports/k8s2/x", "/exports", "/elsewhere/x", f"{EXPORT}/../x", EXPORT, f"{EXPORT}/"])
def test_a_restore_to_an_absolute_path_elsewhere_is_refused(rig: Rig, run: Callable[..., Result], to: str) -> None:
    name = archived(rig, "ns1", "a", "content")
    before = rig.tree()
    result = run("archives", "restore", name, "--to", to)
    assert result.exit_code == 1
    assert "below" in result.output
    assert rig.tree() == before


@pytest.mark.parametrize(
    "to",
    [
        "ns2/live",
        "ns2",
        "ns2/live/x",
        "there",
        "../x",
        "a/../b",
        ".prov-host/x",
        "archived-x",
        "/",
        "a\nb",
        ".snapshot/x",
    ],
)
def test_a_restore_overwrites_and_enters_nothing(rig: Rig, run: Callable[..., Result], to: str) -> None:
    name = archived(rig, "ns1", "a", "content")
    rig.make("ns2", "live", BY_NAME)
    (rig.share / "there").mkdir()
    before = rig.tree()
    result = run("archives", "restore", name, "--to", to)
    assert result.exit_code != 0
    assert rig.tree() == before


def test_an_archive_is_restored_into_the_directory_of_a_new_claim(rig: Rig, run: Callable[..., Result]) -> None:
    name = archived(rig, "ns1", "a", "content")
    volume = rig.make("ns9", "new")
    result = run("archives", "restore", name, "--claim", "ns9/new")
    assert result.exit_code == 0, result.output
    directory = rig.directory(volume)
    assert sorted(os.listdir(directory)) == ["d", "f", "l"]
    assert (directory / "f").read_text() == "content"
    assert os.readlink(directory / "l") == "f"
    assert rig.archives() == []
    rig.delete(volume)
    assert [path for path in rig.tree() if not path.startswith("archived-")] == []


def test_a_claim_that_has_data_already_is_left_alone(rig: Rig, run: Callable[..., Result]) -> None:
    name = archived(rig, "ns1", "a", "content")
    volume = rig.make("ns9", "new")
    (rig.directory(volume) / "f").write_text("newer")
    before = rig.tree()
    result = run("archives", "restore", name, "--claim", "ns9/new")
    assert result.exit_code == 1
    assert "not empty" in result.output
    assert rig.tree() == before
    assert "no bound volume" in run("archives", "restore", name, "--claim", "ns9/none").output
    for nonsense in ("new", "/new", "ns9/", "a/b/c"):
        result = run("archives", "restore", name, "--claim", nonsense)
        assert result.exit_code == 2
        assert "NAMESPACE/NAME" in result.output
    assert run("archives", "restore", name).exit_code == 2


@pytest.mark.parametrize("like_nfs", [False, True])
@pytest.mark.parametrize("target", ["--claim", "--to"])
def test_a_restore_that_crashes_is_finished_by_the_next(
    quick_path: Path, like_nfs: bool, target: str, run: Callable[..., Result], rig: Rig
) -> None:
    where = {"--claim": "ns9/new", "--to": "back/here"}[target]
    at = 0
    while True:
        at += 1
        share = quick_path / f"{at}"
        share.mkdir()
        rig.share = share
        rig.volumes.clear()
        rig.sys = FaultySys()
        rig.start()
        name = archived(rig, "ns1", "a", "content")
        new = rig.make("ns9", "new")
        rig.sys = sys = FaultySys(like_nfs=like_nfs, at=at, only_changing=True)
        try:
            result = run("archives", "restore", name, target, where)
        except Crash:
            pass
        else:
            assert result.exit_code == 0, result.output
            break
        copies = [path for path in share.rglob("f") if not path.is_symlink()]
        assert len({path.stat().st_ino for path in copies}) == 1, sys.what
        rig.sys = FaultySys(like_nfs=like_nfs)
        result = run("archives", "restore", name, target, where)
        there = rig.directory(new) if target == "--claim" else share / "back" / "here"
        assert sorted(os.listdir(there)) == ["d", "f", "l"], f"{sys.what}: {result.output}"
        assert (there / "f").read_text() == "content"
    assert at > 5


# --- prune ----------------------------------------------------------------------------------------------------------


def test_prune_only_says_what_it_would_do(rig: Rig, run: Callable[..., Result]) -> None:
    archived(rig, "ns1", "a", "1")
    before = rig.tree(private=True)
    for args in (("--older-than", "0"), ("--keep-last", "0")):
        result = run("archives", "prune", *args)
        assert "Would remove 1" in result.output
    assert rig.tree(private=True) == before
    assert run("archives", "prune").exit_code == 2
    assert "30d" in run("archives", "prune", "--older-than", "soon").output


def test_prune_keeps_the_last_of_each_claim_and_what_is_young(
    rig: Rig, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = [archived(rig, "ns1", "a", str(n)) for n in range(3)]
    b = [archived(rig, "ns1", "b", "b")]
    foreign = "archived-ns1-data-pvc-22222222-0000-4000-8000-000000000002"
    (rig.share / foreign).mkdir()
    live = rig.make("archived-ns", "data")
    monkeypatch.setattr("prov_host_nfs_subdir.tools._Wall.now", lambda _self: rig.clock.now())

    def left(*args: str) -> set[str]:
        result = run("archives", "prune", *args, "--yes", "--json")
        assert result.exit_code == 0, result.output
        return {path.name for path in rig.archives()} - {rig.directory(live).name}

    assert left("--older-than", "4d", "--keep-last", "1") == {*a[1:], *b, foreign}
    assert left("--keep-last", "1") == {a[2], *b, foreign}
    assert left("--older-than", "1w") == {a[2], *b, foreign}
    assert left("--keep-last", "0") == {foreign}
    assert left(foreign) == set()
    assert rig.directory(live).is_dir()
    assert [name for name in os.listdir(rig.share) if name.endswith(".json")] == []
    assert rig.trash() == []


# --- expiry ---------------------------------------------------------------------------------------------------------


def expire(rig: Rig) -> None:
    for _hour in range(2):
        rig.host.jobs["nfs_subdir expired archives of default"][1]()
        rig.clock._monotonic += 3600
    assert rig.plugin.wait_for_trash(10)


def test_an_archive_expires_with_an_event_a_metric_and_a_log_line(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    short = archived(rig, "ns1", "a", "1", archiveRetention="4d")
    longer = archived(rig, "ns1", "b", "2", archiveRetention="30d")
    for_ever = archived(rig, "ns1", "c", "3")
    caplog.set_level("INFO")
    expire(rig)
    assert [path.name for path in rig.archives()] == sorted([short, longer, for_ever])

    rig.clock._move(86400)
    expire(rig)
    expire(rig)

    assert [path.name for path in rig.archives()] == sorted([longer, for_ever])
    assert rig.trash() == []
    ((claim, note),) = rig.host.events
    assert isinstance(claim, Claim)
    assert claim.key == "ns1/a"
    assert claim.uid
    assert note.reason == "ArchiveExpired"
    assert f"{EXPORT}/{short}" in note.message
    value = rig.host.registry.get_sample_value
    assert value("prov_host_nfs_subdir_archives_expired_total", {"export": "default"}) == 1
    assert value("prov_host_nfs_subdir_archives", {"export": "default"}) == 2
    assert [
        record.message for record in caplog.records if short in record.message and "removed archive" in record.message
    ]


@pytest.mark.parametrize(
    "change", [{"archived": "yesterday"}, {"archived": ""}, {"retention": 0}, {"retention": -1}, {"inode": 7}]
)
def test_an_archive_that_is_not_clearly_over_stays(rig: Rig, change: dict[str, object]) -> None:
    name = archived(rig, "ns1", "a", "1", archiveRetention="1d")
    path = rig.share / f"{name}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    rig.clock._move(10 * 86400)
    expire(rig)
    assert [one.name for one in rig.archives()] == [name]


def test_retention_is_frozen_with_the_volume(rig: Rig) -> None:
    """The class may say something else by the time its volume is archived; also a lost record changes nothing."""
    volume = rig.make("ns1", "a", {**BY_NAME, "archiveRetention": "2d"})
    assert volume.record["retention"] == str(2 * 86400)
    import shutil

    shutil.rmtree(rig.share / ".prov-host" / "owners")
    rig.archive(volume)
    (path,) = rig.archives()
    assert json.loads((rig.share / f"{path.name}.json").read_text())["retention"] == 2 * 86400


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2592000), ("36h", 129600), ("1w12h", 648000), ("90m", 5400), ("0", 0)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


# --- volumes ---------------------------------------------------------------------------------------------------------


def test_volumes_are_listed_with_size_claim_age_and_path(rig: Rig, run: Callable[..., Result]) -> None:
    volume = rig.make("ns1", "data", BY_NAME, storage="5Gi")
    (rig.directory(volume) / "f").write_bytes(b"x" * 100_000)
    os.link(rig.directory(volume) / "f", rig.directory(volume) / "hard link")
    (row,) = json.loads(run("volumes", "--json").stdout)
    assert row["path"] == f"{EXPORT}/ns1/data"
    assert row["claim"] == "ns1/data"
    assert row["requested"] == "5Gi"
    assert row["files"] == 2
    assert 100_000 <= row["used_bytes"] < 150_000
    assert run("volumes", "list", "--json").stdout == run("volumes", "--json").stdout
    table = run("volumes", "--no-sizes").stdout
    assert "REMARK" not in table
    assert volume.name in table
    assert run("volumes", "--export", "none").exit_code != 0


def test_usage_is_measured_in_the_background(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME, storage="5Gi")
    other = rig.make("ns1", "gone", BY_NAME)
    (rig.directory(volume) / "f").write_bytes(b"x" * 100_000)
    job = rig.host.jobs["nfs_subdir usage of default"][1]
    job()
    labels = {"export": "default", "persistentvolume": volume.name, "namespace": "ns1", "persistentvolumeclaim": "data"}
    value = rig.host.registry.get_sample_value
    used = value("prov_host_nfs_subdir_volume_used_bytes", labels)
    assert used is not None
    assert used >= 100_000
    assert value("prov_host_nfs_subdir_volume_used_files", labels) == 1
    assert value("prov_host_nfs_subdir_export_promised_bytes", {"export": "default"}) == 6 * 1024**3
    labels.update(persistentvolume=other.name, persistentvolumeclaim="gone")
    assert value("prov_host_nfs_subdir_volume_used_bytes", labels) is not None
    rig.delete(other)
    job()
    assert value("prov_host_nfs_subdir_volume_used_bytes", labels) is None


def test_usage_does_not_follow_links_out_of_the_volume(rig: Rig, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * 10_000_000)
    volume = rig.make("ns1", "data", BY_NAME)
    (rig.directory(volume) / "link").symlink_to(big)
    (rig.directory(volume) / "up").symlink_to(tmp_path)
    rig.host.jobs["nfs_subdir usage of default"][1]()
    labels = {"export": "default", "persistentvolume": volume.name, "namespace": "ns1", "persistentvolumeclaim": "data"}
    used = rig.host.registry.get_sample_value("prov_host_nfs_subdir_volume_used_bytes", labels)
    assert used is not None
    assert used < 100_000


# --- leftovers -------------------------------------------------------------------------------------------------------


def test_leftovers_of_a_provisioning_that_was_given_up_are_removed_after_a_while(rig: Rig) -> None:
    kept = rig.make("ns1", "a", BY_NAME)
    good, at = rig.sys, 0
    while not rig.staged():
        at += 1
        rig.sys = FaultySys(at=at)
        rig.start()
        with pytest.raises(Crash):
            rig.make("ns1", "b", BY_NAME)
    rig.sys = good
    rig.start()
    owners = rig.owners()
    tidy = rig.host.jobs["nfs_subdir leftovers on default"][1]
    tidy()
    rig.clock._move(300)
    tidy()
    assert len(rig.staged()) == 1
    rig.clock._move(601)
    tidy()
    assert rig.staged() == []
    assert len(rig.owners()) <= len(owners)
    assert rig.directory(kept).is_dir()


def test_jobs_do_nothing_on_a_share_that_is_not_in_use(rig: Rig) -> None:
    for _seconds, job in rig.host.jobs.values():
        job()
    assert rig.tree(private=True) == {}
