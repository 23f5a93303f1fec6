"""What is on a share: volumes with an owner, archives, and what is in the trash."""

from __future__ import annotations

from collections.abc import Iterator

from prov_host import Asset
from prov_host_nfs_subdir.archiving import list_archives
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.records import Owner, Parents
from prov_host_nfs_subdir.share import OpenShare, ShareProblem

__all__ = ["assets", "in_place"]


def in_place(share: OpenShare, owner: Owner) -> bool:
    """Whether an owner's directory is there."""
    try:
        with share.root.walk(owner.parts[:-1]) as parent:
            there = parent.lstat(owner.parts[-1])
    except (OSError, ValueError):
        return False
    return there is not None and there.st_ino == owner.inode


def assets(work: ExportAtWork) -> Iterator[Asset]:
    """Everything on one export's share.

    Args:
        work: the export.

    Yields:
        Volumes whose directory is in place, archives and trash. Ids begin with ``server:``, so they are unique among
        exports; volumes that share a directory have the volume's name behind it.
    """
    try:
        share = work.share.open(begin=False)
    except ShareProblem as error:
        if not error.unused:
            raise
        return
    server = work.export.server
    with share:
        seen: set[str] = set()
        taken = {parts[0] for parts, _inode in Parents.all(share.parents)}
        for owner in work.owners.all(share.owners):
            if not isinstance(owner, Owner):
                continue
            taken.add(owner.parts[0])
            if not in_place(share, owner):
                continue
            path = work.export.source_path(owner.parts)
            yield Asset(
                id=f"{server}:{path}" + (f"#{owner.pv}" if path in seen else ""),
                pv_name=owner.pv,
                provisioner=owner.provisioner,
                claim=f"{owner.namespace}/{owner.claim}",
                claim_uid=owner.claim_uid,
                detail={"path": path, "class": owner.class_name, "created": owner.created, "export": work.name},
            )
            seen.add(path)
        for archive in list_archives(share.root, taken):
            path = work.export.source_path((archive.name,))
            yield Asset(
                id=f"{server}:{path}",
                pv_name=archive.pv,
                provisioner=archive.provisioner,
                claim=f"{archive.namespace}/{archive.claim}" if archive.claim else "",
                claim_uid=archive.claim_uid,
                kind="archive",
                detail={"path": path, "archived": archive.archived, "export": work.name},
            )
        for name in share.trash.names():
            yield Asset(id=f"{server}:{work.name}:trash/{name}", kind="trash", detail={"export": work.name})
