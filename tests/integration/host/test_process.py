"""The program as a process of its own, on an embedded cluster that listens on loopback."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prov_host.embedded import Cluster, InProcessTransport, serve, write_kubeconfig

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/good.example.com-x"
QUICK = (
    "--leader-election-lease-duration=4s",
    "--leader-election-renew-deadline=3s",
    "--leader-election-retry-period=200ms",
)


class World:
    def __init__(self, cluster: Cluster, environment: dict[str, str]) -> None:
        self.cluster = cluster
        self.environment = environment
        self.api = InProcessTransport(cluster, user_agent="test")
        self.started: list[Process] = []

    async def start(self, *args: str, **env: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "prov_host"),
            *args,
            env=self.environment | env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self.started.append(Process(process))
        return self.started[-1]

    async def holder(self) -> str:
        reply = await self.api.request("GET", LEASE)
        return msgspec.json.decode(reply.body)["spec"].get("holderIdentity", "") if reply.status == 200 else ""

    async def post(self, path: str, body: dict[str, Any]) -> None:
        reply = await self.api.request("POST", path, body=msgspec.json.encode(body))
        assert reply.status == 201, reply.body

    async def create_class(self) -> None:
        body = {"kind": "StorageClass", "metadata": {"name": "c"}, "provisioner": "good.example.com/x"}
        await self.post("/apis/storage.k8s.io/v1/storageclasses", body)

    async def create_claim(self, name: str) -> None:
        spec = {
            "storageClassName": "c",
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Mi"}},
        }
        body = {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        await self.post("/api/v1/namespaces/default/persistentvolumeclaims", body)

    def at_work(self) -> bool:
        return "prov-host/provisioning" in str(self.cluster.objects("persistentvolumeclaims"))

    def bound(self) -> set[str]:
        claims = self.cluster.objects("persistentvolumeclaims")
        return {one["metadata"]["name"] for one in claims if one.get("status", {}).get("phase") == "Bound"}


class Process:
    """A started program whose output is read along."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = ""
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.output += line.decode()

    async def says(self, text: str, seconds: float = 15) -> None:
        await until(lambda: text in self.output, lambda: f"{text!r} in: {self.output}", seconds)

    async def ends(self, seconds: float = 15) -> int:
        code = await asyncio.wait_for(self.process.wait(), seconds)
        await self._reading
        return code


async def until(condition: Callable[[], Any], what: Callable[[], str], seconds: float = 15) -> None:
    for _ in range(int(seconds / 0.01)):
        found = condition()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited {seconds} s in vain for {what()}")


@pytest.fixture
async def world(tmp_path: Path, good_site: Path) -> AsyncIterator[World]:
    cluster = Cluster()
    async with serve(cluster) as server:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        config = write_kubeconfig(tmp_path / "kubeconfig", server.url)
        world = World(cluster, kept | {"PYTHONPATH": str(good_site), "KUBECONFIG": str(config)})
        yield world
        for one in world.started:
            if one.process.returncode is None:
                one.process.kill()
                await one.process.wait()
            await one._reading


async def test_a_lost_lease_ends_the_process_at_once_and_not_with_zero(world: World) -> None:
    host = await world.start("--plugin", "good", *QUICK)
    await host.says("Serving provisioner good.example.com/x")
    thief = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}}
    reply = await world.api.request(
        "PATCH", LEASE, body=msgspec.json.encode(thief), content_type="application/merge-patch+json"
    )
    assert reply.status == 200
    assert await host.ends(5) == 1
    assert "the Lease of good.example.com/x is lost: thief holds it now; ending at once" in host.output
    assert await world.holder() == "thief"


async def test_sigterm_finishes_what_runs_releases_the_lease_and_ends_with_zero(world: World) -> None:
    await world.create_class()
    host = await world.start("--plugin", "good", *QUICK)
    await host.says("Serving provisioner")
    await world.create_claim("slow")
    await until(
        lambda: "prov-host/provisioning" in str(world.cluster.objects("persistentvolumeclaims")), lambda: "work"
    )
    host.process.send_signal(signal.SIGTERM)
    assert await host.ends() == 0
    assert len(world.cluster.objects("persistentvolumes")) == 1
    assert await world.holder() == ""


async def test_a_second_signal_ends_it_at_once(world: World) -> None:
    await world.create_class()
    host = await world.start("--plugin", "good", *QUICK, SLOW="20")
    await host.says("Serving provisioner")
    await world.create_claim("slow")
    await until(
        lambda: "prov-host/provisioning" in str(world.cluster.objects("persistentvolumeclaims")), lambda: "work"
    )
    host.process.send_signal(signal.SIGTERM)
    await host.says("SIGTERM: finishing what runs")
    began = time.monotonic()
    host.process.send_signal(signal.SIGINT)
    assert await host.ends() == 1
    assert time.monotonic() - began < 2
    assert await world.holder() != ""  # something may still have been at work


