"""Removing whole trees: any depth, any width, never across a mount, never through a link, in bounded memory.

The tree must lie in a private directory (a *trash*) that nobody else can reach by name any more. The walk keeps a
stack of at most :data:`MAX_DEPTH` open directories. What is deeper is not walked but renamed up into the trash as a
tree of its own (one rename, whatever its size) and reported to the caller, who removes it later or in another thread:
that bounds descriptors, and is at the same time how one huge tree is shared between threads. After a crash the trash
simply holds a few trees more.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prov_host.safedir.directory import Dir
from prov_host.safedir.failures import NotADirectory
from prov_host.safedir.syscalls import Entry

__all__ = ["MAX_DEPTH", "Removal", "remove_tree"]

MAX_DEPTH = 48
"""How many directories one walk holds open."""


@dataclass(slots=True)
class Removal:
    """What became of one tree. Since 0.1.

    Attributes:
        files: entries removed that were no directories.
        directories: directories removed.
        spilled: names, in the trash, of subtrees that were moved up and are still to be removed.
        problems: what could not be removed and why, at most ten.
        failed: how many entries could not be removed.
    """

    files: int = 0
    directories: int = 0
    spilled: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failed: int = 0

    @property
    def done(self) -> bool:
        """Whether nothing of the tree is left but what was spilled."""
        return self.failed == 0

    def fail(self, where: str, error: OSError) -> None:
        """Count and describe an entry that stays."""
        self.failed += 1
        if len(self.problems) < 10:
            self.problems.append(f"{where}: {error.strerror or error}")


@dataclass(slots=True)
class _Level:
    """One directory of the walk."""

    directory: Dir
    name: str
    entries: Iterator[Entry]
    removed: int = 0
    failed: bool = False


def remove_tree(
    trash: Dir,
    name: str,
    *,
    spill: Callable[[], bool] = lambda: False,
    stop: Callable[[], bool] = lambda: False,
) -> Removal:
    """Remove one entry of a trash directory with everything below it.

    Args:
        trash: the private directory, readable.
        name: the entry: a directory, a file or a link (which is removed itself, never followed).
        spill: asked at each subdirectory; True moves it up into the trash instead of walking it, so that another
            thread can take it.
        stop: asked now and then; True ends the walk early, leaving the rest.

    Returns:
        What was done. Entries that cannot be removed are left, described, and everything else is removed.

    Raises:
        OSError: the entry itself cannot be looked at.

    Callable from several threads for different entries. Since 0.1.
    """
    result = Removal()
    found = trash.lstat(name)
    if found is None:
        return result
    if not stat.S_ISDIR(found.st_mode):
        trash.unlink(name)
        result.files += 1
        return result
    stack = [_enter(trash, name)]
    try:
        while stack:
            level = stack[-1]
            entry = next(level.entries, None)
            if entry is None:
                _leave(stack, trash, result)
            elif not entry.is_dir:
                _unlink(level, entry.name, result)
                if result.files % 256 == 0 and stop():
                    result.failed += 1
                    result.problems.append(f"{trash.at(name)}: stopped early")
                    return result
            elif len(stack) >= MAX_DEPTH:
                _spill(level, entry.name, trash, result)
            elif not (spill() and _spill(level, entry.name, trash, result, needed=False)):
                _descend(stack, entry.name, result)
    finally:
        for level in stack:
            level.directory.close()
    return result


def _enter(parent: Dir, name: str) -> _Level:
    try:
        directory = parent.child(name)
    except PermissionError:
        # A tenant may have taken away its owner's own permissions; we may only give them back on the thing itself.
        _unlock(parent, name)
        directory = parent.child(name)
    return _Level(directory, name, directory.entries())


def _unlock(parent: Dir, name: str) -> None:
    """Give the owner all permissions on a directory that may not even be opened, and on the one it is in."""
    parent.sys.fchmod(parent.fd, 0o700)
    with parent.child(name, readable=False) as closed:
        closed.sys.fchmod(closed.fd, 0o700)


def _descend(stack: list[_Level], name: str, result: Removal) -> None:
    level = stack[-1]
    try:
        stack.append(_enter(level.directory, name))
    except FileNotFoundError:
        return
    except NotADirectory:
        _unlink(level, name, result)  # d_type was wrong, or it was replaced: what is there now is not a directory
    except OSError as error:
        level.failed = True
        result.fail(level.directory.at(name), error)


def _unlink(level: _Level, name: str, result: Removal) -> None:
    directory = level.directory
    try:
        directory.sys.unlink(name, dir_fd=directory.fd)
    except FileNotFoundError:
        return
    except PermissionError as error:
        try:
            directory.sys.fchmod(directory.fd, 0o700)
            directory.sys.unlink(name, dir_fd=directory.fd)
        except OSError:
            level.failed = True
            result.fail(directory.at(name), error)
            return
    except OSError as error:
        level.failed = True
        result.fail(directory.at(name), error)
        return
    level.removed += 1
    result.files += 1


def _spill(level: _Level, name: str, trash: Dir, result: Removal, *, needed: bool = True) -> bool:
    """Move a subtree up; returns False, if it is not `needed`, where that does not work: it can still be walked."""
    try:
        found = level.directory.lstat(name)
        if found is None:
            return True
        # No other directory of this file system has this number, so no other entry of the trash has this name.
        new = f"subtree-{found.st_ino}"
        try:
            level.directory.install(name, trash, new)
        except PermissionError:
            _unlock(level.directory, name)
            level.directory.install(name, trash, new)
    except FileNotFoundError:
        return True
    except OSError as error:
        if not needed:
            return False  # a full share, for one, may have no room for another entry in the trash
        level.failed = True
        result.fail(level.directory.at(name), error)
        return True
    level.removed += 1
    result.spilled.append(new)
    return True


def _rmdir(above: Dir, name: str) -> bool:
    try:
        return above.rmdir(name)
    except PermissionError:
        above.sys.fchmod(above.fd, 0o700)
        return above.rmdir(name)


def _leave(stack: list[_Level], trash: Dir, result: Removal) -> None:
    """The directory has been read to its end: remove it, or read it again if entries were skipped."""
    level = stack.pop()
    parent = stack[-1] if stack else None
    above = parent.directory if parent else trash
    try:
        empty = not level.failed and _rmdir(above, level.name)
    except OSError as error:
        level.directory.close()
        result.fail(above.at(level.name), error)
        if parent:
            parent.failed = True
        return
    if empty:
        level.directory.close()
        result.directories += 1
        if parent:
            parent.removed += 1
        return
    if level.failed or not level.removed:
        level.directory.close()
        if not level.failed:
            result.fail(above.at(level.name), OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)))
        if parent:
            parent.failed = True
        return
    # Removing while reading may skip entries on some file systems, and a client may still be writing.
    stack.append(_Level(level.directory, level.name, level.directory.entries()))
