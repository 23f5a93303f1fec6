"""Claims that cannot work as they are, and until when they are left alone.

Hammering a backend with parameters it has refused helps nobody; the class changing or being re-created may. (Reference
controller, "slow set"; unlike there, the option for its length counts, and a pass that is skipped is no failure.)
"""

from __future__ import annotations

import msgspec

from prov_host.clock import Clock
from prov_host.model import ObjectMeta, StorageClass

__all__ = ["SlowSet"]


class SlowSet:
    """Uids of claims, each with the class that did not work and the end of its delay.

    Args:
        clock: the host's.
        retention: seconds of the delay.

    Belongs to the event loop. Since 0.1.
    """

    def __init__(self, clock: Clock, retention: float) -> None:
        self._clock = clock
        self.retention = retention
        self._entries: dict[str, tuple[float, StorageClass]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def add(self, uid: str, storage_class: StorageClass) -> None:
        """Leave a claim alone from now on; a delay that runs already is not made longer."""
        self._entries.setdefault(uid, (self._clock.monotonic() + self.retention, _essence(storage_class)))

    def remaining(self, uid: str, storage_class: StorageClass | None) -> float:
        """Seconds for which the claim is left alone; 0 if it is not, or if its class is another now."""
        entry = self._entries.get(uid)
        if entry is None or storage_class is None:
            return 0.0
        until, refused = entry
        left = until - self._clock.monotonic()
        if left <= 0 or _essence(storage_class) != refused:
            del self._entries[uid]
            return 0.0
        return left

    def forget(self, uid: str) -> None:
        """The claim is gone."""
        self._entries.pop(uid, None)


def _essence(storage_class: StorageClass) -> StorageClass:
    """The class without what changes when nothing does."""
    return msgspec.structs.replace(storage_class, metadata=ObjectMeta(uid=storage_class.uid))
