"""hostpath."""
