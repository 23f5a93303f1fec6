"""Removing or archiving a volume's directory, and nothing else.

Before anything is touched: the volume's source leads to a configured export (:mod:`~prov_host_nfs_subdir.locating`),
the share is proved, its id is the recorded one, the recorded path is the source's, the ownership record on the share
says the same, what is there is a directory with the recorded inode number, and no other volume uses it, lies in it
or around it. What cannot be proved is refused with an error that says what was found.

Then one rename takes the directory away, empty parents of ours are removed, the record is removed. Each step can be
repeated, so a crash anywhere is finished by the same call made again: a directory's name in the trash follows from the
volume's name and the inode number, and where an archive goes is noted in the record first. So removing writes nothing,
and works on a full share, which it alone can empty; archiving needs room for two small records and says so. What is in
the trash is removed later (:mod:`~prov_host_nfs_subdir.trash`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from prov_host import DeleteError, Removed, Volume
from prov_host.safedir import Dir, NotADirectory, OtherFilesystem
from prov_host_nfs_subdir.archiving import archive_record, free_name, write_record
from prov_host_nfs_subdir.exports import Busy, ExportAtWork, stamp
from prov_host_nfs_subdir.ledger import capacity_of
from prov_host_nfs_subdir.locating import has_lost_record, is_ours, provisioned_by, users
from prov_host_nfs_subdir.naming import ARCHIVE_PREFIX, RECORD_SUFFIX, foreign_area, in_archive
from prov_host_nfs_subdir.parents import prune, staged_parent
from prov_host_nfs_subdir.pattern import RESERVED_PREFIX
from prov_host_nfs_subdir.records import Owner, Released, stem
from prov_host_nfs_subdir.share import PRIVATE, OpenShare
from prov_host_nfs_subdir.sharing import is_left_over, is_released, others_at, shares, whose

__all__ = ["release"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class _Case:
    """One volume to be released, on its proved share."""

    work: ExportAtWork
    share: OpenShare
    volume: Volume
    parts: tuple[str, ...]

    @property
    def where(self) -> str:
        """The directory, as the server has it."""
        return self.work.export.source_path(self.parts)

    def refuse(self, why: str) -> DeleteError:
        """An error that names volume, directory and reason."""
        return DeleteError(f"volume {self.volume.name}: {self.where} {why}. Nothing was touched")


def release(
    work: ExportAtWork, volume: Volume, parts: tuple[str, ...], *, archive: bool, trashed: Callable[[str], None]
) -> Removed:
    """Take a volume's directory away.

    Args:
        work: the export it is on.
        volume: the volume; hostile.
        parts: its directory, as its source says.
        archive: whether to archive it instead of removing it.
        trashed: told the name of what was put into the trash.

    Returns:
        What was done.

    Raises:
        DeleteError: something is not as it must be; nothing was touched.
        ShareProblem: the share is not the right one; nothing was touched.
        OSError: the file system refused; the next call goes on.
    """
    record, lost = volume.record, has_lost_record(volume)
    if is_ours(volume) and not lost and record["path"] != "/".join(parts):
        raise DeleteError(
            f"volume {volume.name}: its source says {'/'.join(parts)!r}, but its record (annotation "
            f"prov-host/record) says {record['path']!r}. Nothing was touched"
        )
    if any(part.casefold().startswith(RESERVED_PREFIX) for part in parts):
        raise DeleteError(f"volume {volume.name}: {'/'.join(parts)!r} is this program's own. Nothing was touched")
    # Nothing of a volume can be on a share that has not been in use.
    with work.share.open(begin=not is_ours(volume)) as share:
        case = _Case(work, share, volume, parts)
        if lost:
            _check_confirmed(case)
        elif is_ours(volume) and record.get("root") != share.id:
            raise case.refuse(
                f"was made on a share with the id {record.get('root', '')!r}, but the one at {share.root.path} is "
                f"{share.id}: another share is mounted here"
            )
        try:
            with work.reserve(volume.name, parts, sharing=True):
                removed = _release(case, archive=archive, trashed=trashed)
                work.released(volume)
                return removed
        except Busy as error:
            raise DeleteError(f"volume {volume.name}: {error}; it is tried again") from error


def _release(case: _Case, *, archive: bool, trashed: Callable[[str], None]) -> Removed:
    work, share = case.work, case.share
    owner = work.owners.read(share.owners, case.volume.name)
    if owner is not None and owner.parts != case.parts:
        raise case.refuse(f"is not what its ownership record says, {owner.path!r}")
    there = _look(case)
    if owner is None:
        if there is None:
            return _proved_absent(case)
        owner = _prove_without_record(case, there, archive=archive)
        if owner is None:
            return _absent(case, "; another volume's directory is there by now")
    _discard_staged(share, owner)
    if there is not None and stat.S_IMODE(there.st_mode) == 0o700 and there.st_ino != owner.inode:
        there = _remove_reservation(case, owner, there)
    if there is not None and there.st_ino != owner.inode:
        raise case.refuse(
            f"is not the directory that was made for it (inode {there.st_ino}, recorded {owner.inode}); if it was "
            "restored from a backup, confirm that with `prov-host orphans --adopt`"
        )
    if there is None:
        return _finish_moved(case, owner, trashed=trashed)
    if owner.adopted or owner.taken_over:
        _check_foreign(case)
    if left := _still_used(case, owner):
        work.owners.remove(share.owners, owner.pv)
        return left
    _check_mounts(case)
    if not archive:
        return _delete(case, owner, trashed)
    return _archive(case, owner)


def _check_confirmed(case: _Case) -> None:
    """What a volume does not say itself any more, the record on the share may say, once a person has looked at it."""
    owner = case.work.owners.read(case.share.owners, case.volume.name)
    if owner is None and _look(case) is None:
        return  # whether this is the right share is proved by others
    if owner is None or not owner.confirmed:
        raise case.refuse(
            "cannot be proved to be its directory: the volume's record (annotation prov-host/record) is lost or "
            "unreadable. `prov-host orphans` says whether the ownership record on the share proves it; then confirm "
            f"it with `prov-host orphans --adopt {'/'.join(case.parts)}`"
        )


def _look(case: _Case) -> os.stat_result | None:
    """What is at the path; refuses what is no directory, and links on the way."""
    try:
        with case.share.root.walk(case.parts[:-1]) as parent:
            there = parent.lstat(case.parts[-1])
            if there is not None and stat.S_ISDIR(there.st_mode):
                parent.child(case.parts[-1], readable=False).close()  # refuses a mount point
    except FileNotFoundError:
        return None
    except NotADirectory as error:
        raise case.refuse(f"cannot be reached: {error.filename} {error.strerror}") from error
    except OtherFilesystem as error:
        raise case.refuse(f"cannot be used: {error.strerror}, at {error.filename}; unmount that first") from error
    if there is not None and not stat.S_ISDIR(there.st_mode):
        raise case.refuse(
            "is a symbolic link, which was not made here" if stat.S_ISLNK(there.st_mode) else "is no directory"
        )
    return there


def _proved_absent(case: _Case) -> Removed:
    """A volume without a record on the share, and nothing at its path: the share has to be proved by something else.

    Raises:
        DeleteError: nothing shows that this is the share the volume was on.
    """
    work, share, volume = case.work, case.share, case.volume
    if (
        (not is_ours(volume) or has_lost_record(volume))  # the rest say which share they were made on
        and not work.was_released(volume)
        and not (volume.uid and Released.noted(share.private, volume.name, volume.uid))
        and not work.share.is_evident(share, but=volume.name)
    ):
        raise case.refuse(
            f"is not there, but nothing shows that the share at {share.root.path} (id {share.id}) is the one it was "
            "on: no other volume of the cluster is there. If it is the right one, make the directory again, and it is "
            "removed with its volume"
        )
    return _absent(case)


def _absent(case: _Case, also: str = "") -> Removed:
    return Removed(
        message=f"{case.where} was already absent{also}; the share is {case.share.root.path}, id {case.share.id}",
        already_absent=True,
        path=case.where,
    )


def _prove_without_record(case: _Case, there: os.stat_result, *, archive: bool) -> Owner | None:
    """Whose directory it is when the volume has no ownership record; None if it is another volume's.

    Raises:
        DeleteError: it cannot be proved to be this volume's.
    """
    work, share, volume = case.work, case.share, case.volume
    for other in others_at(work, share, case.parts, but=volume.name)[0]:
        if other.parts != case.parts:
            raise case.refuse(
                f"and the directory of {whose(other)}, {work.export.source_path(other.parts)}, lie in each other"
            )
        if is_ours(volume):
            return None
        if not other.shared:
            raise case.refuse(f"belongs to {whose(other)}")
    if is_ours(volume):
        # The record on the share was lost; the one on the volume names the inode, which nobody else had.
        if volume.record.get("inode") != str(there.st_ino):
            raise case.refuse(
                f"has no ownership record on the share, and is not the directory that was made for the volume (inode "
                f"{there.st_ino}, recorded {volume.record.get('inode')!r})"
            )
    elif provisioned_by(volume) not in work.export.provisioners:
        raise case.refuse(
            f"belongs to the provisioner {provisioned_by(volume) or 'of nobody'!r}, not to one of "
            f"{', '.join(work.export.provisioners)}"
        )
    elif inside := in_archive(share.root, case.parts):
        raise case.refuse(f"is in the archive {inside}")
    claim = volume.spec.claim_ref
    owner = Owner(
        pv=volume.name,
        path="/".join(case.parts),
        inode=there.st_ino,
        namespace=(claim.namespace if claim else None) or "",
        claim=(claim.name if claim else None) or "",
        claim_uid=volume.claim_uid,
        class_name=volume.spec.storage_class_name or "",
        provisioner=provisioned_by(volume),
        created=volume.metadata.creation_timestamp or "",
        capacity=capacity_of(volume),
        adopted=volume.record.get("adopted") == "true",
        shared=volume.record.get("shared") == "true",
        taken_over=not is_ours(volume),
        retention=int(text) if (text := volume.record.get("retention", "0")).isdecimal() else 0,
        missing=len(case.parts),
    )
    try:
        work.owners.write(share.owners, owner)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        if archive:
            raise _too_full(case, error) from error
        # Removing makes room. Should it be interrupted, there is nothing left at the path that needs a record.
    return owner


def _discard_staged(share: OpenShare, owner: Owner) -> None:
    """What a crashed provisioning left in the private area: empty directories, or they stay."""
    share.new.rmdir(staged_parent(owner.pv))
    share.new.rmdir(stem(owner.pv))


def _remove_reservation(case: _Case, owner: Owner, there: os.stat_result) -> os.stat_result | None:
    """The empty directory that reserved the place when a provisioning crashed."""
    if owner.adopted:
        return there
    with case.share.root.walk(case.parts[:-1]) as parent:
        if parent.is_reservation(case.parts[-1]) and parent.rmdir(case.parts[-1]):
            return None
    return there


def _finish_moved(case: _Case, owner: Owner, *, trashed: Callable[[str], None]) -> Removed:
    """The directory is not in place: an earlier call moved it, or somebody removed it."""
    share = case.share
    result = _absent(case)
    if owner.leaving.startswith(ARCHIVE_PREFIX):
        if _is(share.root, owner.leaving, owner):
            path = share.root.at(owner.leaving)
            result = Removed(message=f"moved {case.where} to {path}", path=path)
        else:
            share.root.unlink(owner.leaving + RECORD_SUFFIX)
    name = _trash_name(owner)
    if _is(share.trash, name, owner):
        result = Removed(message=f"removed {case.where}", path=case.where)
        trashed(name)
    _forget(case, owner)
    return result


def _is(area: Dir, name: str, owner: Owner) -> bool:
    """Whether an entry is the owner's directory."""
    there = area.lstat(name)
    return there is not None and there.st_ino == owner.inode


