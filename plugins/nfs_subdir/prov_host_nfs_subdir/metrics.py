"""What the plugin counts and measures, all with a label ``export``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["Metrics"]

_PREFIX = "prov_host_nfs_subdir_"


class Metrics:
    """The plugin's metrics on one registry. Any thread. Since 0.1.

    Attributes:
        ready: 1 if the export's share is there and the right one.
        free_bytes: free on the share.
        size_bytes: size of the share.
        promised_bytes: sizes of all volumes together, those being saved included.
        archives: how many there are.
        archives_in_doubt: archives that do not expire because the clocks contradict each other.
        archives_expired: archives removed because their time was over.
        removed_files: files and directories of deleted volumes that were removed.
        removal_failures: those that could not be removed, each time it was tried.
        used_bytes: by volume.
        used_files: by volume.
        measured: when the usage of all volumes was measured last, in seconds since 1970.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(_PREFIX + name, text, ("export", *labels), registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(_PREFIX + name, text, ("export",), registry=registry)

        volume = ("persistentvolume", "namespace", "persistentvolumeclaim")
        self.ready = gauge("export_ready", "Whether the export's share is there and is the right one.")
        self.free_bytes = gauge("export_free_bytes", "Free bytes on the share, as its file system tells.")
        self.size_bytes = gauge("export_size_bytes", "Size of the share in bytes, as its file system tells.")
        self.promised_bytes = gauge("export_promised_bytes", "Sizes of all volumes on the export together.")
        self.archives = gauge("archives", "Archives on the export.")
        self.archives_in_doubt = gauge(
            "archives_in_doubt", "Archives that do not expire because clocks or times contradict each other."
        )
        self.archives_expired = counter("archives_expired_total", "Archives removed because their time was over.")
        self.removed_files = counter("removed_files_total", "Files and directories of deleted volumes removed.")
        self.removal_failures = counter("removal_failures_total", "Files and directories that could not be removed.")
        self.used_bytes = gauge("volume_used_bytes", "Bytes a volume's files take on the share.", *volume)
        self.used_files = gauge("volume_used_files", "Files and directories in a volume.", *volume)
        self.measured = gauge("usage_measured_timestamp_seconds", "When usage was measured last.")
