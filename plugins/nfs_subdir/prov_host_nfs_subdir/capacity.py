"""Whether there is room: free space on the share, and the export's budget.

A directory has no size of its own, so a claim's request is a promise nobody keeps automatically. By default a claim
that asks for more than is free at this moment is refused; a budget bounds the sum of all promises.
"""

from __future__ import annotations

from collections.abc import Iterable

from prov_host import ProvisionError, ProvisionRequest, Volume, format_bytes, parse_bytes
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.locating import is_ours, parts_in, provisioned_by
from prov_host_nfs_subdir.settings import Export
from prov_host_nfs_subdir.share import OpenShare

__all__ = ["capacity_of", "check_space", "promised"]


def capacity_of(volume: Volume) -> int:
    """A volume's size in bytes; 0 if it has none, or none that can be read."""
    try:
        return parse_bytes(str((volume.spec.capacity or {}).get("storage", "0")))
    except ValueError:
        return 0


def promised(export: Export, volumes: Iterable[Volume], but: str = "") -> int:
    """The sizes of all volumes on an export together, in bytes; volumes that share a directory count once."""
    sizes: dict[tuple[str, ...], int] = {}
    for volume in volumes:
        parts = parts_in(export, volume)
        if parts and volume.name != but and (is_ours(volume) or provisioned_by(volume) in export.provisioners):
            sizes[parts] = max(sizes.get(parts, 0), capacity_of(volume))
    return sum(sizes.values())


def check_space(
    work: ExportAtWork, share: OpenShare, request: ProvisionRequest, size: int, volumes: Iterable[Volume]
) -> None:
    """Refuse a claim there is no room for.

    Args:
        work: the export.
        share: its open share.
        request: what the host asks for.
        size: bytes of it.
        volumes: all volumes of the cluster.

    Raises:
        ProvisionError: saying how much there is.
    """
    export, claim = work.export, request.claim
    if export.budget is not None:
        used = promised(export, volumes, but=request.pv_name)
        if used + size > export.budget:
            raise ProvisionError(
                f"claim {claim.key}: {_human(size)} more would exceed the budget of export {export.name!r}: "
                f"{_human(used)} of {_human(export.budget)} are promised already. Nothing was created"
            )
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
