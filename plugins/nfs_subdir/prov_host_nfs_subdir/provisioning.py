"""Making a volume's directory.

Everything that can be refused without looking at the share is refused first (:mod:`~prov_host_nfs_subdir.planning`),
so a bad claim leaves no trace. Then, on the proved share (:func:`provision`):

1. the directory is made in the private area with its mode and owner, where nobody can reach it;
2. the ownership record is written, with the directory's inode number;
3. missing parents are made the same way, each remembered as ours;
4. the directory is moved into place, by a rename that never replaces anything.

A crash leaves at most a record and a directory in the private area; the same call made again finds both and goes on.
Whatever is at the path and is not the recorded inode was there before us, and is never changed: it is refused, or
adopted as it is if the class says so.
"""

from __future__ import annotations

import errno
import os
import stat

from prov_host import Note, Provisioned, ProvisionError
from prov_host.safedir import Dir
from prov_host_nfs_subdir.admission import refuse_foreign, refuse_other_spelling, refuse_owned, refuse_used
from prov_host_nfs_subdir.capacity import check_space, grant
from prov_host_nfs_subdir.exports import Busy, ExportAtWork, Reservation, stamp
from prov_host_nfs_subdir.locating import users
from prov_host_nfs_subdir.naming import check_target
from prov_host_nfs_subdir.parents import first_missing, inherited_group, open_parent, prune, staged_parent
from prov_host_nfs_subdir.planning import Plan
from prov_host_nfs_subdir.records import Owner, Parents, stem
from prov_host_nfs_subdir.share import OpenShare
from prov_host_nfs_subdir.sharing import inodes_on_the_way, is_owned, is_released

__all__ = ["provision"]

_ATTEMPTS = 8


def provision(work: ExportAtWork, wanted: Plan) -> Provisioned:
    """Make the directory, or find that it was made.

    Args:
        work: the export.
        wanted: the plan.

    Returns:
        What the host saves.

    Raises:
        ProvisionError: it is not there, and nothing is left behind.
        ShareProblem: the share is not the right one.
        OSError: the file system refused; what this call made is removed, or is found again by the next call.
    """
    work.forget_saved(volume.name for volume in work.host.volumes())
    with work.share.open() as share:
        owner = work.owners.read(share.owners, wanted.pv)
        if owner is not None and _in_place(share.root, owner):
            # Made by an earlier call: the same answer, also if the class says otherwise by now.
            with work.reserve(wanted.pv, owner.parts, sharing=True) as mine:
                mine.keep = True
                mine.size = owner.capacity
                return _answer(work, wanted, owner, share.id)
        if owner is not None and (owner.adopted or not share.new.is_dir(stem(wanted.pv))):
            owner = None  # adopted and gone, or never put in place and not at hand any more: decide anew
        parts = owner.parts if owner else wanted.parts
        try:
            with work.reserve(wanted.pv, parts, sharing=wanted.parameters.adopt) as mine:
                mine.size = owner.capacity if owner else mine.size
                made = _settle(work, share, wanted, owner, mine)
                mine.keep = True
                return made
        except Busy as error:
            raise ProvisionError(f"claim {wanted.request.claim.key}: {error}; it is tried again") from error


