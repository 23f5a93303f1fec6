"""What does not fit together: directories without a volume, volumes without a directory, overlaps, leftovers.

A scan reads the ownership records and the cluster's volumes, and looks at the root and at every directory that holds
volumes, never into a volume. It changes nothing. Two kinds of findings can be acted on: a live volume without a
proper record is *adopted* (a record is written), a directory without a volume is *archived*.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from prov_host import Volume
from prov_host_nfs_subdir.archiving import list_archives
from prov_host_nfs_subdir.capacity import capacity_of
from prov_host_nfs_subdir.exports import ExportAtWork, stamp
from prov_host_nfs_subdir.locating import is_ours, parts_in, provisioned_by
from prov_host_nfs_subdir.naming import ARCHIVE_PREFIX, RECORD_SUFFIX
from prov_host_nfs_subdir.records import Owner, Parents, stem
from prov_host_nfs_subdir.release import release
from prov_host_nfs_subdir.share import PRIVATE, OpenShare

__all__ = ["ADOPTABLE", "ARCHIVABLE", "Finding", "adopt", "archive", "scan"]

ADOPTABLE = frozenset({"unrecorded", "replaced"})
ARCHIVABLE = frozenset({"no-volume", "unknown-directory"})
_YOUNG = 600
"""Seconds in which a directory without a volume is taken for one whose volume is being saved."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit. Since 0.1.

    Attributes:
        kind: ``no-volume``, ``unknown-directory``, ``empty-parent``, ``no-directory``, ``unrecorded``, ``replaced``,
            ``overlap``, ``trash``, ``staged``, ``stale-record``, ``archive-without-directory`` or ``unreadable``.
        path: where, relative to the root.
        detail: what about it.
        pv: the volume, or "".
        claim: its claim, or "".
    """

    kind: str
    path: str
    detail: str
    pv: str = ""
    claim: str = ""


@dataclass(frozen=True, slots=True)
class _Picture:
    """The cluster's volumes and the share's records, side by side."""

    work: ExportAtWork
    share: OpenShare
    volumes: dict[str, tuple[Volume, tuple[str, ...]]]
    owners: dict[str, Owner]


def scan(
    work: ExportAtWork, share: OpenShare, volumes: Sequence[Volume], *, progress: Callable[[str], None] = lambda _: None
) -> list[Finding]:
    """Find what does not fit.

    Args:
        work: the export.
        share: its open share.
        volumes: all volumes of the cluster, read before the share.
        progress: told now and then what is looked at.

    Returns:
        The findings, sorted by kind and path.
    """
    findings: list[Finding] = []
    owners: dict[str, Owner] = {}
    progress("reading ownership records")
    for owner in work.owners.all(share.owners):
        if isinstance(owner, Owner):
            owners[owner.pv] = owner
        else:
            findings.append(Finding("unreadable", f"{PRIVATE}/owners", f"{owner.filename} {owner.strerror}"))
    here = {volume.name: (volume, parts) for volume in volumes if (parts := parts_in(work.export, volume))}
    picture = _Picture(work, share, here, owners)
    for number, (volume, parts) in enumerate(here.values()):
        if number % 100 == 0:
            progress(f"looking at volumes: {number} of {len(here)}")
        findings += _of_volume(picture, volume, parts)
    findings += _overlaps(picture)
    for owner in owners.values():
        if owner.pv not in here:
            findings += _of_owner(picture, owner)
    progress("looking at directories")
    findings += _of_directories(picture)
    findings += _leftovers(picture)
    return sorted(findings, key=lambda finding: (finding.kind, finding.path, finding.pv))


def _inode(share: OpenShare, parts: tuple[str, ...]) -> int | None:
    try:
        with share.root.walk(parts[:-1]) as parent:
            return status.st_ino if (status := parent.lstat(parts[-1])) and parent.is_dir(parts[-1]) else None
    except (OSError, ValueError):
        return None


def _of_volume(picture: _Picture, volume: Volume, parts: tuple[str, ...]) -> Iterator[Finding]:
    if not is_ours(volume) and provisioned_by(volume) not in picture.work.export.provisioners:
        return
    path, claim = "/".join(parts), volume.claim_key
    inode = _inode(picture.share, parts)
    owner = picture.owners.get(volume.name)
    if inode is None:
        yield Finding("no-directory", path, f"volume is {volume.phase or 'new'}", volume.name, claim)
    elif owner is None:
        maker = "its record is lost" if is_ours(volume) else "another program made it"
        yield Finding("unrecorded", path, f"no ownership record: {maker}", volume.name, claim)
    elif owner.inode != inode:
        yield Finding("replaced", path, f"inode {inode}, recorded {owner.inode}", volume.name, claim)


def _overlaps(picture: _Picture) -> Iterator[Finding]:
    """Sorted by path, a directory is followed by everything inside it."""
    ordered = sorted(
        ((parts, volume) for volume, parts in picture.volumes.values()), key=lambda pair: (pair[0], pair[1].name)
    )
    stack: list[tuple[tuple[str, ...], Volume]] = []
    for parts, volume in ordered:
        while stack and parts[: len(stack[-1][0])] != stack[-1][0]:
            stack.pop()
        if stack:
            above, other = stack[-1]
            first, second = picture.owners.get(other.name), picture.owners.get(volume.name)
            if not (above == parts and first and second and first.shared and second.shared):
                how = "the same directory as" if above == parts else "inside the directory of"
                yield Finding("overlap", "/".join(parts), f"{how} volume {other.name}", volume.name, volume.claim_key)
        stack.append((parts, volume))


def _of_owner(picture: _Picture, owner: Owner) -> Iterator[Finding]:
    """A record whose volume is not in the cluster."""
    claim = f"{owner.namespace}/{owner.claim}"
    if _inode(picture.share, owner.parts) == owner.inode:
        if _is_young(picture.work, owner.created):
            return
        shared = [one.pv for one, parts in _at(picture, owner.parts)]
        if shared:
            yield Finding("stale-record", owner.path, f"the directory is {shared[0]}'s by now", owner.pv, claim)
        else:
            yield Finding("no-volume", owner.path, f"made {owner.created or 'at some time'}", owner.pv, claim)
    elif not _is_young(picture.work, owner.created):
        yield Finding("stale-record", owner.path, "the directory is gone too", owner.pv, claim)


def _at(picture: _Picture, parts: tuple[str, ...]) -> list[tuple[Owner, tuple[str, ...]]]:
    return [
        (owner, theirs)
        for name, (_volume, theirs) in picture.volumes.items()
        if theirs == parts and (owner := picture.owners.get(name))
    ]


def _is_young(work: ExportAtWork, created: str) -> bool:
    try:
        moment = dt.datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        return False
    return (work.host.clock.now() - moment).total_seconds() < _YOUNG


def _of_directories(picture: _Picture) -> Iterator[Finding]:
    """Directories that are no volume's, next to those that are."""
    share = picture.share
    used = {parts for _volume, parts in picture.volumes.values()} | {owner.parts for owner in picture.owners.values()}
    holders = {parts[:depth] for parts in used for depth in range(len(parts))}
    made = {parts for parts, _inode in Parents.all(share.parents)}
    archives = {archive.name for archive in list_archives(share.root, {parts[0] for parts in used})}
    todo: list[tuple[str, ...]] = [()]
    while todo:
        parts = todo.pop()
        try:
            with share.root.walk(parts, readable=True) as directory:
                names = [entry.name for entry in directory.entries() if entry.is_dir]
        except OSError:
            continue
        for name in names:
            below = (*parts, name)
            if below in used or (not parts and (name == PRIVATE or name in archives)):
                continue
            if below in holders:
                todo.append(below)
            elif below in made:
                yield from _of_parent(share, below)
            else:
                yield Finding("unknown-directory", "/".join(below), "no volume is, or was known to be, here")


