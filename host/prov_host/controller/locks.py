"""One operation at a time per volume name, across the claim path, the volume path and the saving of volumes.

A claim that is provisioned anew while its former volume is still being deleted is how this kind of controller loses
data: both work on the asset of one name. (Reference controller's users, external-provisioner #1469.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["KeyLocks"]


class KeyLocks:
    """Locks by name that exist only while somebody holds or wants them.

    Shared by all controllers of a process. Belongs to the event loop. Since 0.1.
    """

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def held(self, name: str) -> bool:
        """Whether somebody holds or waits for the lock of ``name``."""
        return name in self._locks

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of ``name``; first come, first served."""
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)
