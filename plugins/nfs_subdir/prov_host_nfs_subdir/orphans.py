"""What does not fit together: directories without a volume, volumes without a directory, overlaps, leftovers.

A scan reads the ownership records and the cluster's volumes, and looks at the root and at every directory that holds
volumes, never into a volume. It changes nothing; :mod:`~prov_host_nfs_subdir.mending` acts on what it finds.

A directory is nobody's only if that is proved: its record names a class that this cluster has and no other
(:func:`~prov_host_nfs_subdir.sharing.is_left_over`). Everything else may belong to another cluster on the same share,
to another program, or to a volume whose source this configuration does not recognize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prov_host import Volume
from prov_host_nfs_subdir.archiving import list_archives
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.findings import LISTED, NAMED, Finding, Picture, inode_at, is_young
from prov_host_nfs_subdir.locating import has_lost_record, is_ours, provisioned_by
from prov_host_nfs_subdir.naming import ARCHIVE_PREFIX, RECORD_SUFFIX
from prov_host_nfs_subdir.pattern import is_servers_own
from prov_host_nfs_subdir.records import Owner, Parents, stem
from prov_host_nfs_subdir.restored import restored
from prov_host_nfs_subdir.share import PRIVATE, OpenShare
from prov_host_nfs_subdir.sharing import is_left_over
from prov_host_nfs_subdir.unmatched import Unmatched, UnmatchedVolumes

__all__ = ["scan", "take_picture", "without_export"]

UNKNOWN = "unknown-"
_SHOWN = 3


def take_picture(
    work: ExportAtWork, share: OpenShare, volumes: Sequence[Volume], elsewhere: UnmatchedVolumes
) -> tuple[Picture, list[Finding]]:
    """Read the ownership records.

    Args:
        work: the export.
        share: its open share.
        volumes: all volumes of the cluster, read before the share.
        elsewhere: those on none of the exports.

    Returns:
        Records and volumes side by side, and findings about records that cannot be read.
    """
    findings = []
    owners: dict[str, Owner] = {}
    for owner in work.owners.all(share.owners):
        if isinstance(owner, Owner):
            owners[owner.pv] = owner
        else:
            detail = f"{owner.filename} {owner.strerror}"
            findings.append(Finding(kind="unreadable", path=f"{PRIVATE}/owners", detail=detail))
    return Picture.of(work, share, volumes, elsewhere, owners), findings


def scan(picture: Picture, *, progress: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Find what does not fit.

    Args:
        picture: from :func:`take_picture`.
        progress: told now and then what is looked at.

    Returns:
        The findings, sorted by kind and path.
    """
    findings: list[Finding] = []
    for number, (volume, parts) in enumerate(picture.here.values(), start=1):
        findings += _of_volume(picture, volume, parts)
        if number % 100 == 0 or number == len(picture.here):
            progress(f"looking at volumes: {number} of {len(picture.here)}")
    findings += _overlaps(picture)
    for owner in picture.owners.values():
        if owner.pv not in picture.cluster:
            findings += _of_owner(picture, owner)
    progress("looking at directories")
    findings += _of_directories(picture)
    findings += _leftovers(picture)
    return sorted(findings, key=lambda finding: (finding.kind, finding.path, finding.pv))


def without_export(elsewhere: UnmatchedVolumes) -> list[Finding]:
    """Volumes of our provisioner names that are on none of the exports."""
    return [
        Finding(
            kind="no-export",
            path=one.source,
            detail=f"{one.volume.phase or 'new'}; {one.remark}",
            pv=one.volume.name,
            claim=one.volume.claim_key,
        )
        for one in elsewhere.ours()
    ]


