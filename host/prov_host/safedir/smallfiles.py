"""Small files, read with a limit and written so that a reader sees all of one version, also after a crash."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from prov_host.safedir.moving import Rename
from prov_host.safedir.syscalls import Sys

__all__ = ["read_file", "write_file"]

# O_NONBLOCK: opening a FIFO that somebody put where we expect a file must not wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_file(sys: Sys, fd: int, name: str, limit: int) -> bytes | None:
    """Read a small file.

    Args:
        sys: the calls.
        fd: descriptor of the directory it is in.
        name: its name.
        limit: bytes at most.

    Returns:
        What is in it, None if there is no such entry.

    Raises:
        OSError: not a regular file, longer than `limit`, or not readable.
    """
    try:
        file = sys.open(name, _READ, dir_fd=fd)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(sys.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", name)
        data = b""
        while len(data) <= limit and (more := sys.read(file, limit + 1 - len(data))):
            data += more
    finally:
        with suppress(OSError):
            sys.close(file)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"is longer than {limit} bytes", name)
    return data


def write_file(sys: Sys, fd: int, name: str, data: bytes, *, temporary: str, replace: bool, mode: int) -> None:
    """Write a small file under another name, and rename it.

    Args:
        sys: the calls.
        fd: descriptor of the directory it goes to.
        name: its name.
        data: what will be in it.
        temporary: the name it has first; what had it is replaced.
        replace: whether an entry of the final name is replaced.
        mode: permission bits, whatever the umask.

    Raises:
        FileExistsError: it exists and `replace` is false.
    """
    with suppress(FileNotFoundError):
        sys.unlink(temporary, dir_fd=fd)
    try:
        file = sys.open(temporary, _NEW, mode, dir_fd=fd)
        try:
            rest = data
            while rest:
                rest = rest[sys.write(file, rest) :]
            sys.fchmod(file, mode)
            sys.fsync(file)
        finally:
            sys.close(file)
        if replace:
            sys.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
        else:
            Rename(sys, fd, temporary, fd, name).other()
    except BaseException as error:
        try:
            sys.unlink(temporary, dir_fd=fd)
        except OSError as cleaning:
            if cleaning.errno != errno.ENOENT:
                error.add_note(f"and {temporary} could not be removed again: {cleaning.strerror}")
        raise
