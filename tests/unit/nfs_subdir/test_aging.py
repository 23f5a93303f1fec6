"""No clock decides alone that an archive is removed: not a wrong one, not one that jumps, not one that is set back."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from faulty_sys import QuickSys, ServerClockSys
from nfs_rig import Rig
from prov_host_nfs_subdir.aging import Age, Clocks, Due, age_of, doubt, is_due
from prov_host_nfs_subdir.commands import _archives
from prov_host_nfs_subdir.lifecycle import Archive, archives_of
from prov_host_nfs_subdir.records import ArchiveRecord
from prov_host_nfs_subdir.tools import Tools

DAY = 86400
NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


def archived(rig: Rig, name: str = "data", retention: str = "30d") -> Path:
    volume = rig.make("ns1", name, {"archiveRetention": retention})
    (rig.directory(volume) / "precious").write_text("x")
    return rig.share / rig.archive(volume).path.rpartition("/")[2]


def expire(rig: Rig) -> None:
    """The job, as often as it runs in five hours."""
    for _hour in range(5):
        rig.host.jobs["nfs_subdir expired archives of default"][1]()
        rig.clock._monotonic += 3600
    assert rig.plugin.wait_for_trash(10)


def in_doubt(rig: Rig) -> float | None:
    return rig.host.registry.get_sample_value("prov_host_nfs_subdir_archives_in_doubt", {"export": "default"})


@pytest.fixture
def server(rig: Rig) -> ServerClockSys:
    assert isinstance(rig.sys, ServerClockSys)
    return rig.sys


# --- the job --------------------------------------------------------------------------------------------------------


def test_an_archive_expires_when_both_clocks_say_so(rig: Rig) -> None:
    path = archived(rig)
    rig.clock._move(30 * DAY - 1)
    expire(rig)
    assert path.is_dir()
    rig.clock._move(1)
    expire(rig)
    assert not path.exists()
    assert rig.host.events[0][1].reason == "ArchiveExpired"
    assert in_doubt(rig) == 0


@pytest.mark.parametrize("wrong", [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(2025, 6, 1, tzinfo=dt.UTC)])
def test_an_archive_made_while_this_clock_was_behind_is_as_old_as_the_share_says(
    rig: Rig, server: ServerClockSys, wrong: dt.datetime
) -> None:
    right = rig.clock.now()
    rig.clock._wall, server.ahead = wrong, right - wrong
    path = archived(rig)
    rig.clock._wall, server.ahead = right, dt.timedelta()
    expire(rig)
    assert path.is_dir()
    rig.clock._move(29 * DAY)
    expire(rig)
    assert path.is_dir()
    rig.clock._move(DAY)
    expire(rig)
    assert path.exists() is (wrong.year == 1970)  # such a record proves that something was wrong, so a person decides


def test_an_archive_made_while_both_clocks_were_behind_stays(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A machine without a battery that serves the share itself."""
    right = rig.clock.now()
    rig.clock._wall = dt.datetime(1970, 1, 1, 0, 5, tzinfo=dt.UTC)
    path = archived(rig)
    rig.clock._wall = right
    expire(rig)
    assert path.is_dir()
    assert in_doubt(rig) == 1
    ((_claim, note),) = rig.host.events
    assert (note.reason, note.type) == ("ArchiveTimeInDoubt", "Warning")
    assert "1970-01-01" in note.message
    assert "archives prune" in note.message
    assert sum("does not expire" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("which", ["here", "share"])
def test_one_clock_that_jumps_ahead_removes_nothing(
    rig: Rig, server: ServerClockSys, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = archived(rig)
    decade = dt.timedelta(days=3652)
    if which == "here":
        rig.clock._wall += decade
        server.ahead = -decade
    else:
        server.ahead = decade
    expire(rig)
    assert path.is_dir()
    assert in_doubt(rig) == 1
    assert "set the clock that is wrong" in caplog.text
    assert rig.host.events == []


def test_both_clocks_that_jump_ahead_for_less_than_an_hour_remove_nothing(rig: Rig) -> None:
    path = archived(rig)
    run = rig.host.jobs["nfs_subdir expired archives of default"][1]
    for _ in range(10):
        rig.clock._wall += dt.timedelta(days=3652)
        run()
        rig.clock._monotonic += 3599
        run()
        rig.clock._wall -= dt.timedelta(days=3652)
        run()
    assert path.is_dir()


def test_an_archive_that_was_made_while_the_clock_was_ahead_stays_until_then(rig: Rig, server: ServerClockSys) -> None:
    rig.clock._wall += dt.timedelta(days=365)
    server.ahead = dt.timedelta(days=-365)
    path = archived(rig)
    rig.clock._wall -= dt.timedelta(days=365)
    server.ahead = dt.timedelta()
    expire(rig)
    assert path.is_dir()
    assert in_doubt(rig) == 1
    rig.clock._move(200 * DAY)
    expire(rig)
    assert path.is_dir()


def test_a_new_process_looks_anew(rig: Rig) -> None:
    path = archived(rig)
    rig.clock._move(31 * DAY)
    for _ in range(3):
        rig.start()
        rig.host.jobs["nfs_subdir expired archives of default"][1]()
        rig.clock._move(7200)
    assert path.is_dir()


def test_a_copied_share_makes_archives_young(rig: Rig, server: ServerClockSys) -> None:
    path = archived(rig)
    rig.clock._move(40 * DAY)
    server._touch(path.stat().st_ino)
    expire(rig)
    assert path.is_dir()
    rig.clock._move(30 * DAY)
    expire(rig)
    assert not path.exists()


def test_a_share_that_does_not_tell_the_time_keeps_everything(
    rig: Rig, server: ServerClockSys, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = archived(rig)
    rig.clock._move(40 * DAY)

    def refuse(_fd: int, _mode: int) -> None:
        raise PermissionError(1, os.strerror(1))

    with monkeypatch.context() as patch:
        patch.setattr(server, "fchmod", refuse)
        expire(rig)
        assert path.is_dir()
        assert "does not tell the time: Operation not permitted" in caplog.text
    expire(rig)
    assert not path.exists()


def test_the_wait_can_be_chosen(rig: Rig) -> None:
    rig.settings["retention_confirm"] = "0"
    rig.start()
    path = archived(rig)
    rig.clock._move(31 * DAY)
    rig.host.jobs["nfs_subdir expired archives of default"][1]()
    assert not path.exists()


def test_a_real_file_system_tells_its_time(rig: Rig) -> None:
    """And needs no space for it."""
    archived(rig)
    rig.sys = QuickSys()
    rig.start()
    work = rig.plugin._served["default"].work
    with work.share.open() as share:
        from prov_host_nfs_subdir.aging import read_clocks

        before = dt.datetime.now(dt.UTC)
        clocks = read_clocks(share, before)
        assert abs(clocks.share - before) < dt.timedelta(seconds=5)
        (archive,) = archives_of(work, share, ())
        assert archive.changed is not None
        assert abs(archive.changed - before) < dt.timedelta(minutes=5)


# --- the rules ------------------------------------------------------------------------------------------------------


def archive_of(archived: dt.datetime | None, changed: dt.datetime | None, retention: int = 30 * DAY) -> Archive:
    return Archive(ArchiveRecord(name="archived-x", retention=retention), archived, True, changed)


moments = st.integers(DAY, 48000 * DAY).map(lambda seconds: dt.datetime.fromtimestamp(seconds, dt.UTC))


@given(moments, moments, moments, moments)
def test_neither_clock_alone_makes_an_archive_due(
    here: dt.datetime, share: dt.datetime, archived: dt.datetime, changed: dt.datetime
) -> None:
    archive, clocks = archive_of(archived, changed), Clocks(here, share)
    month = dt.timedelta(days=30)
    assert is_due(archive, clocks) == (here - archived >= month and share - changed >= month)
    age = age_of(archive, clocks)
    assert age is not None
    assert age.seconds == min((here - archived).total_seconds(), (share - changed).total_seconds())


def test_which_age_counts_is_known() -> None:
    clocks = Clocks(NOW, NOW)
    day = dt.timedelta(days=1)
    assert age_of(archive_of(NOW - 3 * day, NOW - 2 * day), clocks) == Age(2 * DAY, "share")
    assert age_of(archive_of(NOW - 1 * day, NOW - 2 * day), clocks) == Age(DAY, "record")
    assert age_of(archive_of(None, NOW), clocks) is None


@pytest.mark.parametrize(
    ("archived", "changed", "words"),
    [
        (dt.timedelta(days=3), dt.timedelta(days=3), ""),
        (dt.timedelta(days=300), dt.timedelta(days=3), ""),
        (dt.timedelta(days=3), dt.timedelta(days=300), "unchanged since"),
        (dt.timedelta(days=-1), dt.timedelta(), "yet to come"),
        (dt.timedelta(), dt.timedelta(days=-1), "yet to come"),
        (dt.timedelta(days=20000), dt.timedelta(days=3), "before there were any"),
    ],
)
def test_times_that_cannot_be_right(archived: dt.timedelta, changed: dt.timedelta, words: str) -> None:
    found = doubt(archive_of(NOW - archived, NOW - changed), Clocks(NOW, NOW))
    assert (words in found) if words else found == ""


def test_being_due_is_counted_from_the_last_time_it_began() -> None:
    due, archive = Due(3600), archive_of(NOW, NOW)
    assert due.of([archive], 0) == []
    assert due.of([archive], 3599) == []
    assert due.of([], 3600) == []
    assert due.of([archive], 3601) == []
    assert due.of([archive], 7201) == [archive]


# --- pruning --------------------------------------------------------------------------------------------------------


def test_prune_says_which_time_it_counts_from(
    rig: Rig, server: ServerClockSys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prov_host_nfs_subdir.tools._Wall.now", lambda _self: rig.clock.now())
    right = rig.clock.now()
    rig.clock._wall, server.ahead = right - dt.timedelta(days=300), dt.timedelta(days=300)
    wrong = archived(rig, "wrong")
    rig.clock._wall, server.ahead = right, dt.timedelta()
    rig.clock._move(2 * DAY)
    good = archived(rig, "good")
    rig.clock._move(10 * DAY)
    run = _pruner(rig)
    rows = {row["name"]: row for row in json.loads(run("--older-than", "1d", "--json"))}
    assert (rows[wrong.name]["counted_by"], rows[wrong.name]["age_seconds"]) == ("share", 12 * DAY)
    assert rows[good.name]["age_seconds"] == 10 * DAY
    table = run("--older-than", "1d")
    assert "COUNTED BY" in table
    assert "smaller one of two" in table
    assert wrong.name not in run("--older-than", "13d")
    run("--older-than", "11d", "--yes")
    assert (wrong.exists(), good.exists()) == (False, True)


def test_prune_keeps_the_archive_that_is_newest_by_either_clock(
    rig: Rig, server: ServerClockSys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one was made while the clock was wrong, so its record looks like the oldest."""
    monkeypatch.setattr("prov_host_nfs_subdir.tools._Wall.now", lambda _self: rig.clock.now())
    old = archived(rig)
    rig.clock._move(10 * DAY)
    right = rig.clock.now()
    rig.clock._wall, server.ahead = right - dt.timedelta(days=300), dt.timedelta(days=300)
    new = archived(rig)
    rig.clock._wall, server.ahead = right, dt.timedelta()
    rig.clock._move(DAY)
    _pruner(rig)("--keep-last", "1", "--yes")
    assert (old.exists(), new.exists()) == (False, True)


def _pruner(rig: Rig) -> Callable[..., str]:
    class Context:
        def settings(self) -> object:
            return rig.plugin._served["default"].work.settings

        def volumes(self) -> tuple[object, ...]:
            return tuple(rig.volumes.values())

        def claims(self) -> tuple[object, ...]:
            return ()

        def storage_classes(self) -> tuple[object, ...]:
            return ()

    tools = Tools(Context(), rig.environ, rig.sys, lambda: f"cli-{os.urandom(4).hex()}")  # type: ignore[arg-type]
    group = click.Group()
    group.add_command(_archives(tools))

    def run(*args: str) -> str:
        result = CliRunner().invoke(group, ["archives", "prune", *args])
        assert result.exit_code == 0, result.output
        return result.stdout

    return run
