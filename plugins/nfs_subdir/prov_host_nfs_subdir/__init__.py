"""nfs_subdir: a directory of an NFS export for each claim.

One module per concern: :mod:`~prov_host_nfs_subdir.plugin` has the hooks, :mod:`~prov_host_nfs_subdir.settings`,
:mod:`~prov_host_nfs_subdir.parameters` and :mod:`~prov_host_nfs_subdir.pattern` read what people write,
:mod:`~prov_host_nfs_subdir.share` proves the mount, :mod:`~prov_host_nfs_subdir.provisioning` and
:mod:`~prov_host_nfs_subdir.release` do the work on directory descriptors (:mod:`prov_host.safedir`).
"""

from prov_host_nfs_subdir.plugin import NfsSubdirPlugin
from prov_host_nfs_subdir.settings import ExportSettings, NfsSubdirSettings

__all__ = ["ExportSettings", "NfsSubdirPlugin", "NfsSubdirSettings"]
