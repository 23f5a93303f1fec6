"""Archives: directories ``archived-...`` in the root, each with a record ``archived-....json`` beside it.

The record is written before the directory is moved, so there is no moment at which an archive has none; a record
without a directory is an archiving that has not come to its end, or an archive that somebody removed by hand.
"""

from __future__ import annotations

import datetime as dt
import errno
import logging
import os
import re
from collections.abc import Container, Iterator

from prov_host.safedir import Dir
from prov_host_nfs_subdir.naming import ARCHIVE_PREFIX, RECORD_SUFFIX, archive_name
from prov_host_nfs_subdir.records import ArchiveRecord, Owner, UnreadableRecord, decode, encode

__all__ = ["archive_record", "free_name", "list_archives", "read_record", "write_record"]

logger = logging.getLogger(__name__)

_LIMIT = 64 * 1024
_ATTEMPTS = 1000
_GO_ARCHIVE = re.compile(r"archived-.+-(pvc-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.DOTALL)


def free_name(root: Dir, owner: Owner, moment: dt.datetime) -> str:
    """A name for an archive that nothing in the root has.

    Args:
        root: the share's root.
        owner: whose directory it is.
        moment: now.

    Returns:
        The name; taking it still never replaces anything.
    """
    for attempt in range(_ATTEMPTS):
        name = archive_name(owner.namespace, owner.claim, owner.pv, moment, attempt)
        if root.lstat(name) is None and root.lstat(name + RECORD_SUFFIX) is None:
            return name
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), root.at(archive_name("", "", owner.pv, moment, 0)))


def archive_record(owner: Owner, archived: str) -> ArchiveRecord:
    """The record of an archive."""
    return ArchiveRecord(
        name=owner.leaving,
        pv=owner.pv,
        namespace=owner.namespace,
        claim=owner.claim,
        claim_uid=owner.claim_uid,
        class_name=owner.class_name,
        provisioner=owner.provisioner,
        path=owner.path,
        archived=archived,
        retention=owner.retention,
        capacity=owner.capacity,
        inode=owner.inode,
    )


def write_record(root: Dir, record: ArchiveRecord) -> None:
    """Write or replace an archive's record; a foreign file of that name is never replaced.

    Raises:
        FileExistsError: there is a file that is no such record.
    """
    name = record.name + RECORD_SUFFIX
    found = root.read_file(name, limit=_LIMIT)
    if found is not None and decode(found, ArchiveRecord, root.at(name)).pv != record.pv:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), root.at(name))
    root.write_file(name, encode(record), temporary=f".{record.name}.tmp"[:250], replace=found is not None)


def read_record(root: Dir, name: str) -> ArchiveRecord | None:
    """An archive's record, None if there is none.

    Raises:
        UnreadableRecord: it is there but unusable.
    """
    data = root.read_file(name + RECORD_SUFFIX, limit=_LIMIT)
    return None if data is None else decode(data, ArchiveRecord, root.at(name + RECORD_SUFFIX))


def list_archives(root: Dir, taken: Container[str] = ()) -> Iterator[ArchiveRecord]:
    """The archives in a root, sorted by name; those without a usable record have only a name and an inode.

    A directory whose name begins like an archive's is one, with a record or without (the Go provisioner writes none,
    and its names end in whatever the volume's directory was called), unless it is taken: a namespace may be called
    ``archived-x``.

    Args:
        root: the share's root.
        taken: names in the root that volumes use, or have their directories in, or that were made to hold some.
    """
    for entry in sorted(root.entries(), key=lambda entry: entry.name):
        if entry.name in taken or not entry.is_dir or not entry.name.startswith(ARCHIVE_PREFIX):
            continue
        try:
            record = read_record(root, entry.name)
        except UnreadableRecord as error:
            logger.warning("%s %s", error.filename, error.strerror)
            record = ArchiveRecord(name=entry.name)
        if record is not None:
            yield record if record.name == entry.name else ArchiveRecord(name=entry.name)
        else:
            match = _GO_ARCHIVE.fullmatch(entry.name)
            yield ArchiveRecord(name=entry.name, pv=match[1] if match else "")
