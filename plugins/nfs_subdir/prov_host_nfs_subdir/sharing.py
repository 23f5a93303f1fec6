"""Who else has a say about a directory that is to be used or removed.

Two kinds of voices are heard. The volumes of this cluster (:func:`~prov_host_nfs_subdir.locating.users`) count until
this process has taken their directory away (:func:`is_released`): the object in the cluster lives a little longer, and
when two volumes that share a directory are deleted at once, each must not wait for the other for ever. That a volume
has no ownership record says nothing, because records can be lost.

The ownership records on the share (:func:`others_at`) count too, because several clusters may use one share, and each
knows its own volumes only. A record is no longer anybody's only if it was made for a storage class that this cluster
has (no other has that uid), and neither its volume nor its claim is here any more (:func:`is_left_over`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prov_host import Volume
from prov_host.safedir import Dir, NotADirectory, overlaps
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.locating import is_ours, provisioned_by, users
from prov_host_nfs_subdir.records import Owner, UnreadableRecord
from prov_host_nfs_subdir.share import OpenShare

__all__ = [
    "inodes_on_the_way",
    "is_left_over",
    "is_owned",
    "is_released",
    "others_at",
    "same_directory",
    "shares",
    "whose",
]


def is_released(work: ExportAtWork, volume: Volume) -> bool:
    """Whether this process has taken a volume's directory away, or found it gone."""
    return work.was_released(volume)


def shares(work: ExportAtWork, share: OpenShare, volume: Volume) -> bool:
    """Whether a volume shares its directory on purpose.

    Ours do if their class said so; the Go provisioner's always do, because it never looked.
    """
    owner = work.owners.read(share.owners, volume.name)
    if owner is not None:
        return owner.shared or owner.taken_over
    if is_ours(volume):
        return volume.record.get("shared") == "true" or volume.record.get("adopted") == "true"
    return provisioned_by(volume) in work.export.provisioners


def whose(owner: Owner) -> str:
    """An ownership record's volume and claim, for messages."""
    return f"volume {owner.pv} of claim {owner.namespace}/{owner.claim}" if owner.claim else f"volume {owner.pv}"


def others_at(
    work: ExportAtWork, share: OpenShare, parts: tuple[str, ...], *, but: str, fresh: bool = True
) -> tuple[list[Owner], tuple[UnreadableRecord, ...]]:
    """The other ownership records of a directory, of ones inside it and of ones around it.

    Args:
        work: the export.
        share: its open share.
        parts: the directory.
        but: the volume that asks.
        fresh: whether records that another cluster wrote in the last seconds must be among them.

    Returns:
        The records whose place is taken by anything (where nothing is, nothing can be lost), and the records that
        cannot be read, about which nobody knows.
    """
    unreadable = work.owners.look(share.owners, fresh=fresh)
    found = []
    for one in work.owners.overlapping(parts):
        if one.pv == but or not overlaps(one.parts, parts):
            continue
        owner = work.owners.read(share.owners, one.pv)
        if owner is not None and overlaps(owner.parts, parts) and _inode_at(share.root, owner.parts) is not None:
            found.append(owner)
    return sorted(found, key=lambda owner: owner.pv), unreadable


def is_left_over(work: ExportAtWork, owner: Owner, class_uids: Iterable[str] = ()) -> bool:
    """Whether nobody can want the directory of an ownership record any more, except as data to be adopted.

    Args:
        work: the export.
        owner: the record.
        class_uids: uids of classes that this cluster has for certain, beside those in the host's cache.

    Returns:
        True only if it is proved.
    """
    host = work.host
    ours = {one.uid for one in host.storage_classes()} | set(class_uids)
    if not owner.class_uid or owner.class_uid not in ours or work.is_reserved(owner.pv):
        return False
    return all(volume.name != owner.pv for volume in host.volumes()) and all(
        claim.uid != owner.claim_uid for claim in host.claims()
    )


def is_owned(work: ExportAtWork, share: OpenShare, parts: tuple[str, ...]) -> bool:
    """Whether an ownership record says that a directory is a volume's."""
    work.owners.look(share.owners)
    return any(one.parts == parts for one in work.owners.overlapping(parts))


def inodes_on_the_way(root: Dir, parts: Sequence[str]) -> list[int]:
    """The inode numbers of the directories on the way that exist, from the first below the root on.

    Raises:
        NotADirectory: a link or file is on the way.
    """
    found: list[int] = []
    current = root.walk(())
    try:
        for name in parts:
            below = current.child(name, readable=False)
            current.close()
            current = below
            found.append(current.stat().st_ino)
    except FileNotFoundError:
        pass
    finally:
        current.close()
    return found


def same_directory(
    work: ExportAtWork,
    share: OpenShare,
    parts: tuple[str, ...],
    inodes: Sequence[int],
    volumes: Iterable[Volume],
    *,
    but: str,
) -> str:
    """Whether a path leads, by another spelling, to another volume's directory, into one, or to one around it.

    On a share that ignores case or normalizes names, ``data`` may be ``Data``; only the inode number tells.

    Args:
        work: the export.
        share: its open share.
        parts: the path.
        inodes: from :func:`inodes_on_the_way`.
        volumes: all volumes of the cluster.
        but: the volume that asks.

    Returns:
        What it is, for a message, or "".
    """
    work.owners.look(share.owners, fresh=False)
    # Equal spellings are judged by those who know the volume.
    for one in work.owners.with_inodes(inodes):
        if one.pv != but and not overlaps(one.parts, parts) and _inode_at(share.root, one.parts) == one.inode:
            return f"the directory of volume {one.pv}, {work.export.source_path(one.parts)}, or inside it"
    alike = [(one.pv, one.parts) for one in work.owners.overlapping(parts)]
    alike += [(use.volume.name, use.parts) for use in users(work.export, volumes, parts, but=but, spelled_alike=True)]
    for pv, theirs in alike:
        if pv == but or overlaps(theirs, parts):
            continue
        depth = min(len(theirs), len(inodes))
        if depth == min(len(theirs), len(parts)) and _inode_at(share.root, theirs[:depth]) == inodes[depth - 1]:
            return f"the directory of volume {pv}, {work.export.source_path(theirs)}, or inside it or around it"
    return ""


def _inode_at(root: Dir, parts: tuple[str, ...]) -> int | None:
    """What is at a path: its inode number, -1 if it cannot be told, None if nothing is there."""
    try:
        with root.walk(parts[:-1]) as parent:
            there = parent.lstat(parts[-1])
    except FileNotFoundError:
        return None
    except NotADirectory:
        return -1
    return None if there is None else there.st_ino
