"""What the plugin does by itself, now and then, for one export: tidy up after crashes."""

from __future__ import annotations

import datetime as dt
import logging

from prov_host_nfs_subdir.exports import ExportAtWork, stamp
from prov_host_nfs_subdir.findings import inode_at, is_young
from prov_host_nfs_subdir.parents import staged_parent
from prov_host_nfs_subdir.records import Owner, Released, stem
from prov_host_nfs_subdir.restored import forget_restored, restored
from prov_host_nfs_subdir.share import OpenShare, ShareProblem

__all__ = ["Tidying"]

logger = logging.getLogger(__name__)

_TIDY_AFTER = 600.0


class Tidying:
    """Removes what a provisioning left that crashed and that nobody asks for any more. One thread. Since 0.1.

    A record without a directory and without a volume, or a directory in the private area without a record, may belong
    to a provisioning at this very moment, here or in a process that has just lost its lease. So only what was there,
    unchanged, some minutes before is removed.
    """

    def __init__(self, work: ExportAtWork) -> None:
        self._work = work
        self._seen: dict[str, float] = {}

    def run(self) -> None:
        """Look once."""
        work = self._work
        if not work.host.synced():
            return
        try:
            share = work.share.open(begin=False)
        except ShareProblem as error:
            if not error.unused:
                raise
            return
        with share:
            known = {volume.name for volume in work.host.volumes()}
            stale = {}
            staged = set(share.new.names())
            owned: set[str] = set()
            for owner in work.owners.all(share.owners):
                if not isinstance(owner, Owner):
                    continue
                owned |= {stem(owner.pv), staged_parent(owner.pv)}
                # A record whose directory never came into place; one whose directory is there is an orphan, for people.
                if owner.pv not in known and stem(owner.pv) in staged and not owner.leaving:
                    stale[stem(owner.pv)] = owner.pv
            for name in staged - owned:
                stale[name] = ""
            week_ago = stamp(work.host.clock.now() - dt.timedelta(days=7))
            Released.forget(share.private, week_ago, (one.name for one in work.host.volumes()))
            self._forget_restored(share)
            now = work.host.clock.monotonic()
            self._seen = {name: self._seen.get(name, now) for name in stale}
            for name, since in self._seen.items():
                if now - since < _TIDY_AFTER or not share.new.rmdir(name):
                    continue
                if pv := stale[name]:
                    share.new.rmdir(staged_parent(pv))
                    work.owners.remove(share.owners, pv)
                logger.info(
                    "export %s: removed %s, left by a provisioning that was given up", work.name, share.new.at(name)
                )

    def _forget_restored(self, share: OpenShare) -> None:
        """Notes about restored directories that are not there any more, or not yet for too long."""
        for note in restored(share.restored):
            if inode_at(share, note.parts) != note.inode and not is_young(self._work, note.restored):
                forget_restored(share.restored, note)