def _settle(
    work: ExportAtWork,
    share: OpenShare,
    wanted: Plan,
    owner: Owner | None,
    mine: Reservation,
) -> Provisioned:
    """Adopt, make or refuse; the path is reserved."""
    share.prepare()
    volumes = work.host.volumes()
    parts = owner.parts if owner else wanted.parts
    others = [use for use in users(work.export, volumes, parts, but=wanted.pv) if not is_released(work, use.volume)]
    refuse_used(work, share, wanted, parts, others)
    check_target(share, parts, lambda some: is_owned(work, share, some))
    inodes = inodes_on_the_way(share.root, parts[:-1])
    there = _find(share, wanted, parts, resumed=owner is not None)
    if there is not None:
        inodes.append(there.st_ino)
    left_over: list[Owner] = []
    if inodes:  # where nothing is on the way, nothing can be anybody's
        left_over = refuse_owned(work, share, wanted, parts, inodes, adopting=there is not None)
        refuse_other_spelling(work, share, wanted, parts, inodes=inodes, volumes=volumes)
    if owner is None:  # else it was granted to an earlier call
        grant(work, share, wanted.request, wanted.size, mine)
    if there is None:
        check_space(work, share, wanted.request, wanted.size)
        return _answer(work, wanted, _make(work, share, wanted, parts, owner), share.id)
    refuse_foreign(share, wanted, parts)
    _discard_staged(share, wanted.pv)
    owner = _owner(work, wanted, parts, there.st_ino, adopted=True)
    work.owners.write(share.owners, owner)
    # It existed before this volume, so it is no longer one of those that go when they are empty.
    Parents.forget(share.parents, parts, there.st_ino)
    for one in left_over:
        work.owners.remove(share.owners, one.pv)
    also = f", shared with volume {', '.join(sorted(use.volume.name for use in others))}" if others else ""
    note = Note(
        "VolumeAdopted",
        f"adopted the existing directory {work.export.source_path(parts)} (mode {stat.S_IMODE(there.st_mode):04o}, "
        f"owner {there.st_uid}:{there.st_gid}) as it is{also}; nothing in it was changed",
    )
    return _answer(work, wanted, owner, share.id, note)


def _in_place(root: Dir, owner: Owner) -> bool:
    """Whether the recorded directory is where it belongs."""
    try:
        with root.walk(owner.parts[:-1]) as parent:
            there = parent.lstat(owner.parts[-1])
    except FileNotFoundError:
        return False
    return there is not None and stat.S_ISDIR(there.st_mode) and there.st_ino == owner.inode


def _find(share: OpenShare, wanted: Plan, parts: tuple[str, ...], *, resumed: bool) -> os.stat_result | None:
    """What is at the path: None if it is free, its attributes if it is to be adopted."""
    key = wanted.request.claim.key
    try:
        with share.root.walk(parts[:-1]) as parent:
            there = parent.lstat(parts[-1])
            if there is None or (resumed and parent.is_reservation(parts[-1])):
                return None
            where = parent.at(parts[-1])
            if not stat.S_ISDIR(there.st_mode):
                what = "a symbolic link" if stat.S_ISLNK(there.st_mode) else "not a directory"
                raise ProvisionError(f"claim {key}: {where} is {what}; remove it, or choose another pathPattern")
            if not wanted.parameters.adopt:
                raise ProvisionError(
                    f"claim {key}: the directory {where} exists already, and its content may be somebody's; move it "
                    'away, or let the class adopt it with adoptExisting: "true". Nothing was changed'
                )
            parent.child(parts[-1], readable=False).close()  # refuses another file system
            return there
    except FileNotFoundError:
        return None


def _owner(
    work: ExportAtWork, wanted: Plan, parts: tuple[str, ...], inode: int, *, adopted: bool = False, missing: int = 0
) -> Owner:
    claim = wanted.request.claim
    return Owner(
        pv=wanted.pv,
        path="/".join(parts),
        inode=inode,
        namespace=claim.namespace,
        claim=claim.name,
        claim_uid=claim.uid,
        class_name=wanted.request.storage_class.name,
        class_uid=wanted.request.storage_class.uid,
        provisioner=wanted.request.provisioner,
        created=stamp(work.host.clock.now()),
        capacity=wanted.size,
        # Whoever removes a volume that is to be retained leaves its directory there on purpose.
        policy="retain" if wanted.request.storage_class.reclaim_policy == "Retain" else wanted.request.policy,
        adopted=adopted,
        shared=wanted.parameters.adopt,
        retention=wanted.parameters.retention or 0,
        missing=missing,
    )


def _make(work: ExportAtWork, share: OpenShare, wanted: Plan, parts: tuple[str, ...], resumed: Owner | None) -> Owner:
    """Make the directory aside, write who owns it, and put it in place; on failure, undo it."""
    owner = resumed
    installing = False
    try:
        if owner is None:
            owner = _stage(work, share, wanted, parts)
        installing = True
        _put_in_place(share, owner, resumed=resumed is not None)
    except Exception as error:
        if owner is not None and isinstance(error, OSError) and _arrived(share, owner):
            return owner
        taken = isinstance(error, FileExistsError)
        _undo(work, share, wanted.pv, owner, error, leaf=installing and not taken)
        if taken:
            raise ProvisionError(
                f"claim {wanted.request.claim.key}: {work.export.source_path(parts)} has just been made by somebody "
                "else; it was not touched"
            ) from error
        raise
    return owner