def _of_volume(picture: Picture, volume: Volume, parts: tuple[str, ...]) -> Iterator[Finding]:
    if not is_ours(volume) and provisioned_by(volume) not in picture.work.export.provisioners:
        return
    path, pv, claim = "/".join(parts), volume.name, volume.claim_key
    inode = inode_at(picture.share, parts)
    owner = picture.owners.get(pv)
    recorded = volume.record.get("path", "")
    if is_ours(volume) and recorded and recorded != path:
        detail = f"its annotation prov-host/record says {recorded!r}; it is neither deleted nor archived like that"
        yield Finding(kind="contradiction", path=path, detail=detail, pv=pv, claim=claim)
    elif inode is None:
        yield Finding(kind="no-directory", path=path, detail=f"volume is {volume.phase or 'new'}", pv=pv, claim=claim)
    elif has_lost_record(volume) and not (owner and owner.confirmed and owner.inode == inode):
        proved = owner is not None and owner.parts == parts and owner.inode == inode
        proof = "proves" if proved else "does not prove"
        detail = f"its annotation prov-host/record is lost; the ownership record on the share {proof} whose it is"
        adopt = LISTED if proved else NAMED
        yield Finding(kind="lost-record", path=path, detail=detail, pv=pv, claim=claim, adopt=adopt)
    elif owner is None:
        maker = "its record is lost" if is_ours(volume) else "another program made it"
        detail = f"no ownership record: {maker}"
        yield Finding(kind="unrecorded", path=path, detail=detail, pv=pv, claim=claim, adopt=LISTED)
    elif owner.inode != inode:
        detail = f"inode {inode}, recorded {owner.inode}"
        yield Finding(kind="replaced", path=path, detail=detail, pv=pv, claim=claim, adopt=LISTED)


