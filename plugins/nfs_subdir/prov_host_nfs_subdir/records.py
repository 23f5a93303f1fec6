"""What the plugin writes down on the share: who owns which directory, which parents it made, what it archived.

Records are small JSON files, written aside and renamed, so that a crash leaves the old one or the new one. They lie in
the private area (``.prov-host/``, mode 0700), except those of archives, which lie beside the archive. Everything read
back is hostile: it is decoded into typed Structs with limits, and what cannot be decoded is an error that names the
file, never an absent record.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from prov_host.safedir import Dir
from prov_host_nfs_subdir.paths import PathIndex

__all__ = [
    "ArchiveRecord",
    "Known",
    "Owner",
    "Owners",
    "Parents",
    "Released",
    "UnreadableRecord",
    "decode",
    "owner_file",
    "stem",
]

_LIMIT = 64 * 1024
_SUFFIX = ".json"
_T = TypeVar("_T", bound=msgspec.Struct)


class UnreadableRecord(OSError):
    """A record is there but says nothing usable; a person must look at it."""


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose directory it is; one per volume, also while several volumes share one directory. Since 0.1.

    Attributes:
        pv: the volume's name.
        path: the directory, relative to the root, names joined by slashes.
        inode: the directory's inode number.
        namespace: of the claim.
        claim: the claim's name.
        claim_uid: the claim's uid.
        class_name: the storage class.
        class_uid: its uid, which no other cluster has.
        provisioner: the provisioner name.
        created: when, in UTC.
        capacity: bytes asked for.
        policy: what becomes of it.
        adopted: the directory existed before, or another volume made it.
        shared: the class lets volumes share directories.
        taken_over: another program made the volume.
        retention: seconds to keep its archive, 0 for ever.
        missing: the depth from which on its parents were missing or ours; 0 for none.
        leaving: the name of the archive that it is being moved to.
        confirmed: a person has confirmed that it is this volume's, whose own record in the cluster is lost.
    """

    pv: str
    path: str
    inode: int
    namespace: str = ""
    claim: str = ""
    claim_uid: str = ""
    class_name: str = ""
    class_uid: str = ""
    provisioner: str = ""
    created: str = ""
    capacity: int = 0
    policy: str = ""
    adopted: bool = False
    shared: bool = False
    taken_over: bool = False
    retention: int = 0
    missing: int = 0
    leaving: str = ""
    confirmed: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The path's names."""
        return tuple(self.path.split("/"))


class ArchiveRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an archive came from; lies beside it as ``<name>.json``. Since 0.1.

    Attributes:
        name: the archive's directory.
        pv: the volume's name.
        namespace: of the claim.
        claim: the claim's name.
        claim_uid: the claim's uid.
        class_name: the storage class.
        provisioner: the provisioner name.
        path: where the directory was, relative to the root.
        archived: when, in UTC, as ``2026-01-31T12:00:00Z``.
        retention: seconds to keep it, 0 for ever.
        capacity: bytes the claim asked for.
        inode: the directory's inode number.
        restoring_to: where its content is being moved by an unfinished restore.
    """

    name: str
    pv: str = ""
    namespace: str = ""
    claim: str = ""
    claim_uid: str = ""
    class_name: str = ""
    provisioner: str = ""
    path: str = ""
    archived: str = ""
    retention: int = 0
    capacity: int = 0
    inode: int = 0
    restoring_to: str = ""


class _Parent(msgspec.Struct, frozen=True):
    """A directory made only to hold others."""

    path: str
    inode: int


class _Note(msgspec.Struct, frozen=True):
    """Whose directory was taken away, and when."""

    pv: str
    uid: str
    when: str


def owner_file(pv: str) -> str:
    """The name of a volume's ownership record."""
    return stem(pv) + _SUFFIX


def stem(key: str) -> str:
    """A file name for any text, always the same, never surprising."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def decode(data: bytes, kind: type[_T], where: str) -> _T:
    """Read a record.

    Raises:
        UnreadableRecord: naming the file.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRecord(
            errno.EBADMSG, f"is not a readable record ({error}); restore the file from a backup or remove it", where
        ) from error


