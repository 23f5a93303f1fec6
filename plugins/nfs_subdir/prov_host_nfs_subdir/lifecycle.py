"""What becomes of archives: listed, brought back, removed when their time is over.

Each step can be repeated after a crash. Removing moves the directory to the trash before its record goes; bringing one
back moves the directory, or its entries one by one, to where nothing is, before the record goes. Archives that the Go
provisioner made have no record: they are listed and can be brought back, and are only removed when they are named.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from prov_host import Volume, printable
from prov_host.safedir import (
    Dir,
    NotADirectory,
    OtherFilesystem,
    UnsafeName,
    check_new_name,
    normalize_absolute,
    relative_parts,
)
from prov_host_nfs_subdir.aging import Clocks, age_of
from prov_host_nfs_subdir.archiving import list_archives, write_record
from prov_host_nfs_subdir.exports import ExportAtWork, stamp
from prov_host_nfs_subdir.locating import parts_in, users
from prov_host_nfs_subdir.naming import ARCHIVE_PREFIX, RECORD_SUFFIX
from prov_host_nfs_subdir.parents import first_missing, open_parent, prune
from prov_host_nfs_subdir.pattern import RESERVED_PREFIX, is_servers_own
from prov_host_nfs_subdir.records import ArchiveRecord, Owner, Parents, stem
from prov_host_nfs_subdir.restored import Restored, remember_restored
from prov_host_nfs_subdir.settings import Export
from prov_host_nfs_subdir.share import OpenShare
from prov_host_nfs_subdir.sharing import others_at, whose

__all__ = [
    "Archive",
    "ArchiveError",
    "archives_of",
    "find_archive",
    "parts_of_target",
    "remove_archive",
    "restore_to_claim",
    "restore_to_path",
    "select",
    "summary",
]


class ArchiveError(Exception):
    """An archive cannot be brought back or removed; the message says why. Nothing was overwritten."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive as people see it. Since 0.1.

    Attributes:
        record: what its record says; only a name for archives without one.
        archived: when, or None if nothing tells.
        recorded: whether it has a record.
        changed: when the directory or its record was changed last, by the share's clock; None if it is not there.
    """

    record: ArchiveRecord
    archived: dt.datetime | None
    recorded: bool
    changed: dt.datetime | None = None

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.record.name

    @property
    def claim(self) -> str:
        """``namespace/name``, or ""."""
        return f"{self.record.namespace}/{self.record.claim}" if self.record.claim else ""


def archives_of(work: ExportAtWork, share: OpenShare, volumes: Iterable[Volume]) -> list[Archive]:
    """The archives of an export, oldest first.

    Args:
        work: the export.
        share: its open share.
        volumes: all volumes of the cluster: none of their directories is an archive, whatever its name.

    Returns:
        The archives.
    """
    taken = {owner.parts[0] for owner in work.owners.all(share.owners) if isinstance(owner, Owner)}
    taken |= {parts[0] for volume in volumes if (parts := parts_in(work.export, volume))}
    taken |= {parts[0] for parts, _inode in Parents.all(share.parents)}
    found = []
    for record in list_archives(share.root, taken):
        moment = _moment(record.archived)
        recorded = bool(record.archived)
        changed = _changed(share.root, record.name)
        if moment is None and not recorded:
            moment = changed
        found.append(Archive(record, moment, recorded, changed))
    return sorted(found, key=lambda archive: (archive.archived or dt.datetime.min.replace(tzinfo=dt.UTC), archive.name))


def _changed(root: Dir, name: str) -> dt.datetime | None:
    """A rename is the last thing that changed the inode of an archive nobody touched; its record was written then."""
    times = [found.st_ctime for each in (name, name + RECORD_SUFFIX) if (found := root.lstat(each)) is not None]
    return dt.datetime.fromtimestamp(max(times), dt.UTC) if times else None


def _moment(text: str) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        return None


def select(
    archives: Sequence[Archive],
    now: dt.datetime,
    *,
    older_than: int | None,
    keep_last: int | None,
    clocks: Clocks | None = None,
    names: Collection[str] = (),
) -> list[Archive]:
    """The archives that pruning would remove.

    Args:
        archives: all of them, oldest first.
        now: the wall clock.
        older_than: seconds; None for any age.
        clocks: this machine's and the share's, if both are to say how old an archive is; the smaller age counts.
        keep_last: how many of each claim are kept, the newest; None keeps none for their number.
        names: only these, if any are given. Archives without a record are only removed when they are named; each of
            them counts as a claim of its own.

    Returns:
        Those that are old enough and not among the last of their claim.
    """
    kept: set[str] = set()
    if keep_last:
        groups: dict[str, list[str]] = defaultdict(list)
        for archive in sorted(archives, key=lambda archive: -_seconds(archive, now, clocks)):
            groups[archive.claim or archive.name].append(archive.name)
        kept = {name for names in groups.values() for name in names[-keep_last:]}
    return [
        archive
        for archive in archives
        if archive.name not in kept
        and (archive.name in names if names else archive.recorded)
        and archive.archived is not None
        and (older_than is None or _seconds(archive, now, clocks) >= older_than)
    ]


def _seconds(archive: Archive, now: dt.datetime, clocks: Clocks | None) -> float:
    age = age_of(archive, clocks) if clocks else None
    return age.seconds if age else (now - (archive.archived or now)).total_seconds()


def remove_archive(work: ExportAtWork, share: OpenShare, archive: Archive) -> str:
    """Move an archive to the trash.

    Args:
        work: the export.
        share: its open share.
        archive: from :func:`archives_of`.

    Returns:
        Its name in the trash, to be removed there.

    Raises:
        ArchiveError: it is not what it was when it was listed.
    """
    there = share.root.lstat(archive.name)
    if there is not None and archive.record.inode not in {0, there.st_ino}:
        raise ArchiveError(f"{share.root.at(archive.name)} is not the directory that was archived; it was not touched")
    if there is not None:
        _refuse_mounts(share.root, archive.name)
    name = f"{stem(archive.name)}.{work.new_id()}"
    if there is not None:
        share.root.rename(archive.name, share.trash, name)
    if archive.recorded:
        share.root.unlink(archive.name + RECORD_SUFFIX)
    return name


def _refuse_mounts(root: Dir, name: str) -> None:
    """What is mounted in an archive would be moved away from under its users."""
    try:
        with root.child(name, readable=False) as directory:
            inside = directory.mounts_inside()
    except (OtherFilesystem, NotADirectory) as error:
        raise ArchiveError(f"{error.filename} {error.strerror}; it was not touched") from error
    if inside:
        raise ArchiveError(f"{inside[0].point} has a {inside[0].type} file system mounted; unmount that first")


def find_archive(archives: Iterable[Archive], name: str) -> Archive:
    """An archive by its name, or by enough of it.

    Raises:
        ArchiveError: there is none, or there are several.
    """
    archives = list(archives)
    exact = [archive for archive in archives if archive.name == name]
    found = exact or [
        archive for archive in archives if name in {archive.claim, archive.record.pv} or archive.name.startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ArchiveError(f"there is no archive {name!r}; `prov-host archives list` shows all")
    lines = "".join(f"\n  {printable(archive.name)}" for archive in found)
    raise ArchiveError(f"{printable(name)!r} could be {len(found)} archives; give the whole name of one:{lines}")


def parts_of_target(export: Export, path: str) -> tuple[str, ...]:
    """Where to restore to, as people write it.

    Args:
        export: the export.
        path: relative to its root, or absolute as the server has it.

    Returns:
        At least one name.

    Raises:
        ArchiveError: it is the root, or an absolute path that is not below it.
    """
    parts: tuple[str, ...] | None = tuple(part for part in path.split("/") if part)
    if path.startswith("/"):
        try:
            normal = normalize_absolute(path)
        except UnsafeName as error:
            raise ArchiveError(str(error)) from error
        parts = next((below for root in export.roots if (below := relative_parts(normal, root)) is not None), None)
        if parts is None:
            raise ArchiveError(
                f"{path} is not below the export's path, {export.path}; give a path below it, or a relative one"
            )
    if not parts:
        raise ArchiveError("the root itself cannot be restored to; give a path below it")
    return parts


def restore_to_path(
    work: ExportAtWork, share: OpenShare, archive: Archive, parts: tuple[str, ...], volumes: Iterable[Volume]
) -> str:
    """Move an archive to a path below the root, where nothing may be.

    Args:
        work: the export.
        share: its open share.
        archive: which.
        parts: where to.
        volumes: all volumes of the cluster.

    Returns:
        The path, as the server has it.

    Raises:
        ArchiveError: the path cannot be used.
    """
    where = work.export.source_path(parts)
    try:
        for part in parts:
            check_new_name(part)
    except UnsafeName as error:
        raise ArchiveError(str(error)) from error
    if parts[0].casefold().startswith(ARCHIVE_PREFIX) or any(
        part.casefold().startswith(RESERVED_PREFIX) or is_servers_own(part) for part in parts
    ):
        raise ArchiveError(f"{where} is reserved; choose another path")
    if used := users(work.export, volumes, parts, but=""):
        raise ArchiveError(f"{where} is used by volume {used[0].volume.name} of claim {used[0].volume.claim_key}")
    if owned := others_at(work, share, parts, but="")[0]:
        raise ArchiveError(f"{where} is owned by {whose(owned[0])}, going by the ownership record on the share")
    missing = first_missing(share, parts)
    _refuse_taken(share, parts, where, going_on=archive.record.restoring_to == where)
    going_on = _begin_restore(share, archive, where)
    if (there := share.root.lstat(archive.name)) is not None:
        note = Restored(
            path="/".join(parts), inode=there.st_ino, restored=stamp(work.host.clock.now()), archive=archive.record
        )
        remember_restored(share.restored, note)
    try:
        with open_parent(share, f"restore {archive.name}", parts, missing) as parent:
            share.root.install(archive.name, parent, parts[-1], reserved=going_on)
    except OSError as error:
        prune(share, parts, missing)
        if isinstance(error, FileExistsError):
            raise ArchiveError(f"{where} exists already; choose another path, or move it away") from error
        raise
    share.root.unlink(archive.name + RECORD_SUFFIX)
    return where


def _refuse_taken(share: OpenShare, parts: tuple[str, ...], where: str, *, going_on: bool) -> None:
    try:
        with share.root.walk(parts[:-1]) as parent:
            if parent.lstat(parts[-1]) is None or (going_on and parent.is_reservation(parts[-1])):
                return
    except FileNotFoundError:
        return
    raise ArchiveError(f"{where} exists already; choose another path, or move it away")


def _begin_restore(share: OpenShare, archive: Archive, where: str) -> bool:
    """Note in the archive's record where it goes; returns whether that was noted before."""
    if archive.record.restoring_to == where:
        return True
    archived = archive.record.archived or (stamp(archive.archived) if archive.archived else "unknown")
    write_record(share.root, msgspec.structs.replace(archive.record, restoring_to=where, archived=archived))
    return False


