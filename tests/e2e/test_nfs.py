"""A volume's `spec.nfs` through the real NFS server: what a pod would see."""

from __future__ import annotations

import pytest

from harness.client import wait_until
from harness.installation import Installation
from harness.nfs import NfsServer

pytestmark = [pytest.mark.e2e, pytest.mark.nfs]


def test_files_are_written_and_read_through_the_volume_and_archived_with_it(
    nfs_installation: Installation, nfs_server: NfsServer
) -> None:
    installation = nfs_installation
    plain = installation.create_class("plain", {})
    pattern = installation.create_class(
        "pattern", {"pathPattern": "${.PVC.namespace}/${.PVC.name}", "onDelete": "delete"}
    )
    with installation.host():
        installation.create_claims({"plain": plain, "nested": pattern})
        installation.wait_bound(["plain", "nested"], 60)
        volumes = {volume["spec"]["claimRef"]["name"]: volume for volume in installation.volumes()}
        for name, volume in volumes.items():
            nfs_server.write(volume, "file", f"of {name}".encode())
            assert nfs_server.read(volume, "file") == f"of {name}".encode()
        assert (installation.share / installation.namespace / "nested/file").read_text() == "of nested"

        installation.delete_claims(["plain", "nested"])
        installation.wait_no_volumes(60)
        wait_until(
            lambda: not (installation.share / installation.namespace / "nested").exists(),
            timeout=30,
            what="the removed volume to be off the share",
        )
        for volume in volumes.values():
            with pytest.raises(FileNotFoundError):
                nfs_server.read(volume, "file")
        (archived,) = [path for path in installation.share.rglob("file") if path.read_text() == "of plain"]
        assert "plain" in str(archived.relative_to(installation.share))
        assert [path for path in installation.share.rglob("file") if path.read_text() == "of nested"] == []
