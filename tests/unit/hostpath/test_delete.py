"""What becomes of a volume: removed, archived or left alone, and never the wrong one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mount_space import run_with_mounts
from prov_host import DeleteError, ProvisionError, Volume
from prov_host.testing import make_claim, make_request, make_volume


def _changed(volume: Volume, **wire: Any) -> Volume:
    """The volume as somebody edited it: spec fields in the API's form."""
    built = msgspec.to_builtins(volume)
    built["spec"] = {**built["spec"], **wire}
    return msgspec.convert(built, Volume)


def _with_record(volume: Volume, **record: str) -> Volume:
    built = msgspec.to_builtins(volume)
    built["metadata"]["annotations"]["prov-host/record"] = json.dumps({**volume.record, **record})
    return msgspec.convert(built, Volume)


@pytest.fixture
def made(hostpath: Any) -> Volume:
    _, _, volume = hostpath.provision(make_claim("data", "ns1"))
    (hostpath.path(volume) / "precious").write_text("data")
    return volume


def test_a_deleted_volume_is_gone_at_once_and_its_trash_soon(hostpath: Any, made: Volume) -> None:
    removed = hostpath.running.delete(made)
    path = hostpath.path(made)
    assert removed.message == f"{path} is removed"
    assert not path.exists()
    (thrown,) = hostpath.private("trash").iterdir()
    assert (thrown / "precious").exists()
    seconds, job = hostpath.host.jobs["empty the trash"]
    assert seconds == 2
    job()
    assert list(hostpath.private("trash").iterdir()) == []


def test_trash_of_a_crash_is_emptied_by_the_next_process(start: Any, hostpath: Any, made: Volume) -> None:
    hostpath.running.delete(made)
    start().plugin.empty_trash()
    assert list(hostpath.private("trash").iterdir()) == []


def test_an_archived_volume_keeps_its_data_and_what_it_was(hostpath: Any, made: Volume) -> None:
    removed = hostpath.running.archive(made)
    (archive,) = [path for path in hostpath.private("archive").iterdir() if path.is_dir()]
    assert removed.path == str(archive)
    assert archive.name == f"ns1-data-{made.name}-20260101T000000Z"
    assert (archive / "precious").read_text() == "data"
    record = json.loads(archive.with_name(archive.name + ".json").read_text())
    assert (record["claim"], record["pv_name"]) == ("ns1/data", made.name)
    again = hostpath.running.archive(made)
    assert again.already_absent


def test_data_that_somebody_removed_by_hand_was_already_gone(hostpath: Any, made: Volume) -> None:
    shutil.rmtree(hostpath.path(made))
    removed = hostpath.running.delete(made)
    assert removed.already_absent
    assert list(hostpath.private("owners").iterdir()) == []


def test_nothing_is_followed_out_of_the_directory(hostpath: Any, made: Volume, tmp_path: Any) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (outside / "precious").write_text("data")
    (hostpath.path(made) / "link").symlink_to(outside)
    hostpath.running.delete(made)
    hostpath.plugin.empty_trash()
    assert (outside / "precious").read_text() == "data"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("local", {"path": "/etc"}, "points to '/etc'"),
        ("local", {"path": "/etc/../{root}/other"}, "nothing was touched"),
        ("local", {}, "points to None"),
        ("local", {"path": 5}, "points to 5"),
        ("local", None, "points to None"),
    ],
)
def test_a_source_that_was_edited_is_refused(hostpath: Any, made: Volume, field: str, value: Any, words: str) -> None:
    with pytest.raises(DeleteError, match=words):
        hostpath.running.delete(_changed(made, **{field: value}))
    assert (hostpath.path(made) / "precious").exists()


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"directory": "/etc"}, "not among the base directories of node-1"),
        ({"directory": ""}, "an unknown directory"),
        ({"name": "../etc"}, "points to"),
        ({"storage": "0000"}, "is another storage"),
        ({"node": "node-2"}, "is on the node node-2"),
    ],
)
def test_a_record_that_was_edited_is_refused(hostpath: Any, made: Volume, record: Any, words: str) -> None:
    with pytest.raises(DeleteError, match=words):
        hostpath.running.delete(_with_record(made, **record))
    assert (hostpath.path(made) / "precious").exists()


def test_a_record_and_source_that_agree_on_anothers_directory_are_refused(hostpath: Any, made: Volume) -> None:
    _, _, other = hostpath.provision(make_claim("other", "ns2"))
    name = made.record["name"]
    forged = _with_record(_changed(other, local={"path": str(hostpath.root / name)}), name=name)
    with pytest.raises(DeleteError, match=f"{other.name} belongs to .*ns2-other"):
        hostpath.running.delete(forged)
    for name in (".prov-host", "."):
        forged = _with_record(_changed(other, local={"path": f"{hostpath.root}/{name}"}), name=name)
        with pytest.raises(DeleteError):
            hostpath.running.delete(forged)
    assert (hostpath.path(made) / "precious").exists()
    assert hostpath.path(other).is_dir()


