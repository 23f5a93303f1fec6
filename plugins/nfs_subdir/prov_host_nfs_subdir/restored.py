"""What is remembered of an archive that was brought back to a path of its own.

Until a volume adopts it, nobody in the cluster speaks for such a directory, and a report of orphans would call it
unknown. So a note in the private area says which archive it was. It counts only while the very directory is there: a
note about anything else is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from prov_host.safedir import Dir
from prov_host_nfs_subdir.records import ArchiveRecord, UnreadableRecord, decode, encode, stem

__all__ = ["Restored", "forget_restored", "remember_restored", "restored"]

logger = logging.getLogger(__name__)

_LIMIT = 64 * 1024
_SUFFIX = ".json"


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that was an archive. Since 0.1.

    Attributes:
        path: where it is now, relative to the root, names joined by slashes.
        inode: its inode number.
        restored: when, in UTC.
        archive: the archive's record: which claim and volume it came from.
    """

    path: str
    inode: int
    restored: str
    archive: ArchiveRecord

    @property
    def parts(self) -> tuple[str, ...]:
        """The path's names."""
        return tuple(self.path.split("/"))

    @property
    def claim(self) -> str:
        """``namespace/name`` of the claim it came from, or ""."""
        return f"{self.archive.namespace}/{self.archive.claim}" if self.archive.claim else ""


def remember_restored(area: Dir, note: Restored) -> None:
    """Write a note, before the directory is moved."""
    name = stem(note.path)
    area.write_file(name + _SUFFIX, encode(note), temporary=name + ".tmp")


def forget_restored(area: Dir, note: Restored) -> None:
    """The directory is not there any more."""
    area.unlink(stem(note.path) + _SUFFIX)


def restored(area: Dir) -> Iterator[Restored]:
    """All notes that can be read."""
    for name in area.names():
        if not name.endswith(_SUFFIX):
            continue
        try:
            if (data := area.read_file(name, limit=_LIMIT)) is not None:
                yield decode(data, Restored, area.at(name))
        except UnreadableRecord as error:
            logger.warning("%s %s", error.filename, error.strerror)
