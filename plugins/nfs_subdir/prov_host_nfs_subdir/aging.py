"""How old archives are, and when their age may decide about them, without believing any one clock.

A machine that starts without a battery believes it is 1970, and one that is told the wrong time believes that. So the
time of an archive is known twice: its record says what this program's clock was, and the share's file system keeps
when record and directory changed last, by the server's clock. Each is compared with what the same clock says now, and
the smaller age counts: a clock that is wrong, or jumps, can only make an archive stay longer. Who changes an archive's
directory, or copies a share to another server, makes its archives young again for the same reason.

What removes archives by itself is more careful still: it waits as long as times contradict each other
(:func:`doubt`), and until it has seen, for some time on the monotonic clock, that an archive is due (:class:`Due`).
"""

from __future__ import annotations

import datetime as dt
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prov_host_nfs_subdir.lifecycle import Archive
    from prov_host_nfs_subdir.share import OpenShare

__all__ = ["Age", "Clocks", "Due", "age_of", "clocks_of", "doubt", "is_due", "read_clocks"]

_TOLERANCE = dt.timedelta(days=1)
_SLACK = dt.timedelta(minutes=10)
_FIRST = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
"""Nothing was archived by this program before."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the two clocks say at one moment. Since 0.1.

    Attributes:
        here: this machine's.
        share: the one of the share's file system, a server's if it has one.
    """

    here: dt.datetime
    share: dt.datetime

    @property
    def doubt(self) -> str:
        """Why neither may decide about anything, "" if they agree well enough."""
        if abs(self.here - self.share) > _TOLERANCE:
            return (
                f"it is {self.here:%Y-%m-%d %H:%M} UTC here and {self.share:%Y-%m-%d %H:%M} on the share; set the "
                "clock that is wrong"
            )
        return ""


@dataclass(frozen=True, slots=True)
class Age:
    """How old an archive is at least. Since 0.1.

    Attributes:
        seconds: may be negative, if a clock was ahead.
        by: ``record`` or ``share``, whose time it is.
    """

    seconds: float
    by: str


def read_clocks(share: OpenShare, here: dt.datetime) -> Clocks:
    """Ask both clocks.

    Args:
        share: the open share; setting the mode of the private area to what it is lets its file system note the time,
            and needs no space.
        here: this machine's wall clock.

    Raises:
        OSError: the share does not tell.
    """
    private = share.private
    private.sys.fchmod(private.fd, stat.S_IMODE(private.stat().st_mode))
    return Clocks(here, dt.datetime.fromtimestamp(private.stat().st_ctime, dt.UTC))


def clocks_of(share: OpenShare, here: dt.datetime) -> Clocks:
    """Both clocks for a person who decides; where the share does not tell, this machine's alone."""
    try:
        return read_clocks(share, here)
    except OSError:
        return Clocks(here, here)


def age_of(archive: Archive, clocks: Clocks) -> Age | None:
    """The smaller of an archive's two ages, None if nothing tells when it was archived."""
    ages = []
    if archive.recorded and archive.archived is not None:
        ages.append(Age((clocks.here - archive.archived).total_seconds(), "record"))
    elif archive.recorded:
        return None
    if archive.changed is not None:
        ages.append(Age((clocks.share - archive.changed).total_seconds(), "share"))
    return min(ages, key=lambda age: age.seconds, default=None)


def is_due(archive: Archive, clocks: Clocks) -> bool:
    """Whether its class lets an archive expire and its time is over; never one without a record or a readable time."""
    if not archive.recorded or archive.archived is None or archive.changed is None or archive.record.retention <= 0:
        return False
    age = age_of(archive, clocks)
    return age is not None and age.seconds >= archive.record.retention


def doubt(archive: Archive, clocks: Clocks) -> str:
    """Why an archive's times cannot be right, "" if nothing speaks against them.

    That the share's time is the later one is no contradiction: whatever touches an archive does that.
    """
    for what, moment, now in (
        ("its record says it was archived at", archive.archived, clocks.here),
        ("the share says it changed at", archive.changed, clocks.share),
    ):
        if moment is None:
            continue
        if moment < _FIRST:
            return f"{what} {moment:%Y-%m-%d %H:%M} UTC, before there were any"
        if moment - now > _SLACK:
            return f"{what} {moment:%Y-%m-%d %H:%M} UTC, which is yet to come"
    if archive.archived and archive.changed and archive.archived - archive.changed > _TOLERANCE:
        return (
            f"its record says it was archived at {archive.archived:%Y-%m-%d %H:%M} UTC, but the share has it unchanged "
            f"since {archive.changed:%Y-%m-%d %H:%M}"
        )
    return ""


class Due:
    """Archives that have been due for some time on the monotonic clock, as this process saw it. One thread. Since 0.1.

    Args:
        patience: seconds; a wall clock that is wrong for less than that removes nothing.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[tuple[str, int], float] = {}

    def of(self, due: Iterable[Archive], now: float) -> list[Archive]:
        """Look again.

        Args:
            due: the archives that are due at this moment; who is missing begins anew when it comes back.
            now: the monotonic clock.

        Returns:
            Those that have been due for long enough.
        """
        due = list(due)
        keys = [(archive.name, archive.record.inode) for archive in due]
        self._since = {key: self._since.get(key, now) for key in keys}
        return [archive for archive, key in zip(due, keys, strict=True) if now - self._since[key] >= self._patience]
