from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
import time
from typing import Any

import msgspec
import pytest

from prov_host.embedded import Cluster
from prov_host.errors import ConfigurationError, DeleteError, ProvisionError
from prov_host.hookspecs import HostContext, hookimpl
from prov_host.logs import JsonFormatter
from prov_host.model import Record


async def test_claims_are_provisioned_and_reclaimed(start: Any, backend: Any) -> None:
    host = await start(backend)
    await host.create_class("c", backend.name)
    for number in range(20):
        await host.create_claim(f"claim-{number}", "c")
    await host.until(lambda: len(host.bound()) == 20, "20 bound claims")
    assert sorted(host.volumes()) == sorted(backend.made)
    await host.delete_claim("claim-7")
    await host.until(lambda: len(host.volumes()) == 19, "the volume to go")
    assert len(backend.removed) == 1


async def test_a_stop_finishes_what_runs_closes_the_plugins_and_ends_with_zero(start: Any, backend: Any) -> None:
    host = await start(backend)
    await host.create_class("c", backend.name)
    backend.gate.clear()
    await host.create_claim("slow", "c")
    await host.until(backend.begun.is_set, "provisioning to begin")
    host.host.stop()
    await asyncio.sleep(0.05)
    assert not host.code.done()
    assert not backend.closed.is_set()
    backend.gate.set()
    assert await host.code == 0
    assert host.volumes() == backend.made
    assert len(host.volumes()) == 1
    assert backend.closed.is_set()


async def test_a_hung_hook_does_not_keep_the_process_beyond_the_limit(start: Any, backend: Any) -> None:
    host = await start(backend, drain_timeout=0.1)
    await host.create_class("c", backend.name)
    backend.gate.clear()
    await host.create_claim("hung", "c")
    await host.until(backend.begun.is_set, "provisioning to begin")
    host.host.stop()
    began = time.monotonic()
    assert await host.code == 0
    assert time.monotonic() - began < 3


async def test_what_a_killed_host_had_begun_is_finished_by_the_next(start: Any, backend: Any) -> None:
    first = await start(backend, drain_timeout=0.05)
    await first.create_class("c", backend.name)
    backend.gate.clear()
    await first.create_claim("one", "c")
    await first.until(backend.begun.is_set, "provisioning to begin")
    first.host.stop()
    assert await first.code == 0
    assert first.volumes() == []
    backend.gate.set()
    second = await start(type(backend)(), cluster=first.cluster)
    await second.until(lambda: second.bound() == {"one"}, "the claim to be bound")
    assert len(second.volumes()) == 1


async def test_a_hung_backend_leaves_another_at_full_speed(start: Any, backend: Any, other: Any) -> None:
    host = await start(backend, other, provision_timeout=0.2)
    await host.create_class("hung", backend.name)
    await host.create_class("good", other.name)
    backend.gate.clear()
    for number in range(12):  # more than it has workers, and threads
        await host.create_claim(f"hung-{number}", "hung")
    await host.until(backend.begun.is_set, "the first to hang")
    await asyncio.sleep(0.3)
    began = time.monotonic()
    for number in range(10):
        await host.create_claim(f"good-{number}", "good")
    await host.until(lambda: {f"good-{n}" for n in range(10)} <= host.bound(), "the other backend's claims")
    assert time.monotonic() - began < 3
    late = host.host.status().backends[0].late
    assert late
    assert "has not returned" in late[0]
    backend.gate.set()
    await host.until(lambda: len(host.bound()) == 22, "all claims after healing", 20)
    assert sorted(set(host.volumes())) == sorted(host.volumes())
    assert len(host.volumes()) == 22


async def test_pages_are_served_from_the_start_and_tell_what_is_wrong(start: Any, backend: Any) -> None:
    backend.problems = ["the share is not mounted"]
    host = await start(backend, http_address="127.0.0.1:0")
    await host.until(lambda: host.host.web is not None and host.host.web.address, "the web server")
    assert await host.get("/healthz") == (200, "ok\n")
    await host.until(lambda: host.host.status().backends[0].checked, "the first check")
    code, text = await host.get("/readyz")
    assert code == 503
    assert "[-] plugin plugin0: the share is not mounted" in text
    backend.problems = []
    await host.host._readiness[0].check()
    code, text = await host.get("/readyz")
    assert (code, text.splitlines()[-1]) == (200, "ready")
    code, text = await host.get("/metrics")
    assert code == 200
    for metric in (
        'prov_host_leader{provisioner="test.org/recording"} 1.0',
        'prov_host_plugin_ready{plugin="plugin0"} 1.0',
        'prov_host_hooks_late{plugin="plugin0"} 0.0',
        'workqueue_depth{name="claims"} 0.0',
        'rest_client_requests_total{code="200",host="in-process",method="GET"}',
    ):
        assert metric in text
    code, text = await host.get("/")
    assert code == 200
    assert "plugin plugin0 (plugin0-dist 1.0)" in text


