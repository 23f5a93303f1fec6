"""The demo: an embedded cluster, the host with nfs_subdir, three claims, and what becomes of them.

Everything happens in one process and below one directory: the share, where nfs_subdir works as it would on a mounted
export, and a kubeconfig for kubectl. It shows a claim with the default directory name, one with labels, one whose class
has a path pattern, and what is left of the first one's data when it is deleted: an archive.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from prov_host.cli_run import prepare
from prov_host.clock import Clock, SystemClock
from prov_host.controller.options import ControllerOptions
from prov_host.embedded import Cluster, InProcessTransport, serve, write_kubeconfig
from prov_host.embedded_host import kubectl_line, make_host
from prov_host.errors import ConfigurationError
from prov_host.host import Host
from prov_host.host_options import HostSettings
from prov_host.plugins import discover
from prov_host.settings import Settings

__all__ = ["Demo"]

PROVISIONER = "prov-host.example.com/demo"
NAMESPACE = "demo"
LIMIT = 30.0
"""Seconds after which the demo says that something is wrong."""

_CLAIMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "data": ("demo-archive", {}),
    "logs": ("demo-archive", {}),
    "photos": ("demo-by-team", {"team": "design"}),
}
_PATTERN = "${.PVC.labels.team}/${.PVC.name}"


class Demo:
    """One run of the demo.

    Args:
        directory: where everything is put; must be new or empty. A new temporary one by default.
        keep: go on until a signal comes.
        say: shows a line to the user.
        version: of prov-host.

    Since 0.1.
    """

    def __init__(self, directory: Path | None, *, keep: bool, say: Callable[[str], object], version: str = "") -> None:
        self._given = directory
        self._keep = keep
        self._say = say
        self._version = version
        self._clock: Clock = SystemClock()
        self._began = self._clock.monotonic()

    def run(self) -> int:
        """Run it; returns the exit code. On the main thread.

        Raises:
            ConfigurationError: the directory cannot be used.
        """
        directory = self._make_directory()
        self._say(f"Everything happens below {directory}: the share is {directory / 'share'}.\n")
        settings = Settings(
            host=HostSettings(plugin=("nfs_subdir",), embedded=True, drain_timeout=5.0),
            controller=ControllerOptions(),
            path="the demo's settings",
            tables={
                "nfs_subdir": {
                    "server": "nfs.example.com",
                    "path": "/exports/demo",
                    "provisioner": [PROVISIONER],
                    "mount": str(directory / "share"),
                    "plain_directory": True,
                    "capacity_check": "off",
                }
            },
            installed=tuple(candidate.name for candidate in discover()),
        )
        plugins, contexts = prepare(settings)
        code = asyncio.run(
            self._show(directory, lambda cluster: make_host(cluster, settings, plugins, contexts, self._version))
        )
        self._say(f"\nRemove what is left with: rm -r {shlex.quote(str(directory))}")
        return code

    def _make_directory(self) -> Path:
        if self._given is None:
            directory = Path(tempfile.mkdtemp(prefix="prov-host-demo-"))
        else:
            directory = self._given.absolute()
            try:
                directory.mkdir(parents=True, exist_ok=True)
                if any(directory.iterdir()):
                    raise ConfigurationError(f"{directory} is not empty; give the demo a new or an empty directory")
            except OSError as error:
                raise ConfigurationError(f"{directory} cannot be used: {error.strerror or error}") from error
        (directory / "share").mkdir()
        return directory

    async def _show(self, directory: Path, make: Callable[[Cluster], Host]) -> int:
        cluster = Cluster()
        async with serve(cluster) as server:
            kubeconfig = write_kubeconfig(directory / "kubeconfig", server.url)
            self._step(f"an in-memory cluster listens on {server.url}")
            host = make(cluster)
            running = asyncio.ensure_future(host.run())
            telling = asyncio.ensure_future(self._tell(cluster, directory / "share"))
            try:
                await asyncio.wait((running, telling), return_when=asyncio.FIRST_COMPLETED)
                if not telling.done():
                    if running.exception() is None:
                        self._say("The host has ended.")  # by a signal
                    return await running
                code = await telling
                if self._keep and not code:
                    self._say("\nIt keeps running until Ctrl-C. In another terminal:")
                    self._say(f"  {kubectl_line(kubeconfig)}")
                    self._say(f"  kubectl --kubeconfig {kubeconfig} --namespace {NAMESPACE} delete pvc logs")
                else:
                    host.stop()
                return max(await running, code)
            finally:
                telling.cancel()

    # ------------------------------------------------------------------ the story

    async def _tell(self, cluster: Cluster, share: Path) -> int:
        api = _Api(cluster)
        try:
            await self._provision(api)
            await self._delete(api, share)
        except TimeoutError as error:
            self._say(f"\nThis did not happen within {LIMIT:g} s: {error}. What the events say:")
            for event in api.list("events"):
                self._say(f"  {event.get('reason')}: {event.get('message')}")
            return 1
        return 0

    async def _provision(self, api: _Api) -> None:
        await api.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for name, parameters in (("demo-archive", {}), ("demo-by-team", {"pathPattern": _PATTERN})):
            body = {
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": PROVISIONER,
                "parameters": parameters,
            }
            await api.create("/apis/storage.k8s.io/v1/storageclasses", body)
        self._step(f"classes demo-archive, and demo-by-team with pathPattern {_PATTERN}")
        for name, (storage_class, labels) in _CLAIMS.items():
            body = {
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(labels)},
                "spec": {
                    "storageClassName": storage_class,
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
            await api.create(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims", body)
        self._step(f"claims {', '.join(_CLAIMS)} created")
        for name in _CLAIMS:
            await self._until(lambda name=name: _bound(api, name), f"claim {name} is bound")  # type: ignore[misc]
            self._step(f"claim {name} is bound to {_bound(api, name)}")
        rows: list[tuple[str, ...]] = [("CLAIM", "STATUS", "VOLUME", "DIRECTORY IN THE SHARE")]
        for claim in api.list("persistentvolumeclaims"):
            volume = _volume(api, claim["spec"]["volumeName"])
            rows.append(
                (claim["metadata"]["name"], claim["status"]["phase"], volume["metadata"]["name"], _path(volume))
            )
        self._table(rows)

    async def _delete(self, api: _Api, share: Path) -> None:
        volume = _volume(api, _bound(api, "data"))
        file = share / _path(volume) / "hello.txt"
        file.write_text("written by the demo, as a pod would\n", encoding="utf-8")
        self._step(f"a file is written: {file.relative_to(share.parent)}")
        await api.delete(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/data")
        self._step("claim data deleted")
        name = volume["metadata"]["name"]
        await self._until(lambda: _volume(api, name) == {}, f"volume {name} is gone")
        said = [event for event in api.list("events") if event.get("involvedObject", {}).get("name") == name]
        words = next((event["message"] for event in said if event.get("reason") == "VolumeArchived"), "")
        self._step(f"volume {name} is gone{f': {words}' if words else ''}")
        self._say("\nThe share now (directories of the plugin's own left out):")
        for path in sorted(_tree(share)):
            self._say(f"  {path}")

    async def _until(self, condition: Callable[[], object], what: str) -> None:
        deadline = self._clock.monotonic() + LIMIT
        while not condition():
            if self._clock.monotonic() > deadline:
                raise TimeoutError(what)
            await self._clock.sleep(0.02)

    def _step(self, text: str) -> None:
        self._say(f"[{self._clock.monotonic() - self._began:4.1f} s] {text}")

    def _table(self, rows: list[tuple[str, ...]]) -> None:
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        self._say("")
        for row in rows:
            self._say("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        self._say("")


class _Api:
    """What a user does to the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._transport = InProcessTransport(cluster, user_agent="demo")

    async def create(self, path: str, body: Mapping[str, Any]) -> None:
        reply = await self._transport.request("POST", path, body=msgspec.json.encode(body))
        assert reply.status == 201, reply.body

    async def delete(self, path: str) -> None:
        reply = await self._transport.request("DELETE", path)
        assert reply.status in {200, 202}, reply.body

    def list(self, plural: str) -> list[dict[str, Any]]:
        return self._cluster.objects(plural)


def _bound(api: _Api, claim: str) -> str:
    for found in api.list("persistentvolumeclaims"):
        if found["metadata"]["name"] == claim and found.get("status", {}).get("phase") == "Bound":
            return str(found["spec"]["volumeName"])
    return ""


def _volume(api: _Api, name: str) -> dict[str, Any]:
    return next((found for found in api.list("persistentvolumes") if found["metadata"]["name"] == name), {})


def _path(volume: Mapping[str, Any]) -> str:
    return str(volume["spec"]["nfs"]["path"]).removeprefix("/exports/demo/")


def _tree(root: Path) -> Iterable[str]:
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".prov-host")]
        where = Path(directory).relative_to(root)
        yield from (f"{where / name}/" for name in names)
        yield from (str(where / name) for name in files)