def encode(record: msgspec.Struct) -> bytes:
    """Write a record, readable for people too."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of an ownership record, to find it by its directory.

    Attributes:
        pv: the volume's name.
        parts: its directory.
        inode: its directory's inode number.
        claim_uid: its claim's uid.
        capacity: bytes asked for.
    """

    pv: str
    parts: tuple[str, ...]
    inode: int
    claim_uid: str
    capacity: int

    @classmethod
    def of(cls, owner: Owner) -> Known:
        """What is remembered of a record."""
        return cls(owner.pv, owner.parts, owner.inode, owner.claim_uid, owner.capacity)


class Owners:
    """The ownership records of one share; any thread. Since 0.1.

    The records are looked up on disk by volume name. Which volumes own a *path* is found in an index in memory: the
    names of the records are listed each time, because other clusters may use the same share, and only those that are
    new are read. Whoever finds a record in the index reads it again before anything is decided.

    Args:
        monotonic: a clock, in seconds.
    """

    _RECENT = 10.0

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, Known] = {}
        self._paths: PathIndex[str] = PathIndex()
        self._inodes: dict[int, set[str]] = {}
        self._listed: float | None = None
        self._unreadable: tuple[UnreadableRecord, ...] = ()

    def read(self, owners: Dir, pv: str) -> Owner | None:
        """A volume's record, None if there is none."""
        name = stem(pv) + _SUFFIX
        data = owners.read_file(name, limit=_LIMIT)
        if data is None:
            return None
        owner = decode(data, Owner, owners.at(name))
        if owner.pv != pv:
            raise UnreadableRecord(errno.EBADMSG, f"is about volume {owner.pv!r}, not {pv!r}", owners.at(name))
        return owner

    def write(self, owners: Dir, owner: Owner) -> None:
        """Write or replace a volume's record."""
        name = stem(owner.pv)
        owners.write_file(name + _SUFFIX, encode(owner), temporary=name + ".tmp")
        with self._lock:
            self._put(name + _SUFFIX, Known.of(owner))

    def remove(self, owners: Dir, pv: str) -> None:
        """Remove a volume's record; nothing happens if there is none."""
        owners.unlink(stem(pv) + _SUFFIX)
        with self._lock:
            self._put(stem(pv) + _SUFFIX, None)

    def all(self, owners: Dir) -> Iterator[Owner | UnreadableRecord]:
        """Every record; errors instead of what cannot be read."""
        for name in owners.names():
            if not name.endswith(_SUFFIX):
                continue
            try:
                data = owners.read_file(name, limit=_LIMIT)
                if data is not None:
                    yield decode(data, Owner, owners.at(name))
            except UnreadableRecord as error:
                yield error

    def look(self, owners: Dir, *, fresh: bool = True) -> tuple[UnreadableRecord, ...]:
        """Bring the index up to date.

        Args:
            owners: the records.
            fresh: whether records that another cluster wrote in the last seconds must be among them.

        Returns:
            Errors for those that cannot be read.
        """
        now = self._monotonic()
        with self._lock:
            if self._listed is not None and not fresh and now - self._listed < self._RECENT:
                return self._unreadable
            known = set(self._known)
        there = {name for name in owners.names() if name.endswith(_SUFFIX)}
        read: dict[str, Known] = {}
        unreadable = []
        for name in there - known:
            try:
                data = owners.read_file(name, limit=_LIMIT)
                if data is not None:
                    owner = decode(data, Owner, owners.at(name))
                    read[name] = Known.of(owner)
            except UnreadableRecord as error:
                unreadable.append(error)
        with self._lock:
            # What this process wrote or removed meanwhile is newer than what was listed.
            for name in known - there:
                self._put(name, None)
            for name in read.keys() - self._known.keys():
                self._put(name, read[name])
            self._listed = now
            self._unreadable = tuple(unreadable)
            return self._unreadable

    def known(self) -> list[Known]:
        """All records, as last looked at."""
        with self._lock:
            return list(self._known.values())

    def overlapping(self, parts: tuple[str, ...]) -> list[Known]:
        """The records, as last looked at, of a directory, of ones inside and around it, in whatever spelling."""
        with self._lock:
            return [self._known[name] for name in self._paths.overlapping(parts)]

    def with_inodes(self, inodes: Iterable[int]) -> list[Known]:
        """The records, as last looked at, that name one of these inode numbers."""
        with self._lock:
            return [self._known[name] for inode in set(inodes) for name in self._inodes.get(inode, ())]

    def _put(self, name: str, known: Known | None) -> None:
        """Change the index; the lock is held."""
        old = self._known.pop(name, None)
        if old is not None:
            self._paths.drop(name, old.parts)
            names = self._inodes[old.inode]
            names.discard(name)
            if not names:
                del self._inodes[old.inode]
        if known is not None:
            self._known[name] = known
            self._paths.add(name, known.parts)
            self._inodes.setdefault(known.inode, set()).add(name)


