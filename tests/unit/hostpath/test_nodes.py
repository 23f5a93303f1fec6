"""Several processes under one name: each answers for its own node, and what is gone is waited for or forgotten."""

from __future__ import annotations

import random
from typing import Any

import pytest

from prov_host import Claim, ConfigurationError, Reschedule, StorageClass, Volume
from prov_host.testing import FakeHost, make_claim, make_class, make_request, make_volume
from prov_host_hostpath import HostpathPlugin, HostpathSettings

PROVISIONER = "prov-host/hostpath"
DAY = 24 * 3600.0


def _class(**fields: Any) -> StorageClass:
    return make_class(provisioner=PROVISIONER, **fields)


def _claim() -> Claim:
    return make_claim(provisioner=PROVISIONER)


def _asks(plugin: HostpathPlugin, claim: Claim, node: str, storage_class: StorageClass | None = None) -> bool:
    return plugin.should_provision(claim=claim, storage_class=storage_class or _class(), selected_node=node)


def _on_topology(*hostnames: str) -> StorageClass:
    term = {"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": list(hostnames)}]}
    return StorageClass(provisioner=PROVISIONER, allowed_topologies=(term,))


@pytest.fixture
def volume(start: Any) -> Volume:
    """A volume of node-1."""
    _, _, volume = start().provision()
    return volume


def test_each_process_takes_the_claims_of_its_node(start: Any) -> None:
    one, two = start("node-1", scope="per-node").plugin, start("node-2", scope="per-node").plugin
    for node, answers in (("node-1", (True, False)), ("node-2", (False, True)), ("node-3", (False, False))):
        assert (_asks(one, _claim(), node), _asks(two, _claim(), node)) == answers


def test_each_process_deletes_the_volumes_of_its_node(start: Any, volume: Volume) -> None:
    assert start("node-1", scope="per-node").plugin.should_delete(volume)
    assert not start("node-2", scope="per-node").plugin.should_delete(volume)
    assert not start("node-2", scope="single-node").plugin.should_delete(volume)


def test_others_claims_and_volumes_are_nothing_to_object_to(start: Any) -> None:
    plugin = start(scope="per-node").plugin
    assert _asks(plugin, _claim(), "node-9", make_class(provisioner="example.com/nfs"))
    request = make_request()
    foreign = make_volume(request, start().running.provision(start().request()))
    assert plugin.should_delete(foreign)


def test_without_a_node_nobody_takes_the_claim_and_the_log_says_why(start: Any, caplog: Any) -> None:
    plugin = start(scope="per-node").plugin
    assert not _asks(plugin, _claim(), "")
    assert "needs volumeBindingMode WaitForFirstConsumer" in caplog.text


def test_a_topology_with_one_hostname_is_as_good_as_a_node(start: Any) -> None:
    plugin = start(scope="per-node", hostname="host-a").plugin
    assert _asks(plugin, _claim(), "", _on_topology("host-a"))
    assert not _asks(plugin, _claim(), "", _on_topology("host-b"))
    assert not _asks(plugin, _claim(), "", _on_topology("host-a", "host-b"))


def test_a_single_node_takes_claims_without_a_node(start: Any) -> None:
    assert _asks(start().plugin, _claim(), "")


def test_a_volume_of_a_gone_node_waits_for_ever_by_default(start: Any, volume: Volume) -> None:
    other = start("node-2", scope="per-node")
    for _ in range(3):
        assert not other.plugin.should_delete(volume)
        other.host.clock._move(365 * DAY)


def test_a_volume_of_a_gone_node_is_forgotten_after_a_while(start: Any, volume: Volume) -> None:
    home = start("node-1")
    other = start("node-2", scope="per-node", gone_nodes="forget-after", forget_after="7d")
    assert not other.plugin.should_delete(volume)
    other.host.clock._move(7 * DAY - 1)
    assert not other.plugin.should_delete(volume)
    other.host.clock._move(601)
    assert other.plugin.should_delete(volume)
    for hook in (other.running.delete, other.running.archive):
        removed = hook(volume)
        assert "the node node-1 has not answered for 7d" in removed.message
    assert home.path(volume).is_dir()


def test_a_volume_in_use_is_not_on_its_way_to_be_forgotten(start: Any, volume: Volume) -> None:
    other = start("node-2", scope="per-node", gone_nodes="forget-after", forget_after="1h").plugin
    bound = make_volume(make_request(_claim(), _class()), start().running.provision(start().request()), phase="Bound")
    assert not other.should_delete(bound)
    assert other._gone._since == {}


def test_a_claim_for_a_gone_node_is_given_back_to_the_scheduler(start: Any) -> None:
    started = start("node-2", scope="per-node", gone_nodes="forget-after", forget_after="1h")
    claim = _claim()
    assert not _asks(started.plugin, claim, "node-1")
    started.host.clock._move(3600 + 601)
    assert _asks(started.plugin, claim, "node-1")
    with pytest.raises(Reschedule):
        started.running.provision(started.request(claim, node="node-1"))


def test_the_processes_of_many_nodes_do_not_forget_at_once() -> None:
    delays: set[Any] = set()
    settings = HostpathSettings(gone_nodes="forget-after", forget_after="1h")
    for seed in range(20):
        plugin = HostpathPlugin(environ={}, chance=random.Random(seed))
        plugin.configure(settings, FakeHost("hostpath", node_name="node-1"))
        delays.add(plugin._gone._limit)
    assert len(delays) == 20
    assert min(delays) >= 3600
    assert max(delays) <= 3600 + 600


def test_what_is_settled_is_not_remembered(start: Any) -> None:
    started = start("node-2", scope="per-node", gone_nodes="forget-after", forget_after="1h")
    waiting = _claim()
    started.host.known_claims.append(waiting)
    assert not _asks(started.plugin, waiting, "node-1")
    for _ in range(10_000):
        started.plugin._gone.given_up(f"gone-{_}")
    started.plugin._gone.given_up("another")
    assert set(started.plugin._gone._since) == {waiting.uid, "another"}


def test_a_pod_must_be_told_its_node() -> None:
    plugin = HostpathPlugin(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    with pytest.raises(
        ConfigurationError, match=r"set --node-name, or PROV_HOST_NODE_NAME from the field spec\.nodeName"
    ):
        plugin.configure(HostpathSettings(), FakeHost("hostpath"))
    with pytest.raises(ConfigurationError, match="NODE_NAME"):
        HostpathPlugin(environ={}).configure(HostpathSettings(scope="per-node"), FakeHost("hostpath"))


def test_outside_of_a_pod_the_machine_is_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Laptop-7")
    plugin = HostpathPlugin(environ={})
    plugin.configure(HostpathSettings(), FakeHost("hostpath"))
    assert plugin._placement.node == "laptop-7"