def test_a_volume_in_use_by_another_is_kept(hostpath: Any, made: Volume) -> None:
    for inner in ("", "/sub"):
        other = msgspec.to_builtins(made)
        other["metadata"]["name"] = "static"
        other["metadata"]["annotations"] = {}
        other["spec"]["local"]["path"] = f"{hostpath.path(made)}{inner}"
        hostpath.host.known_volumes[:] = [made, msgspec.convert(other, Volume)]
        with pytest.raises(DeleteError, match="is used by the volume static as well"):
            hostpath.running.delete(made)
    hostpath.host.known_volumes[:] = [made]
    assert hostpath.running.delete(made).message.endswith("is removed")


def test_a_disk_that_is_not_mounted_never_looks_like_deleted(hostpath: Any, made: Volume) -> None:
    hostpath.host.know([made])
    hostpath.root.rename(hostpath.root.with_name("disk"))
    with pytest.raises(DeleteError, match="does not exist on this node"):
        hostpath.running.delete(made)
    assert "does not exist" in hostpath.running.check()[0]
    hostpath.root.mkdir()
    assert "is its disk mounted?" in hostpath.running.check()[0]
    with pytest.raises(DeleteError, match=r"is its disk mounted\?"):
        hostpath.running.delete(made)
    with pytest.raises(ProvisionError, match=r"is its disk mounted\?"):
        hostpath.provision()
    shutil.rmtree(hostpath.root)
    hostpath.root.with_name("disk").rename(hostpath.root)
    assert hostpath.running.check() == []
    assert hostpath.running.delete(made).message.endswith("is removed")


def test_another_disk_never_looks_like_deleted(start: Any, hostpath: Any, made: Volume) -> None:
    hostpath.root.rename(hostpath.root.with_name("disk"))
    start().provision()  # a fresh disk, in use
    with pytest.raises(DeleteError, match="is the right disk mounted"):
        hostpath.running.delete(made)


def test_a_mount_can_be_required(start: Any) -> None:
    started = start(require_mount=True)
    assert "nothing is mounted" in started.running.check()[0]
    with pytest.raises(ProvisionError, match="nothing is mounted"):
        started.provision()


def test_damaged_records_are_named_and_nothing_is_lost(hostpath: Any, made: Volume) -> None:
    (record,) = hostpath.private("owners").iterdir()
    whole = record.read_bytes()
    for text in (b"", b"{", b'{"pv_name": "x", "name": "../x"}', b'{"pv_name": "x", "name": "y"}', b"\xff"):
        record.write_bytes(text)
        with pytest.raises(DeleteError, match="record"):
            hostpath.running.delete(made)
    record.write_bytes(whole)
    assert hostpath.running.delete(made).message.endswith("is removed")


def test_a_private_area_of_someone_else_is_not_trusted(hostpath: Any, made: Volume, tmp_path: Any) -> None:
    private = hostpath.private()
    private.rename(tmp_path / "elsewhere")
    private.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeleteError, match="symbolic link"):
        hostpath.running.delete(made)


def test_the_inventory_knows_everything_in_the_directory(hostpath: Any, made: Volume) -> None:
    _, _, deleted = hostpath.provision()
    _, _, archived = hostpath.provision()
    hostpath.running.delete(deleted)
    hostpath.running.archive(archived)
    (hostpath.root / "stranger").mkdir()
    found = {(asset.kind, asset.pv_name) for asset in hostpath.running.inventory()}
    assert found == {("volume", made.name), ("archive", archived.name), ("trash", ""), ("unknown", "")}


def test_a_volume_that_could_not_be_saved_is_undone(hostpath: Any) -> None:
    request = make_request(make_claim(), hostpath.request().storage_class, selected_node="node-1")
    volume = make_volume(request, hostpath.running.provision(request), phase="")
    assert hostpath.running.delete(volume).message.endswith("is removed")


