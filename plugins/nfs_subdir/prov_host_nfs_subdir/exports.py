"""One export at work: its share, its records, and who is busy with which path at this moment.

Volumes of one export are made and removed by several threads at once. They never lock each other out while the server
answers slowly; instead each operation reserves its path for as long as it runs (:meth:`ExportAtWork.reserve`), and
another operation on the same path, one inside it or one around it, fails at once and is tried again by the host. A
path stays reserved after its volume was made until the host's cache knows the volume, so there is no moment in which
nobody speaks for it.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prov_host import HostContext, Volume
from prov_host.safedir import Sys, overlaps
from prov_host_nfs_subdir.ledger import Ledger
from prov_host_nfs_subdir.locating import evidence
from prov_host_nfs_subdir.records import Owners
from prov_host_nfs_subdir.settings import Export, NfsSubdirSettings
from prov_host_nfs_subdir.share import Share

__all__ = ["Busy", "ExportAtWork", "Reservation", "stamp"]


class Busy(Exception):
    """Another operation works on the path, or on one inside or around it."""


@dataclass(slots=True)
class Reservation:
    """A path that one operation works on.

    Attributes:
        pv: the volume's name.
        parts: the path below the root.
        keep: set it when the volume was made: the path stays reserved until the host knows the volume.
        running: whether the operation has not ended yet.
        size: bytes that count against the budget from the moment they were granted.
    """

    pv: str
    parts: tuple[str, ...]
    keep: bool = False
    running: bool = True
    size: int = 0


def stamp(moment: dt.datetime) -> str:
    """A moment as records write it: ``2026-01-31T12:00:00Z``."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ExportAtWork:
    """An export with everything that is shared between its operations. Any thread. Since 0.1.

    Attributes:
        export: its settings.
        settings: the plugin's settings.
        host: the host.
        sys: the file system calls.
        share: opens and proves the mount.
        owners: ownership records.
        new_id: makes unique ids.
        ledger: how much the saved volumes were promised.
        granting: held from counting what is promised until one more promise counts.
    """

    def __init__(
        self, export: Export, settings: NfsSubdirSettings, host: HostContext, sys: Sys, new_id: Callable[[], str]
    ) -> None:
        self.export = export
        self.settings = settings
        self.host = host
        self.sys = sys
        self.new_id = new_id
        self.owners = Owners(host.clock.monotonic)
        self.share = Share(
            export,
            sys,
            new_id=new_id,
            now=lambda: stamp(host.clock.now()),
            evidence=lambda: evidence(export, host.volumes()),
        )
        self._lock = threading.Lock()
        self._reserved: dict[str, Reservation] = {}
        self.granting = threading.Lock()
        self.ledger = Ledger(export)
        self._released: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The export's name."""
        return self.export.name

    @contextmanager
    def reserve(self, pv: str, parts: tuple[str, ...], *, sharing: bool = False) -> Iterator[Reservation]:
        """Work on a path, alone.

        Args:
            pv: the volume's name.
            parts: the path below the root.
            sharing: whether volumes that were made at the very same path, and are only not saved yet, do not matter.

        Raises:
            Busy: somebody else works on an overlapping path; the message names the volume.
        """
        mine = Reservation(pv, parts)
        with self._lock:
            for other in self._reserved.values():
                if other.pv == pv or not overlaps(other.parts, parts):
                    continue
                if sharing and not other.running and other.parts == parts:
                    continue
                state = "is being worked on" if other.running else "was made and is being saved"
                raise Busy(f"volume {other.pv} at {self.export.source_path(other.parts)} {state}")
            if pv in self._reserved:
                mine.size = self._reserved[pv].size  # a promise holds until the volume is given up
            self._reserved[pv] = mine
        try:
            yield mine
        finally:
            with self._lock:
                mine.running = False
                if not mine.keep:
                    self._reserved.pop(pv, None)

    def forget_saved(self, known: Iterable[str]) -> None:
        """Stop speaking for volumes that the host knows by now."""
        with self._lock:
            kept = {pv for pv, one in self._reserved.items() if not one.running}
            for pv in kept.intersection(known):
                del self._reserved[pv]

    def promises(self) -> dict[str, tuple[tuple[str, ...], int]]:
        """What was granted to volumes that the host may not know yet: path and bytes, by volume."""
        with self._lock:
            return {pv: (one.parts, one.size) for pv, one in self._reserved.items() if one.size}

    def is_reserved(self, pv: str) -> bool:
        """Whether a volume is being worked on, or was made and is not saved yet."""
        with self._lock:
            return pv in self._reserved

    def released(self, volume: Volume) -> None:
        """Note that a saved volume's directory is not its any more, whatever its object still says."""
        if not volume.uid:
            return
        known = {one.name for one in self.host.volumes()}
        with self._lock:
            self._released = {pv: uid for pv, uid in self._released.items() if pv in known}
            self._released[volume.name] = volume.uid

    def was_released(self, volume: Volume) -> bool:
        """Whether :meth:`released` was told of this very volume; another of that name does not count."""
        with self._lock:
            return bool(volume.uid) and self._released.get(volume.name) == volume.uid

    def kept_at(self, parts: tuple[str, ...], but: str) -> list[str]:
        """Volumes that were made at this very path and are not saved yet."""
        with self._lock:
            return [pv for pv, one in self._reserved.items() if not one.running and one.parts == parts and pv != but]
