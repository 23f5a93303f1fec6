"""Renames that never replace anything, on every file system.

Linux has such a rename, but not for NFS. There, a directory's place is first reserved by making an empty directory,
which fails if anything exists, and then renamed onto, which fails if anybody put something in. Any other entry gets its
new name as a hard link, which fails if anything exists, and then loses the old one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from prov_host.safedir.syscalls import Sys

__all__ = ["Rename", "is_reservation"]

_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})
_RESERVATION = 0o700


@dataclass(frozen=True, slots=True)
class Rename:
    """One rename to where nothing is.

    Attributes:
        sys: the calls.
        source: descriptor of the directory the entry is in.
        name: its name there.
        target: descriptor of the directory it goes to.
        new: its name there.
        reserved: an earlier attempt may have died half-way: a reservation, or a second name of the same file, is ours.
    """

    sys: Sys
    source: int
    name: str
    target: int
    new: str
    reserved: bool = False

    def directory(self) -> None:
        """Rename a directory.

        Raises:
            FileExistsError: something is there.
        """
        try:
            if not self._natively(self._reserved):
                self._by_reservation()
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.new) from error
            raise

    def other(self) -> None:
        """Rename anything that is no directory.

        Raises:
            FileExistsError: something is there.
        """
        try:
            if not self._natively(lambda: False):
                self._by_link()
        except FileExistsError:
            if not (self.reserved and self._has_both_names()):
                raise
            self.sys.unlink(self.name, dir_fd=self.source)

    def _natively(self, may_replace: Callable[[], bool]) -> bool:
        """Whether the file system could do it."""
        try:
            self.sys.rename_noreplace(self.name, self.new, src_dir_fd=self.source, dst_dir_fd=self.target)
        except FileExistsError:
            if not may_replace():
                raise
            self._rename()
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        return True

    def _rename(self) -> None:
        self.sys.rename(self.name, self.new, src_dir_fd=self.source, dst_dir_fd=self.target)

    def _reserved(self) -> bool:
        return self.reserved and is_reservation(self.sys, self.target, self.new)

    def _by_reservation(self) -> None:
        # EINVAL is also the answer to "into itself", and a missing source must not leave a reservation behind.
        self.sys.lstat(self.name, dir_fd=self.source)
        try:
            self.sys.mkdir(self.new, _RESERVATION, dir_fd=self.target)
        except FileExistsError:
            if not self._reserved():
                raise
        try:
            self._rename()
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                try:
                    self.sys.rmdir(self.new, dir_fd=self.target)
                except OSError as cleaning:
                    error.add_note(f"and its empty directory could not be removed again: {cleaning.strerror}")
            raise

    def _by_link(self) -> None:
        try:
            self.sys.link(self.name, self.new, src_dir_fd=self.source, dst_dir_fd=self.target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # No hard links here. Only somebody who makes the same name at this very moment can come between.
            if self._inode(self.target, self.new) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.new) from error
            self._rename()
            return
        self.sys.unlink(self.name, dir_fd=self.source)

    def _has_both_names(self) -> bool:
        inode = self._inode(self.source, self.name)
        return inode is not None and inode == self._inode(self.target, self.new)

    def _inode(self, fd: int, name: str) -> int | None:
        try:
            return self.sys.lstat(name, dir_fd=fd).st_ino
        except FileNotFoundError:
            return None


def is_reservation(sys: Sys, fd: int, name: str) -> bool:
    """Whether an entry is an empty directory with mode 0700, as an interrupted rename leaves it.

    Args:
        sys: the calls.
        fd: descriptor of the directory it is in.
        name: its name.
    """
    try:
        mode = sys.lstat(name, dir_fd=fd).st_mode
        if not stat.S_ISDIR(mode) or stat.S_IMODE(mode) & 0o777 != _RESERVATION:
            return False
        there = sys.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    except FileNotFoundError:
        return False
    try:
        return next(iter(sys.scandir(there)), None) is None
    finally:
        with suppress(OSError):
            sys.close(there)