def _trash_name(owner: Owner) -> str:
    """Where the directory goes when it is removed; the same each time it is asked, so it needs no note."""
    return f"{stem(owner.pv)}.{owner.inode}"


def _forget(case: _Case, owner: Owner) -> None:
    """The directory has left: remove empty parents and, last, the record."""
    prune(case.share, case.parts, owner.missing or len(case.parts))
    if (owner.taken_over or owner.confirmed) and case.volume.uid:
        try:
            Released.note(case.share.private, owner.pv, case.volume.uid, stamp(case.work.host.clock.now()))
        except OSError as error:
            if error.errno not in _FULL:  # without room it goes without
                raise
    case.work.owners.remove(case.share.owners, owner.pv)


def _still_used(case: _Case, owner: Owner) -> Removed | None:
    """Whether another volume keeps the directory.

    Returns:
        What to answer if it is left in place on purpose, None if nobody else uses it.

    Raises:
        DeleteError: it is used by a volume that does not share it.
    """
    work, share, volume = case.work, case.share, case.volume
    volumes = work.host.volumes()
    work.forget_saved(other.name for other in volumes)
    saved = next((other for other in volumes if other.name == volume.name and other.uid), None)
    if saved is not None and not volume.uid:
        raise case.refuse("belongs to a volume that was saved after all")
    sharing: list[str] = work.kept_at(case.parts, but=volume.name)
    for use in users(work.export, volumes, case.parts, but=volume.name):
        if is_released(work, use.volume):
            continue
        who = f"volume {use.volume.name} of claim {use.volume.claim_key or 'nobody'}"
        if use.parts != case.parts:
            inside = "has" if len(use.parts) > len(case.parts) else "lies in"
            raise case.refuse(f"{inside} the directory of {who}, {work.export.source_path(use.parts)}")
        if not ((owner.shared or owner.taken_over) and shares(work, share, use.volume)):
            raise case.refuse(f"is used by {who} as well")
        sharing.append(use.volume.name)
    sharing += _owned_as_well(case, owner)
    if sharing:
        return Removed(
            message=f"left {case.where} in place: volume {', '.join(sorted(set(sharing)))} shares it",
            path=case.where,
        )
    if owner.adopted and not volume.uid:
        return Removed(
            message=f"left {case.where} as it was before it was adopted: the volume was never saved", path=case.where
        )
    return None