def restore_to_claim(
    work: ExportAtWork,
    share: OpenShare,
    archive: Archive,
    volume: Volume,
    *,
    told: Callable[[str], None] = lambda _: None,
) -> str:
    """Move what is in an archive into the empty directory of a claim's volume.

    Args:
        work: the export.
        share: its open share.
        archive: which.
        volume: the volume; its directory keeps its mode and owner.
        told: hears each name that is moved.

    Returns:
        The path, as the server has it.

    Raises:
        ArchiveError: the directory is not there, or not empty; what was moved already stays.
    """
    parts = parts_in(work.export, volume)
    if not parts:
        raise ArchiveError(f"volume {volume.name} is not on export {work.name!r}")
    where = work.export.source_path(parts)
    try:
        to = share.root.walk(parts, readable=True)
    except FileNotFoundError as error:
        raise ArchiveError(f"{where}, the directory of volume {volume.name}, is not there") from error
    with to, share.root.child(archive.name) as source:
        going_on = archive.record.restoring_to == where
        if not going_on and not to.is_empty():
            raise ArchiveError(f"{where} is not empty; restore into a new claim, or with --to into a path of its own")
        _begin_restore(share, archive, where)
        for name in source.names():
            try:
                source.move(name, to, name, reserved=going_on)
            except FileExistsError as error:
                raise ArchiveError(f"{to.at(name)} exists already; {source.at(name)} stays in the archive") from error
            told(name)
    if not share.root.rmdir(archive.name):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), share.root.at(archive.name))
    share.root.unlink(archive.name + RECORD_SUFFIX)
    return where


def summary(archive: Archive) -> dict[str, object]:
    """An archive for JSON."""
    return {
        **msgspec.to_builtins(archive.record),
        "claim": archive.claim,
        "archived": stamp(archive.archived) if archive.archived else "",
        "recorded": archive.recorded,
    }
