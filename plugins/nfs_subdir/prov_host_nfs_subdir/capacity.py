"""Whether there is room: free space on the share, and the export's budget.

A directory has no size of its own, so a claim's request is a promise nobody keeps automatically. By default a claim
that asks for more than is free at this moment is refused; a budget bounds the sum of all promises.

A promise counts from the moment it is made, long before its volume is saved: those of this process by their
reservation, those of a former one by the ownership record of a claim that still waits. Archives promise nothing.
"""

from __future__ import annotations

from prov_host import ProvisionError, ProvisionRequest, format_bytes
from prov_host_nfs_subdir.exports import ExportAtWork, Reservation
from prov_host_nfs_subdir.share import OpenShare

__all__ = ["check_space", "grant", "promised"]


def promised(work: ExportAtWork) -> int:
    """The sizes of all volumes on an export together, saved or not, in bytes; those that share one count once."""
    return work.ledger.total(work.host.volumes(), work.promises())


def grant(work: ExportAtWork, share: OpenShare, request: ProvisionRequest, size: int, mine: Reservation) -> None:
    """Promise a claim its size, if the export's budget allows it.

    Args:
        work: the export.
        share: its open share.
        request: what the host asks for.
        size: bytes of it.
        mine: the path's reservation; the promise lives as long.

    Raises:
        ProvisionError: saying how much is promised already.
    """
    budget, pv = work.export.budget, request.pv_name
    waiting = _waiting(work, share) if budget is not None else {}
    with work.granting:
        if budget is not None:
            others = {**waiting, **work.promises()}
            others.pop(pv, None)
            volumes = work.host.volumes()
            used = work.ledger.total(volumes, others, but=pv)
            then = work.ledger.total(volumes, {**others, "": (mine.parts, size)}, but=pv)
            if used < then > budget:
                raise ProvisionError(
                    f"claim {request.claim.key}: {_human(size)} more would exceed the budget of export "
                    f"{work.name!r}: {_human(used)} of {_human(budget)} are promised already. Nothing was created"
                )
        mine.size = size


def _waiting(work: ExportAtWork, share: OpenShare) -> dict[str, tuple[tuple[str, ...], int]]:
    """What a former process made for claims of this cluster that still have no volume."""
    saved = {volume.name for volume in work.host.volumes()}
    claims = {claim.uid for claim in work.host.claims() if claim.uid}
    work.owners.look(share.owners)
    return {
        one.pv: (one.parts, one.capacity)
        for one in work.owners.known()
        if one.pv not in saved and one.claim_uid in claims
    }


def check_space(work: ExportAtWork, share: OpenShare, request: ProvisionRequest, size: int) -> None:
    """Refuse a claim that there is no room for on the share.

    Args:
        work: the export.
        share: its open share.
        request: what the host asks for.
        size: bytes of it.

    Raises:
        ProvisionError: saying how much there is.
    """
    export, claim = work.export, request.claim
    check = work.settings.capacity_check
    if check == "off":
        return
    space = share.root.space()
    free = space.f_bavail * space.f_frsize
    if free <= 0 or (space.f_files and space.f_favail <= 0):
        what = "has no free inodes" if free > 0 else "is full"
        raise ProvisionError(
            f"claim {claim.key}: the share {share.root.path} of export {export.name!r} {what}. Nothing was created"
        )
    if check == "request" and size > free:
        raise ProvisionError(
            f"claim {claim.key} asks for {claim.requested[:64]}, but only {_human(free)} of "
            f"{_human(space.f_blocks * space.f_frsize)} are free on the share {share.root.path} of "
            f"export {export.name!r}; free some, ask for less, or set "
            'capacity_check = "full". Nothing was created'
        )


def _human(size: int) -> str:
    """Bytes for people: three digits and a unit."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return format_bytes(size) if size % 1024**5 == 0 else f"{value:.4g} PiB"
