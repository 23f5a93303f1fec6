"""Acting on what a scan found: adopting live volumes, archiving directories that nobody uses.

Both look again before they change anything: what was found may be some minutes old.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from prov_host import DeleteError, Volume
from prov_host_nfs_subdir.exports import ExportAtWork, stamp
from prov_host_nfs_subdir.findings import Finding, inode_at
from prov_host_nfs_subdir.ledger import capacity_of
from prov_host_nfs_subdir.locating import has_lost_record, is_ours, parts_in, provisioned_by
from prov_host_nfs_subdir.orphans import UNKNOWN
from prov_host_nfs_subdir.records import Owner, stem
from prov_host_nfs_subdir.release import release
from prov_host_nfs_subdir.restored import Restored, forget_restored, restored
from prov_host_nfs_subdir.share import OpenShare

__all__ = ["adopt", "archive"]


def adopt(work: ExportAtWork, share: OpenShare, finding: Finding, volumes: Sequence[Volume]) -> str:
    """Write the ownership record of a live volume as its directory is now.

    Args:
        work: the export.
        share: its open share.
        finding: ``unrecorded``, ``replaced`` or ``lost-record``.
        volumes: all volumes of the cluster.

    Returns:
        What was done.
    """
    parts = tuple(finding.path.split("/"))
    inode = inode_at(share, parts)
    volume = next((one for one in volumes if one.name == finding.pv), None)
    if inode is None or volume is None or parts_in(work.export, volume) != parts:
        return f"{finding.path}: is not as it was; scan again"
    # The volume itself cannot be given its record back, so the one on the share has to say that it is enough.
    confirmed = has_lost_record(volume)
    old = work.owners.read(share.owners, finding.pv)
    if old is not None:
        owner = msgspec.structs.replace(old, path=finding.path, inode=inode, leaving="", confirmed=confirmed)
    else:
        claim, name = volume.spec.claim_ref, volume.spec.storage_class_name or ""
        owner = Owner(
            pv=volume.name,
            path=finding.path,
            inode=inode,
            namespace=(claim.namespace if claim else None) or "",
            claim=(claim.name if claim else None) or "",
            claim_uid=volume.claim_uid,
            class_name=name,
            class_uid=next((one.uid for one in work.host.storage_classes() if one.name == name), ""),
            provisioner=provisioned_by(volume),
            created=volume.metadata.creation_timestamp or stamp(work.host.clock.now()),
            capacity=capacity_of(volume),
            policy="retain" if volume.reclaim_policy == "Retain" else volume.policy,
            adopted=volume.record.get("adopted") == "true",
            shared=volume.record.get("shared") == "true",
            taken_over=not is_ours(volume),
            missing=len(parts),
            confirmed=confirmed,
        )
    work.owners.write(share.owners, owner)
    return f"{finding.path}: belongs to volume {finding.pv} from now on"


def archive(work: ExportAtWork, share: OpenShare, finding: Finding) -> str:
    """Archive a directory that no volume uses, by the same steps and checks as a volume's.

    Args:
        work: the export.
        share: its open share.
        finding: one that allows it.

    Returns:
        What was done.

    Raises:
        DeleteError: it turned out not to be so.
    """
    parts = tuple(finding.path.split("/"))
    try:
        finding.path.encode()
    except UnicodeEncodeError:
        raise DeleteError(f"{finding.path}: the name is not valid UTF-8; rename the directory first") from None
    owner = work.owners.read(share.owners, finding.pv) if finding.pv else None
    recorded = owner is not None and owner.parts == parts
    note = next((one for one in restored(share.restored) if one.parts == parts), None)
    if not recorded:
        inode = inode_at(share, parts)
        if inode is None or (note is not None and note.inode != inode):
            return f"{finding.path}: is not as it was; scan again"
        name = f"{UNKNOWN}{stem(finding.path)[:12]}"
        if note and note.archive.pv and all(one.name != note.archive.pv for one in work.host.volumes()):
            name = note.archive.pv if work.owners.read(share.owners, note.archive.pv) is None else name
        owner = _owner_of_unknown(name, finding, inode, note)
        work.owners.write(share.owners, owner)
    assert owner is not None
    stand_in = _stand_in(work, owner, share.id)
    try:
        removed = release(work, stand_in, parts, archive=True, trashed=lambda _name: None)
    except BaseException:
        if not recorded and inode_at(share, parts) == owner.inode:
            work.owners.remove(share.owners, owner.pv)
        raise
    if note is not None:
        forget_restored(share.restored, note)
    return removed.message


def _owner_of_unknown(name: str, finding: Finding, inode: int, note: Restored | None) -> Owner:
    """A record for a directory that has none; what an archive was before it was restored is not forgotten."""
    was = note.archive if note else None
    parts = tuple(finding.path.split("/"))
    return Owner(
        pv=name,
        path=finding.path,
        inode=inode,
        namespace=was.namespace if was else "",
        claim=was.claim if was and was.claim else parts[-1],
        claim_uid=was.claim_uid if was else "",
        class_name=was.class_name if was else "",
        capacity=was.capacity if was else 0,
        retention=was.retention if was else 0,
        adopted=True,  # it was there before: what is in it is looked at with more suspicion
        missing=len(parts),
    )


def _stand_in(work: ExportAtWork, owner: Owner, root: str) -> Volume:
    """The volume that is gone, as far as releasing its directory needs it."""
    record = {"path": owner.path, "root": root, "inode": str(owner.inode), "export": work.name}
    wire = {
        "metadata": {
            "name": owner.pv,
            "uid": "gone",
            "annotations": {"prov-host/record": msgspec.json.encode(record).decode()},
        },
        "spec": {"nfs": {"server": work.export.server, "path": work.export.source_path(owner.parts)}},
    }
    return msgspec.convert(wire, Volume)