def _overlaps(picture: Picture) -> Iterator[Finding]:
    """Sorted by path, a directory is followed by everything inside it."""
    ordered = sorted(
        ((parts, volume) for volume, parts in picture.here.values()), key=lambda pair: (pair[0], pair[1].name)
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
                yield Finding(
                    kind="overlap",
                    path="/".join(parts),
                    detail=f"{how} volume {other.name}",
                    pv=volume.name,
                    claim=volume.claim_key,
                )
        stack.append((parts, volume))


def _of_owner(picture: Picture, owner: Owner) -> Iterator[Finding]:
    """A record whose volume is not in the cluster."""
    if is_young(picture.work, owner.created):
        return
    claim = f"{owner.namespace}/{owner.claim}" if owner.claim else ""
    kind, detail, archive = _why_without_volume(picture, owner)
    if inode_at(picture.share, owner.parts) != owner.inode:
        kind, detail, archive = "stale-record", "the directory is gone too", ""
    elif owner.parts in picture.at:
        kind, detail, archive = "stale-record", f"the directory is {picture.at[owner.parts]}'s by now", ""
    elif doubt := picture.elsewhere.perhaps_at(owner.parts):
        kind, detail, archive = "in-doubt", _doubt(doubt), ""
    yield Finding(kind=kind, path=owner.path, detail=detail, pv=owner.pv, claim=claim, archive=archive)


def _why_without_volume(picture: Picture, owner: Owner) -> tuple[str, str, str]:
    """Kind, detail and whether it may be archived."""
    work, made = picture.work, f"made {owner.created or 'at some time'}"
    if owner.pv.startswith(UNKNOWN) and not owner.provisioner:
        return "unknown-directory", "was being archived when that was interrupted", NAMED
    if owner.provisioner not in work.export.provisioners:
        return "other-provisioner", f"{made} by {owner.provisioner or 'nobody'}, which is not served here", ""
    if owner.claim_uid in picture.waiting:
        return "unsaved", f"{made}; its claim still waits for the volume", ""
    if owner.policy == "retain":
        return "retained", f"{made}, and kept on purpose: its class says so", NAMED
    if is_left_over(work, owner):
        return "no-volume", made, LISTED
    name = owner.class_name or "nobody knows which"
    return "other-cluster", f"{made} for class {name}, which is another cluster's or was deleted since", NAMED


def _doubt(doubt: Unmatched) -> str:
    where = f"at {doubt.source}, which is" if doubt.source else "which is"
    return f"may be used by volume {doubt.volume.name} {where} in no configured export"


def _of_directories(picture: Picture) -> Iterator[Finding]:
    """Directories that are no volume's, next to those that are."""
    share = picture.share
    used = {parts for _volume, parts in picture.here.values()} | {owner.parts for owner in picture.owners.values()}
    brought_back = {note.parts: note for note in restored(share.restored)}
    known = used | brought_back.keys()
    holders = {parts[:depth] for parts in known for depth in range(len(parts))}
    made = {parts for parts, _inode in Parents.all(share.parents)}
    taken = {parts[0] for parts in (*known, *made)}
    archives = {
        archive.name
        for archive in list_archives(share.root, taken)
        if archive.archived or not picture.elsewhere.perhaps_at((archive.name,))
    }
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
            if below in used or is_servers_own(name) or (not parts and (name == PRIVATE or name in archives)):
                continue
            note = brought_back.get(below)
            if below in holders:
                todo.append(below)
            elif note is not None and note.inode == inode_at(share, below):
                detail = f"archive {note.archive.name} was restored here {note.restored}"
                yield _unused(picture, below, "restored", detail, pv=note.archive.pv, claim=note.claim)
            elif below in made:
                yield from _of_parent(picture, below)
            else:
                yield _unused(picture, below, "unknown-directory", "no volume is, or was known to be, here")


def _unused(
    picture: Picture, parts: tuple[str, ...], kind: str, detail: str, *, pv: str = "", claim: str = ""
) -> Finding:
    """A directory that no volume seems to use."""
    archive = NAMED
    if doubt := picture.elsewhere.perhaps_at(parts):
        kind, detail, archive = "in-doubt", _doubt(doubt), ""
        pv, claim = doubt.volume.name, doubt.volume.claim_key
    else:
        try:
            with picture.share.root.walk(parts) as directory:
                if directory.lstat(PRIVATE) is not None:
                    kind, detail, archive = "other-share", "is the root of another share: .prov-host is in it", ""
        except OSError as error:
            detail, archive = f"{detail}; it cannot be looked into: {error.strerror}", ""
    return Finding(kind=kind, path="/".join(parts), detail=detail, pv=pv, claim=claim, archive=archive)


def _of_parent(picture: Picture, parts: tuple[str, ...]) -> Iterator[Finding]:
    try:
        with picture.share.root.walk(parts, readable=True) as directory:
            names = sorted(directory.names())
    except OSError:
        return
    if not names:
        yield Finding(kind="empty-parent", path="/".join(parts), detail="was made to hold volumes")
        return
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    detail = f"was made to hold volumes; holds {', '.join(names[:_SHOWN])}{more}, which are no volumes"
    yield _unused(picture, parts, "unknown-directory", detail)


def _leftovers(picture: Picture) -> Iterator[Finding]:
    share = picture.share
    for name in share.trash.names():
        yield Finding(kind="trash", path=f"{PRIVATE}/trash/{name}", detail="is removed by the running host")
    owned = {stem(pv) for pv in picture.owners}
    for name in share.new.names():
        if name.partition(".")[0] not in owned:
            detail = "is left from a provisioning that never came to its end"
            yield Finding(kind="staged", path=f"{PRIVATE}/new/{name}", detail=detail)
    leaving = {owner.leaving for owner in picture.owners.values()}
    for entry in share.root.entries():
        name = entry.name
        if entry.is_dir or not (name.startswith(ARCHIVE_PREFIX) and name.endswith(RECORD_SUFFIX)):
            continue
        directory = name[: -len(RECORD_SUFFIX)]
        if directory not in leaving and share.root.lstat(directory) is None:
            detail = "somebody removed the archive and left its record"
            yield Finding(kind="archive-without-directory", path=name, detail=detail)
