"""What the controller needs of a backend; :mod:`prov_host.plugins` implements it over the plugin's hooks.

The methods run a hook in the backend's own thread pool with the backend's time limit and rate limit, for one key (a
volume name) at a time, and hand the plugin private copies. Whatever a hook does, only the exceptions below come out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from prov_host.errors import ProvHostError
from prov_host.model import Claim, Provisioned, ProvisionRequest, Record, Removed, StorageClass, Volume

__all__ = ["Backend", "Withdrawn"]


class Withdrawn(ProvHostError):
    """What was to be done is not wanted any more, and was not begun. Only the host raises it. Since 0.1."""


class Backend(Protocol):
    """One plugin that owns provisioner names. All methods are called on the event loop."""

    @property
    def plugin(self) -> str:
        """The plugin's name, as in ``--plugin``."""

    @property
    def supports_archive(self) -> bool:
        """Whether the plugin has an ``archive`` hook."""

    @property
    def default_policy(self) -> str:
        """The policy of classes that do not choose one."""

    async def provision(self, request: ProvisionRequest, *, timeout: float | None = None) -> Provisioned:
        """Run the ``provision`` hook.

        Args:
            request: what to make.
            timeout: seconds to wait at most; None means the backend's own limit. The smaller one counts.

        Raises:
            Outcome: what the plugin raised on purpose; an unknown exception or a broken promise (nothing returned,
                a wrong type) comes out as :exc:`~prov_host.errors.InBackground` that says what was wrong;
                :exc:`~prov_host.errors.HookTimeout` past the deadline, or while an earlier call for the same volume
                has not returned yet.
        """

    async def delete(
        self, volume: Volume, *, timeout: float | None = None, still: Callable[[], bool] | None = None
    ) -> Removed:
        """Run the ``delete`` hook.

        Args:
            volume: whose asset is to go.
            timeout: as in :meth:`provision`.
            still: asked on the hook's thread right before the hook runs, after every wait (for the rate limit, a
                thread, an earlier call): whether the volume is still to be handled so. Must not block.

        Raises:
            Withdrawn: ``still`` said no; the hook was not called.
            Outcome: :exc:`~prov_host.errors.Ignored`, :exc:`~prov_host.errors.VolumeInUse`, or
                :exc:`~prov_host.errors.DeleteError` for everything else; HookTimeout as in :meth:`provision`.
        """

    async def archive(
        self, volume: Volume, *, timeout: float | None = None, still: Callable[[], bool] | None = None
    ) -> Removed:
        """Run the ``archive`` hook; everything else as in :meth:`delete`."""

    async def should_provision(self, claim: Claim, storage_class: StorageClass) -> bool:
        """Ask every plugin's ``should_provision``; all must agree.

        Raises:
            Outcome: a hook failed (ProvisionError), or is past its deadline (HookTimeout).
        """

    async def should_delete(self, volume: Volume) -> bool:
        """Ask every plugin's ``should_delete``; all must agree. Raises as :meth:`delete`."""

    async def supports_block(self) -> bool:
        """Ask the owner's ``supports_block``; False without the hook. Raises ProvisionError if the hook fails."""

    def observe(self, record: Record) -> None:
        """Tell every plugin's ``observe``, later, in the pool; never raises, never waits."""

    def on_return(self, wake: Callable[[str], None]) -> None:
        """Call ``wake(volume name)``, on the loop, whenever a hook that was given up for late has returned."""