def _owned_as_well(case: _Case, owner: Owner) -> list[str]:
    """Volumes, also of other clusters, that share the directory, going by the ownership records on the share.

    Raises:
        DeleteError: a volume that does not share it has a record of it, or of what is inside or around it.
    """
    work, share = case.work, case.share
    # Where nobody else may be, a record that another cluster has just written can only be of something refused.
    apart = not (owner.adopted or owner.shared or owner.taken_over)
    others, unreadable = others_at(work, share, case.parts, but=owner.pv, fresh=not apart)
    if unreadable and not apart:
        raise case.refuse(
            f"may be shared by a volume whose ownership record cannot be read: {unreadable[0].filename} "
            f"{unreadable[0].strerror}"
        )
    sharing = []
    for other in others:
        if other.parts != case.parts:
            inside = "has" if len(other.parts) > len(case.parts) else "lies in"
            raise case.refuse(
                f"{inside} the directory of {whose(other)}, {work.export.source_path(other.parts)}, going by the "
                "ownership records on the share"
            )
        if (owner.shared or owner.taken_over) and (other.shared or other.taken_over):
            sharing.append(other.pv)
        elif not (_was_made(owner) and _was_made(other)) and not is_left_over(work, other):
            raise case.refuse(f"belongs to {whose(other)} as well, going by the ownership record on the share")
    return sharing


