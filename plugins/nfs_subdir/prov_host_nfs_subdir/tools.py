"""What the commands work with: the exports as configured, and the cluster as it is now, without a running host.

A command may run beside the host that serves the exports. Both only move directories to where nothing is, and look
again at what they moved, so neither can undo the other's work.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prov_host import Claim, CommandContext, ConfigurationError, Note, StorageClass, Volume
from prov_host.safedir import Sys, remove_tree
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.settings import NfsSubdirSettings, read_exports
from prov_host_nfs_subdir.share import OpenShare, ShareProblem
from prov_host_nfs_subdir.unmatched import UnmatchedVolumes

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from prov_host.clock import Clock

__all__ = ["Tools"]


class _Wall:
    """The clock of the machine."""

    def monotonic(self) -> float:
        return dt.datetime.now(dt.UTC).timestamp()

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError(f"a command does not sleep, not even {seconds} s")


class _Cluster:
    """The host as far as the exports' work needs one: what the cluster has, read once."""

    plugin = "nfs_subdir"
    node_name = ""
    registry: CollectorRegistry

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._volumes: tuple[Volume, ...] | None = None
        self._claims: tuple[Claim, ...] | None = None
        self._classes: tuple[StorageClass, ...] | None = None
        self.clock: Clock = _Wall()

    def synced(self) -> bool:
        return True

    def volumes(self) -> tuple[Volume, ...]:
        if self._volumes is None:
            self._volumes = self._context.volumes()
        return self._volumes

    def claims(self) -> tuple[Claim, ...]:
        if self._claims is None:
            self._claims = self._context.claims()
        return self._claims

    def storage_classes(self) -> tuple[StorageClass, ...]:
        if self._classes is None:
            self._classes = self._context.storage_classes()
        return self._classes

    def event(self, regarding: Claim | Volume, note: Note) -> None:
        """Commands tell on the terminal."""

    def every(self, name: str, seconds: float, job: Callable[[], object]) -> None:
        """Commands do not stay."""


class Tools:
    """Exports and cluster for commands. One thread. Since 0.1.

    Args:
        context: the host's command line.
        environ: the environment.
        sys: the file system calls.
        new_id: makes unique ids.
    """

    def __init__(
        self, context: CommandContext, environ: Mapping[str, str], sys: Sys, new_id: Callable[[], str]
    ) -> None:
        self._context = context
        self._environ = environ
        self._sys = sys
        self._new_id = new_id
        self._cluster = _Cluster(context)

    def now(self) -> dt.datetime:
        """The wall clock."""
        return self._cluster.clock.now()

    def cluster(self) -> str:
        """Which cluster that is, for people."""
        return self._context.cluster()

    def volumes(self) -> tuple[Volume, ...]:
        """All volumes of the cluster."""
        return self._cluster.volumes()

    def elsewhere(self) -> UnmatchedVolumes:
        """Its volumes that are on none of the configured exports."""
        return UnmatchedVolumes([work.export for work in self.exports()], self.volumes())

    def exports(self, name: str | None = None) -> list[ExportAtWork]:
        """The configured exports, or the one of that name.

        Raises:
            ConfigurationError: the settings are wrong, or there is no such export.
        """
        settings = self._context.settings() or NfsSubdirSettings()
        exports = read_exports(settings, self._environ)
        chosen = [export for export in exports if name in {None, export.name}]
        if not chosen:
            known = ", ".join(export.name for export in exports)
            raise ConfigurationError(f"there is no export {name!r}; there are {known}")
        return [ExportAtWork(export, settings, self._cluster, self._sys, self._new_id) for export in chosen]

    def shares(self, name: str | None = None) -> Iterator[tuple[ExportAtWork, OpenShare]]:
        """The proved, open share of each export that is in use; open until the next one is asked for."""
        for work in self.exports(name):
            try:
                share = work.share.open(begin=False)
            except ShareProblem as error:
                if not error.unused:
                    raise
                continue
            with share:
                yield work, share

    @contextmanager
    def emptied(self, share: OpenShare) -> Iterator[Callable[[str], None]]:
        """Collect names of trash entries, and remove them at the end; what stays is left to the host."""
        names: list[str] = []
        yield names.append
        while names:
            names += remove_tree(share.trash, names.pop()).spilled
