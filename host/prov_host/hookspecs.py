"""The hooks a plugin may implement: this file is the plugin author's documentation (API version 1).

A plugin is a class or module named by an entry point of the group ``prov_host``::

    [project.entry-points.prov_host]
    my_backend = "my_package:MyPlugin"

and its hooks are methods (or functions) marked with :data:`prov_host.hookimpl`. A hook may leave out arguments it
does not need. A *backend* implements ``provisioners``, ``provision`` and ``delete``; any other plugin may observe
(``observe``), veto (``should_provision``, ``should_delete``), or wrap a backend's operations
(``@hookimpl(wrapper=True)``).

**Threads.** Hooks are plain synchronous functions. The host calls them in a thread pool of the plugin's own, several
at once for different volumes, never two at once for one volume; ``settings_type``, ``configure``, ``provisioners`` and
``commands`` are called once, one after another, at start. A hook past its time limit is reported and its volume stays
busy until the thread returns; nothing else waits for it.

**Failing.** Raise the outcomes of :mod:`prov_host.errors`. Anything else means "may still be running" from
``provision``, and an ordinary failure from the rest.

**Arguments** are frozen private copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

from prov_host.clock import Clock
from prov_host.model import (
    Asset,
    Claim,
    Note,
    Provisioned,
    ProvisionRequest,
    Record,
    Removed,
    StorageClass,
    Volume,
)

if TYPE_CHECKING:
    import click
    from prometheus_client import CollectorRegistry

__all__ = ["API_VERSION", "PROJECT", "CommandContext", "HostContext", "hookimpl", "hookspec"]

API_VERSION = 1
"""The version of this file's promises. A plugin may state the one it was written for as ``PROV_HOST_API``."""

PROJECT = "prov_host"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a method or function as the implementation of the hook of its name: ``@hookimpl``.

``@hookimpl(wrapper=True)`` marks a wrapper of other plugins' implementations: a generator that yields once and returns
the result. ``@hookimpl(optionalhook=True)`` allows a hook that this version does not have. Since API 1.
"""


class HostContext(Protocol):
    """What the host offers a plugin; given to ``configure``. All of it is callable from any thread. Since 0.1.

    Attributes:
        plugin: the plugin's name, as in ``--plugin``.
        node_name: the node this process runs on (``--node-name``), or "".
        clock: the host's clock; use it instead of :mod:`time`, so that tests decide how time passes.
        registry: where the plugin registers metrics of its own.
    """

    plugin: str
    node_name: str
    clock: Clock
    registry: CollectorRegistry

    def synced(self) -> bool:
        """Whether the caches below have been filled; always true while a backend hook, ``check`` or a job runs."""

    def volumes(self) -> tuple[Volume, ...]:
        """All volumes of the cluster, anyone's, as the watch last told, and those being saved just now.

        Raises:
            NotSynced: too early to tell.
        """

    def claims(self) -> tuple[Claim, ...]:
        """All claims of the cluster.

        Raises:
            NotSynced: too early to tell.
        """

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """All classes of the cluster.

        Raises:
            NotSynced: too early to tell.
        """

    def event(self, regarding: Claim | Volume, note: Note) -> None:
        """Write an event; asynchronous, bounded, rate-limited."""

    def every(self, name: str, seconds: float, job: Callable[[], object]) -> None:
        """Run ``job`` again and again, ``seconds`` apart, while this process serves the plugin's names.

        It begins once the caches are filled, and runs in a thread of its own, apart from the hooks' pool; an exception
        is logged and the job goes on. Only in ``configure``.
        """


class CommandContext(Protocol):
    """What the command line offers a plugin's own commands; given to ``commands``. Since 0.1."""

    def settings(self) -> Any:
        """The plugin's settings, read as for a run. Raises ConfigurationError."""

    def cluster(self) -> str:
        """Which cluster the methods below ask, for people: its URL, and where that was found. Makes no request.

        Raises ConfigurationError.
        """

    def volumes(self) -> tuple[Volume, ...]:
        """All volumes, read now from the API server. Raises ApiError, ConfigurationError."""

    def claims(self) -> tuple[Claim, ...]:
        """All claims, read now from the API server. Raises ApiError, ConfigurationError."""

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """All classes, read now from the API server. Raises ApiError, ConfigurationError."""


