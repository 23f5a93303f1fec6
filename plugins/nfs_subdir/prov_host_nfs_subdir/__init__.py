"""nfs_subdir."""
