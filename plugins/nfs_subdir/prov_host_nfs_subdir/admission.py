"""Whether a volume may have a path at all: who else uses it, owns it, or keeps a share of their own there."""

from __future__ import annotations

from prov_host import ProvisionError, Volume
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.locating import Use
from prov_host_nfs_subdir.naming import foreign_area
from prov_host_nfs_subdir.planning import Plan
from prov_host_nfs_subdir.records import Owner, Parents
from prov_host_nfs_subdir.share import OpenShare
from prov_host_nfs_subdir.sharing import is_left_over, others_at, same_directory, shares, whose

__all__ = ["refuse_foreign", "refuse_other_spelling", "refuse_owned", "refuse_used"]


def refuse_used(work: ExportAtWork, share: OpenShare, wanted: Plan, parts: tuple[str, ...], others: list[Use]) -> None:
    """Refuse a path that another volume uses, unless both are to share it."""
    where = work.export.source_path(parts)
    for use in others:
        who = f"volume {use.volume.name} of claim {use.volume.claim_key or 'nobody'}"
        if use.parts != parts:
            raise ProvisionError(
                f"claim {wanted.request.claim.key}: {where} and {who} at {work.export.source_path(use.parts)} would "
                "lie inside each other; choose another pathPattern. Nothing was created"
            )
        if not wanted.parameters.adopt:
            raise ProvisionError(
                f"claim {wanted.request.claim.key}: {where} is used by {who}; delete that first, choose another "
                'pathPattern, or let them share it with adoptExisting: "true". Nothing was created'
            )
        if not shares(work, share, use.volume):
            raise ProvisionError(
                f"claim {wanted.request.claim.key}: {where} is used by {who}, whose class does not share its "
                "directories (adoptExisting). Nothing was created"
            )


def refuse_owned(
    work: ExportAtWork, share: OpenShare, wanted: Plan, parts: tuple[str, ...], inodes: list[int], *, adopting: bool
) -> list[Owner]:
    """Refuse a directory that an ownership record on the share gives to another volume, of whatever cluster.

    Returns:
        Records of this very directory that are nobody's any more.
    """
    key, where = wanted.request.claim.key, work.export.source_path(parts)
    ours = all(Parents.made(share.parents, parts[: depth + 1], inode) for depth, inode in enumerate(inodes))
    others, unreadable = others_at(work, share, parts, but=wanted.pv, fresh=adopting or not ours)
    if adopting and unreadable:
        raise ProvisionError(
            f"claim {key}: whether {where} is another volume's cannot be told: {unreadable[0].filename} "
            f"{unreadable[0].strerror}. Nothing was changed"
        )
    left_over = []
    for other in others:
        if other.parts != parts:
            raise ProvisionError(
                f"claim {key}: {where} and {whose(other)} at {work.export.source_path(other.parts)} would lie inside "
                "each other, going by the ownership records on the share; choose another pathPattern. Nothing was "
                "created"
            )
        if other.shared and wanted.parameters.adopt:
            continue
        if not is_left_over(work, other, [wanted.request.storage_class.uid]):
            raise ProvisionError(
                f"claim {key}: {where} belongs to {whose(other)}, going by the ownership record on the share: maybe "
                "of another cluster, whose volumes are not seen from here. If nobody uses it any more, "
                f"`prov-host orphans --archive {'/'.join(parts)}` puts it aside, and `prov-host archives restore "
                "--to` brings it back for this claim. Nothing was changed"
            )
        left_over.append(other)
    return left_over


def refuse_foreign(share: OpenShare, wanted: Plan, parts: tuple[str, ...]) -> None:
    """Refuse to adopt a directory that holds the root of another share."""
    try:
        with share.root.walk(parts, readable=True) as top:
            found = foreign_area(top)
    except PermissionError:
        return
    if found:
        raise ProvisionError(
            f"claim {wanted.request.claim.key}: {found} makes this directory part of another share; it is not adopted"
        )


def refuse_other_spelling(
    work: ExportAtWork,
    share: OpenShare,
    wanted: Plan,
    parts: tuple[str, ...],
    *,
    inodes: list[int],
    volumes: tuple[Volume, ...],
) -> None:
    """Refuse a path that is another volume's directory on a share which ignores case or normalizes names."""
    if what := same_directory(work, share, parts, inodes, volumes, but=wanted.pv):
        raise ProvisionError(
            f"claim {wanted.request.claim.key}: {work.export.source_path(parts)} is {what}; choose another "
            "pathPattern. Nothing was created"
        )
