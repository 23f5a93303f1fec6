"""The names the plugin chooses itself: of directories without a pattern, and of archives.

Archives lie in the root, as those of the Go provisioner do, and begin with ``archived-``: people look for them there,
and so do their clean-up jobs. Their names hold namespace, claim, volume and time, so two never collide. Whatever a
pattern renders to, a path into an archive is refused (:func:`check_target`); the namespace ``archived-x`` can still
have volumes, because what counts is that an archive is there, not how a name begins.
"""

from __future__ import annotations

import datetime as dt
import re

from prov_host import Claim, ProvisionError
from prov_host.safedir import MAX_NAME_BYTES, Dir
from prov_host_nfs_subdir.records import Parents

__all__ = ["ARCHIVE_PREFIX", "archive_name", "check_target", "default_name"]

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


def check_target(root: Dir, parents: Dir, parts: tuple[str, ...]) -> None:
    """Refuse a path that is an archive or leads into one.

    Args:
        root: the share's root.
        parents: the records of directories made to hold others.
        parts: where a volume wants to be.

    Raises:
        ProvisionError: it is one.
    """
    first = parts[0]
    if not first.casefold().startswith(ARCHIVE_PREFIX):
        return
    there = root.lstat(first)
    recorded = root.lstat(first[: MAX_NAME_BYTES - len(RECORD_SUFFIX)] + RECORD_SUFFIX) is not None
    # Without a record it may be one of the Go provisioner's, unless we made it to hold volumes.
    if recorded or (there is not None and not Parents.made(parents, parts[:1], there.st_ino)):
        raise ProvisionError(
            f"{root.at(first)} is an archive, in which no volume is made; `prov-host archives restore` brings it back"
        )
