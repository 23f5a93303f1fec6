"""One base directory on this node: what is on it, and how volumes come and go without being mistaken for each other.

::

    <base>/<namespace>-<claim>-<volume>/   a volume, readable for who looks after the node
    <base>/.prov-host/                     ours alone (0700)
        sentinel                           which storage this is; recorded on every volume
        owners/<key>.json                  one per volume: its name and its directory's name
        making/<key>/                      a volume before it is moved into place
        archive/<name>/, <name>.json       archived volumes and what they were
        trash/<key>.<n>/                   deleted volumes, emptied in the background
        lock                               held during each operation, also against another process

A key is a hash of the volume's name, so no text of the cluster ever becomes a path in there. The owner record is
written before the directory is moved into place and removed after it is moved away, so every state that a crash can
leave is told apart, and is finished by asking again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Mapping

import msgspec

from prov_host.safedir import Dir, RealSys, Sys, remove_tree

from .ledger import Ledger
from .records import Owner, StorageError, UnusedError, decoded, key_of
from .settings import Place

__all__ = ["PRIVATE", "OpenStorage", "Room", "Storage", "empty", "words"]

PRIVATE = ".prov-host"
_FOLDERS = ("owners", "making", "archive", "trash")


class Room(msgspec.Struct, frozen=True):
    """How much a base directory can still take. Since 0.1.

    Attributes:
        free: bytes that are free now, less the reserve.
        unpromised: bytes of the budget that no volume was promised.
    """

    free: int
    unpromised: int

    @property
    def available(self) -> int:
        """The smaller of the two, at least 0."""
        return max(min(self.free, self.unpromised), 0)


class Storage:
    """A base directory. Every operation opens it anew and holds its lock; only the sizes are remembered in between.

    Args:
        place: where it is.
        sys: the file system calls.

    Callable from several threads and processes. Methods raise StorageError and OSError. Since 0.1.
    """

    def __init__(self, place: Place, sys: Sys | None = None) -> None:
        self.place = place
        self._sys = sys or RealSys()
        self._ledger = Ledger()
        self._proved = ""  # an identity that no volume speaks against

    def opened(
        self, *, recorded: Callable[[], frozenset[str]], first: bool = False
    ) -> contextlib.AbstractContextManager[OpenStorage]:
        """Open, prove and lock the directory.

        Args:
            first: give it an identity if it has none; only for who is about to make a volume.
            recorded: the identities that volumes of the cluster have recorded for this directory; asked only when
                the directory has none yet: then it must not get one, because it is not what it was.

        Returns:
            A context manager.

        Raises:
            UnusedError: it has no identity.
            StorageError: it is missing, not mounted, or not the one that volumes were made on.
        """
        return self._opened(recorded, first)

    @contextlib.contextmanager
    def _opened(self, recorded: Callable[[], frozenset[str]], first: bool) -> Iterator[OpenStorage]:  # noqa: FBT001
        with contextlib.ExitStack() as stack:
            root = stack.enter_context(self._open_root())
            if not first and root.lstat(PRIVATE) is None:
                raise self._unused(recorded())
            private = stack.enter_context(root.ensure(PRIVATE, 0o700))
            if private.stat().st_uid != os.geteuid():
                raise StorageError(f"{private.path} belongs to another user; nothing in it can be trusted")
            lock = self._sys.open(
                "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=private.fd
            )
            stack.callback(self._sys.close, lock)  # and with it the lock
            fcntl.flock(lock, fcntl.LOCK_EX)
            identity = self._identity(private, recorded, first=first)
            folders = {name: stack.enter_context(private.ensure(name, 0o700)) for name in _FOLDERS}
            yield OpenStorage(self.place, identity, root=root, folders=folders, ledger=self._ledger, lock=lock)

    def problems(self, *, recorded: Callable[[], frozenset[str]]) -> list[str]:
        """What is wrong with it, a sentence each, for readiness; changes nothing on it."""
        try:
            with self._open_root() as root:
                space = root.space()
                if space.f_files and not space.f_favail:
                    return [f"{self.place.path} has no free inodes; delete files, or volumes"]
                if not os.access(self.place.path, os.W_OK):
                    return [f"{self.place.path} cannot be written to"]
                if root.lstat(PRIVATE) is None:
                    return self._lost(recorded())
                with root.child(PRIVATE) as private:
                    if private.lstat("sentinel") is None:
                        return self._lost(recorded())
                    self._identity(private, recorded, first=False)
                    return []
        except (StorageError, OSError) as error:
            return [words(error)]

    def _unused(self, known: frozenset[str]) -> UnusedError:
        return UnusedError("".join(self._lost(known)) or f"no volume was ever made in {self.place.path}")

    def _other(self, identity: str, known: frozenset[str]) -> str:
        return (
            f"{self.place.path} is another storage ({identity}) than the one that the cluster's volumes were made on "
            f"({', '.join(sorted(known))}); is the right disk mounted?"
        )

    def _lost(self, known: frozenset[str]) -> list[str]:
        """A storage that has no identity must not be one that volumes were made on."""
        if not known:
            return []
        text = (
            f"{self.place.path} is not what it was: the cluster has volumes that were made on it (storage "
            f"{', '.join(sorted(known))}); is its disk mounted?"
        )
        return [text]

    def _open_root(self) -> Dir:
        path = self.place.path
        try:
            root = Dir.open_root(path, self._sys)
        except FileNotFoundError as error:
            raise StorageError(
                f"{path} does not exist on this node; make it, or mount it into the container"
            ) from error
        if self.place.require_mount and not root.is_mount_point():
            root.close()
            raise StorageError(f"nothing is mounted at {path}, and require_mount is set")
        return root

    def _identity(self, private: Dir, recorded: Callable[[], frozenset[str]], *, first: bool) -> str:
        data = private.read_file("sentinel", limit=256)
        if data is not None:
            identity = data.decode("ascii", "replace").strip()
            if identity.isalnum():
                if identity != self._proved and (known := recorded()) and identity not in known:
                    raise StorageError(self._other(identity, known))
                self._proved = identity
                return identity
            raise StorageError(f"{private.at('sentinel')} is damaged; restore it from the volumes' records")
        if not first or recorded():
            raise self._unused(recorded())
        identity = secrets.token_hex(8)
        private.write_file("sentinel", identity.encode(), temporary="sentinel.new", replace=False)
        return identity


class OpenStorage:
    """A base directory that is open, proved and locked; made by :class:`Storage` only. Since 0.1.

    Attributes:
        place: where it is.
        identity: which storage it is.
    """

    def __init__(
        self, place: Place, identity: str, *, root: Dir, folders: dict[str, Dir], ledger: Ledger, lock: int
    ) -> None:
        self.place = place
        self.identity = identity
        self._root = root
        self._ledger = ledger
        self._lock = lock
        self._owners, self._making = folders["owners"], folders["making"]
        self._archive, self._trash = folders["archive"], folders["trash"]

    def path_of(self, name: str) -> str:
        """The absolute path of a volume's directory, for messages."""
        return self._root.at(name)

    def owner(self, pv_name: str) -> Owner | None:
        """The record of a volume, None if there is none."""
        data = self._owners.read_file(f"{key_of(pv_name)}.json")
        owner = None if data is None else decoded(data, self._owners.at(key_of(pv_name)))
        if owner is not None and owner.pv_name != pv_name:
            raise StorageError(f"the record of {pv_name} in {self._owners.path} names {owner.pv_name}")
        return owner

    def owners(self) -> list[Owner]:
        """All records, in the order of their keys."""
        found = []
        for name in self._owners.names():
            data = self._owners.read_file(name) if name.endswith(".json") else None
            if data is not None:
                found.append(decoded(data, self._owners.at(name)))
        return found

    def room(self) -> Room:
        """How much is left."""
        space = self._root.space()
        total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
        budget = total - self.place.reserve if self.place.budget is None else self.place.budget
        return Room(free - self.place.reserve, budget - sum(self._sizes().values()))

    def count(self) -> int:
        """How many volumes there are."""
        return len(self._sizes())

    def _sizes(self) -> Mapping[str, int]:
        return self._ledger.sizes(self._lock, lambda: {owner.pv_name: owner.size for owner in self.owners()})

    def has(self, owner: Owner) -> bool:
        """Whether the volume's directory is in its place, whole."""
        # While it is still being made, what is in its place is at most a reservation of it.
        return self._root.is_dir(owner.name) and self._making.lstat(key_of(owner.pv_name)) is None

    def make(self, wanted: Owner, *, mode: int, uid: int, gid: int) -> Owner:
        """Make a volume's directory; asked again, the same one is the answer.

        Args:
            wanted: the record to write.
            mode: permission bits, whatever the umask.
            uid: owner, -1 for the process's.
            gid: group, -1 for the process's.

        Returns:
            The record as written.

        Raises:
            StorageError: something else is in its place.
            OSError: it could not be made. What was made of it is removed; a note on the error says if it was not.
        """
        key, name = key_of(wanted.pv_name), wanted.name
        owner = self.owner(wanted.pv_name)
        if owner is not None and self.has(owner):
            return owner
        if owner is None and self._root.lstat(name) is not None:
            raise StorageError(
                f"{self.path_of(name)} exists and was not made by us; move it away and it is tried again"
            )
        with self._ledger.changing(self._lock, wanted.pv_name, wanted.size):
            self._make(key, wanted, mode=mode, uid=uid, gid=gid)
        return wanted

    def _make(self, key: str, wanted: Owner, *, mode: int, uid: int, gid: int) -> None:
        done = False
        try:
            self._clear(key)  # what a crash left of an earlier try
            # The record first: whatever happens from here on, asking again finds it and goes on.
            self._owners.write_file(f"{key}.json", msgspec.json.encode(wanted), temporary=f"{key}.new")
            self._making.make(key, mode, uid=uid, gid=gid).close()
            self._making.install(key, self._root, wanted.name, reserved=True)
            done = True
            self._root.sys.fsync(self._root.fd)
        except BaseException as error:
            if done:
                error.add_note("it is made, and asking again finds it")
                raise
            try:
                self._clear(key)
                self._owners.unlink(f"{key}.json")
            except OSError as cleaning:
                error.add_note(f"and what was made of it could not be removed: {words(cleaning)}")
            raise

    def throw_away(self, owner: Owner) -> None:
        """Move a volume's directory into the trash, and forget whose it was."""
        key = key_of(owner.pv_name)
        if self.has(owner):
            self._refuse_mounts(owner)
            # Nobody else puts anything there, and on a full disk there may be no room for reserving the name.
            self._root.rename(owner.name, self._trash, self._free_name(self._trash, key))
            self._root.sys.fsync(self._root.fd)
        self._forget(owner)

    def _forget(self, owner: Owner) -> None:
        with self._ledger.changing(self._lock, owner.pv_name, None):
            self._owners.unlink(f"{key_of(owner.pv_name)}.json")

    def put_aside(self, owner: Owner, when: str) -> str:
        """Move a volume's directory into the archive, under a name that tells what it was.

        Args:
            owner: whose it is.
            when: a stamp for the name.

        Returns:
            The archive's path.
        """
        key = key_of(owner.pv_name)
        name = self._free_name(self._archive, f"{owner.name[:180]}-{when}")
        if self.has(owner):
            self._refuse_mounts(owner)
            try:
                # The record first: an archive without one would tell nobody what it was.
                self._archive.write_file(f"{name}.json", msgspec.json.encode(owner), temporary=f"{key}.new")
                self._root.install(owner.name, self._archive, name)
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                    error.add_note(
                        "an archive needs room for a small record; make some (deleting volumes needs none), and it is "
                        "tried again"
                    )
                raise
            self._root.sys.fsync(self._root.fd)
        self._forget(owner)
        return self._archive.at(name)

    def _refuse_mounts(self, owner: Owner) -> None:
        """Something mounted in the directory would be moved away from under its users."""
        with self._root.child(owner.name, readable=False) as directory:
            for mount in directory.mounts_inside():
                raise StorageError(
                    f"{mount.point} has a {mount.type} file system mounted; unmount it, and it is tried again"
                )

    def strangers(self) -> list[str]:
        """Names in the base directory that no record knows."""
        known = {owner.name for owner in self.owners()}
        return [name for name in self._root.names() if name != PRIVATE and name not in known]

    def archived(self) -> list[tuple[str, Owner | None]]:
        """Paths of archived volumes and what they were."""
        found = []
        for entry in sorted(self._archive.entries(), key=lambda entry: entry.name):
            if entry.is_dir:
                data = self._archive.read_file(f"{entry.name}.json")
                owner = None if data is None else decoded(data, self._archive.at(entry.name))
                found.append((self._archive.at(entry.name), owner))
        return found

    def trash(self) -> Dir:
        """The trash, open."""
        return self._trash.walk((), readable=True)

    def thrown_away(self) -> list[str]:
        """Paths in the trash."""
        return [self._trash.at(name) for name in self._trash.names()]

    def _clear(self, key: str) -> None:
        """Remove a directory that was not moved into place: nobody ever saw it, so nothing can be in it."""
        if not self._making.rmdir(key):
            raise StorageError(f"{self._making.at(key)} is not empty; nothing but this host should write there")

    def _free_name(self, directory: Dir, stem: str) -> str:
        for number in range(1_000_000):
            name = f"{stem}.{number}" if number else stem
            if directory.lstat(name) is None and directory.lstat(f"{name}.json") is None:
                return name
        raise StorageError(f"{directory.path} is full of {stem}")


def empty(trash: Dir, stop: Callable[[], bool]) -> list[str]:
    """Remove what is in a trash.

    Args:
        trash: open and readable; closed by the caller.
        stop: asked now and then; True ends it early.

    Returns:
        What could not be removed, and why.

    Callable from any thread, without the lock: nothing in a trash is anybody's any more. Since 0.1.
    """
    problems: list[str] = []
    waiting = trash.names()
    while waiting and not stop():
        name = waiting.pop()
        try:
            removal = remove_tree(trash, name, stop=stop)
        except OSError as error:
            problems.append(words(error))
            continue
        waiting += removal.spilled
        problems += removal.problems
    return problems


def words(error: Exception) -> str:
    """An error for a user: what and where, without the number."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if error.errno in {errno.EACCES, errno.EPERM}:
            text += " (the host's user may not do this)"
    else:
        text = str(error)
    return "; ".join([text, *getattr(error, "__notes__", ())])