def _was_made(owner: Owner) -> bool:
    """Whether the directory was made where nothing was: of two such records of one place, one is out of date."""
    return not (owner.adopted or owner.taken_over)


def _check_foreign(case: _Case) -> None:
    """A directory that this program did not make may be, or hold, the root of another share."""
    try:
        for depth in range(1, len(case.parts)):
            with case.share.root.walk(case.parts[:depth]) as above:
                if above.lstat(PRIVATE) is not None:
                    raise case.refuse(f"lies in the root of another share: {above.at(PRIVATE)} is there")
        with case.share.root.walk(case.parts, readable=True) as top:
            found = foreign_area(top)
    except PermissionError:
        return
    if found:
        raise case.refuse(f"holds the root of another share: {found} is there")


def _check_mounts(case: _Case) -> None:
    """Something mounted in the directory would be moved away from under its users."""
    with case.share.root.walk(case.parts) as directory:
        inside = directory.mounts_inside()
    for mount in inside:
        raise case.refuse(f"has a {mount.type} file system mounted in it, at {mount.point}; unmount that first")


def _move(case: _Case, owner: Owner, to: Dir, new: str, *, keep_apart: bool) -> None:
    """Rename the directory, and take it back if it turns out not to be the one that was looked at."""
    name = case.parts[-1]
    with case.share.root.walk(case.parts[:-1]) as parent:
        if keep_apart:
            parent.install(name, to, new, reserved=True)
        else:
            parent.rename(name, to, new)
        if not _is(to, new, owner):
            to.install(new, parent, name)
            raise case.refuse("was replaced at this very moment; what was there is back in place")


def _delete(case: _Case, owner: Owner, trashed: Callable[[str], None]) -> Removed:
    share, name = case.share, _trash_name(owner)
    _move(case, owner, share.trash, name, keep_apart=False)
    trashed(name)
    if owner.leaving.startswith(ARCHIVE_PREFIX) and share.root.lstat(owner.leaving) is None:
        share.root.unlink(owner.leaving + RECORD_SUFFIX)  # it was being archived when its policy changed
    _forget(case, owner)
    return Removed(message=f"removed {case.where}", path=case.where)


def _archive(case: _Case, owner: Owner) -> Removed:
    work, share = case.work, case.share
    now = work.host.clock.now()
    try:
        if not owner.leaving.startswith(ARCHIVE_PREFIX):
            owner = msgspec.structs.replace(owner, leaving=free_name(share.root, owner, now))
            work.owners.write(share.owners, owner)
        write_record(share.root, archive_record(owner, stamp(now)))
        _move(case, owner, share.root, owner.leaving, keep_apart=True)
    except OSError as error:
        if error.errno in _FULL:
            raise _too_full(case, error) from error
        raise
    _forget(case, owner)
    path = work.export.source_path((owner.leaving,))
    return Removed(message=f"archived {case.where} as {path}", path=path)


def _too_full(case: _Case, error: OSError) -> DeleteError:
    return DeleteError(
        f"volume {case.volume.name}: {case.where} cannot be archived: {error.strerror} ({error.filename}), and an "
        "archive needs room for a small record of where it came from. Make room with `prov-host archives prune`, or "
        "delete files or volumes (policy delete needs no room); then it is tried again. The data is where it was"
    )