async def test_caches_that_cannot_follow_the_cluster_say_why(
    start: Any, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prov_host.kube.reflector._LASTING", 0.3)
    cluster = Cluster()
    cluster.faults.fail(resource="persistentvolumes", status=403, times=3)
    host = await start(backend, cluster=cluster, http_address="127.0.0.1:0")
    await host.until(lambda: host.host.status().stale, "the cause")
    code, text = await host.get("/readyz")
    assert code == 503
    assert "volumes not filled yet; volumes cannot be listed or watched: " in text
    await host.until(lambda: host.host.status().ready, "the caches")
    cluster.faults.fail(resource="persistentvolumeclaims", status=403, times=100)
    cluster.faults.close_watches("persistentvolumeclaims")
    assert host.host.status().ready  # it may pass
    await host.until(lambda: not host.host.status().ready, "the cause")
    assert "[-] caches: claims cannot be listed or watched: " in (await host.get("/readyz"))[1]
    cluster.faults.clear()
    await host.until(lambda: host.host.status().ready, "the caches", 20)


async def test_log_lines_can_be_matched_to_claim_class_and_volume(start: Any, backend: Any) -> None:
    class Failing(type(backend)):  # type: ignore[misc]
        @hookimpl
        def provision(self, request: Any) -> None:
            logging.getLogger("my_plugin").warning("the hook's own words")
            raise ProvisionError("no room")

        @hookimpl
        def delete(self, volume: Any) -> None:
            raise DeleteError("in a bad mood")

    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    try:
        host = await start(Failing())
        await host.create_class("c", backend.name)
        await host.create_claim("one", "c")
        volume = {
            "metadata": {"name": "old", "annotations": {"pv.kubernetes.io/provisioned-by": backend.name}},
            "spec": {
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "c",
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"namespace": "default", "name": "gone", "uid": "u-1"},
                "nfs": {"server": "s", "path": "/old"},
            },
        }
        await host._post("/api/v1/persistentvolumes", volume)
        await host.until(lambda: "no room" in lines.getvalue() and "bad mood" in lines.getvalue(), "both failures")
    finally:
        logging.getLogger().removeHandler(handler)
    entries = [json.loads(line) for line in lines.getvalue().splitlines()]
    (claim,) = [one for one in host.cluster.objects("persistentvolumeclaims") if one["metadata"]["name"] == "one"]
    uid = claim["metadata"]["uid"]
    own = {"plugin": "plugin0", "provisioner": "test.org/recording", "class": "c"}
    about_claim = own | {"claim": "default/one", "claim_uid": uid, "volume": f"pvc-{uid}"}
    about_volume = own | {"claim": "default/gone", "claim_uid": "u-1", "volume": "old"}
    for words, fields in (
        (f'error syncing claim "{uid}" (claim default/one, class c, volume pvc-{uid}): no room', about_claim),
        ("the hook's own words", about_claim),
        ('error syncing volume "old" (claim default/gone, class c): in a bad mood', about_volume),
    ):
        found = next(entry for entry in entries if entry["message"] == words)
        assert {name: found.get(name) for name in fields} == fields


async def test_recent_failures_are_shown(start: Any, backend: Any) -> None:
    class Failing(type(backend)):  # type: ignore[misc]
        @hookimpl
        def provision(self, request: object) -> None:
            raise ValueError("<b>odd</b>")

    host = await start(Failing(), http_address="127.0.0.1:0")
    await host.create_class("c", backend.name)
    await host.create_claim("one", "c")
    await host.until(lambda: host.host.status().failures, "a failure")
    failure = host.host.status().failures[0]
    assert failure.claim == "default/one"
    assert "ValueError: <b>odd</b>" in failure.message
    _, text = await host.get("/")
    assert "&lt;b&gt;odd&lt;/b&gt;" in text


