"""Volumes whose source leads to no configured export, though they may well use directories on one.

A server has several names, and an export moves. Whoever forgets to list the other name (``server_aliases``) or the
earlier path (``historical_paths``) has live volumes that this program does not recognize, and whose directories look
as if nobody used them. So a directory counts as possibly used if the path of such a volume ends in it, or leads
through it or out of it; that is a guess on the safe side. Volumes of the CSI driver for NFS name their directory in
attributes and count the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prov_host import Volume
from prov_host_nfs_subdir.locating import is_ours, parts_in, provisioned_by
from prov_host_nfs_subdir.settings import Export

__all__ = ["Unmatched", "UnmatchedVolumes"]


@dataclass(frozen=True, slots=True)
class Unmatched:
    """One volume that is on none of the exports. Since 0.1.

    Attributes:
        volume: the volume.
        source: its server and path, for people.
        ours: whether it is one of this program's provisioner names.
    """

    volume: Volume
    source: str
    ours: bool

    @property
    def remark(self) -> str:
        """What is wrong and what to do."""
        if not self.source:
            return "has no NFS source"
        return "in no configured export: if it is this share, add to server_aliases or historical_paths"


class UnmatchedVolumes:
    """All such volumes of a cluster. Any thread; since 0.1.

    Args:
        exports: all configured exports.
        volumes: all volumes of the cluster.
    """

    def __init__(self, exports: Sequence[Export], volumes: Iterable[Volume]) -> None:
        names = {name for export in exports for name in export.provisioners}
        self.all: list[Unmatched] = []
        # By each name in their paths, and by the last one: linear in what hostile paths hold.
        self._with: dict[str, list[tuple[str, Unmatched]]] = {}
        self._last: dict[str, list[tuple[str, Unmatched]]] = {}
        for volume in volumes:
            ours = provisioned_by(volume) in names
            source = _source(volume)
            if (source is None and not ours) or any(parts_in(export, volume) is not None for export in exports):
                continue
            server, path = source or ("", "")
            one = Unmatched(volume, f"{server}:{path}" if source else "", ours)
            self.all.append(one)
            self._remember(one, path)
            if is_ours(volume):
                self._remember(one, volume.record.get("path", ""))

    def _remember(self, one: Unmatched, path: str) -> None:
        names = [name for name in path.split("/") if name not in {"", "."}]
        text = f"/{'/'.join(names)}/"
        for name in set(names):
            self._with.setdefault(name, []).append((text, one))
        if names:
            self._last.setdefault(names[-1], []).append((text, one))

    def ours(self) -> list[Unmatched]:
        """Those of this program's provisioner names."""
        return [one for one in self.all if one.ours]

    def perhaps_at(self, parts: tuple[str, ...]) -> Unmatched | None:
        """A volume that may use a directory, one inside it, or one around it; None if there is none."""
        inside = f"/{'/'.join(parts)}/"
        for text, one in self._with.get(parts[-1], ()):
            if inside in text:
                return one
        for depth in range(1, len(parts)):
            around = f"/{'/'.join(parts[:depth])}/"
            for text, one in self._last.get(parts[depth - 1], ()):
                if text.endswith(around):
                    return one
        return None


def _source(volume: Volume) -> tuple[str, str] | None:
    """Server and path, also of volumes of the CSI driver; None for any other."""
    if (nfs := volume.spec.nfs) is not None:
        server, path = nfs.get("server"), nfs.get("path")
    elif isinstance(attributes := (volume.spec.csi or {}).get("volumeAttributes"), Mapping):
        server, path = attributes.get("server"), attributes.get("share")
        below = attributes.get("subdir") or attributes.get("subDir") or ""
        path = f"{path}/{below}" if isinstance(path, str) and isinstance(below, str) else path
    else:
        return None
    return (server, path) if isinstance(server, str) and isinstance(path, str) else None
