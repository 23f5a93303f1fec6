"""The file system calls safe directories are made of, as one object that tests replace.

Every call names one entry of an open directory (``dir_fd``), so no path string is ever walked by the kernel. Tests
wrap :class:`RealSys` to fail, hang or "crash" at the n-th call; nothing above this module calls :mod:`os` for files.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

__all__ = ["Entry", "Mount", "RealSys", "Sys"]

_RENAME_NOREPLACE = 1
_AT_EMPTY_PATH = 0x1000
_STATX_MNT_ID = 0x1000
_STATX_FIELDS = struct.Struct("=I140xQ")  # stx_mask, and stx_mnt_id at offset 144
_StatxBuffer = ctypes.c_char * 256


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry. Since 0.1.

    Attributes:
        name: its name; bytes that are not UTF-8 as surrogates.
        is_dir: whether it is a directory itself (a link to one is not).
    """

    name: str
    is_dir: bool


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table. Since 0.1.

    Attributes:
        id: the kernel's number for it.
        point: where it is mounted, an absolute path.
        type: the file system's type, for example ``nfs4``.
        source: what is mounted, for example ``server:/exports/k8s``.
    """

    id: str
    point: str
    type: str
    source: str


class Sys(Protocol):
    """What safe directories need of the operating system; each call may raise OSError. Since 0.1."""

    def open(self, name: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> int:
        """openat(2)."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def mkdir(self, name: str, mode: int, *, dir_fd: int) -> None:
        """mkdirat(2)."""

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        """unlinkat(2) with AT_REMOVEDIR."""

    def unlink(self, name: str, *, dir_fd: int) -> None:
        """unlinkat(2)."""

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """renameat(2): replaces an existing file, or an empty directory by a directory."""

    def rename_noreplace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """renameat2(2) with RENAME_NOREPLACE; EINVAL, ENOSYS or EOPNOTSUPP where that is not supported (NFS)."""

    def link(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """linkat(2), not following links."""

    def fstat(self, fd: int) -> os.stat_result:
        """What an open descriptor refers to."""

    def lstat(self, name: str, *, dir_fd: int) -> os.stat_result:
        """fstatat(2), not following links."""

    def fchmod(self, fd: int, mode: int) -> None:
        """Set permission bits, also through a descriptor opened with O_PATH."""

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        """Set owner and group; -1 leaves the one or the other alone."""

    def fsync(self, fd: int) -> None:
        """Make what was written durable."""

    def read(self, fd: int, size: int) -> bytes:
        """Read some bytes."""

    def write(self, fd: int, data: bytes) -> int:
        """Write some bytes."""

    def scandir(self, fd: int) -> Iterator[Entry]:
        """The entries of an open directory, without ``.`` and ``..``."""

    def fstatvfs(self, fd: int) -> os.statvfs_result:
        """The size and free space of a file system."""

    def mounts(self) -> tuple[Mount, ...]:
        """The mount table of this process."""

    def mount_of(self, fd: int) -> Mount | None:
        """The mount that an open file or directory was opened through."""

    def mount_id(self, fd: int) -> int:
        """The kernel's number for that mount, quickly; 0 where the kernel does not tell."""

    def real_path(self, fd: int) -> str:
        """Where an open file or directory is, without links; for comparing with mount points, not for opening."""


class RealSys:
    """The calls of this machine's kernel. Stateless; callable from any thread. Since 0.1."""

    def open(self, name: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> int:
        """See :meth:`Sys.open`."""
        return os.open(name, flags, mode, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        """See :meth:`Sys.close`."""
        os.close(fd)

    def mkdir(self, name: str, mode: int, *, dir_fd: int) -> None:
        """See :meth:`Sys.mkdir`."""
        os.mkdir(name, mode, dir_fd=dir_fd)

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        """See :meth:`Sys.rmdir`."""
        os.rmdir(name, dir_fd=dir_fd)

    def unlink(self, name: str, *, dir_fd: int) -> None:
        """See :meth:`Sys.unlink`."""
        os.unlink(name, dir_fd=dir_fd)

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """See :meth:`Sys.rename`."""
        os.rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def rename_noreplace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """See :meth:`Sys.rename_noreplace`."""
        function = _renameat2()
        if function is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), old)
        result = function(src_dir_fd, os.fsencode(old), dst_dir_fd, os.fsencode(new), _RENAME_NOREPLACE)
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), old, None, new)

    def link(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """See :meth:`Sys.link`."""
        os.link(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)

    def fstat(self, fd: int) -> os.stat_result:
        """See :meth:`Sys.fstat`."""
        return os.fstat(fd)

    def lstat(self, name: str, *, dir_fd: int) -> os.stat_result:
        """See :meth:`Sys.lstat`."""
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def fchmod(self, fd: int, mode: int) -> None:
        """See :meth:`Sys.fchmod`."""
        try:
            os.fchmod(fd, mode)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # A directory that may not be read can only be opened with O_PATH, and such a descriptor only takes this
            # way. It is no path walk: the link leads to the open directory itself.
            os.chmod(f"/proc/self/fd/{fd}", mode)

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        """See :meth:`Sys.fchown`."""
        os.fchown(fd, uid, gid)

    def fsync(self, fd: int) -> None:
        """See :meth:`Sys.fsync`."""
        os.fsync(fd)

    def read(self, fd: int, size: int) -> bytes:
        """See :meth:`Sys.read`."""
        return os.read(fd, size)

    def write(self, fd: int, data: bytes) -> int:
        """See :meth:`Sys.write`."""
        return os.write(fd, data)

    def scandir(self, fd: int) -> Iterator[Entry]:
        """See :meth:`Sys.scandir`."""
        with os.scandir(fd) as entries:
            for entry in entries:
                yield Entry(entry.name, entry.is_dir(follow_symlinks=False))

    def fstatvfs(self, fd: int) -> os.statvfs_result:
        """See :meth:`Sys.fstatvfs`."""
        return os.fstatvfs(fd)

    def mounts(self) -> tuple[Mount, ...]:
        """See :meth:`Sys.mounts`."""
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return tuple(mount for line in file if (mount := _parse_mount(line)) is not None)

    def mount_of(self, fd: int) -> Mount | None:
        """See :meth:`Sys.mount_of`."""
        number = str(_mount_id_from_proc(fd))
        return next((mount for mount in self.mounts() if mount.id == number), None)

    def mount_id(self, fd: int) -> int:
        """See :meth:`Sys.mount_id`."""
        function = _statx()
        if function is not None:
            buffer = _StatxBuffer()
            if function(fd, b"", _AT_EMPTY_PATH, _STATX_MNT_ID, buffer) == 0:
                mask, mount = _STATX_FIELDS.unpack_from(buffer)
                if mask & _STATX_MNT_ID:
                    return int(mount)
        return _mount_id_from_proc(fd)  # Linux before 5.8, or a C library or sandbox without statx

    def real_path(self, fd: int) -> str:
        """See :meth:`Sys.real_path`."""
        return os.readlink(f"/proc/self/fd/{fd}")


def _mount_id_from_proc(fd: int) -> int:
    """What ``/proc`` says; 0 if it does not say (Linux before 3.15)."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("mnt_id:")), 0)


def _parse_mount(line: str) -> Mount | None:
    """One line of mountinfo: ``36 35 98:0 /root /point options [tags...] - type source superoptions``."""
    before, separator, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")
    if not separator or len(left) < 5 or len(right) < 2:
        return None
    return Mount(id=left[0], point=_unescape(left[4]), type=right[0], source=_unescape(right[1]))


def _unescape(text: str) -> str:
    """The kernel writes space, tab, newline and backslash as three octal digits."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


@cache
def _renameat2() -> Any:
    """The C library's function, or None (musl, glibc before 2.28)."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function


@cache
def _statx() -> Any:
    """The C library's function, or None (musl before 1.2.3, glibc before 2.28)."""
    try:
        function = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    function.restype = ctypes.c_int
    return function