def _arrived(share: OpenShare, owner: Owner) -> bool:
    """Whether the directory is in place after all: an NFS server may have done what its lost answer cannot tell."""
    try:
        return _in_place(share.root, owner)
    except OSError:
        return False


def _stage(work: ExportAtWork, share: OpenShare, wanted: Plan, parts: tuple[str, ...]) -> Owner:
    """Make the directory in the private area and write its ownership record."""
    name = stem(wanted.pv)
    _discard_staged(share, wanted.pv)
    want = wanted.permissions
    gid = want.gid if want.gid != -1 else inherited_group(share.root, parts)
    try:
        with share.new.make(name, want.mode, uid=want.uid, gid=gid) as staged:
            inode = staged.stat().st_ino
    except PermissionError as error:
        if want.uid == want.gid == -1:
            raise
        raise ProvisionError(
            f"claim {wanted.request.claim.key}: the directory cannot be given to {want.uid}:{want.gid} (mode "
            f"{want.mode:04o}): {error.strerror}. This process, or the server's root squashing, does not let it; "
            "remove uid and gid from the class, or run with the capability CHOWN. The directory was removed again"
        ) from error
    owner = _owner(work, wanted, parts, inode, missing=first_missing(share, parts))
    work.owners.write(share.owners, owner)
    return owner


def _put_in_place(share: OpenShare, owner: Owner, *, resumed: bool) -> None:
    name = stem(owner.pv)
    for attempt in range(_ATTEMPTS):
        try:
            with open_parent(share, owner.pv, owner.parts, owner.missing) as parent:
                share.new.install(name, parent, owner.parts[-1], reserved=resumed)
            return
        except FileNotFoundError:
            # Another volume's removal took an empty parent away under us.
            if attempt == _ATTEMPTS - 1 or not share.new.is_dir(name):
                raise


def _discard_staged(share: OpenShare, pv: str) -> None:
    """Remove what an earlier call left in the private area; it is empty, or it is not removed."""
    name = stem(pv)
    share.new.rmdir(staged_parent(pv))
    if not share.new.rmdir(name):
        where = share.new.at(name)
        raise OSError(errno.ENOTEMPTY, "holds data though it was never in place; look at it and move it away", where)


def _undo(work: ExportAtWork, share: OpenShare, pv: str, owner: Owner | None, error: Exception, *, leaf: bool) -> None:
    """Remove what this call made, and only that; what cannot be removed is found again by the next call."""
    try:
        if owner is not None:
            if leaf:
                _remove_reservation(share, owner)
            prune(share, owner.parts, owner.missing)
        _discard_staged(share, pv)
        work.owners.remove(share.owners, pv)
    except OSError as cleaning:
        error.add_note(f"cleaning up failed too ({cleaning.filename}: {cleaning.strerror}); it is done later")


def _remove_reservation(share: OpenShare, owner: Owner) -> None:
    """The empty directory that reserved the place, if putting the volume's there failed half-way."""
    try:
        with share.root.walk(owner.parts[:-1]) as parent:
            if parent.is_reservation(owner.parts[-1]):
                parent.rmdir(owner.parts[-1])
    except FileNotFoundError:
        pass


def _answer(work: ExportAtWork, wanted: Plan, owner: Owner, root_id: str, *notes: Note) -> Provisioned:
    unknown = wanted.parameters.unknown
    if unknown:
        notes += (
            Note("UnknownParameter", f"nobody knows the class's parameter {', '.join(unknown)}; ignored", "Warning"),
        )
    source = {"server": work.export.server, "path": work.export.source_path(owner.parts), "readOnly": wanted.read_only}
    record = {
        "export": work.name,
        "root": root_id,
        "path": owner.path,
        "inode": str(owner.inode),
        "adopted": "true" if owner.adopted else "false",
        "shared": "true" if owner.shared else "false",
        "retention": str(owner.retention),
    }
    return Provisioned(source={"nfs": source}, record=record, notes=notes)