def test_what_cannot_be_removed_from_the_trash_is_told_once(
    hostpath: Any, made: Volume, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostpath.running.delete(made)
    monkeypatch.setattr("prov_host_hostpath.plugin.empty", lambda trash, stop: ["x: Operation not permitted"])
    for _ in range(3):
        hostpath.plugin.empty_trash()
    assert caplog.text.count("Operation not permitted") == 1
    monkeypatch.setattr("prov_host_hostpath.plugin.empty", lambda trash, stop: [])
    hostpath.plugin.empty_trash()
    monkeypatch.setattr("prov_host_hostpath.plugin.empty", lambda trash, stop: ["x: Operation not permitted"])
    hostpath.plugin.empty_trash()
    assert caplog.text.count("Operation not permitted") == 2


def test_the_metrics_tell_how_much_room_there_is(start: Any, tmp_path: Any) -> None:
    hostpath = start(directories=[{"path": str(tmp_path / "volumes"), "budget": "3Gi"}, str(tmp_path / "other")])
    (tmp_path / "other").mkdir()
    hostpath.provision(make_claim(storage="1Gi"), {"directory": str(tmp_path / "volumes")})
    # One that cannot be opened holds up no other.
    (tmp_path / "other" / ".prov-host" / "sentinel").write_text("?")
    seconds, job = hostpath.host.jobs["measure the directories"]
    assert seconds == 60
    job()
    value = hostpath.host.registry.get_sample_value
    labels = {"directory": str(tmp_path / "volumes")}
    assert value("prov_host_hostpath_available_bytes", labels) == 2 * 2**30
    assert value("prov_host_hostpath_volumes", labels) == 1
    assert value("prov_host_hostpath_free_bytes", labels) > 0
    assert value("prov_host_hostpath_volumes", {"directory": str(tmp_path / "other")}) is None


def test_only_a_volume_gives_a_directory_an_identity(start: Any, tmp_path: Any) -> None:
    """Whatever runs before the caches are filled must not take an empty mount point for a new storage."""
    hostpath = start()
    for _, job in hostpath.host.jobs.values():
        job()
    assert hostpath.running.inventory() == ()
    assert hostpath.running.check() == []
    assert list(hostpath.root.iterdir()) == []


def test_a_fresh_directory_is_not_where_an_old_volume_was_deleted(start: Any, hostpath: Any, made: Volume) -> None:
    """Not even when the cluster does not say that volumes were made on it."""
    hostpath.root.rename(hostpath.root.with_name("disk"))
    fresh = start()
    with pytest.raises(DeleteError, match="no volume was ever made in"):
        fresh.running.delete(made)
    assert list(fresh.root.iterdir()) == []


def test_the_inventory_of_a_lost_disk_is_no_empty_list(start: Any, hostpath: Any, made: Volume) -> None:
    hostpath.root.rename(hostpath.root.with_name("disk"))
    fresh = start()
    fresh.host.know([made])
    with pytest.raises(Exception, match="is its disk mounted"):
        fresh.running.inventory()


def test_a_directory_that_no_record_speaks_for_is_kept_and_named(hostpath: Any, made: Volume) -> None:
    (record,) = hostpath.private("owners").iterdir()
    record.unlink()
    with pytest.raises(DeleteError, match=f"ns1-data-{made.name} exists, but no record says that it belongs to"):
        hostpath.running.delete(made)
    assert (hostpath.path(made) / "precious").exists()


def test_a_private_area_of_another_user_is_not_trusted(
    hostpath: Any, made: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = hostpath.private().stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(DeleteError, match="belongs to another user"):
        hostpath.running.delete(made)


@pytest.mark.parametrize("hook", ["delete", "archive"])
@pytest.mark.parametrize("where", [".", "inside", "deep/inside"])
def test_a_volume_with_something_mounted_in_it_is_kept(tmp_path: Path, hook: str, where: str) -> None:
    run_with_mounts(
        f"""
        from prov_host import DeleteError
        from prov_host.testing import BackendUnderTest, make_claim, make_class, make_request, make_volume
        from prov_host_hostpath import HostpathPlugin
        (base / "real").mkdir()
        (base / "link").symlink_to(base / "real")
        made = []
        def make():
            made.append(HostpathPlugin(environ={{}}))
            return made[-1]
        settings = {{"directories": [str(base / "link")]}}
        running = BackendUnderTest(make, settings, name="hostpath", node_name="node-1").start()
        request = make_request(make_claim(), make_class(provisioner="prov-host/hostpath"), selected_node="node-1")
        volume = make_volume(request, running.provision(request), plugin="hostpath")
        target = base / "real" / volume.record["name"] / {where!r}
        target.mkdir(parents=True, exist_ok=True)
        (base / "out").mkdir()
        (base / "out" / "precious").touch()
        bind(base / "out", target)
        try:
            made[-1].{hook}(volume)
            raise SystemExit("was not refused")
        except DeleteError as error:
            assert "mounted" in str(error), error
        made[-1].empty_trash()
        assert (target / "precious").exists()
        subprocess.run(["umount", str(target)], check=True)
        made[-1].{hook}(volume)
        made[-1].empty_trash()
        assert not target.exists()
        assert (base / "out" / "precious").exists()
        """,
        tmp_path,
    )


def test_a_required_mount_is_found_by_any_path(tmp_path: Path) -> None:
    run_with_mounts(
        """
        from prov_host_hostpath.settings import Place
        from prov_host_hostpath.storage import Storage
        (base / "real").mkdir()
        (base / "link").symlink_to(base / "real")
        place = Place(path=str(base / "link"), node_path=str(base / "link"), reserve=0, budget=None, require_mount=True)
        assert "nothing is mounted" in Storage(place).problems(recorded=frozenset)[0]
        bind(base / "real", base / "real")
        assert Storage(place).problems(recorded=frozenset) == []
        """,
        tmp_path,
    )
