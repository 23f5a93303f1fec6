"""The caches that one process shares, and what plugins see of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from prov_host.controller import Controller
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES, EventSink
from prov_host.kube.store import Store
from prov_host.model import Claim, StorageClass, Volume

__all__ = ["PluginWorld", "Stores"]


class Stores(msgspec.Struct, frozen=True):
    """One cache for each kind. Since 0.1."""

    claims: Store[Claim]
    volumes: Store[Volume]
    classes: Store[StorageClass]

    @classmethod
    def empty(cls) -> Stores:
        """Not filled yet."""
        return cls(Store(CLAIMS), Store(VOLUMES), Store(CLASSES))


class PluginWorld:
    """What a plugin's context is attached to: :class:`prov_host.context.World`.

    Args:
        stores: the caches.
        events: where the plugin's events go.
        controllers: all of the process, for the volumes that they are saving.
        synced: whether the caches have been filled.

    Callable from any thread. Since 0.1.
    """

    def __init__(
        self, stores: Stores, events: EventSink, controllers: Sequence[Controller], synced: Callable[[], bool]
    ) -> None:
        self.claims = stores.claims
        self.volumes = stores.volumes
        self.classes = stores.classes
        self.events = events
        self._controllers = tuple(controllers)
        self._synced = synced

    @property
    def synced(self) -> bool:
        """Whether all caches have been filled."""
        return self._synced()

    def being_saved(self) -> list[Volume]:
        """Volumes that were made and are not in the cache yet."""
        return [volume for controller in self._controllers for volume in controller.unsaved_volumes()]
