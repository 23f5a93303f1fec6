"""What the controller needs of the API: typed operations, caches and events, as protocols.

:mod:`prov_host.kube.client` implements :class:`Api` over a transport, :mod:`prov_host.kube.store` and
:mod:`prov_host.kube.reflector` implement :class:`Cache`, :mod:`prov_host.kube.events` implements :class:`EventSink`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from prov_host.model import Claim, ObjectReference, StorageClass, Volume

__all__ = ["CLAIMS", "CLASSES", "VOLUMES", "Api", "Cache", "EventSink", "Handler", "PatchKind", "Resource"]

T = TypeVar("T", bound=msgspec.Struct)
T_contra = TypeVar("T_contra", bound=msgspec.Struct, contravariant=True)
PatchKind = Literal["strategic", "merge", "json"]


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A kind of object and where it lives.

    Attributes:
        type: the Struct it is decoded into.
        group: API group, "" for the core.
        version: for example ``v1``.
        plural: for example ``persistentvolumeclaims``.
        kind: for example ``PersistentVolumeClaim``.
        namespaced: False for cluster-scoped kinds.
    """

    type: type[T]
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version


CLAIMS = Resource(Claim, "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True)
VOLUMES = Resource(Volume, "", "v1", "persistentvolumes", "PersistentVolume", False)
CLASSES = Resource(StorageClass, "storage.k8s.io", "v1", "storageclasses", "StorageClass", False)


class Api(Protocol):
    """Typed operations on single objects, on the event loop.

    Every method raises the :exc:`~prov_host.errors.ApiError` subclass that fits the answer (its tree is in
    :mod:`prov_host.errors`), after waiting for the client-side rate limit. ``timeout`` is in seconds.
    """

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "", timeout: float = 30.0) -> T:
        """Read one object, live."""

    async def create(
        self, resource: Resource[T], body: Mapping[str, Any], *, namespace: str = "", timeout: float = 30.0
    ) -> T:
        """Create an object from its JSON form."""

    async def update(
        self, resource: Resource[T], body: Mapping[str, Any], *, namespace: str = "", timeout: float = 30.0
    ) -> T:
        """Replace an object by its JSON form (which holds its name, and a resourceVersion to be conflict-checked)."""

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Any,
        *,
        kind: PatchKind = "strategic",
        namespace: str = "",
        timeout: float = 30.0,
    ) -> T:
        """Patch an object; ``body`` is a mapping, or a list of operations for ``kind="json"``."""

    async def delete(
        self, resource: Resource[T], name: str, *, namespace: str = "", uid: str = "", timeout: float = 30.0
    ) -> None:
        """Delete an object; with ``uid``, only if it is still that one (else :exc:`~prov_host.errors.Conflict`)."""


class Handler(Protocol[T_contra]):
    """What a cache tells its subscribers, on the event loop, in order; must not block and must not raise."""

    def added(self, obj: T_contra) -> None:
        """An object appeared (or was there when the handler subscribed)."""

    def updated(self, old: T_contra, new: T_contra) -> None:
        """An object changed, or a resync replays it (``old is new``)."""

    def deleted(self, last: T_contra) -> None:
        """An object vanished; ``last`` is what the cache knew of it."""


class Cache(Protocol[T]):
    """What the API server holds of one kind, as far as the watch has told. Read-only, Structs are frozen.

    Keys are ``namespace/name``, or ``name`` for cluster-scoped kinds. Reading is safe from any thread.
    """

    def get(self, key: str) -> T | None:
        """The object of that key."""

    def by_uid(self, uid: str) -> T | None:
        """The object of that uid; an object replaced under one name leaves this index at once."""

    def values(self) -> tuple[T, ...]:
        """All objects, in no particular order; a snapshot."""

    def subscribe(self, handler: Handler[T]) -> Callable[[], None]:
        """Tell ``handler`` of everything from now on, starting with what is there; returns the undo."""

    def replace_if_unchanged(self, old: T, new: T) -> bool:
        """Put ``new`` in the place of ``old`` unless the watch has brought another meanwhile.

        Only for the answer of our own write that the next read must see (a removed selected-node annotation).
        """

    def wait_synced(self) -> Awaitable[None]:
        """Return once the first list is in."""


class EventSink(Protocol):
    """Where events go. Never blocks, never raises; callable from any thread."""

    def emit(self, regarding: Claim | Volume | ObjectReference, *, type: str, reason: str, message: str) -> None:
        """Record an event.

        Args:
            regarding: the claim, the volume, or a reference to anything else (a Lease).
            type: ``"Normal"`` or ``"Warning"``.
            reason: CamelCase.
            message: for people; cut at 1024 bytes.
        """
