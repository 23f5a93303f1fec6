"""File system calls that fail, hang, or never come back because the process died, at the n-th call."""

from __future__ import annotations

import datetime as dt
import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prov_host.clock import Clock
from prov_host.safedir import RealSys

CALLS = (
    "open",
    "close",
    "mkdir",
    "rmdir",
    "unlink",
    "rename",
    "rename_noreplace",
    "link",
    "fstat",
    "lstat",
    "fchmod",
    "fchown",
    "fsync",
    "read",
    "write",
    "scandir",
    "fstatvfs",
    "mounts",
    "mount_of",
    "mount_id",
    "real_path",
)
CHANGING = frozenset({"mkdir", "rmdir", "unlink", "rename", "rename_noreplace", "link", "fchmod", "fchown", "write"})
ERRORS = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.ESTALE, errno.EIO)


class QuickSys(RealSys):
    """Without waiting for the disk: no test loses power."""

    def fsync(self, fd: int) -> None:
        """Nothing."""


class ServerClockSys(QuickSys):
    """The file system notes changes by a clock that tests move, as an NFS server notes them by its own.

    Args:
        clock: tells the time.
    """

    def __init__(self, clock: Clock) -> None:
        self.ahead = dt.timedelta()
        self._clock = clock
        self._first = clock.now()
        self._changed: dict[int, float] = {}

    def _touch(self, inode: int) -> None:
        self._changed[inode] = (self._clock.now() + self.ahead).timestamp()

    def _seen(self, found: os.stat_result) -> os.stat_result:
        changed = self._changed.get(found.st_ino, self._first.timestamp())
        more = {"st_blocks": found.st_blocks, "st_blksize": found.st_blksize, "st_rdev": found.st_rdev}
        return os.stat_result([*list(found)[:9], int(changed)], more)

    def fstat(self, fd: int) -> os.stat_result:
        return self._seen(super().fstat(fd))

    def lstat(self, name: str, *, dir_fd: int) -> os.stat_result:
        return self._seen(super().lstat(name, dir_fd=dir_fd))

    def fchmod(self, fd: int, mode: int) -> None:
        super().fchmod(fd, mode)
        self._touch(os.fstat(fd).st_ino)

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        super().rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._touch(os.stat(new, dir_fd=dst_dir_fd, follow_symlinks=False).st_ino)

    def rename_noreplace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        super().rename_noreplace(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._touch(os.stat(new, dir_fd=dst_dir_fd, follow_symlinks=False).st_ino)


class Crash(BaseException):
    """The process died here."""


@dataclass
class FaultySys:
    """The real calls, counted, with one thing that goes wrong.

    Args:
        like_nfs: no rename that refuses to replace.
        at: the number of the call at which it happens, from 1; 0 never.
        error: the errno to fail with; 0 means crash instead.
        lasting: whether all later calls fail as well, until healed (crashes always last).
        only_changing: whether only calls that change something are counted.
        after: whether the call is still done before it fails, as when only the answer is lost.
    """

    like_nfs: bool = False
    at: int = 0
    error: int = 0
    lasting: bool = False
    after: bool = False
    only_changing: bool = False
    calls: int = 0
    what: str = ""
    dead: bool = False
    hang: threading.Event | None = None
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._real: RealSys = QuickSys()
        self._lock = threading.Lock()

    @property
    def changing(self) -> list[int]:
        """The numbers of the calls so far that change something."""
        return [number for number, name in enumerate(self.log, start=1) if name in CHANGING]

    def break_now(self, error: int) -> None:
        """Let every call fail from now on, whoever makes the next one and however many were made before.

        Choosing a call by its number is for one thread: beside a host's own jobs that number may be past already.
        """
        with self._lock:
            self.error, self.lasting, self.at, self.dead = error, True, 1, True

    def heal(self) -> None:
        self.at = 0
        self.dead = False
        if self.hang:
            self.hang.set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in CALLS:
            raise AttributeError(name)
        real = getattr(self._real, name)

        def call(*args: Any, **options: Any) -> Any:
            return self._call(name, real, args, options)

        return call

    def _call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.dead and not self.error:
            if name == "close":
                return real(*args, **options)  # a dead process leaks nothing
            raise Crash(name)
        if name == "rename_noreplace" and self.like_nfs:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if self.only_changing and name not in CHANGING:
            return real(*args, **options)
        with self._lock:
            self.calls += 1
            self.log.append(name)
            hit = self.calls == self.at or (self.dead and self.at > 0)
            if hit:
                self.what = self.what or f"{name} {args} {options}"
                self.dead = self.lasting or not self.error
        if not hit:
            return real(*args, **options)
        if self.hang:
            self.hang.wait()
            return real(*args, **options)
        if self.after or name == "close":
            result = real(*args, **options)
            if name == "open":
                os.close(result)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        raise Crash(self.what)