async def test_a_reflector_that_dies_ends_the_process(
    start: Any, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prov_host.kube.reflector import Reflector

    async def die(self: object) -> None:
        await asyncio.sleep(0.05)
        raise RuntimeError("a bug")

    monkeypatch.setattr(Reflector, "run", die)
    host = await start(backend)
    assert await asyncio.wait_for(host.code, 5) == 1


async def test_an_address_in_use_is_a_configuration_error(start: Any, backend: Any, other: Any) -> None:
    first = await start(backend, http_address="127.0.0.1:0")
    await first.until(lambda: first.host.web is not None and first.host.web.address, "the web server")
    second = await start(other, http_address=first.host.web.address)
    with pytest.raises(ConfigurationError, match="cannot listen"):
        await second.code


async def test_wrong_lease_durations_and_names_are_found_before_anything_starts(start: Any, backend: Any) -> None:
    backend.name = "Upper.Case/name"
    host = await start(backend, elect=True, leader_election_lease_duration=5.0)
    with pytest.raises(ConfigurationError) as caught:
        await host.code
    assert "lease duration of 5 s" in str(caught.value)
    assert "Upper.Case/name" in str(caught.value)


async def test_a_host_that_can_have_no_lease_is_not_ready_and_says_what_to_do(
    start: Any, backend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("prov_host.kube.election._LASTING", 0.2)
    host = await start(backend, elect=True, leader_election_namespace="nope", http_address="127.0.0.1:0")
    await host.until(lambda: host.host.status().leases and host.host.status().leases[0].problem, "the problem")
    code, text = await host.get("/readyz")
    assert code == 503
    assert "[-] lease of test.org/recording: cannot take part in the election: " in text
    assert "create the namespace nope, or choose another namespace with --leader-election-namespace" in text
    assert "create the namespace nope" in (await host.get("/"))[1]
    assert any("create the namespace nope" in r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    namespace = {"kind": "Namespace", "metadata": {"name": "nope"}}
    assert (await host.api.request("POST", "/api/v1/namespaces", body=msgspec.json.encode(namespace))).status == 201
    await host.until(lambda: host.host.status().leases[0].leading, "the Lease")
    assert (await host.get("/readyz"))[0] == 200


async def test_a_plugin_sees_the_cluster_and_works_regularly_only_while_its_names_are_served(
    start: Any, backend: Any
) -> None:
    seen: list[tuple[bool, int]] = []

    class Looking(type(backend)):  # type: ignore[misc]
        @hookimpl
        def configure(self, host: HostContext) -> None:
            self.host = host
            assert not host.synced()
            host.every("look", 0.01, lambda: seen.append((host.synced(), len(host.claims()))))

    looking = Looking()
    host = await start(looking)
    await host.create_class("c", backend.name)
    await host.create_claim("one", "c")
    await host.until(lambda: (True, 1) in seen, "the plugin to see the claim")
    await host.until(lambda: len(looking.host.volumes()) == 1, "the plugin to see the volume")
    assert [one.name for one in looking.host.storage_classes()] == ["c"]


async def test_no_plugin_looks_at_its_storage_before_the_cluster_is_known(start: Any, backend: Any) -> None:
    looks: list[tuple[str, bool]] = []

    class Looking(type(backend)):  # type: ignore[misc]
        @hookimpl
        def configure(self, host: HostContext) -> None:
            self.host = host
            host.every("look", 0.01, lambda: looks.append(("job", host.synced())))

        @hookimpl
        def check(self) -> None:
            looks.append(("check", self.host.synced()))

    cluster = Cluster()
    cluster.faults.fail(resource="persistentvolumes", status=503, times=2)
    host = await start(Looking(), cluster=cluster)
    await host.until(lambda: {what for what, _ in looks} == {"job", "check"}, "a check and a job", 60)
    assert all(synced for _, synced in looks)


async def test_a_job_without_a_thread_is_begun_after_the_shortage(
    start: Any, backend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jobs: list[str] = []

    class Looking(type(backend)):  # type: ignore[misc]
        @hookimpl
        def configure(self, host: HostContext) -> None:
            host.every("look", 1000, lambda: jobs.append("look"))

    real = threading.Thread.start

    def start_none(thread: threading.Thread) -> None:
        if thread.name.startswith("job "):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr("prov_host.host._JOBS_AGAIN", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_none)
        host = await start(Looking())
        await host.until(lambda: "waits: could not start the thread 'job look" in caplog.text, "a job that waits")
    await host.until(lambda: jobs == ["look"], "the job")


async def test_an_observer_is_told_of_each_operation_of_any_backend(start: Any, backend: Any) -> None:
    records: list[Record] = []
    told = threading.Event()

    class Observer:
        @hookimpl
        def observe(self, record: Record) -> None:
            records.append(record)
            told.set()

    host = await start(backend, Observer())
    await host.create_class("c", backend.name)
    await host.create_claim("one", "c")
    await host.until(told.is_set, "a record")
    assert (records[0].operation, records[0].outcome, records[0].claim) == ("provision", "ok", "default/one")
    assert records[0].plugin == "plugin0"


async def test_a_plugin_that_calls_sys_exit_everywhere_ends_nothing(start: Any, backend: Any, other: Any) -> None:
    class Leaving(type(backend)):  # type: ignore[misc]
        @hookimpl
        def provision(self, request: object) -> None:
            raise SystemExit("provision")

        @hookimpl
        def check(self) -> None:
            raise SystemExit("check")

        @hookimpl
        def observe(self, record: object) -> None:
            raise SystemExit("observe")

        @hookimpl
        def close(self) -> None:
            raise SystemExit("close")

    host = await start(Leaving(), other)
    await host.create_class("bad", backend.name)
    await host.create_class("good", other.name)
    await host.create_claim("bad", "bad")
    await host.create_claim("good", "good")
    await host.until(lambda: host.bound() == {"good"}, "the good claim")
    assert host.host.status().backends[0].problems == ("check raised SystemExit: check",)
    host.host.stop()
    assert await host.code == 0


async def test_the_api_being_away_at_the_start_is_waited_for(start: Any, backend: Any) -> None:
    cluster = Cluster()
    cluster.faults.fail(status=503, times=6)
    host = await start(backend, cluster=cluster, http_address="127.0.0.1:0")
    await host.until(lambda: host.host.synced, "the caches to be filled", 20)
