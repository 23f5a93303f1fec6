"""Where a volume's directory is, going by its source alone: which export, and which path below its root.

A volume's source cannot be changed once it is saved, so its path may begin with an earlier value of the export's path
(``historical_paths``). All of them lead to the same root, therefore volumes are compared by their path *below* it. A
source that is not strictly below a configured root of the right server is nobody's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from prov_host import DeleteError, Volume
from prov_host.safedir import UnsafeName, normalize_absolute, overlaps, relative_parts
from prov_host_nfs_subdir.paths import PathIndex
from prov_host_nfs_subdir.settings import Export, same_server
from prov_host_nfs_subdir.share import Evidence

__all__ = [
    "RECORD_ANNOTATIONS",
    "Use",
    "evidence",
    "has_lost_record",
    "is_ours",
    "locate",
    "parts_in",
    "provisioned_by",
    "users",
]

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
RECORD_ANNOTATIONS = ("prov-host/record", "prov-host/plugin", "prov-host/on-delete")
"""A volume with any of these was made by this program, even if its record is unreadable."""


@dataclass(frozen=True, slots=True)
class Use:
    """A volume and its directory below an export's root. Since 0.1."""

    volume: Volume
    parts: tuple[str, ...]


def provisioned_by(volume: Volume) -> str:
    """The provisioner name a volume was made under, or ""."""
    return volume.annotations.get(PROVISIONED_BY, "")


def is_ours(volume: Volume) -> bool:
    """Whether this program made the volume."""
    return any(name in volume.annotations for name in RECORD_ANNOTATIONS)


def has_lost_record(volume: Volume) -> bool:
    """Whether this program made the volume, but what the volume says of itself (``prov-host/record``) is gone."""
    return is_ours(volume) and not volume.record.get("path")


@lru_cache(maxsize=65536)
def _below(path: str, roots: tuple[str, ...]) -> tuple[str, ...] | None:
    try:
        normal = normalize_absolute(path)
    except UnsafeName:
        return None
    for root in roots:
        parts = relative_parts(normal, root)
        if parts is not None:
            return parts
    return None


@lru_cache(maxsize=65536)
def _parts(server: str, path: str, servers: frozenset[str], roots: tuple[str, ...]) -> tuple[str, ...] | None:
    """Remembered, because every operation asks it for every volume of the cluster."""
    return _below(path, roots) if same_server(server) in servers else None


def _source(volume: Volume) -> tuple[str, str] | None:
    """Server and path of an NFS volume; None for any other, and for nonsense."""
    nfs = volume.spec.nfs
    if nfs is None:
        return None
    server, path = nfs.get("server"), nfs.get("path")
    return (server, path) if isinstance(server, str) and isinstance(path, str) else None


def parts_in(export: Export, volume: Volume) -> tuple[str, ...] | None:
    """A volume's directory below an export's root.

    Args:
        export: the export.
        volume: any volume.

    Returns:
        Its names, ``()`` if it is the root itself, None if it is elsewhere.

    Callable from any thread. Since 0.1.
    """
    source = _source(volume)
    return None if source is None else _parts(*source, export.servers, export.roots)


def users(
    export: Export, volumes: Iterable[Volume], parts: tuple[str, ...], but: str, *, spelled_alike: bool = False
) -> list[Use]:
    """The volumes whose directory is this one, is inside it, or has it inside.

    A volume of the whole export (which some charts make for the provisioner itself) does not count.

    Args:
        export: the export.
        volumes: all volumes of the cluster; the same objects again, as the host's cache holds them, cost little.
        parts: the directory.
        but: the name of the volume that asks.
        spelled_alike: also volumes whose path is only spelled so, for a server that ignores case.

    Returns:
        The others.

    Callable from any thread. Since 0.1.
    """
    found = _index(export.servers, export.roots).overlapping(volumes, parts)
    return [use for use in found if use.volume.name != but and (spelled_alike or overlaps(use.parts, parts))]


