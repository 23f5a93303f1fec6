"""What hostpath tells of its base directories, for dashboards and alerts."""

from __future__ import annotations

from prov_host import HostContext

from .storage import Room

__all__ = ["Metrics"]


class Metrics:
    """Gauges by base directory. Callable from any thread. Since 0.1.

    Args:
        host: where they are registered.
    """

    def __init__(self, host: HostContext) -> None:
        # Imported by a running host only: listing plugins must not pay for it.
        from prometheus_client import Gauge  # noqa: PLC0415

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"prov_host_hostpath_{name}", text, ("directory",), registry=host.registry)

        self._available = gauge("available_bytes", "What the next volume in a base directory may ask for at most.")
        self._free = gauge("free_bytes", "Free space of a base directory's file system, less the reserve.")
        self._volumes = gauge("volumes", "Volumes in a base directory.")

    def measured(self, directory: str, room: Room, volumes: int) -> None:
        """Note what was found.

        Args:
            directory: the base directory, as this process sees it.
            room: how much it can take.
            volumes: how many it has.
        """
        self._available.labels(directory).set(room.available)
        self._free.labels(directory).set(room.free)
        self._volumes.labels(directory).set(volumes)
