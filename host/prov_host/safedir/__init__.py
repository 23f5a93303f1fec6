"""Safe directories: work in a tree that other people write to, without ever being led out of it.

Backends that keep one directory per volume share this package. It knows nothing of Kubernetes.

* :mod:`~prov_host.safedir.names`: which names and paths are used at all;
* :mod:`~prov_host.safedir.syscalls`: the system calls, as one object that tests replace;
* :mod:`~prov_host.safedir.directory`: one open directory, and what may be done to its entries;
* :mod:`~prov_host.safedir.moving`, :mod:`~prov_host.safedir.smallfiles`: renames that never replace, small files;
* :mod:`~prov_host.safedir.removal`: removing whole trees.

Since 0.1.
"""

from prov_host.safedir.directory import Dir
from prov_host.safedir.failures import NotADirectory, OtherFilesystem
from prov_host.safedir.names import (
    MAX_NAME_BYTES,
    UnsafeName,
    check_name,
    check_new_name,
    normalize_absolute,
    overlaps,
    relative_parts,
    split_relative,
)
from prov_host.safedir.removal import MAX_DEPTH, Removal, remove_tree
from prov_host.safedir.syscalls import Entry, Mount, RealSys, Sys

__all__ = [
    "MAX_DEPTH",
    "MAX_NAME_BYTES",
    "Dir",
    "Entry",
    "Mount",
    "NotADirectory",
    "OtherFilesystem",
    "RealSys",
    "Removal",
    "Sys",
    "UnsafeName",
    "check_name",
    "check_new_name",
    "normalize_absolute",
    "overlaps",
    "relative_parts",
    "remove_tree",
    "split_relative",
]
