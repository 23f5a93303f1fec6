"""hostpath: node-local volumes, one directory per volume, for single-node clusters and for one process per node."""

from prov_host_hostpath.plugin import PROV_HOST_API, HostpathPlugin
from prov_host_hostpath.settings import Directory, HostpathSettings, NodeSettings

__all__ = ["PROV_HOST_API", "Directory", "HostpathPlugin", "HostpathSettings", "NodeSettings"]
