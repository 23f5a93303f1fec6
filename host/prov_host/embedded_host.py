"""The host against an in-memory cluster of its own, in one process: for ``--embedded`` and the demo.

The host talks to the cluster without sockets, so nothing of a kubeconfig or the SDK is needed; the cluster also
listens on loopback, for kubectl. There is nobody to share a Lease with, so there is no election.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from prov_host.clock import SystemClock
from prov_host.context import PluginContext
from prov_host.embedded import Cluster, InProcessTransport, serve, write_kubeconfig
from prov_host.ending import exit_now
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
    with tempfile.TemporaryDirectory(prefix="prov-host-embedded-") as directory:
        async with serve(cluster) as server:
            kubeconfig = write_kubeconfig(os.path.join(directory, "kubeconfig"), server.url)
            announce(f"An in-memory cluster listens on {server.url}; it is gone when this process ends. Try:")
            announce(f"  {kubectl_line(kubeconfig)}")
            if any("commands" in plugin.hooks for plugin in plugins):
                announce(f"prov-host's own commands reach it with --kubeconfig {kubeconfig}")
            host = make_host(
                cluster,
                settings,
                plugins,
                contexts,
                version,
                clean_up=lambda: shutil.rmtree(directory, ignore_errors=True),
            )
            return await host.run()
