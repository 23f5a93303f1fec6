"""Rules 9 and 12: a share is proved before anything is done, and a hung one holds up nobody else."""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from faulty_sys import FaultySys
from nfs_rig import EXPORT, PROVISIONER, SERVER, Rig
from prov_host import DeleteError, InBackground, Infeasible, NoChange, NotSynced
from prov_host.safedir import Mount
from prov_host.testing.objects import make_claim
from prov_host_nfs_subdir import lanes
from prov_host_nfs_subdir.records import stem

BY_NAME = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}


@pytest.fixture
def strict(rig: Rig) -> Rig:
    """A plugin that was not told that a plain directory will do."""
    rig.settings["plain_directory"] = False
    rig.start()
    return rig


def mounted(rig: Rig, monkeypatch: pytest.MonkeyPatch, kind: str, source: str = f"{SERVER}:{EXPORT}") -> None:
    monkeypatch.setattr(rig.sys, "mount_of", lambda _fd: Mount("7", str(rig.share), kind, source))


# --- is anything mounted -----------------------------------------------------------------------------------------


def test_a_plain_directory_is_refused_unless_told_so(strict: Rig) -> None:
    with pytest.raises(NoChange, match=r"not a mounted NFS share.*PROV_HOST_NFS_SUBDIR_PLAIN_DIRECTORY"):
        strict.make("ns1", "data")
    assert strict.tree(private=True) == {}
    (problem,) = strict.plugin.check()
    assert "not a mounted NFS share" in problem


