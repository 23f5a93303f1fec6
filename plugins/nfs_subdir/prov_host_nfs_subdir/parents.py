"""The directories between the root and a volume's: made when missing, removed when empty, if they are ours.

A parent is made like a volume's directory: aside, with its mode, remembered by path and inode number, then moved to
where nothing is. On a file system without such a rename (NFS) an empty directory with mode 0700 reserves the place
for a moment, and a crash can leave it there. Therefore the ownership record says from which depth on the parents were
missing, or ours (:func:`first_missing`), before any is made: an empty 0700 directory down there is such a leftover.
And one thread at a time makes parents, so that nobody puts a directory into another's reservation.
"""

from __future__ import annotations

import errno
import stat
import threading
from functools import lru_cache

from prov_host.safedir import Dir
from prov_host_nfs_subdir.records import Parents, stem
from prov_host_nfs_subdir.share import OpenShare

__all__ = ["first_missing", "inherited_group", "open_parent", "prune", "staged_parent"]

_MODE = 0o755


def staged_parent(pv: str) -> str:
    """The name, in the private area, of a parent that is being made for a volume."""
    return f"{stem(pv)}.parent"


def first_missing(share: OpenShare, parts: tuple[str, ...]) -> int:
    """The depth of the first parent that does not exist or was made by us.

    Args:
        share: the open share.
        parts: a volume's directory.

    Returns:
        1 for the directory in the root; ``len(parts)`` if all parents exist and none is ours.

    Raises:
        NotADirectory: a link or file is on the way.
    """
    current = share.root.walk(())
    try:
        for depth in range(1, len(parts)):
            try:
                below = current.child(parts[depth - 1], readable=False)
            except FileNotFoundError:
                return depth
            current.close()
            current = below
            if Parents.made(share.parents, parts[:depth], current.stat().st_ino):
                return depth
        return len(parts)
    finally:
        current.close()


def inherited_group(root: Dir, parts: tuple[str, ...]) -> int:
    """The group that a directory made in place would get from a set-group-id parent; -1 for none."""
    group = -1
    current = root.walk(())
    try:
        for name in parts:
            status = current.stat()
            group = status.st_gid if status.st_mode & stat.S_ISGID else -1
            below = current.child(name, readable=False)
            current.close()
            current = below
    except FileNotFoundError:
        pass
    finally:
        current.close()
    return group


def open_parent(share: OpenShare, pv: str, parts: tuple[str, ...], missing: int) -> Dir:
    """Open the directory that will hold a volume's, making what is missing on the way.

    Args:
        share: the open share.
        pv: the volume's name.
        parts: its directory.
        missing: from :func:`first_missing`, as recorded.

    Returns:
        The open parent; close it.

    Raises:
        FileNotFoundError: another volume's removal took an empty parent away under us; try again.
    """
    try:
        return _go_down(share, pv, parts, missing, make=False)
    except FileNotFoundError:
        with _making(share.id):
            return _go_down(share, pv, parts, missing, make=True)


@lru_cache(maxsize=1024)
def _making(_root_id: str) -> threading.Lock:
    """One lock for each share: while one thread makes or removes parents, no other takes a reservation for one."""
    return threading.Lock()


def _go_down(share: OpenShare, pv: str, parts: tuple[str, ...], missing: int, *, make: bool) -> Dir:
    current = share.root.walk(())
    try:
        for depth, name in enumerate(parts[:-1], start=1):
            try:
                below = current.child(name, readable=False)
                if _is_unfinished(share, below, parts[:depth]):
                    if not make:
                        below.close()
                        raise FileNotFoundError(errno.ENOENT, "is being made by somebody", below.path)
                    if depth >= missing and current.is_reservation(name):
                        below.close()
                        _make(share, pv, current, parts[:depth])
                        below = current.child(name, readable=False)
            except FileNotFoundError:
                if not make:
                    raise
                _make(share, pv, current, parts[:depth])
                below = current.child(name, readable=False)
            current.close()
            current = below
    except BaseException:
        current.close()
        raise
    return current


def _is_unfinished(share: OpenShare, directory: Dir, parts: tuple[str, ...]) -> bool:
    """Whether a directory looks like a reservation; somebody's own with mode 0700 does too."""
    status = directory.stat()
    return stat.S_IMODE(status.st_mode) == 0o700 and not Parents.made(share.parents, parts, status.st_ino)


def _make(share: OpenShare, pv: str, above: Dir, parts: tuple[str, ...]) -> None:
    """Make one parent; another process's that has appeared meanwhile is as good."""
    name = staged_parent(pv)
    share.new.rmdir(name)
    status = above.stat()
    inherits = bool(status.st_mode & stat.S_ISGID)
    mode = _MODE | (stat.S_ISGID if inherits else 0)
    with share.new.make(name, mode, gid=status.st_gid if inherits else -1) as staged:
        inode = staged.stat().st_ino
    try:
        Parents.remember(share.parents, parts, inode)
        share.new.install(name, above, parts[-1], reserved=True)
    except OSError as error:
        share.new.rmdir(name)
        Parents.forget(share.parents, parts, inode)
        if not isinstance(error, FileExistsError):
            raise


def prune(share: OpenShare, parts: tuple[str, ...], missing: int) -> None:
    """Remove the parents that are empty and ours, bottom up; never the root, never anything else.

    Args:
        share: the open share.
        parts: a directory that is gone.
        missing: from :func:`first_missing`, as recorded with it.
    """
    if len(parts) == 1:
        return
    with _making(share.id):
        for depth in range(len(parts) - 1, 0, -1):
            try:
                with share.root.walk(parts[: depth - 1]) as above:
                    if not _remove(share, above, parts[:depth], left_over=depth >= missing):
                        return
            except FileNotFoundError:
                continue


def _remove(share: OpenShare, above: Dir, parts: tuple[str, ...], *, left_over: bool) -> bool:
    """Remove one parent; returns whether the one above may be empty now."""
    name = parts[-1]
    there = above.lstat(name)
    if there is None:
        return True
    ours = stat.S_ISDIR(there.st_mode) and Parents.made(share.parents, parts, there.st_ino)
    if not ours and not (left_over and above.is_reservation(name)):
        return False
    if not above.rmdir(name):
        return False
    if ours:
        Parents.forget(share.parents, parts, there.st_ino)
    return True
