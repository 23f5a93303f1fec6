"""The host against an in-memory cluster of its own, in one process: for ``--embedded`` and the demo.

The host talks to the cluster without sockets, so nothing of a kubeconfig or the SDK is needed; the cluster also
listens on loopback, for kubectl. There is nobody to share a Lease with, so there is no election.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from prov_host.clock import SystemClock
from prov_host.context import PluginContext
from prov_host.embedded import EMBEDDED_NAME, Cluster, InProcessTransport, serve, write_kubeconfig
from prov_host.ending import exit_now
from prov_host.errors import ConfigurationError
from prov_host.host import Host
from prov_host.plugins import Plugin
from prov_host.settings import Settings

__all__ = ["kubectl_line", "make_host", "run_embedded"]


def kubectl_line(kubeconfig: Path) -> str:
    """How kubectl reaches the cluster. Callable from any thread. Since 0.1."""
    return f"kubectl --kubeconfig {kubeconfig} get storageclass,pvc,pv --all-namespaces"


def make_host(
    cluster: Cluster,
    settings: Settings,
    plugins: Sequence[Plugin],
    contexts: Mapping[str, PluginContext],
    version: str,
    *,
    clean_up: Callable[[], object] = lambda: None,
) -> Host:
    """A host on a cluster in this process. On the cluster's event loop. Since 0.1.

    Args:
        cluster: the cluster.
        settings: all settings.
        plugins: configured plugins.
        contexts: each one's context, by name.
        version: of prov-host.
        clean_up: called before the process ends at once, as after a second signal.
    """

    async def connect() -> InProcessTransport:
        return InProcessTransport(cluster)

    def end(code: int, words: str) -> None:
        with contextlib.suppress(OSError):
            clean_up()
        exit_now(code, words)

    return Host(
        settings,
        plugins,
        contexts,
        connect=connect,
        elect=False,
        clock=SystemClock(),
        version=version,
        exit_process=end,
    )


async def run_embedded(
    settings: Settings,
    plugins: Sequence[Plugin],
    contexts: Mapping[str, PluginContext],
    *,
    version: str,
    announce: Callable[[str], object],
) -> int:
    """Run the host and its cluster until stopped.

    Args:
        settings: all settings.
        plugins: configured plugins.
        contexts: each one's context, by name.
        version: of prov-host.
        announce: told how to reach the cluster.

    Returns:
        The exit code.

    On an event loop of the main thread. Since 0.1.
    """
    cluster = Cluster()
    with contextlib.ExitStack() as stack:
        async with serve(cluster) as server:
            # Also closed when the process is ended at once; twice does no harm.
            kubeconfig = stack.enter_context(_kubeconfig(settings.host.embedded_kubeconfig, server.url))
            announce(f"An in-memory cluster listens on {server.url}; it is gone when this process ends. Try:")
            announce(f"  {kubectl_line(kubeconfig)}")
            if any("commands" in plugin.hooks for plugin in plugins) and not settings.host.embedded_kubeconfig:
                announce(f"prov-host's own commands reach it with --kubeconfig {kubeconfig}")
            host = make_host(cluster, settings, plugins, contexts, version, clean_up=stack.close)
            return await host.run()


@contextlib.contextmanager
def _kubeconfig(path: str, url: str) -> Iterator[Path]:
    """The cluster's kubeconfig while inside; no other file is ever replaced or removed."""
    if not path:
        with tempfile.TemporaryDirectory(prefix="prov-host-embedded-") as directory:
            yield write_kubeconfig(os.path.join(directory, "kubeconfig"), url)
        return
    try:
        if os.path.lexists(path) and not _is_ours(path):
            raise ConfigurationError(
                f"embedded-kubeconfig: {path} is there, and no embedded cluster's kubeconfig; name a file of its own"
            )
        written = write_kubeconfig(os.path.abspath(path), url).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"embedded-kubeconfig: cannot write {path}: {error.strerror or error}") from error
    try:
        yield Path(os.path.abspath(path))
    finally:
        with contextlib.suppress(OSError):
            if Path(path).read_bytes() == written:  # not that of another process, started since
                os.unlink(path)


def _is_ours(path: str) -> bool:
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=_Written)
    except msgspec.MsgspecError:
        return False
    return [cluster.name for cluster in found.clusters] == [EMBEDDED_NAME]


class _NamedCluster(msgspec.Struct):
    name: str = ""


class _Written(msgspec.Struct):
    """As much of a kubeconfig as says whose it is."""

    clusters: list[_NamedCluster] = []
