"""Taking back what an earlier call made for a claim that turns out not to be feasible.

A process may die after it made a directory and before the volume was saved; until it is asked again, the class may be
re-created, or the claim annotated, in a way that cannot work. "Infeasible" tells the host that nothing is there, so
whatever is must go first: a directory that was made is removed, one that was adopted is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from prov_host import Volume
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.records import Owner, stem
from prov_host_nfs_subdir.release import release
from prov_host_nfs_subdir.share import ShareProblem

__all__ = ["undo"]


def undo(work: ExportAtWork, pv: str, trashed: Callable[[str], None]) -> None:
    """Leave nothing of a volume that was never saved.

    Args:
        work: the export.
        pv: the volume's name.
        trashed: told the name of what was put into the trash.

    Raises:
        DeleteError: what is there cannot be taken away; nothing was touched.
        ShareProblem: the share is not the right one.
        OSError: the file system refused; the next call goes on.
    """
    if any(volume.name == pv for volume in work.host.volumes()):
        return  # saved by now: whoever deletes it asks for that
    try:
        share = work.share.open(begin=False)
    except ShareProblem as error:
        if not error.unused:
            raise
        return
    with share:
        owner = work.owners.read(share.owners, pv)
        if owner is None:
            share.owners.unlink(stem(pv) + ".tmp")  # half a record
            share.new.rmdir(stem(pv))
            return
    release(work, _unsaved(work, owner, share.id), owner.parts, archive=False, trashed=trashed)


def _unsaved(work: ExportAtWork, owner: Owner, root: str) -> Volume:
    """The volume as it would have been saved; without a uid, because it never was."""
    record = {"path": owner.path, "root": root, "inode": str(owner.inode), "export": work.name}
    wire = {
        "metadata": {"name": owner.pv, "annotations": {"prov-host/record": msgspec.json.encode(record).decode()}},
        "spec": {"nfs": {"server": work.export.server, "path": work.export.source_path(owner.parts)}},
    }
    return msgspec.convert(wire, Volume)
