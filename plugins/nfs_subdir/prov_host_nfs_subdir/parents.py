"""The directories between the root and a volume's: made when missing, removed when empty, if they are ours.

A parent is made like a volume's directory: aside, with its mode, remembered by path and inode number, then moved to
where nothing is. On a file system without such a rename (NFS) an empty directory with mode 0700 reserves the place
for a moment, and a crash can leave it there. Therefore the ownership record says from which depth on the parents were
missing, or ours (:func:`first_missing`), before any is made: an empty 0700 directory down there is such a leftover.
"""

from __future__ import annotations

import stat

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
    current = share.root.walk(())
    try:
        for depth, name in enumerate(parts[:-1], start=1):
            try:
                below = current.child(name, readable=False)
                if depth >= missing and stat.S_IMODE(below.stat().st_mode) == 0o700:
                    below.close()
                    _make(share, pv, current, parts[:depth])
                    below = current.child(name, readable=False)
            except FileNotFoundError:
                _make(share, pv, current, parts[:depth])
                below = current.child(name, readable=False)
            current.close()
            current = below
    except BaseException:
        current.close()
        raise
    return current


def _make(share: OpenShare, pv: str, above: Dir, parts: tuple[str, ...]) -> None:
    """Make one parent; somebody else's that has appeared meanwhile is as good."""
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
        if not isinstance(error, FileExistsError):
            raise
        Parents.forget(share.parents, parts, inode)


def prune(share: OpenShare, parts: tuple[str, ...], missing: int) -> None:
    """Remove the parents that are empty and ours, bottom up; never the root, never anything else.

    Args:
        share: the open share.
        parts: a directory that is gone.
        missing: from :func:`first_missing`, as recorded with it.
    """
    for depth in range(len(parts) - 1, 0, -1):
        name = parts[depth - 1]
        try:
            with share.root.walk(parts[: depth - 1]) as above:
                there = above.lstat(name)
                if there is None:
                    continue  # gone already; the one above may be empty
                ours = stat.S_ISDIR(there.st_mode) and Parents.made(share.parents, parts[:depth], there.st_ino)
                left_over = depth >= missing and above.is_reservation(name)
                if not (ours or left_over) or not above.rmdir(name):
                    return
                if ours:
                    Parents.forget(share.parents, parts[:depth], there.st_ino)
        except FileNotFoundError:
            continue
