"""The plugin itself: which export a call is for, in which lane it runs, and how failures are said.

The work is done elsewhere: :mod:`~prov_host_nfs_subdir.provisioning` and :mod:`~prov_host_nfs_subdir.release`.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

import click

from prov_host import (
    Asset,
    CommandContext,
    DeleteError,
    HostContext,
    InBackground,
    Infeasible,
    NoChange,
    Provisioned,
    ProvisionError,
    ProvisionRequest,
    Removed,
    Volume,
    hookimpl,
)
from prov_host.safedir import RealSys, Sys, UnsafeName
from prov_host_nfs_subdir.capacity import promised
from prov_host_nfs_subdir.checking import Checker
from prov_host_nfs_subdir.commands import add_commands
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.inventory import assets
from prov_host_nfs_subdir.jobs import Tidying
from prov_host_nfs_subdir.lanes import Lane, Late
from prov_host_nfs_subdir.locating import locate
from prov_host_nfs_subdir.metrics import Metrics
from prov_host_nfs_subdir.parameters import Parameters, read_parameters
from prov_host_nfs_subdir.planning import plan
from prov_host_nfs_subdir.provisioning import provision
from prov_host_nfs_subdir.release import release
from prov_host_nfs_subdir.retention import Retention
from prov_host_nfs_subdir.settings import Export, NfsSubdirSettings, read_exports
from prov_host_nfs_subdir.share import ShareProblem
from prov_host_nfs_subdir.tools import Tools
from prov_host_nfs_subdir.trash import Trash
from prov_host_nfs_subdir.undoing import undo
from prov_host_nfs_subdir.usage import UsageMeter
from prov_host_nfs_subdir.values import parse_duration

__all__ = ["NfsSubdirPlugin"]

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 60.0


class _Served:
    """One export with its lane, its trash, its check and its jobs."""

    def __init__(self, work: ExportAtWork, metrics: Metrics, closed: threading.Event) -> None:
        self.work = work
        self.lane = Lane(work.name, work.settings.operations, work.host)
        self.trash = Trash(work.name, lambda: work.share.open(begin=False), work.settings.removal_threads, metrics)
        self.checker = Checker(work, self.lane, metrics)
        self.retention = Retention(work, self.trash, metrics)
        self.tidying = Tidying(work)
        self.usage = UsageMeter(work, metrics, closed)

    def schedule(self, host: HostContext, settings: NfsSubdirSettings) -> None:
        """Have the jobs run now and then."""
        host.every(f"nfs_subdir trash of {self.work.name}", _SWEEP_SECONDS, self.trash.sweep)
        host.every(f"nfs_subdir leftovers on {self.work.name}", _SWEEP_SECONDS, self.tidying.run)
        host.every(
            f"nfs_subdir expired archives of {self.work.name}",
            parse_duration(settings.retention_interval),
            self.retention.run,
        )
        if seconds := parse_duration(settings.usage_interval):
            host.every(f"nfs_subdir usage of {self.work.name}", seconds, self.usage.run)


class NfsSubdirPlugin:
    """Provisions directories of NFS exports. Since 0.1.

    Args:
        environ: where the Go tool's variables are read from.
        sys: the file system calls.
        new_id: makes unique ids.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        sys: Sys | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._sys = sys or RealSys()
        self._new_id = new_id
        self._served: dict[str, _Served] = {}
        self._exports: tuple[Export, ...] = ()
        self._closed = threading.Event()

    @hookimpl
    def settings_type(self) -> type[NfsSubdirSettings]:
        """See the hook."""
        return NfsSubdirSettings

    @hookimpl
    def configure(self, settings: NfsSubdirSettings | None, host: HostContext) -> None:
        """See the hook."""
        settings = settings or NfsSubdirSettings()
        self._exports = read_exports(settings, self._environ)
        self._metrics = Metrics(host.registry)
        for export in self._exports:
            work = ExportAtWork(export, settings, host, self._sys, self._new_id)
            served = self._served[export.name] = _Served(work, self._metrics, self._closed)
            served.schedule(host, settings)

    @hookimpl
    def provisioners(self) -> Sequence[str]:
        """See the hook."""
        return tuple(dict.fromkeys(name for export in self._exports for name in export.provisioners))

    @hookimpl
    def default_policy(self) -> str:
        """See the hook; archiving is what the Go provisioner does."""
        return "archive"

    @hookimpl
    def supports_block(self) -> bool:
        """See the hook; a directory is no block device."""
        return False

    @hookimpl
    def provision(self, request: ProvisionRequest) -> Provisioned:
        """See the hook."""
        try:
            parameters = read_parameters(request.parameters)
            served = self._served[self._choose(request, parameters).name]
            wanted = plan(request, served.work.export, parameters)
        except Infeasible as error:
            # If the class names its export, another one that hangs is none of its business.
            fitting = self._fitting(request)
            for one in [one for one in fitting if one.work.name == request.parameters.get("export")] or fitting:
                self._undo(one, request, error)
            raise
        try:
            return served.lane.run(
                "provision", request.pv_name, lambda: provision(served.work, wanted), identity=request.claim.uid
            )
        except Late as error:
            if error.running:
                raise InBackground(f"claim {request.claim.key}: {error}") from error
            raise NoChange(f"claim {request.claim.key}: {error}") from error
        except (ShareProblem, OSError) as error:
            # What this call made is removed again, but what an earlier one made cannot be looked at now.
            raise NoChange(f"claim {request.claim.key}: {describe(error, served.work.export)}") from error
        except UnsafeName as error:
            raise ProvisionError(f"claim {request.claim.key}: {describe(error, served.work.export)}") from error
        finally:
            self._tell_promised(served)

    def _tell_promised(self, served: _Served) -> None:
        if served.work.host.synced():
            self._metrics.promised_bytes.labels(served.work.name).set(promised(served.work))

    def _undo(self, served: _Served, request: ProvisionRequest, why: Infeasible) -> None:
        """Before a claim is called infeasible: take back what an earlier call made for it.

        Raises:
            InBackground: that did not work yet, so the host has to ask again.
        """
        pv = request.pv_name
        try:
            served.lane.run("undoing", pv, lambda: undo(served.work, pv, served.trash.add))
        except (Late, DeleteError, ShareProblem, OSError, UnsafeName) as error:
            raise InBackground(
                f"{why}. Whether an earlier call left something for it is not cleared up yet: "
                f"{describe(error, served.work.export)}"
            ) from error

    def _fitting(self, request: ProvisionRequest) -> list[_Served]:
        """What serves a provisioner name."""
        everything = list(self._served.values())
        return [one for one in everything if request.provisioner in one.work.export.provisioners] or everything

    def _choose(self, request: ProvisionRequest, parameters: Parameters) -> Export:
        """The export a class is for."""
        fitting = [served.work.export for served in self._fitting(request)]
        if parameters.export:
            fitting = [export for export in fitting if export.name == parameters.export]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(e.name for e in self._exports if request.provisioner in e.provisioners) or "none"
        if parameters.export:
            raise Infeasible(
                f"class {request.storage_class.name}: parameter export: {parameters.export!r} is not an export of "
                f"{request.provisioner}; allowed are {names}"
            )
        raise Infeasible(
            f"class {request.storage_class.name}: several exports serve {request.provisioner}; choose one with the "
            f"parameter export: {names}"
        )

    @hookimpl
    def delete(self, volume: Volume) -> Removed:
        """See the hook."""
        return self._release(volume, archive=False)

    @hookimpl
    def archive(self, volume: Volume) -> Removed:
        """See the hook."""
        return self._release(volume, archive=True)

    def _release(self, volume: Volume, *, archive: bool) -> Removed:
        export, parts = locate(self._exports, volume)
        served = self._served[export.name]
        operation = "archive" if archive else "delete"
        try:
            return served.lane.run(
                operation,
                volume.name,
                lambda: release(served.work, volume, parts, archive=archive, trashed=served.trash.add),
                identity=f"{volume.uid} {'/'.join(parts)}",
            )
        except (Late, ShareProblem, OSError, UnsafeName) as error:
            raise DeleteError(f"volume {volume.name}: {describe(error, export)}") from error
        finally:
            self._tell_promised(served)

    @hookimpl
    def check(self) -> Sequence[str]:
        """See the hook: each export by itself, so that a hung one says so and the others are still looked at."""
        for served in self._served.values():
            served.checker.begin()
        problems: list[str] = []
        for name, served in self._served.items():
            found = served.checker.result()
            self._metrics.ready.labels(name).set(0 if found else 1)
            self._tell_promised(served)
            problems += found
        return problems

    @hookimpl
    def inventory(self) -> Iterable[Asset]:
        """See the hook."""
        for served in self._served.values():
            yield from assets(served.work)

    @hookimpl
    def commands(self, group: click.Group, context: CommandContext) -> None:
        """See the hook: ``archives``, ``volumes`` and ``orphans``."""
        add_commands(group, Tools(context, self._environ, self._sys, self._new_id))

    @hookimpl
    def close(self) -> None:
        """See the hook."""
        self._closed.set()
        for served in self._served.values():
            served.trash.close()

    def wait_for_trash(self, timeout: float) -> bool:
        """Wait until deleted directories are removed, as far as they can be; for tests and tools."""
        return all(served.trash.wait(timeout) for served in self._served.values())


def describe(error: Exception, export: Export) -> str:
    """A failure in words: what, where, and what else went wrong on the way."""
    if isinstance(error, OSError):
        where = error.filename or export.mount
        text = f"export {export.name!r}: {where}: {error.strerror or error}"
    else:
        text = str(error)
    return "; ".join([text, *getattr(error, "__notes__", ())])