class _Index:
    """Volumes by directory. Asked by every operation, with nearly the same thousands of volumes each time.

    Cached objects are frozen and keep their identity until they change, so only those that came or went since the
    last question are looked at.
    """

    def __init__(self, servers: frozenset[str], roots: tuple[str, ...]) -> None:
        self._servers = servers
        self._roots = roots
        self._lock = threading.Lock()
        # The volume is kept too: while it is, nothing else gets its id.
        self._seen: dict[int, tuple[Volume, Use | None]] = {}
        self._paths: PathIndex[int] = PathIndex()

    def overlapping(self, volumes: Iterable[Volume], parts: tuple[str, ...]) -> list[Use]:
        """The volumes at, inside and around a directory, in whatever spelling."""
        current = {id(volume): volume for volume in volumes}
        with self._lock:
            for key in self._seen.keys() - current.keys():
                self._drop(key)
            for key in current.keys() - self._seen.keys():
                self._add(key, current[key])
            return [use for key in self._paths.overlapping(parts) if (use := self._seen[key][1])]

    def _add(self, key: int, volume: Volume) -> None:
        source = _source(volume)
        parts = None if source is None else _parts(*source, self._servers, self._roots)
        self._seen[key] = (volume, Use(volume, parts) if parts else None)
        if parts:
            self._paths.add(key, parts)

    def _drop(self, key: int) -> None:
        _volume, use = self._seen.pop(key)
        if use is not None:
            self._paths.drop(key, use.parts)


@lru_cache(maxsize=64)
def _index(servers: frozenset[str], roots: tuple[str, ...]) -> _Index:
    """The index of an export; what it knows depends on nothing but the arguments and the volumes given."""
    return _Index(servers, roots)


def evidence(export: Export, volumes: Iterable[Volume]) -> list[Evidence]:
    """What the cluster's volumes say about an export, for :class:`~prov_host_nfs_subdir.share.Share`."""
    found = []
    for volume in volumes:
        parts = parts_in(export, volume)
        if parts and (is_ours(volume) or provisioned_by(volume) in export.provisioners):
            found.append(Evidence(volume.name, volume.record.get("root", ""), parts))
    return found


def locate(exports: Sequence[Export], volume: Volume) -> tuple[Export, tuple[str, ...]]:
    """The export a volume is on, and its directory there.

    Args:
        exports: all of them.
        volume: a volume to be deleted or archived; hostile.

    Returns:
        The export and at least one name.

    Raises:
        DeleteError: it is on none of them; says what the volume has and what is configured.
    """
    source = _source(volume)
    if source is None:
        raise DeleteError(
            f"volume {volume.name} has no NFS source, so there is nothing here to remove; nothing was touched"
        )
    server, path = source
    on_server = [export for export in exports if same_server(server) in export.servers]
    if not on_server:
        known = ", ".join(sorted({export.server for export in exports}))
        raise DeleteError(
            f"volume {volume.name} is on the server {server!r}, but configured are {known}; add it to the export's "
            "`server_aliases` if it is the same server. Nothing was touched"
        )
    # The record names the export; else the deepest root wins, and among equals the one that serves its provisioner.
    wanted = volume.record.get("export", "")
    matches = []
    for export in on_server:
        parts = _below(path, export.roots)
        if parts is not None:
            matches.append(
                (export.name == wanted, provisioned_by(volume) in export.provisioners, -len(parts), export, parts)
            )
    if not matches:
        known = ", ".join(sorted({root for export in on_server for root in export.roots}))
        raise DeleteError(
            f"volume {volume.name}: its path {path!r} is not inside any export of {server} that is configured "
            f"({known}); add its beginning to the export's `historical_paths` if the export moved. Nothing was touched"
        )
    *_, export, parts = max(matches, key=lambda match: match[:3])
    if not parts:
        raise DeleteError(
            f"volume {volume.name}: its path {path!r} is the whole export, which is never removed; nothing was touched"
        )
    return export, parts
