"""What a claim gets: a directory on this node, and a volume that says so."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from prov_host import DeleteError, InBackground, Infeasible, NotSynced, Provisioned, ProvisionError, Reschedule
from prov_host.testing import make_claim


def test_a_volume_is_local_to_the_node_and_says_where_it_is(hostpath: Any) -> None:
    request, provisioned, volume = hostpath.provision(make_claim("data", "ns1"))
    path = hostpath.root / f"ns1-data-{request.pv_name}"
    assert path.is_dir()
    assert provisioned.source == {"local": {"path": str(path)}}
    assert provisioned.node_affinity == {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}
            ]
        }
    }
    assert volume.record["node"] == "node-1"
    assert volume.record["directory"] == str(hostpath.root)


def test_the_affinity_has_the_hostname_label_where_it_is_not_the_nodes_name(start: Any) -> None:
    for settings in ({"hostname": "host-a"}, {"nodes": {"node-1": {"hostname": "host-a"}}, "hostname": "other"}):
        _, provisioned, volume = start(**settings).provision()
        (term,) = provisioned.node_affinity["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == ["host-a"]
        assert volume.record["node"] == "node-1"


def test_a_class_may_ask_for_a_host_path(hostpath: Any) -> None:
    _, provisioned, volume = hostpath.provision(parameters={"source": "hostPath"})
    assert provisioned.source == {"hostPath": {"path": str(hostpath.path(volume)), "type": "Directory"}}
    assert provisioned.node_affinity is not None


def test_mode_and_owner_are_exactly_those_of_the_class(hostpath: Any) -> None:
    before = os.umask(0o077)
    try:
        _, _, plain = hostpath.provision()
        _, _, special = hostpath.provision(
            parameters={"mode": "0750", "uid": str(os.getuid()), "gid": str(os.getgid())}
        )
    finally:
        os.umask(before)
    assert stat.S_IMODE(hostpath.path(plain).stat().st_mode) == 0o777
    status = hostpath.path(special).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o750, os.getuid(), os.getgid())


def test_the_kubelet_may_see_the_directory_elsewhere(start: Any, tmp_path: Path) -> None:
    root = tmp_path / "volumes"
    started = start(directories=[{"path": str(root), "node_path": "/mnt/disk1"}])
    _, provisioned, volume = started.provision()
    name = volume.record["name"]
    assert provisioned.source == {"local": {"path": f"/mnt/disk1/{name}"}}
    assert (root / name).is_dir()
    started.running.delete(volume)
    assert not (root / name).exists()


def test_another_node_is_given_back_to_the_scheduler(hostpath: Any) -> None:
    with pytest.raises(Reschedule, match="serves node-1, and node-2 has none that answers"):
        hostpath.provision(node="node-2")
    assert list(hostpath.root.iterdir()) == []


def test_a_node_without_room_is_given_back_to_the_scheduler(start: Any) -> None:
    hostpath = start(directories=[{"path": str(start().root), "budget": "3Gi"}])
    hostpath.provision(make_claim(storage="2Gi"))
    with pytest.raises(Reschedule, match=r"asks for 2Gi, but .*volumes has room for 1Gi"):
        hostpath.provision(make_claim(storage="2Gi"))
    with pytest.raises(ProvisionError, match="has room for 1Gi"):
        hostpath.provision(make_claim(storage="2Gi"), node="")
    hostpath.provision(make_claim(storage="1Gi"))


def test_room_comes_back_with_a_deletion(start: Any) -> None:
    hostpath = start(directories=[{"path": str(start().root), "budget": "3Gi"}])
    _, _, volume = hostpath.provision(make_claim(storage="3Gi"))
    hostpath.running.delete(volume)
    hostpath.provision(make_claim(storage="3Gi"))


def test_what_the_disk_does_not_have_is_refused(hostpath: Any) -> None:
    with pytest.raises(Reschedule, match="asks for 900Pi"):
        hostpath.provision(make_claim(storage="900Pi"))


def test_the_reserve_is_never_promised(start: Any) -> None:
    with pytest.raises(Reschedule, match="room for 0"):
        start(reserve="900Pi").provision()


def test_the_directory_with_the_most_room_is_taken(start: Any, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    hostpath = start(
        directories=[{"path": f"{tmp_path}/small", "budget": "2Gi"}, {"path": f"{tmp_path}/large", "budget": "4Gi"}]
    )
    taken = [hostpath.provision(make_claim(storage="1Gi"))[2].record["directory"] for _ in range(6)]
    assert taken.count(f"{tmp_path}/large") == 4
    assert taken.count(f"{tmp_path}/small") == 2


def test_a_class_may_name_the_directory(start: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    hostpath = start(directories=[f"{tmp_path}/a", f"{tmp_path}/b"])
    for name in ("a", "b"):
        _, _, volume = hostpath.provision(parameters={"directory": f"/{tmp_path}/./{name}/"})
        assert volume.record["directory"] == f"{tmp_path}/{name}"
    with pytest.raises(Reschedule, match="node-1 has no directory /mnt/other"):
        hostpath.provision(parameters={"directory": "/mnt/other"})


def test_asked_again_after_the_directories_changed_the_answer_stays(start: Any, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    first = start()
    request, provisioned, _ = first.provision()
    second = start(directories=[f"{tmp_path}/b", str(first.root)])
    assert second.running.provision(request) == provisioned


def test_a_node_that_is_listed_without_directories_holds_nothing(start: Any) -> None:
    with pytest.raises(Reschedule, match="node-1 has no base directory"):
        start(nodes={"node-1": {"directories": []}}).provision()


def test_what_is_in_the_way_is_never_adopted(hostpath: Any) -> None:
    request = hostpath.request(make_claim("data", "ns1"))
    path = hostpath.root / f"ns1-data-{request.pv_name}"
    path.mkdir()
    (path / "precious").write_text("data")
    for _ in range(2):
        with pytest.raises(ProvisionError, match="exists and was not made by us"):
            hostpath.running.provision(request)
    assert (path / "precious").read_text() == "data"
    assert list(hostpath.private("owners").iterdir()) == []
    assert list(hostpath.private("making").iterdir()) == []


def test_a_long_name_becomes_the_volumes(hostpath: Any) -> None:
    request, _, volume = hostpath.provision(make_claim("c" * 253, "n" * 63))
    assert volume.record["name"] == request.pv_name


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"source": "emptyDir"}, "the class parameter source is 'emptyDir'; allowed are local and hostPath"),
        ({"Source": "local"}, "'Source' is unknown; did you mean source?"),
        ({"xyzzy": "1"}, "'xyzzy' is unknown; known are source, directory, mode"),
        ({"mode": "0o777"}, "mode is '0o777'; write octal digits from 0 to 777"),
        ({"mode": "1777"}, "mode is '1777'"),
        ({"mode": "888"}, "mode is '888'"),
        ({"mode": ""}, "mode is ''"),
        ({"uid": "-1"}, "uid is '-1'; write a number from 0 to 65535"),
        ({"gid": "99999"}, "gid is '99999'"),
        ({"uid": "\u0661"}, "uid is '\\\\u0661'"),
        ({"directory": "../x"}, "the class parameter directory: '../x' is not an absolute path"),
        ({"shared": "yes"}, "shared is 'yes'; allowed are false and true"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name_and_value(hostpath: Any, parameters: Any, words: str) -> None:
    with pytest.raises(Infeasible) as caught:
        hostpath.provision(parameters=parameters)
    assert words.replace("\\\\", "\\") in str(caught.value)


def test_parameters_of_the_host_and_of_other_tools_are_left_alone(hostpath: Any) -> None:
    hostpath.provision(parameters={"onDelete": "retain", "archiveOnDelete": "false", "example.com/tier": "1"})


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"spec": {"selector": {"matchLabels": {"a": "b"}}}}, "has a selector"),
        ({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}}, "has a data source"),
        ({"spec": {"dataSourceRef": {"kind": "X", "name": "x"}}}, "has a data source"),
        ({"access_modes": ["ReadWriteMany"]}, "pods on other nodes cannot reach"),
        ({"access_modes": ["ReadOnlyMany"]}, "pods on other nodes cannot reach"),
        ({"access_modes": ["ReadWriteSometimes"]}, "does not know"),
        ({"storage": "lots"}, "'lots' is not a quantity"),
    ],
)
def test_a_claim_that_cannot_be_served_is_told_why(hostpath: Any, claim: Any, words: str) -> None:
    with pytest.raises(Infeasible, match=words):
        hostpath.provision(make_claim(**claim))
    assert list(hostpath.root.iterdir()) == []


def test_a_class_may_allow_sharing_within_a_node(hostpath: Any) -> None:
    _, provisioned, _ = hostpath.provision(make_claim(access_modes=["ReadWriteMany"]), {"shared": "true"})
    assert isinstance(provisioned, Provisioned)


def test_claims_that_come_at_once_do_not_overrun_a_directory_together(start: Any) -> None:
    hostpath = start(directories=[{"path": str(start().root), "budget": "3Gi"}])
    gate = threading.Barrier(8)
    outcomes: list[str] = []

    def run(number: int) -> None:
        request = hostpath.request(make_claim(f"data-{number}", storage="1Gi"))
        gate.wait()
        try:
            hostpath.plugin.provision(request)
            outcomes.append("made")
        except Reschedule:
            outcomes.append("no room")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made"] * 3 + ["no room"] * 5
    assert len([path for path in hostpath.root.iterdir() if path.name != ".prov-host"]) == 3


# --- a claim that cannot be served leaves nothing, also if an earlier call made something for it ---------------------


@pytest.mark.parametrize(
    ("claim", "parameters", "node"),
    [
        ({}, {"mode": "0o888"}, "node-1"),
        ({}, {"modee": "0777"}, "node-1"),
        ({"spec": {"selector": {"matchLabels": {"a": "b"}}}}, {}, "node-1"),
        ({"storage": "much"}, {}, "node-1"),
        ({"access_modes": ["ReadWriteMany"]}, {}, "node-1"),
        ({}, {}, "node-2"),
    ],
)
@pytest.mark.parametrize("restart", [True, False])
def test_what_was_made_is_removed_before_a_claim_is_refused_for_good(
    start: Any, claim: dict[str, Any], parameters: dict[str, str], node: str, restart: bool
) -> None:
    hostpath = start()
    uid = "11111111-0000-4000-8000-000000000001"
    neighbour = hostpath.provision(make_claim("neighbour"))[2]
    volume = hostpath.provision(make_claim("data", uid=uid))[2]
    assert hostpath.path(volume).is_dir()
    if restart:
        hostpath = start()
    with pytest.raises((Infeasible, Reschedule)):
        hostpath.running.provision(hostpath.request(make_claim("data", uid=uid, **claim), parameters, node=node))
    assert not hostpath.path(volume).exists()
    assert hostpath.path(neighbour).is_dir()
    assert len(list(hostpath.private("owners").iterdir())) == 1


def test_a_saved_volume_is_not_undone(hostpath: Any) -> None:
    _, _, volume = hostpath.provision(make_claim("data", uid="11111111-0000-4000-8000-000000000001"))
    hostpath.host.known_volumes.append(volume)
    with pytest.raises(Infeasible):
        hostpath.running.provision(
            hostpath.request(make_claim("data", uid="11111111-0000-4000-8000-000000000001"), {"modee": "1"})
        )
    assert hostpath.path(volume).is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="the damage is made as root")
def test_while_it_cannot_be_removed_the_host_has_to_ask_again(hostpath: Any) -> None:
    claim = make_claim("data", uid="11111111-0000-4000-8000-000000000001")
    _, _, volume = hostpath.provision(claim)
    (record,) = hostpath.private("owners").iterdir()
    good = record.read_bytes()
    record.write_text("{")
    bad = hostpath.request(claim, {"modee": "1"})
    with pytest.raises(InBackground, match=r"modee.*not cleared up yet.*damaged"):
        hostpath.running.provision(bad)
    record.write_bytes(good)
    with pytest.raises(Infeasible):
        hostpath.running.provision(bad)
    assert not hostpath.path(volume).exists()


# --- the right disk ---------------------------------------------------------------------------------------------------


def _another_disk(hostpath: Any) -> Path:
    aside: Path = hostpath.root.with_name("aside")
    hostpath.root.rename(aside)
    (hostpath.root / ".prov-host").mkdir(parents=True, mode=0o700)
    (hostpath.root / ".prov-host" / "sentinel").write_text("0123456789abcdef")
    return aside


def test_another_disk_than_the_one_volumes_were_made_on_gets_no_volume(start: Any) -> None:
    hostpath = start()
    _, _, volume = hostpath.provision()
    _another_disk(hostpath)
    hostpath = start()
    hostpath.host.known_volumes.append(volume)
    (problem,) = hostpath.plugin.check()
    assert "another storage (0123456789abcdef)" in problem
    assert volume.record["storage"] in problem
    with pytest.raises(ProvisionError, match="another storage"):
        hostpath.provision()
    with pytest.raises(DeleteError, match="another storage"):
        hostpath.running.delete(volume)
    assert [path.name for path in hostpath.root.iterdir()] == [".prov-host"]


def test_nothing_is_proved_before_the_host_knows_the_cluster(start: Any) -> None:
    hostpath = start()
    _, _, volume = hostpath.provision()
    _another_disk(hostpath)
    hostpath = start()
    hostpath.host.known_volumes.append(volume)
    hostpath.host.caches_filled = False
    for look in (hostpath.plugin.check, hostpath.plugin.empty_trash, hostpath.plugin.measure, hostpath.provision):
        with pytest.raises(NotSynced):
            look()
    hostpath.host.caches_filled = True
    assert "another storage" in hostpath.plugin.check()[0]
    with pytest.raises(ProvisionError, match="another storage"):
        hostpath.provision()