async def test_a_lease_is_not_released_while_a_hook_has_not_returned(world: World) -> None:
    await world.create_class()
    host = await world.start("--plugin", "good", "--drain-timeout=200ms", *QUICK, SLOW="20")
    await host.says("Serving provisioner")
    await world.create_claim("slow")
    await until(
        lambda: "prov-host/provisioning" in str(world.cluster.objects("persistentvolumeclaims")), lambda: "work"
    )
    host.process.send_signal(signal.SIGTERM)
    assert await host.ends() == 0
    assert "the Lease of good.example.com/x is left to run out" in host.output
    assert await world.holder() != ""


async def test_a_standby_has_warm_caches_serves_its_pages_and_takes_over(world: World) -> None:
    await world.create_class()
    first = await world.start("--plugin", "good", *QUICK)
    await first.says("Serving provisioner")
    second = await world.start("--plugin", "good", "--http-address", "127.0.0.1:0", *QUICK)
    await second.says("serving /metrics")
    address = second.output.partition("status page on http://")[2].split()[0]
    await until(lambda: _get(address, "/readyz"), lambda: "the standby to be ready")
    assert 'prov_host_leader{provisioner="good.example.com/x"} 0.0' in await _get(address, "/metrics")
    assert "stands by" in await _get(address, "/")
    assert "Serving provisioner" not in second.output
    first.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    await second.says("Serving provisioner", 5)
    assert time.monotonic() - began < 2
    await world.create_claim("after")
    await until(lambda: world.bound() == {"after"}, lambda: "the claim to be bound")
    assert await first.ends() == 0


async def _get(address: str, path: str) -> str:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"http://{address}{path}") as answer:
                return await answer.text() if answer.status == 200 else ""
        except aiohttp.ClientError:
            return ""


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        (["--kubeconfig", "/nonexistent/config"], {}, "/nonexistent/config"),
        ([], {"KUBECONFIG": "/nonexistent/config"}, "/nonexistent/config"),
        (["--context", "nope"], {}, "nope"),
        (["--leader-election-lease-duration=1s"], {}, "lease duration of 1 s"),
        (["--http-address", "256.0.0.1:1"], {}, "http-address"),
    ],
)
async def test_what_cannot_work_is_said_in_a_line_and_ends_with_two(
    world: World, args: list[str], env: dict[str, str], words: str
) -> None:
    host = await world.start("--plugin", "good", *args, **env)
    assert await host.ends() == 2
    assert words in host.output
    assert "Traceback" not in host.output