def _of_parent(share: OpenShare, parts: tuple[str, ...]) -> Iterator[Finding]:
    try:
        with share.root.walk(parts, readable=True) as directory:
            empty = directory.is_empty()
    except OSError:
        return
    kind = "empty-parent" if empty else "unknown-directory"
    yield Finding(kind, "/".join(parts), "was made to hold volumes" + ("" if empty else ", and holds none any more"))


def _leftovers(picture: _Picture) -> Iterator[Finding]:
    share = picture.share
    for name in share.trash.names():
        yield Finding("trash", f"{PRIVATE}/trash/{name}", "is removed by the running host")
    owned = {stem(pv) for pv in picture.owners}
    for name in share.new.names():
        if name.partition(".")[0] not in owned:
            yield Finding("staged", f"{PRIVATE}/new/{name}", "is left from a provisioning that never came to its end")
    leaving = {owner.leaving for owner in picture.owners.values()}
    for entry in share.root.entries():
        name = entry.name
        if entry.is_dir or not (name.startswith(ARCHIVE_PREFIX) and name.endswith(RECORD_SUFFIX)):
            continue
        directory = name[: -len(RECORD_SUFFIX)]
        if directory not in leaving and share.root.lstat(directory) is None:
            yield Finding("archive-without-directory", name, "somebody removed the archive and left its record")


