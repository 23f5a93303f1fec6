"""What a report of orphans is made of: findings, and the picture they are found in.

How far a finding may be acted on is part of it. What is proved to be nobody's any more is acted on with the rest of
the list; what may be somebody's only when its path is given expressly; what is, or looks like, somebody's never.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from prov_host import Volume
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.locating import parts_in
from prov_host_nfs_subdir.records import Owner
from prov_host_nfs_subdir.share import OpenShare
from prov_host_nfs_subdir.unmatched import UnmatchedVolumes

__all__ = ["LISTED", "NAMED", "NEVER", "Finding", "Picture", "inode_at", "is_young"]

NEVER = ""
NAMED = "named"
LISTED = "listed"
YOUNG = 600
"""Seconds in which a directory without a volume is taken for one whose volume is being saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that does not fit. Since 0.1.

    Attributes:
        kind: ``no-volume``, ``retained``, ``other-cluster``, ``other-provisioner``, ``unsaved``,
            ``unknown-directory``, ``restored``, ``other-share``, ``in-doubt``, ``empty-parent``, ``no-directory``,
            ``unrecorded``, ``replaced``, ``lost-record``, ``contradiction``, ``overlap``, ``no-export``, ``trash``,
            ``staged``, ``stale-record``, ``archive-without-directory`` or ``unreadable``.
        path: where, relative to the root.
        detail: what about it.
        pv: the volume, or "".
        claim: its claim, or "".
        archive: whether the directory may be archived: with the rest of the list (``listed``), only when it is named
            (``named``), or not at all ("").
        adopt: the same, for writing the ownership record of a live volume.
    """

    kind: str
    path: str
    detail: str
    pv: str = ""
    claim: str = ""
    archive: str = NEVER
    adopt: str = NEVER

    def allows(self, action: str) -> str:
        """How far an action is allowed: ``archive`` or ``adopt``."""
        return self.archive if action == "archive" else self.adopt


@dataclass(frozen=True, slots=True)
class Picture:
    """The cluster's volumes and a share's records, side by side.

    Attributes:
        work: the export.
        share: its open share.
        cluster: all volumes of the cluster, read before the share.
        elsewhere: volumes that are on none of the configured exports.
        here: those that are on this one, with their directories, by name.
        at: their names, by directory.
        waiting: uids of all claims.
        owners: the ownership records, by volume.
    """

    work: ExportAtWork
    share: OpenShare
    cluster: frozenset[str]
    elsewhere: UnmatchedVolumes
    here: dict[str, tuple[Volume, tuple[str, ...]]]
    at: dict[tuple[str, ...], str]
    waiting: frozenset[str]
    owners: dict[str, Owner]

    @classmethod
    def of(
        cls,
        work: ExportAtWork,
        share: OpenShare,
        volumes: Sequence[Volume],
        elsewhere: UnmatchedVolumes,
        owners: dict[str, Owner],
    ) -> Picture:
        """Put it together."""
        here = {volume.name: (volume, parts) for volume in volumes if (parts := parts_in(work.export, volume))}
        return cls(
            work,
            share,
            cluster=frozenset(volume.name for volume in volumes),
            elsewhere=elsewhere,
            here=here,
            at={parts: name for name, (_volume, parts) in here.items()},
            waiting=frozenset(claim.uid for claim in work.host.claims() if claim.uid),
            owners=owners,
        )

    def missing(self) -> tuple[list[str], int]:
        """Volumes that the share has in place and the cluster has not; and how many are in place.

        Directories that are kept on purpose, other provisioners' and those just made do not count.
        """
        counted = [
            owner
            for owner in self.owners.values()
            if owner.provisioner in self.work.export.provisioners
            and owner.policy != "retain"
            and not is_young(self.work, owner.created)
            and inode_at(self.share, owner.parts) == owner.inode
        ]
        return sorted(owner.pv for owner in counted if owner.pv not in self.cluster), len(counted)


def inode_at(share: OpenShare, parts: tuple[str, ...]) -> int | None:
    """The inode number of the directory at a path; None if there is none."""
    try:
        with share.root.walk(parts[:-1]) as parent:
            return status.st_ino if (status := parent.lstat(parts[-1])) and parent.is_dir(parts[-1]) else None
    except (OSError, ValueError):
        return None


def is_young(work: ExportAtWork, created: str) -> bool:
    """Whether something was made in the last minutes."""
    try:
        moment = dt.datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        return False
    return (work.host.clock.now() - moment).total_seconds() < YOUNG
