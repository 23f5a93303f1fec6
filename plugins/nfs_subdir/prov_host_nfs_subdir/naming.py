"""The names the plugin chooses itself: of directories without a pattern, and of archives.

Archives lie in the root, as those of the Go provisioner do, and begin with ``archived-``: people look for them there,
and so do their clean-up jobs. Their names hold namespace, claim, volume and time, so two never collide. Whatever a
pattern renders to, a path into an archive is refused (:func:`check_target`); the namespace ``archived-x`` can still
have volumes, because what counts is that an archive is there, not how a name begins.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import deque
from collections.abc import Callable

from prov_host import Claim, ProvisionError
from prov_host.safedir import MAX_NAME_BYTES, Dir, NotADirectory
from prov_host_nfs_subdir.records import Parents
from prov_host_nfs_subdir.share import PRIVATE, OpenShare

__all__ = ["ARCHIVE_PREFIX", "archive_name", "check_target", "default_name", "foreign_area", "in_archive"]

ARCHIVE_PREFIX = "archived-"
RECORD_SUFFIX = ".json"
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")


def default_name(claim: Claim, pv_name: str) -> str:
    """The directory of a claim whose class has no pattern: ``<namespace>-<claim>-<pv>``.

    The claim's name is cut where the whole would be too long for a directory; the volume's name keeps it unique.
    """
    room = MAX_NAME_BYTES - len(pv_name.encode("utf-8", "surrogatepass")) - 1
    return f"{f'{claim.namespace}-{claim.name}'[: max(room, 0)]}-{pv_name}"


def archive_name(namespace: str, claim: str, pv: str, moment: dt.datetime, attempt: int) -> str:
    """An archive's name: ``archived-<namespace>-<claim>-<pv>-<time>``.

    Args:
        namespace: the claim's.
        claim: its name.
        pv: the volume's name.
        moment: now.
        attempt: counts up while the name is taken.

    Returns:
        At most 250 bytes of letters, digits, dots and hyphens: ``.json`` still fits behind it.
    """
    end = f"-{moment.astimezone(dt.UTC):%Y%m%dT%H%M%SZ}" + (f"-{attempt}" if attempt else "")
    room = MAX_NAME_BYTES - len(RECORD_SUFFIX) - len(ARCHIVE_PREFIX) - len(end)
    volume = _UNUSUAL.sub("_", pv)[-(room // 2) :]
    owner = _UNUSUAL.sub("_", f"{namespace}-{claim}")[: room - len(volume) - 1]
    return f"{ARCHIVE_PREFIX}{owner}-{volume}{end}"


def check_target(share: OpenShare, parts: tuple[str, ...], owned: Callable[[tuple[str, ...]], bool]) -> None:
    """Refuse a path that is an archive, or that another host's share lies at, above or inside.

    Args:
        share: the open share.
        parts: where a volume wants to be.
        owned: whether an ownership record says that a directory is a volume's.

    Raises:
        ProvisionError: it is one.
    """
    current = share.root.walk(())
    try:
        for depth, name in enumerate(parts, start=1):
            if name.casefold().startswith(ARCHIVE_PREFIX):
                _refuse_archive(share, current, parts[:depth], owned)
            try:
                below = current.child(name, readable=False)
            except (FileNotFoundError, NotADirectory):
                return
            current.close()
            current = below
            if current.lstat(PRIVATE) is not None:
                raise ProvisionError(
                    f"{current.path} is the root of another share ({current.at(PRIVATE)} is there), in which only "
                    "that share's host makes volumes; choose another path. Nothing was created"
                )
    finally:
        current.close()


def _refuse_archive(
    share: OpenShare, holder: Dir, parts: tuple[str, ...], owned: Callable[[tuple[str, ...]], bool]
) -> None:
    name = parts[-1]
    there = holder.lstat(name)
    recorded = holder.lstat(name[: MAX_NAME_BYTES - len(RECORD_SUFFIX)] + RECORD_SUFFIX) is not None
    # Without a record it may be one of the Go provisioner's, unless we made it for volumes, or to hold them.
    if recorded or (there is not None and not Parents.made(share.parents, parts, there.st_ino) and not owned(parts)):
        raise ProvisionError(
            f"{holder.at(name)} is an archive, in which no volume is made; `prov-host archives restore` brings it back"
        )


def in_archive(root: Dir, parts: tuple[str, ...]) -> str:
    """The archive, with a record, that a directory is or lies in, at any depth; "" if there is none."""
    for depth, name in enumerate(parts):
        if not name.casefold().startswith(ARCHIVE_PREFIX):
            continue
        with root.walk(parts[:depth]) as holder:
            if holder.lstat(name[: MAX_NAME_BYTES - len(RECORD_SUFFIX)] + RECORD_SUFFIX) is not None:
                return holder.at(name)
    return ""


def foreign_area(top: Dir, limit: int = 1000) -> str:
    """The root of another share inside a directory that this program did not make.

    Args:
        top: the directory, readable.
        limit: how many directories are looked at, those near the top first.

    Returns:
        The path of its private area, or "".
    """
    todo: deque[tuple[str, ...]] = deque([()])
    while todo and limit:
        limit -= 1
        names = todo.popleft()
        try:
            with top.walk(names, readable=True) as directory:
                if directory.lstat(PRIVATE) is not None:
                    return directory.at(PRIVATE)
                if len(todo) < limit:
                    todo.extend((*names, entry.name) for entry in directory.entries() if entry.is_dir)
        except OSError:
            continue
    return ""
