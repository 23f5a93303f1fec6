"""Which other volumes count when a directory is to be used or removed.

A volume counts from the moment its directory is decided on until its ownership record is gone: the object in the
cluster lives a little longer than the directory, and when two volumes that share a directory are deleted at once, each
must not wait for the other for ever.
"""

from __future__ import annotations

from prov_host import Volume
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.locating import is_ours, provisioned_by
from prov_host_nfs_subdir.share import OpenShare

__all__ = ["is_released", "shares"]


def is_released(work: ExportAtWork, share: OpenShare, volume: Volume) -> bool:
    """Whether we made a volume on this very share and are done with its directory."""
    return volume.record.get("root") == share.id and work.owners.read(share.owners, volume.name) is None


def shares(work: ExportAtWork, share: OpenShare, volume: Volume) -> bool:
    """Whether a volume shares its directory on purpose.

    Ours do if their class said so; the Go provisioner's always do, because it never looked.
    """
    owner = work.owners.read(share.owners, volume.name)
    if owner is not None:
        return owner.shared or owner.taken_over
    return not is_ours(volume) and provisioned_by(volume) in work.export.provisioners
