"""How much the volumes of an export were promised together, kept up to date instead of added up.

Every provisioning asks for the sum, with nearly the same thousands of volumes each time. Cached objects are frozen and
keep their identity until they change, so only those that came or went since the last question are looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from prov_host import Volume, parse_bytes
from prov_host_nfs_subdir.locating import is_ours, parts_in, provisioned_by
from prov_host_nfs_subdir.settings import Export

__all__ = ["Ledger", "capacity_of"]

_Parts = tuple[str, ...]


def capacity_of(volume: Volume) -> int:
    """A volume's size in bytes; 0 if it has none, or none that can be read."""
    try:
        return parse_bytes(str((volume.spec.capacity or {}).get("storage", "0")))
    except ValueError:
        return 0


class Ledger:
    """The sizes of an export's volumes. Any thread; since 0.1.

    Args:
        export: the export.
    """

    def __init__(self, export: Export) -> None:
        self._export = export
        self._lock = threading.Lock()
        # The volume is kept too: while it is, nothing else gets its id.
        self._seen: dict[int, tuple[Volume, _Parts | None]] = {}
        self._at: dict[_Parts, dict[str, int]] = {}
        self._paths: dict[str, _Parts] = {}
        self._total = 0

    def total(
        self, volumes: Iterable[Volume], more: Mapping[str, tuple[_Parts, int]] | None = None, *, but: str = ""
    ) -> int:
        """The sizes together; volumes that share a directory count once, with the largest.

        Args:
            volumes: all volumes of the cluster; the same objects again cost little.
            more: path and size of volumes that are not among them yet, by name.
            but: a volume that does not count.

        Returns:
            The sum in bytes.
        """
        current = {id(volume): volume for volume in volumes}
        extra: dict[_Parts, dict[str, int]] = {}
        for pv, (parts, size) in (more or {}).items():
            extra.setdefault(parts, {})[pv] = size
        with self._lock:
            for key in self._seen.keys() - current.keys():
                self._drop(key)
            for key in current.keys() - self._seen.keys():
                self._add(key, current[key])
            total = self._total
            for parts in extra.keys() | ({self._paths[but]} if but in self._paths else set()):
                saved = self._at.get(parts, {})
                sizes = {**extra.get(parts, {}), **saved}
                sizes.pop(but, None)
                total += max(sizes.values(), default=0) - max(saved.values(), default=0)
            return total

    def _add(self, key: int, volume: Volume) -> None:
        parts = parts_in(self._export, volume)
        if not parts or not (is_ours(volume) or provisioned_by(volume) in self._export.provisioners):
            self._seen[key] = (volume, None)
            return
        self._seen[key] = (volume, parts)
        self._paths[volume.name] = parts
        self._change(parts, volume.name, capacity_of(volume))

    def _drop(self, key: int) -> None:
        volume, parts = self._seen.pop(key)
        if parts:
            del self._paths[volume.name]
            self._change(parts, volume.name, None)

    def _change(self, parts: _Parts, pv: str, size: int | None) -> None:
        sizes = self._at.setdefault(parts, {})
        before = max(sizes.values(), default=0)
        if size is None:
            sizes.pop(pv, None)
        else:
            sizes[pv] = size
        self._total += max(sizes.values(), default=0) - before
        if not sizes:
            del self._at[parts]
