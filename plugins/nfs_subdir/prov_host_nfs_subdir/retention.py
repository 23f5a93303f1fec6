"""Removing archives whose time (``archiveRetention``) is over, on the word of several clocks."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from prov_host import Claim, Note
from prov_host_nfs_subdir.aging import Due, doubt, is_due, read_clocks
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.lifecycle import Archive, ArchiveError, archives_of, remove_archive
from prov_host_nfs_subdir.metrics import Metrics
from prov_host_nfs_subdir.share import OpenShare, ShareProblem
from prov_host_nfs_subdir.trash import Trash
from prov_host_nfs_subdir.values import parse_duration

__all__ = ["Retention"]

logger = logging.getLogger(__name__)


class Retention:
    """Removes the archives of one export whose time is over. One thread. Since 0.1.

    What counts as over, and whose clock is believed, is the matter of :mod:`~prov_host_nfs_subdir.aging`.
    """

    def __init__(self, work: ExportAtWork, trash: Trash, metrics: Metrics) -> None:
        self._work = work
        self._trash = trash
        self._metrics = metrics
        self._due = Due(parse_duration(work.settings.retention_confirm))
        self._told: set[str] = set()

    def run(self) -> None:
        """Look once; each removal is logged, counted, and told in an event on the claim it came from."""
        work = self._work
        try:
            share = work.share.open(begin=False)
        except ShareProblem as error:
            if not error.unused:
                raise
            return
        with share:
            archives = archives_of(work, share, work.host.volumes())
            left = len(archives)
            due = self._judge(archives, share)
            for archive in self._due.of(due, work.host.clock.monotonic()):
                try:
                    name = remove_archive(work, share, archive)
                except ArchiveError as error:
                    logger.warning("export %s: expired archive stays: %s", work.name, error)
                    continue
                left -= 1
                self._trash.add(name)
                self._tell_removed(archive)
        self._metrics.archives.labels(work.name).set(left)

    def _judge(self, archives: Sequence[Archive], share: OpenShare) -> list[Archive]:
        """The archives that are due, as far as the clocks can be believed."""
        work = self._work
        expiring = [archive for archive in archives if archive.record.retention > 0]
        doubts: dict[str, str] = {}
        due: list[Archive] = []
        if expiring:
            try:
                clocks = read_clocks(share, work.host.clock.now())
                why = clocks.doubt
            except OSError as error:
                why = f"the share does not tell the time: {error.strerror or error}"
            if why:
                # One line for all of them: not the archives are in doubt, but what time it is.
                logger.warning("export %s: no archive expires for now: %s", work.name, why)
                self._metrics.archives_in_doubt.labels(work.name).set(len(expiring))
                return []
            doubts = {archive.name: why for archive in expiring if (why := doubt(archive, clocks))}
            due = [archive for archive in expiring if archive.name not in doubts and is_due(archive, clocks)]
        self._metrics.archives_in_doubt.labels(work.name).set(len(doubts))
        for archive in expiring:
            if archive.name in doubts and archive.name not in self._told:
                self._tell_doubt(archive, doubts[archive.name])
        self._told = set(doubts)
        return due

    def _path(self, archive: Archive) -> str:
        return self._work.export.source_path((archive.name,))

    def _tell_doubt(self, archive: Archive, why: str) -> None:
        message = (
            f"archive {self._path(archive)} of volume {archive.record.pv} does not expire: {why}; "
            "`prov-host archives prune` removes it when you say so"
        )
        logger.warning("export %s: %s", self._work.name, message)
        self._event(archive, Note("ArchiveTimeInDoubt", message, "Warning"))

    def _tell_removed(self, archive: Archive) -> None:
        record, path = archive.record, self._path(archive)
        self._metrics.archives_expired.labels(self._work.name).inc()
        logger.info(
            "export %s: removed archive %s of claim %s, volume %s, archived %s: kept for %d s as its class says",
            self._work.name,
            path,
            archive.claim,
            record.pv,
            record.archived,
            record.retention,
        )
        message = f"removed archive {path} of volume {record.pv}, archived {record.archived}: its time is over"
        self._event(archive, Note("ArchiveExpired", message))

    def _event(self, archive: Archive, note: Note) -> None:
        """On the claim it came from, if that is known."""
        record = archive.record
        if record.claim:
            metadata = {"namespace": record.namespace, "name": record.claim, "uid": record.claim_uid}
            self._work.host.event(msgspec.convert({"metadata": metadata}, Claim), note)