class Released:
    """Notes that the directory of a volume which another program made was taken away from this share. Stateless.

    Such a volume says nothing about the share it was made on. If its deletion is asked for again after a crash, this
    note tells that it was here and is done with, and not that the wrong share is mounted.
    """

    _AREA = "released"

    @classmethod
    def note(cls, private: Dir, pv: str, uid: str, when: str) -> None:
        """Write the note."""
        name = stem(pv)
        with private.ensure(cls._AREA, 0o700) as area:
            area.write_file(name + _SUFFIX, encode(_Note(pv, uid, when)), temporary=name + ".tmp")

    @classmethod
    def noted(cls, private: Dir, pv: str, uid: str = "") -> bool:
        """Whether there is a note about a volume; with its uid, about this very one."""
        name = stem(pv) + _SUFFIX
        try:
            with private.walk((cls._AREA,)) as area:
                data = area.read_file(name, limit=_LIMIT)
                return data is not None and uid in {"", decode(data, _Note, area.at(name)).uid}
        except FileNotFoundError:
            return False

    @classmethod
    def forget(cls, private: Dir, before: str, known: Iterable[str]) -> None:
        """Remove the notes that are older than a moment and about none of these volumes."""
        needed = {stem(pv) + _SUFFIX for pv in known}
        try:
            area = private.child(cls._AREA)
        except FileNotFoundError:
            return
        with area:
            for name in area.names():
                if name.endswith(_SUFFIX) and name not in needed and cls._is_older(area, name, before):
                    area.unlink(name)

    @staticmethod
    def _is_older(area: Dir, name: str, before: str) -> bool:
        try:
            data = area.read_file(name, limit=_LIMIT)
            return data is None or decode(data, _Note, area.at(name)).when < before
        except UnreadableRecord:
            return True


class Parents:
    """Which directories were made only to hold others, so that they may be removed when empty. Stateless.

    A record is found by path and inode number together: two threads that make the same parent at once write one each,
    and a directory that somebody else made later in the same place is not mistaken for ours.
    """

    @staticmethod
    def _name(parts: tuple[str, ...], inode: int) -> str:
        return stem(f"{'/'.join(parts)}\0{inode}")

    @classmethod
    def remember(cls, parents: Dir, parts: tuple[str, ...], inode: int) -> None:
        """Note a directory before it is put in place."""
        name = cls._name(parts, inode)
        data = encode(_Parent("/".join(parts), inode))
        parents.write_file(name + _SUFFIX, data, temporary=name + ".tmp")

    @classmethod
    def made(cls, parents: Dir, parts: tuple[str, ...], inode: int) -> bool:
        """Whether we made a directory."""
        return parents.lstat(cls._name(parts, inode) + _SUFFIX) is not None

    @classmethod
    def forget(cls, parents: Dir, parts: tuple[str, ...], inode: int) -> None:
        """The directory is gone."""
        parents.unlink(cls._name(parts, inode) + _SUFFIX)

    @classmethod
    def all(cls, parents: Dir) -> Iterator[tuple[tuple[str, ...], int]]:
        """Every directory remembered: its path and inode number."""
        for name in parents.names():
            if name.endswith(_SUFFIX) and (data := parents.read_file(name, limit=_LIMIT)) is not None:
                parent = decode(data, _Parent, parents.at(name))
                yield tuple(parent.path.split("/")), parent.inode