class HookSpecs:
    """The hooks, in the order in which they are called."""

    @hookspec(firstresult=True)
    def settings_type(self) -> type[Any] | None:
        """The plugin's typed settings.

        Each plugin is asked once, at start, before anything else; 10 s limit.

        Returns:
            A ``msgspec.Struct`` type whose fields are the settings. A field ``mount`` of plugin ``nfs_subdir`` is
            read from ``PROV_HOST_NFS_SUBDIR_MOUNT``, from ``mount`` in the file's table ``[nfs_subdir]``, or is its
            default. None, or no hook: no settings.

        Since API 1.
        """

    @hookspec(firstresult=True)
    def configure(self, settings: Any, host: HostContext) -> None:
        """Take the settings. Called once, after all were read, before ``provisioners``.

        Must be quick (10 s at most) and must not need the cluster. Touch the storage in ``check``, not here.

        Args:
            settings: an instance of the type from ``settings_type``, or None.
            host: what the host offers; keep it.

        Raises:
            ConfigurationError: with every problem found; the host shows them all together and exits with code 2.

        Since API 1.
        """

    @hookspec(firstresult=True)
    def provisioners(self) -> Sequence[str]:  # type: ignore[empty-body]
        """The provisioner names the plugin owns. Asked once, after ``configure``; 10 s limit.

        Returns:
            Names as in a class's ``provisioner`` field, at least one. Two plugins with one name stop the start.

        Since API 1.
        """

    @hookspec(firstresult=True)
    def default_policy(self) -> str:  # type: ignore[empty-body]
        """The delete policy of classes that choose none: ``"delete"``, ``"archive"`` or ``"retain"``.

        Asked once, after ``provisioners``. Without this hook: ``"archive"`` if the plugin has an ``archive`` hook, else
        ``"delete"``.

        Returns:
            One of :data:`prov_host.POLICIES`; ``"archive"`` only with an ``archive`` hook.

        Since API 1.
        """

    @hookspec(firstresult=True)
    def supports_block(self) -> bool:  # type: ignore[empty-body]
        """Whether claims with ``volumeMode: Block`` can be served. Without this hook: no.

        Called on a thread of the backend's pool for each such claim; 10 s limit.

        Returns:
            True or False.

        Since API 1; the reference controller's BlockProvisioner (provision step P5).
        """

    @hookspec
    def should_provision(self, claim: Claim, storage_class: StorageClass, selected_node: str) -> bool:  # type: ignore[empty-body]
        """Whether this process should provision a claim that is addressed to one of the process's names.

        Every loaded plugin is asked, before each ``provision`` of a claim that nothing was begun for; all must agree.
        If one says no, the claim is left alone, silently, until it changes or is looked at again (``resync-period``).
        Called on a thread of the backend's pool; it must be quick (10 s at most) and must not touch storage, and it
        is asked again and again.

        Args:
            claim: the claim. It may be addressed to another plugin: say yes then, unless it is your business.
            storage_class: its class, as cached; its ``provisioner`` says whose it is.
            selected_node: the node the scheduler chose, or "".

        Returns:
            True or False; anything else is an error.

        Raises:
            Outcome: it cannot be told; the claim is retried with backoff. Any exception counts as this.

        Since API 1; the reference controller's Qualifier, asked later: only about claims addressed to this process.
        """

    @hookspec(firstresult=True)
    def provision(self, request: ProvisionRequest) -> Provisioned:  # type: ignore[empty-body]
        """Make the asset of a volume.

        Called on a thread of the backend's pool, several at once for different volumes, again and again with an equal
        request until it is settled, if need be by another process, even if the claim has vanished meanwhile. Past its
        time limit (``provision-timeout``) it is reported, goes on, and is asked again once it has returned.

        Idempotent for one ``request.pv_name``: called again after a crash, a time-out or a failed save it answers with
        the same asset.

        Args:
            request: what to make; a private copy.

        Returns:
            What was made; the host builds and saves the PersistentVolume.

        Raises:
            ProvisionError: failed for good this time; nothing is left behind.
            Infeasible: the parameters cannot work; nothing is left behind.
            InBackground: still working; call again. Any other exception, and a wrong answer, counts as this.
            NoChange: could not find out; whatever the previous answer was still holds.
            Reschedule: this node cannot hold it; nothing is running and nothing is left behind.
            Ignored: leave the claim alone; nothing is left behind.

        Since API 1; the reference controller's Provision (provision step P10).
        """

    @hookspec
    def should_delete(self, volume: Volume) -> bool:  # type: ignore[empty-body]
        """Whether a released volume of this process's names may be deleted, archived or retained now.

        Every loaded plugin is asked, before each try; all must agree. If one says no, the volume is left alone,
        silently, until it changes or is looked at again (``resync-period``). Called on a thread of the backend's pool;
        it must be quick (10 s at most) and must not touch storage, and it is asked again and again.

        Args:
            volume: the volume, as read from the API just now. It may be another plugin's: say yes then, unless it is
                your business.

        Returns:
            True or False; anything else is an error.

        Raises:
            VolumeInUse: not yet; an event says so, and it is retried with backoff.
            Outcome: it cannot be told; retried with backoff. Any exception counts as this.

        Since API 1; the reference controller's DeletionGuard.
        """

    @hookspec(firstresult=True)
    def delete(self, volume: Volume) -> Removed | None:
        """Remove the asset of a volume for good.

        Called on a thread of the backend's pool, several at once for different volumes, until it succeeds. Also called
        to undo a provisioning whose volume could not be saved: then ``volume`` is what would have been saved. Past its
        time limit (``deletion-timeout``) it is reported, goes on, and is asked again once it has returned.

        Idempotent: a missing asset is success, once the storage is proved to be the right one.

        Args:
            volume: the volume, as read from the API just now; a private copy. What it says of itself (source, labels,
                record) is text that somebody may have written: prove that an asset is this volume's before removing it.

        Returns:
            What was done, or None.

        Raises:
            DeleteError: failed; retried with backoff. Any other exception counts as this.
            VolumeInUse: still attached; retried with backoff, and no failure.
            Ignored: leave volume and asset alone, for good.

        Since API 1; the reference controller's Delete (delete step D1).
        """

    @hookspec(firstresult=True)
    def archive(self, volume: Volume) -> Removed | None:
        """Put the asset of a volume aside so that it can be restored.

        Optional: without this hook, classes that ask for archiving are refused at provision time. Called instead of
        ``delete``, on the same threads, with the same limit.

        Idempotent: what is archived already is success, and nothing that was archived before is overwritten.

        Args:
            volume: as for ``delete``.

        Returns:
            What was done, with ``path`` where the data is now, or None.

        Raises:
            DeleteError: as from ``delete``, and so are the others.
            VolumeInUse: as from ``delete``.
            Ignored: as from ``delete``.

        Since API 1.
        """

    @hookspec(firstresult=True)
    def check(self) -> Sequence[str] | None:
        """Readiness: whether the storage is there and is the right one.

        Called every few seconds, once the caches are filled and on a standby too, on a thread of its own; 5 s limit.
        It must not change anything on the storage.

        Returns:
            What is wrong, a sentence each; nothing or an empty sequence when all is well.

        Raises:
            Exception: counts as wrong too.

        Since API 1.
        """

    @hookspec(firstresult=True)
    def inventory(self) -> Iterable[Asset]:  # type: ignore[empty-body]
        """What exists on the storage, for reports of orphans and for the contract suite.

        May be slow; called outside the pool, on any thread, also while other hooks run.

        Returns:
            Each asset once: volumes, archives, trash, and what nobody knows.

        Raises:
            Exception: the storage cannot be looked at; the report says so.

        Since API 1.
        """

    @hookspec
    def observe(self, record: Record) -> None:
        """Told of each finished operation of any backend, after it.

        Called on a thread of the plugin's own, one record after another; a plugin that does not keep up loses records,
        which is counted. It holds nothing up.

        Args:
            record: what was done, to which volume, with what outcome; a private copy.

        Raises:
            Exception: is logged only.

        Since API 1.
        """

    @hookspec
    def commands(self, group: click.Group, context: CommandContext) -> None:
        """Add commands to ``prov-host``.

        Called once, on the main thread's behalf, when the command line needs them, without ``configure``; 10 s limit.

        Args:
            group: where to add them.
            context: what the commands can use when they are run.

        Since API 1.
        """

    @hookspec(firstresult=True)
    def close(self) -> None:
        """End what the plugin started: threads, connections.

        Called once when the host stops, after the last hook has returned or was given up; a few seconds limit.

        Raises:
            Exception: is logged only.

        Since API 1.
        """
