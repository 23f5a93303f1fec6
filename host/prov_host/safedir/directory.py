"""One open directory, and everything that may be done to the entries in it.

A :class:`Dir` holds a file descriptor. Going down is one ``openat`` per name that refuses links and anything mounted,
be it another file system or another directory of this one (a bind mount, which only the mount's number tells), so
whoever can rename or replace entries on the way can make a call fail, but can never lead it anywhere else: what was
opened is what is used. A path is only kept for messages.

Directories are made aside and moved into place (:meth:`Dir.install`), so an entry never appears half-made, with a
wrong mode or owner, and nothing that existed before is ever changed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from prov_host.safedir.failures import NotADirectory, OtherFilesystem, located
from prov_host.safedir.moving import Rename, is_reservation
from prov_host.safedir.names import check_name
from prov_host.safedir.smallfiles import read_file, write_file
from prov_host.safedir.syscalls import Entry, Mount, RealSys, Sys

__all__ = ["Dir"]

_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Dir:
    """An open directory; a context manager that closes it.

    Args:
        sys: the calls to use.
        fd: an open descriptor of a directory; owned from now on.
        path: where it is, for messages.
        device: ``st_dev`` of the root's file system.
        mount: the number of the mount the root was opened through, 0 if it is not known.

    Every method may raise OSError. Not for use by two threads at once, except for methods on entries (all calls are
    relative to the descriptor and keep no state here). Since 0.1.
    """

    __slots__ = ("_fd", "device", "mount", "path", "sys")

    def __init__(self, sys: Sys, fd: int, path: str, device: int, mount: int = 0) -> None:
        self.sys = sys
        self._fd = fd
        self.path = path
        self.device = device
        self.mount = mount

    @classmethod
    def open_root(cls, path: str, sys: Sys | None = None) -> Dir:
        """Open a root directory by its path; links on the way to a root are its administrator's business.

        Args:
            path: an absolute path.
            sys: the calls to use from here on; this machine's by default.

        Returns:
            The open root.

        Raises:
            NotADirectory: it is something else.
            OSError: it cannot be opened.

        Since 0.1.
        """
        sys = sys or RealSys()
        try:
            fd = sys.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except NotADirectoryError as error:
            raise NotADirectory(errno.ENOTDIR, "is not a directory", path) from error
        try:
            return cls(sys, fd, path.rstrip("/") or "/", sys.fstat(fd).st_dev, sys.mount_id(fd))
        except BaseException:
            sys.close(fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; harmless when it is closed."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            # Nothing was written through it, so an error here tells nothing about what was done.
            with suppress(OSError):
                self.sys.close(fd)

    @property
    def fd(self) -> int:
        """The descriptor."""
        return self._fd

    def at(self, name: str) -> str:
        """The path of an entry, for messages."""
        return f"{self.path.rstrip('/')}/{name}"

    # --- going down ---------------------------------------------------------------------------------------------

    def child(self, name: str, *, readable: bool = True) -> Dir:
        """Open a directory in this one.

        Args:
            name: its name.
            readable: False opens it for going on only, which needs no read permission; listing it, changing its mode
                or owner, and syncing it are then not possible.

        Returns:
            The open directory.

        Raises:
            UnsafeName: `name` is not a name.
            NotADirectory: the entry is a link or anything else.
            OtherFilesystem: something is mounted there.
            FileNotFoundError: there is no such entry.
        """
        check_name(name)
        with located(self.at(name)):
            try:
                fd = self.sys.open(name, _READ if readable else _WALK, dir_fd=self._fd)
            except OSError as error:
                if error.errno in {errno.ENOTDIR, errno.ELOOP}:
                    raise NotADirectory(errno.ENOTDIR, self._what_instead(name), self.at(name)) from error
                raise
        try:
            if self.sys.fstat(fd).st_dev != self.device:
                raise OtherFilesystem(errno.EXDEV, "another file system is mounted here", self.at(name))
            if self.mount and self.sys.mount_id(fd) != self.mount:
                raise OtherFilesystem(errno.EXDEV, "another directory is mounted here (bind mount)", self.at(name))
        except BaseException:
            with suppress(OSError):
                self.sys.close(fd)
            raise
        return Dir(self.sys, fd, self.at(name), self.device, self.mount)

    def walk(self, names: Iterable[str], *, readable: bool = False) -> Dir:
        """Go down several directories, each as by :meth:`child`.

        Args:
            names: may be empty: then it is this directory again.
            readable: whether the last one is opened for reading.

        Returns:
            The last directory; close it.
        """
        names = tuple(names)
        current = self._again(readable=readable and not names)
        for index, name in enumerate(names):
            with current:
                below = current.child(name, readable=readable and index == len(names) - 1)
            current = below
        return current

    def _again(self, *, readable: bool) -> Dir:
        fd = self.sys.open(".", _READ if readable else _WALK, dir_fd=self._fd)
        return Dir(self.sys, fd, self.path, self.device, self.mount)

    def _what_instead(self, name: str) -> str:
        try:
            mode = self.sys.lstat(name, dir_fd=self._fd).st_mode
        except OSError:
            return "is not a directory"
        if stat.S_ISLNK(mode):
            return "is a symbolic link, and links are never followed"
        return "is a file, not a directory" if stat.S_ISREG(mode) else "is not a directory"

    # --- looking ------------------------------------------------------------------------------------------------

    def stat(self) -> os.stat_result:
        """This directory's own attributes."""
        return self.sys.fstat(self._fd)

    def lstat(self, name: str) -> os.stat_result | None:
        """An entry's attributes, not following links; None if there is none."""
        check_name(name)
        with located(self.at(name)):
            try:
                return self.sys.lstat(name, dir_fd=self._fd)
            except FileNotFoundError:
                return None

    def is_dir(self, name: str) -> bool:
        """Whether an entry is there and is a directory (a link to one is not)."""
        found = self.lstat(name)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def entries(self) -> Iterator[Entry]:
        """The entries, in no order; needs a readable directory."""
        return self.sys.scandir(self._fd)

    def names(self) -> list[str]:
        """The names of the entries, sorted."""
        return sorted(entry.name for entry in self.entries())

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return next(iter(self.entries()), None) is None

    def space(self) -> os.statvfs_result:
        """The file system's size and free space."""
        return self.sys.fstatvfs(self._fd)

    def is_mount_point(self) -> bool:
        """Whether this directory is where something is mounted, by whatever path it was opened."""
        mount = self.sys.mount_of(self._fd)
        return mount is not None and mount.point == self.sys.real_path(self._fd)

    def mounts_inside(self) -> tuple[Mount, ...]:
        """What is mounted below this directory, or on it, by whatever path it was opened.

        Who is about to rename or remove the directory asks first: what is mounted in it would be moved away from
        under its users. (Removing stops at mounts anyway, see :meth:`child`.)
        """
        here = self.sys.real_path(self._fd)
        below, own = here.rstrip("/") + "/", str(self.mount)
        return tuple(
            one for one in self.sys.mounts() if one.id != own and (one.point == here or one.point.startswith(below))
        )

    # --- changing -----------------------------------------------------------------------------------------------

    def make(self, name: str, mode: int, *, uid: int = -1, gid: int = -1) -> Dir:
        """Make a directory with exactly this mode, whatever the umask, and owner; for private places.

        On failure, what was made is removed. In a directory that others can write to, make it aside and
        :meth:`install` it instead, because between making and opening they could put something else there.

        Args:
            name: its name.
            mode: permission bits.
            uid: owner, -1 for the process's.
            gid: group, -1 for the process's.

        Returns:
            The new directory, open for reading.

        Raises:
            FileExistsError: there is such an entry.
            OSError: also when the owner cannot be set.
        """
        check_name(name)
        with located(self.at(name)):
            self.sys.mkdir(name, 0o700, dir_fd=self._fd)
            made: Dir | None = None
            try:
                made = self.child(name)
                if uid != -1 or gid != -1:
                    self.sys.fchown(made.fd, uid, gid)
                # After chown, which clears set-id bits.
                self.sys.fchmod(made.fd, mode)
            except BaseException as error:
                if made is not None:
                    made.close()
                # Only an empty directory can be what was made here, and rmdir removes nothing else.
                try:
                    self.sys.rmdir(name, dir_fd=self._fd)
                except OSError as cleaning:
                    error.add_note(f"and {self.at(name)} could not be removed again: {cleaning.strerror}")
                raise
        return made

    def ensure(self, name: str, mode: int) -> Dir:
        """Open a directory of our own, making it first if it is missing; for private places."""
        try:
            return self.child(name)
        except FileNotFoundError:
            pass
        try:
            return self.make(name, mode)
        except FileExistsError:
            return self.child(name)

    def rename(self, name: str, to: Dir, new: str) -> None:
        """Move an entry; replaces a file, or an empty directory by a directory. For private places."""
        check_name(name)
        check_name(new)
        with located(self.at(name), to.at(new)):
            self.sys.rename(name, new, src_dir_fd=self._fd, dst_dir_fd=to.fd)

    def install(self, name: str, to: Dir, new: str, *, reserved: bool = False) -> None:
        """Move a directory to a place where nothing is, atomically; never replace anything.

        Where the file system has no such rename (NFS), the place is first reserved by making an empty directory
        there, which fails if anything exists, and then renamed onto, which fails if anybody put something in.

        Args:
            name: the directory to move.
            to: the directory it goes to; same file system.
            new: its name there.
            reserved: an earlier attempt of the caller may have made the reservation and died: an empty directory
                with mode 0700 counts as free.

        Raises:
            FileExistsError: something is there.
            FileNotFoundError: `name` is not there.
        """
        check_name(name)
        check_name(new)
        with located(self.at(name), to.at(new)):
            Rename(self.sys, self._fd, name, to.fd, new, reserved).directory()

    def move(self, name: str, to: Dir, new: str, *, reserved: bool = False) -> None:
        """Move any entry to a place where nothing is; never replace anything.

        Directories as by :meth:`install`. Where the file system has no such rename, other entries are linked to
        their new name, which fails if anything is there, and then unlinked from the old one.

        Args:
            name: the entry.
            to: the directory it goes to; same file system.
            new: its name there.
            reserved: as in :meth:`install`; also, an entry that has both names already only loses the old one.

        Raises:
            FileExistsError: something is there.
        """
        if self.is_dir(name):
            self.install(name, to, new, reserved=reserved)
            return
        check_name(name)
        check_name(new)
        with located(self.at(name), to.at(new)):
            Rename(self.sys, self._fd, name, to.fd, new, reserved).other()

    def is_reservation(self, name: str) -> bool:
        """Whether an entry is an empty directory with mode 0700, as an interrupted :meth:`install` leaves it."""
        check_name(name)
        with located(self.at(name)):
            return is_reservation(self.sys, self._fd, name)

    def rmdir(self, name: str) -> bool:
        """Remove an empty directory.

        Returns:
            True if it was removed or is not there, False if something is in it.
        """
        check_name(name)
        with located(self.at(name)):
            try:
                self.sys.rmdir(name, dir_fd=self._fd)
            except FileNotFoundError:
                return True
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                    return False
                raise
        return True

    def unlink(self, name: str) -> None:
        """Remove a file or link; nothing happens if there is none."""
        check_name(name)
        with located(self.at(name)), suppress(FileNotFoundError):
            self.sys.unlink(name, dir_fd=self._fd)

    # --- small files --------------------------------------------------------------------------------------------

    def read_file(self, name: str, *, limit: int = 65536) -> bytes | None:
        """Read a small file.

        Args:
            name: a regular file; anything else is an error, and links are not followed.
            limit: bytes at most.

        Returns:
            What is in it, None if there is no such entry.

        Raises:
            OSError: not a regular file, longer than `limit`, or not readable.
        """
        check_name(name)
        with located(self.at(name)):
            return read_file(self.sys, self._fd, name, limit)

    def write_file(self, name: str, data: bytes, *, temporary: str, replace: bool = True, mode: int = 0o600) -> None:
        """Write a small file so that readers see all of it or nothing, also after a crash.

        Args:
            name: the file.
            data: what will be in it.
            temporary: the name it is written under first; an old file of that name is replaced.
            replace: False refuses if there is such an entry.
            mode: permission bits, whatever the umask.

        Raises:
            FileExistsError: it exists and `replace` is false.
        """
        check_name(name)
        check_name(temporary)
        with located(self.at(name)):
            write_file(self.sys, self._fd, name, data, temporary=temporary, replace=replace, mode=mode)