@pytest.mark.parametrize("kind", ["nfs", "nfs4"])
def test_a_mounted_share_is_taken_into_use_by_the_first_claim(
    strict: Rig, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounted(strict, monkeypatch, kind)
    assert list(strict.plugin.check()) == []
    assert strict.tree(private=True) == {}, "looking does not take it into use"
    strict.make("ns1", "data")
    assert (strict.share / ".prov-host" / "sentinel").is_file()
    assert list(strict.plugin.check()) == []


@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "overlay", "autofs"])
def test_another_kind_of_file_system_is_refused(strict: Rig, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    mounted(strict, monkeypatch, kind)
    with pytest.raises(NoChange, match=kind):
        strict.make("ns1", "data")


def test_on_the_server_itself_nothing_needs_to_be_mounted(strict: Rig) -> None:
    strict.environ["NFS_PATH"] = str(strict.share)
    strict.start()
    answer = strict.plugin.provision(strict.request(make_claim("data", "ns1"), BY_NAME))
    assert answer.source["nfs"]["path"] == f"{strict.share}/ns1/data"


def test_a_missing_mount_point_is_an_error_that_says_what_to_mount(rig: Rig) -> None:
    rig.settings["mount"] = "/nonexistent/share"
    rig.start()
    with pytest.raises(NoChange, match=rf"no directory /nonexistent/share; mount {SERVER}:{EXPORT} there"):
        rig.make("ns1", "data")
    assert "/nonexistent/share" in rig.plugin.check()[0]


# --- is it the right one -----------------------------------------------------------------------------------------


def test_an_empty_share_is_never_already_deleted(rig: Rig) -> None:
    """The share was unmounted, or wiped, or a new server took its name."""
    volume = rig.make("ns1", "data", BY_NAME)
    root_id = volume.record["root"]
    shutil.rmtree(rig.share)
    rig.share.mkdir()
    for process in range(2):
        if process:
            rig.start()
        for hook in (rig.plugin.delete, rig.plugin.archive):
            with pytest.raises(DeleteError, match=rf"sentinel.*{root_id}"):
                hook(volume)
        with pytest.raises(NoChange, match=volume.name):
            rig.plugin.provision(rig.request(make_claim("other", "ns1"), BY_NAME))
        assert root_id in rig.plugin.check()[0]
    assert rig.tree(private=True) == {}


def test_another_share_is_never_already_deleted(rig: Rig, tmp_path: Path) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    aside = tmp_path / "aside"
    rig.share.rename(aside)
    rig.share.mkdir()
    (rig.share / ".prov-host").mkdir()
    (rig.share / ".prov-host" / "sentinel").write_text('{"id": "another-share"}')
    for process in range(2):
        if process:
            rig.start()
        with pytest.raises(DeleteError, match="another-share"):
            rig.plugin.delete(volume)
        with pytest.raises(NoChange, match="another share is mounted here"):
            rig.plugin.provision(rig.request(make_claim("other", "ns1"), BY_NAME))
        assert "another share" in rig.plugin.check()[0]
    shutil.rmtree(rig.share)
    aside.rename(rig.share)
    assert list(rig.plugin.check()) == []
    rig.delete(volume)


def test_the_message_says_how_to_bring_a_restored_share_back(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    sentinel = rig.share / ".prov-host" / "sentinel"
    sentinel.unlink()
    with pytest.raises(DeleteError) as caught:
        rig.plugin.delete(volume)
    by_hand = f'{{"id": "{volume.record["root"]}"}}'
    assert by_hand in str(caught.value)
    assert str(sentinel) in str(caught.value)
    sentinel.write_text(by_hand)
    rig.delete(volume)


def test_records_without_a_sentinel_are_not_a_new_share(rig: Rig) -> None:
    volume = rig.make("ns1", "data", BY_NAME)
    rig.drop(volume)
    (rig.share / ".prov-host" / "sentinel").unlink()
    rig.start()
    with pytest.raises(NoChange, match="somebody removed it"):
        rig.make("ns1", "other", BY_NAME)


@pytest.mark.parametrize("content", ["", "{}", '{"id": ""}', '{"id": "../x"}', "x" * 70000, '{"id": 7}'])
def test_an_unusable_sentinel_is_an_error(rig: Rig, content: str) -> None:
    rig.make("ns1", "data", BY_NAME)
    (rig.share / ".prov-host" / "sentinel").write_text(content)
    with pytest.raises(NoChange, match="sentinel"):
        rig.make("ns1", "other", BY_NAME)


def test_a_linked_private_area_is_refused(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (rig.share / ".prov-host").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoChange, match="symbolic link"):
        rig.make("ns1", "data")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_fifo_instead_of_the_sentinel_hangs_nobody(rig: Rig) -> None:
    import os

    rig.make("ns1", "data")
    sentinel = rig.share / ".prov-host" / "sentinel"
    sentinel.unlink()
    os.mkfifo(sentinel)
    with pytest.raises(NoChange, match="regular file"):
        rig.make("ns1", "other")


def test_a_share_with_none_of_the_go_provisioner_s_volumes_is_the_wrong_one(rig: Rig) -> None:
    volume = rig.without_record(rig.make("ns1", "data", BY_NAME))
    rig.put(volume)
    shutil.rmtree(rig.share)
    rig.share.mkdir()
    rig.start()
    with pytest.raises(DeleteError, match="none of their directories"):
        rig.plugin.delete(volume)
    with pytest.raises(NoChange, match="none of their directories"):
        rig.plugin.provision(rig.request(make_claim("other", "ns1")))
    (rig.share / "ns1" / "data").mkdir(parents=True)
    rig.delete(volume)


def another_share(rig: Rig) -> Path:
    """A share that another host uses is mounted instead; returns where the right one is now."""
    aside = rig.share.parent / "aside"
    rig.share.rename(aside)
    (rig.share / ".prov-host").mkdir(parents=True)
    (rig.share / ".prov-host" / "sentinel").write_text('{"id": "another-share"}')
    return aside


def back(rig: Rig, aside: Path) -> None:
    shutil.rmtree(rig.share)
    aside.rename(rig.share)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("restart", [True, False])
def test_another_share_is_never_already_deleted_for_the_go_provisioner_s_volumes_either(
    rig: Rig, count: int, restart: bool
) -> None:
    volumes = [rig.without_record(rig.make("ns1", f"data{n}", BY_NAME)) for n in range(count)]
    for volume in volumes:
        rig.put(volume)
    shutil.rmtree(rig.share / ".prov-host")
    aside = another_share(rig)
    if restart:
        rig.start()
    for hook in (rig.plugin.delete, rig.plugin.archive):
        with pytest.raises(DeleteError, match=r"none of their directories|nothing shows"):
            hook(volumes[0])
    if restart:
        with pytest.raises(NoChange, match="none of their directories"):
            rig.plugin.provision(rig.request(make_claim("other", "ns1")))
        assert "none of their directories" in rig.plugin.check()[0]
        assert sorted(path.name for path in rig.share.iterdir()) == [".prov-host"]
    back(rig, aside)
    rig.start()
    assert list(rig.plugin.check()) == []
    for volume in volumes:
        assert not rig.delete(volume).already_absent


@pytest.mark.parametrize("proof", ["ours", "directory", "record"])
def test_a_volume_of_the_go_provisioner_is_already_absent_where_others_prove_the_share(rig: Rig, proof: str) -> None:
    volume, other = (rig.make("ns1", name, BY_NAME) for name in ("data", "other"))
    volume = rig.without_record(volume)
    rig.put(volume)
    (rig.share / ".prov-host" / "owners" / f"{stem(volume.name)}.json").unlink()
    rig.directory(volume).rmdir()
    if proof != "ours":
        rig.put(rig.without_record(other))
    if proof == "record":
        rig.directory(other).rmdir()
    rig.start()
    assert rig.plugin.delete(volume).already_absent
    assert rig.plugin.archive(volume).already_absent


def test_a_share_that_no_volume_spoke_for_is_looked_at_again(rig: Rig) -> None:
    """The host started before the cluster's volumes were restored from a backup."""
    volume = rig.make("ns1", "data", BY_NAME)
    rig.drop(volume)
    another_share(rig)
    rig.start()
    assert list(rig.plugin.check()) == []
    rig.put(volume)
    assert "another share" in rig.plugin.check()[0]
    with pytest.raises(NoChange, match="another share is mounted here"):
        rig.plugin.provision(rig.request(make_claim("other", "ns1")))


def test_a_volume_of_the_go_provisioner_is_no_proof_of_itself(rig: Rig) -> None:
    rig.drop(rig.make("x", "y"))  # the share is in use, and nobody of this cluster is on it
    volume = rig.without_record(rig.make("ns1", "data", BY_NAME))
    rig.drop(volume)
    (rig.share / ".prov-host" / "owners" / f"{stem(volume.name)}.json").unlink()
    rig.directory(volume).rmdir()
    rig.start()
    assert list(rig.plugin.check()) == []
    rig.put(volume)
    for hook in (rig.plugin.delete, rig.plugin.archive):
        with pytest.raises(DeleteError, match=r"(nothing shows|none of their).*make the directory"):
            hook(volume)
    rig.directory(volume).mkdir()
    assert not rig.delete(volume).already_absent


@pytest.mark.parametrize("hook", ["delete", "archive"])
def test_the_last_volume_of_the_go_provisioner_is_deleted_also_if_the_answer_was_lost(rig: Rig, hook: str) -> None:
    volume = rig.without_record(rig.make("ns1", "data", BY_NAME))
    rig.put(volume)
    shutil.rmtree(rig.share / ".prov-host")
    rig.start()
    assert not getattr(rig.plugin, hook)(volume).already_absent
    assert getattr(rig.plugin, hook)(volume).already_absent
    rig.start()
    assert list(rig.plugin.check()) == []
    assert getattr(rig.plugin, hook)(volume).already_absent
    # Its note goes some time after the volume's object.
    notes = rig.share / ".prov-host" / "released"
    rig.clock._move(8 * 86400)
    rig.host.jobs["nfs_subdir leftovers on default"][1]()
    assert len(list(notes.iterdir())) == 1
    rig.drop(volume)
    rig.host.jobs["nfs_subdir leftovers on default"][1]()
    assert list(notes.iterdir()) == []


# --- is it known what the cluster has ---------------------------------------------------------------------------------


def test_nothing_is_proved_before_the_host_knows_the_cluster(rig: Rig) -> None:
    """A standby that looks too early must not take any share for the right one, nor remember that it did."""
    volume = rig.make("ns1", "data", BY_NAME)
    archive = rig.archive(rig.make("ns1", "old", {**BY_NAME, "archiveRetention": "1s"}))
    aside = another_share(rig)
    (rig.share / "data").mkdir()
    before = rig.tree(private=True)
    rig.start()
    rig.host.caches_filled = False
    assert rig.plugin.check()
    for job in rig.host.jobs.values():
        with suppress(NotSynced):
            job[1]()
    with pytest.raises(NotSynced):
        rig.plugin.provision(rig.request(make_claim("other", "ns1")))
    rig.host.caches_filled = True
    assert "another share" in rig.plugin.check()[0]
    with pytest.raises(NoChange, match="another share is mounted here"):
        rig.plugin.provision(rig.request(make_claim("other", "ns1")))
    assert rig.tree(private=True) == before
    back(rig, aside)
    rig.clock._move(86400)
    rig.start()
    rig.host.caches_filled = False
    before = rig.tree(private=True)
    for job in rig.host.jobs.values():
        with suppress(NotSynced):
            job[1]()
    assert rig.tree(private=True) == before, "what may be in use is not removed"
    assert archive.path
    rig.host.caches_filled = True
    rig.delete(volume)


def test_the_private_area_is_for_nobody_else(rig: Rig) -> None:
    rig.make("ns1", "data")
    private = rig.share / ".prov-host"
    assert private.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in private.rglob("*") if path.parent.name != "trash")


# --- a share that does not answer --------------------------------------------------------------------------------


class Hanging:
    """Two exports, of which the first does not answer."""

    def __init__(self, rig: Rig, other: Path) -> None:
        self.rig = rig
        self.gate = threading.Event()
        rig.environ = {}
        rig.settings = {
            "provisioner": [PROVISIONER],
            "check_timeout": 0.2,
            "operations": 3,
            "exports": [
                {"name": "good", "server": SERVER, "path": "/good", "mount": str(other)},
                {"name": "bad", "server": SERVER, "path": EXPORT, "mount": str(rig.share)},
            ],
        }
        rig.sys = FaultySys()
        rig.start()
        for served in rig.plugin._served.values():
            served.lane._patience = 0.1
        share = rig.plugin._served["bad"].work.share
        share._sys = FaultySys(at=1, error=5, lasting=True, hang=self.gate)

    def heal(self) -> None:
        self.gate.set()
        self.rig.plugin._served["bad"].work.share._sys.heal()  # type: ignore[attr-defined]


@pytest.fixture
def hanging(rig: Rig, tmp_path: Path) -> object:
    (tmp_path / "good").mkdir()
    made = Hanging(rig, tmp_path / "good")
    yield made
    made.heal()


def test_rule_12_a_hung_export_holds_up_no_other(hanging: Hanging) -> None:
    rig = hanging.rig
    requests = [rig.request(make_claim(f"data{n}", "ns1"), {"export": "bad"}) for n in range(5)]
    began = time.monotonic()
    running = 0
    for request in requests:
        with pytest.raises((InBackground, NoChange), match="timed out: export 'bad'") as caught:
            rig.plugin.provision(request)
        running += isinstance(caught.value, InBackground)
    assert running == 3, "no more than the limit were begun"
    rig.make("ns1", "other", {"export": "good"})
    assert time.monotonic() - began < 5

    hanging.heal()
    deadline = time.monotonic() + 10
    for request in requests:
        while True:
            try:
                rig.plugin.provision(request)
                break
            except (InBackground, NoChange):
                assert time.monotonic() < deadline
    assert len(list(rig.share.iterdir())) == 6


def test_a_claim_that_cannot_be_served_is_told_so_though_another_export_hangs(hanging: Hanging) -> None:
    rig = hanging.rig
    bad = rig.plugin._served["bad"].lane
    bad.run = None  # type: ignore[method-assign,assignment]
    with pytest.raises(Infeasible, match="mode"):
        rig.make("ns1", "data", {"export": "good", "mode": "rwx"})
    with pytest.raises(Infeasible, match="nmae"):
        rig.make("ns1", "data", {"export": "good", "pathPattern": "${.PVC.nmae}"})


def test_a_hung_operation_makes_the_export_refuse_at_once(hanging: Hanging) -> None:
    rig = hanging.rig
    request = rig.request(make_claim("data", "ns1"), {"export": "bad"})
    with pytest.raises(InBackground):
        rig.plugin.provision(request)
    rig.clock._move(lanes.STUCK + 1)  # nobody sleeps on this clock
    with pytest.raises(NoChange, match="nothing was begun"):
        rig.plugin.provision(rig.request(make_claim("other", "ns1"), {"export": "bad"}))
    with pytest.raises(InBackground, match="still running"):
        rig.plugin.provision(request)


def test_a_hung_delete_is_never_already_deleted(hanging: Hanging) -> None:
    rig = hanging.rig
    hanging.heal()
    volume = rig.make("ns1", "data", {"export": "bad"})
    hanging.gate.clear()
    rig.plugin._served["bad"].work.share._sys = FaultySys(at=1, error=5, lasting=True, hang=hanging.gate)
    with pytest.raises(DeleteError, match="timed out"):
        rig.plugin.delete(volume)
    with pytest.raises(DeleteError, match="timed out"):
        rig.plugin.archive(volume)
    hanging.heal()
    for _ in range(200):
        try:
            removed = rig.plugin.delete(volume)
            break
        except DeleteError:
            time.sleep(0.01)
    assert not rig.directory(volume).exists()
    assert removed.path


def test_a_late_result_is_no_answer_about_another_volume_of_that_name(hanging: Hanging) -> None:
    """The object was removed by force and restored from a backup, and so was its directory."""
    rig = hanging.rig
    hanging.heal()
    old = rig.make("ns1", "data", {"export": "bad", **BY_NAME})
    hanging.gate.clear()
    rig.plugin._served["bad"].work.share._sys = FaultySys(at=1, error=5, lasting=True, hang=hanging.gate)
    with pytest.raises(DeleteError, match="timed out"):
        rig.plugin.delete(old)
    hanging.heal()
    deadline = time.monotonic() + 10
    while rig.directory(old).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    rig.drop(old)
    rig.directory(old).mkdir(parents=True)
    wire = msgspec.to_builtins(rig.with_record(old, inode=str(rig.directory(old).stat().st_ino)))
    wire["metadata"]["uid"] = "another"
    new = msgspec.convert(wire, type(old))
    rig.put(new)
    removed = None
    while removed is None:
        assert time.monotonic() < deadline
        with suppress(DeleteError):  # the late one has not quite ended yet
            removed = rig.plugin.delete(new)
    assert not removed.already_absent
    assert not rig.directory(new).exists()


def test_a_hung_check_times_out_and_names_the_export_only(hanging: Hanging) -> None:
    rig = hanging.rig
    rig.clock._move(0.0)
    began = time.monotonic()
    (problem,) = rig.plugin.check()
    assert time.monotonic() - began < 2
    assert "export 'bad'" in problem
    assert "has not answered" in problem
    ready = rig.host.registry.get_sample_value
    assert ready("prov_host_nfs_subdir_export_ready", {"export": "bad"}) == 0
    assert ready("prov_host_nfs_subdir_export_ready", {"export": "good"}) == 1
    threads = threading.active_count()
    rig.plugin.check()
    assert threading.active_count() <= threads + 1, "a hung check is not begun again"
    hanging.heal()
    deadline = time.monotonic() + 5
    while rig.plugin.check():
        assert time.monotonic() < deadline
    assert ready("prov_host_nfs_subdir_export_ready", {"export": "bad"}) == 1


def test_the_sentinel_says_when_the_share_was_taken_into_use(rig: Rig) -> None:
    rig.make("ns1", "data")
    sentinel = json.loads((rig.share / ".prov-host" / "sentinel").read_text())
    assert sentinel["created"] == "2026-01-01T00:00:00Z"


def test_a_share_that_cannot_be_looked_at_leaves_it_open_what_an_earlier_call_made(rig: Rig) -> None:
    """A claim whose directory may exist must not be let go because the share is away."""
    rig.make("ns1", "known")
    request = rig.request(make_claim("data", "ns1"))
    made = rig.plugin.provision(request)
    aside = another_share(rig)
    rig.start()
    with pytest.raises(NoChange, match="another share"):
        rig.plugin.provision(request)
    back(rig, aside)
    rig.start()
    assert rig.plugin.provision(request).source == made.source