def adopt(work: ExportAtWork, share: OpenShare, finding: Finding, volumes: Sequence[Volume]) -> str:
    """Write the ownership record of a live volume as its directory is now.

    Args:
        work: the export.
        share: its open share.
        finding: ``unrecorded`` or ``replaced``.
        volumes: all volumes of the cluster.

    Returns:
        What was done.
    """
    parts = tuple(finding.path.split("/"))
    inode = _inode(share, parts)
    volume = next((one for one in volumes if one.name == finding.pv), None)
    if inode is None or volume is None or parts_in(work.export, volume) != parts:
        return f"{finding.path}: is not as it was; scan again"
    old = work.owners.read(share.owners, finding.pv)
    if old is not None:
        owner = msgspec.structs.replace(old, inode=inode, leaving="")
    else:
        claim = volume.spec.claim_ref
        owner = Owner(
            pv=volume.name,
            path=finding.path,
            inode=inode,
            namespace=(claim.namespace if claim else None) or "",
            claim=(claim.name if claim else None) or "",
            claim_uid=volume.claim_uid,
            class_name=volume.spec.storage_class_name or "",
            provisioner=provisioned_by(volume),
            created=volume.metadata.creation_timestamp or stamp(work.host.clock.now()),
            capacity=capacity_of(volume),
            adopted=volume.record.get("adopted") == "true",
            taken_over=not is_ours(volume),
            missing=len(parts),
        )
    work.owners.write(share.owners, owner)
    return f"{finding.path}: belongs to volume {finding.pv} from now on"


def archive(work: ExportAtWork, share: OpenShare, finding: Finding) -> str:
    """Archive a directory that no volume uses, by the same steps and checks as a volume's.

    Args:
        work: the export.
        share: its open share.
        finding: ``no-volume`` or ``unknown-directory``.

    Returns:
        What was done.

    Raises:
        DeleteError: it turned out not to be so.
    """
    parts = tuple(finding.path.split("/"))
    owner = work.owners.read(share.owners, finding.pv) if finding.pv else None
    if owner is None:
        inode = _inode(share, parts)
        if inode is None:
            return f"{finding.path}: is not as it was; scan again"
        name = f"unknown-{stem(finding.path)[:12]}"
        owner = Owner(pv=name, path=finding.path, inode=inode, claim=parts[-1], missing=len(parts))
        work.owners.write(share.owners, owner)
    removed = release(work, _stand_in(work, owner, share.id), parts, archive=True, trashed=lambda _name: None)
    return removed.message


def _stand_in(work: ExportAtWork, owner: Owner, root: str) -> Volume:
    """The volume that is gone, as far as releasing its directory needs it."""
    record = {"path": owner.path, "root": root, "inode": str(owner.inode), "export": work.name}
    wire = {
        "metadata": {
            "name": owner.pv,
            "uid": "gone",
            "annotations": {"prov-host/record": msgspec.json.encode(record).decode()},
        },
        "spec": {"nfs": {"server": work.export.server, "path": work.export.source_path(owner.parts)}},
    }
    return msgspec.convert(wire, Volume)