async def test_embedded_runs_without_any_cluster_and_tells_how_to_reach_its_own(world: World) -> None:
    host = await world.start("--plugin", "good", "--embedded", KUBECONFIG="")
    await host.says("Serving provisioner")
    kubeconfig = host.output.partition("kubectl --kubeconfig ")[2].split()[0]
    kubectl = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("kubectl")),
        *("--kubeconfig", kubeconfig, "get", "namespaces"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await kubectl.communicate()
    assert b"kube-system" in out
    host.process.send_signal(signal.SIGINT)
    assert await host.ends() == 0
    assert not Path(kubeconfig).exists()


async def test_embedded_leaves_nothing_behind_when_it_is_told_to_end_twice(world: World, tmp_path: Path) -> None:
    host = await world.start("--plugin", "good", "--embedded", KUBECONFIG="", TMPDIR=str(tmp_path), SLOW="20")
    await host.says("Serving provisioner")
    kubectl = [str(Path(sys.executable).with_name("kubectl")), *host.output.partition("kubectl ")[2].split()[:2]]
    (tmp_path / "objects.yaml").write_text(
        "{kind: StorageClass, apiVersion: storage.k8s.io/v1, metadata: {name: c}, provisioner: good.example.com/x}\n"
        "---\n{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: slow}, spec: {storageClassName: c, "
        "accessModes: [ReadWriteMany], resources: {requests: {storage: 1Mi}}}}\n"
    )
    created = await asyncio.create_subprocess_exec(
        *kubectl, "create", "-f", str(tmp_path / "objects.yaml"), stdout=asyncio.subprocess.DEVNULL
    )
    assert await created.wait() == 0

    async def at_work() -> bool:
        shown = await asyncio.create_subprocess_exec(
            *kubectl, "get", "pvc", "slow", "--output=yaml", stdout=asyncio.subprocess.PIPE
        )
        return b"prov-host/provisioning" in (await shown.communicate())[0]

    await until(at_work, lambda: "work")
    assert len(list(tmp_path.glob("prov-host-embedded-*"))) == 1
    host.process.send_signal(signal.SIGTERM)
    await host.says("SIGTERM: finishing what runs")
    host.process.send_signal(signal.SIGTERM)
    assert await host.ends(5) == 1
    assert "SIGTERM again: ending at once" in host.output
    assert list(tmp_path.glob("prov-host-embedded-*")) == []


ASKING_PLUGIN = """
from prov_host import hookimpl

class Plugin:
    @hookimpl
    def commands(self, group, context):
        @group.command()
        def claims():
            print("claims:", *(claim.key for claim in context.claims()))
"""


async def test_commands_find_the_embedded_cluster_that_their_configuration_runs(world: World, tmp_path: Path) -> None:
    (tmp_path / "asking_package.py").write_text(ASKING_PLUGIN)
    (tmp_path / "asking_package-1.0.dist-info").mkdir()
    (tmp_path / "asking_package-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: asking-package\nVersion: 1.0\n"
    )
    (tmp_path / "asking_package-1.0.dist-info" / "entry_points.txt").write_text(
        "[prov_host]\nasking = asking_package:Plugin\n"
    )
    world.environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    kubeconfig, config = tmp_path / "its kubeconfig", tmp_path / "c.toml"
    config.write_text(f'plugin = ["good", "asking"]\nembedded = true\nembedded-kubeconfig = "{kubeconfig}"\n')

    early = await world.start("--config", str(config), "claims")
    assert await early.ends() == 2
    assert f"the embedded cluster is not running: embedded-kubeconfig {kubeconfig} does not exist" in early.output

    host = await world.start("--config", str(config))
    await host.says("Serving provisioner")
    created = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(kubeconfig), "create", "-f", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    await created.communicate(
        b"{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: data}, spec: {storageClassName: c, "
        b"accessModes: [ReadWriteMany], resources: {requests: {storage: 1Mi}}}}"
    )
    asked = await world.start("--config", str(config), "claims")
    assert await asked.ends() == 0
    assert asked.output == "claims: default/data\n"  # and not those of $KUBECONFIG
    host.process.send_signal(signal.SIGTERM)
    assert await host.ends() == 0
    assert not kubeconfig.exists()


async def test_an_embedded_clusters_kubeconfig_replaces_no_other_file(world: World, tmp_path: Path) -> None:
    precious = tmp_path / "config"
    precious.write_text("apiVersion: v1\n")
    host = await world.start("--plugin", "good", "--embedded", "--embedded-kubeconfig", str(precious), KUBECONFIG="")
    assert await host.ends() == 2
    assert f"{precious} is there, and no embedded cluster's kubeconfig" in host.output
    assert precious.read_text() == "apiVersion: v1\n"
    write_kubeconfig(precious, "http://127.0.0.1:1")  # what a killed one has left
    host = await world.start("--plugin", "good", "--embedded", "--embedded-kubeconfig", str(precious), KUBECONFIG="")
    await host.says("Serving provisioner")
    write_kubeconfig(precious, "http://127.0.0.1:2")  # another one was started since
    host.process.send_signal(signal.SIGTERM)
    assert await host.ends() == 0
    assert "127.0.0.1:2" in precious.read_text()


async def test_json_logs_are_json_and_nothing_else(world: World) -> None:
    host = await world.start("--plugin", "good", "--embedded", "--log-format", "json", KUBECONFIG="")
    await host.says("Serving provisioner")
    host.process.send_signal(signal.SIGTERM)
    assert await host.ends() == 0
    messages = [msgspec.json.decode(line)["message"] for line in host.output.splitlines()]
    assert any("kubectl --kubeconfig /" in message for message in messages)


async def test_the_demo_shows_claims_volumes_and_an_archive_within_ten_seconds(world: World, tmp_path: Path) -> None:
    began = time.monotonic()
    demo = await world.start("demo", str(tmp_path / "demo"))
    assert await demo.ends(10) == 0
    assert time.monotonic() - began < 10
    for words in ("claim photos is bound", "design/photos", "/hello.txt", "Remove what is left with: rm -r "):
        assert words in demo.output
    archives = list((tmp_path / "demo" / "share").rglob("hello.txt"))
    assert len(archives) == 1
    assert "archived" in str(archives[0])
    assert "Traceback" not in demo.output


async def test_the_demo_refuses_a_directory_that_holds_something(world: World, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    demo = await world.start("demo", str(tmp_path))
    assert await demo.ends() == 2
    assert "is not empty; give the demo a new or an empty directory" in demo.output


async def test_a_kept_demo_goes_on_until_it_is_stopped(world: World, tmp_path: Path) -> None:
    demo = await world.start("demo", str(tmp_path / "demo"), "--keep")
    await demo.says("It keeps running until Ctrl-C")
    await demo.says("delete pvc logs")
    kubectl = str(Path(sys.executable).with_name("kubectl"))
    line = demo.output.partition("  kubectl ")[2].splitlines()[0].split()
    shown = await asyncio.create_subprocess_exec(kubectl, *line, stdout=asyncio.subprocess.PIPE)
    out, _ = await shown.communicate()
    assert b"Bound" in out
    line = next(text for text in demo.output.splitlines() if "delete pvc" in text).split()[1:]
    deleted = await asyncio.create_subprocess_exec(kubectl, *line, stdout=asyncio.subprocess.PIPE)
    await deleted.communicate()
    assert deleted.returncode == 0
    await until(
        lambda: sum("archived" in path.name for path in (tmp_path / "demo" / "share").iterdir() if path.is_dir()) == 2,
        lambda: "the second archive",
    )
    demo.process.send_signal(signal.SIGINT)
    assert await demo.ends() == 0
