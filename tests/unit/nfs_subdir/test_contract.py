"""The plugin keeps what every backend promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prov_host.testing import BackendContract, BackendUnderTest
from prov_host_nfs_subdir import NfsSubdirPlugin


class TestNfsSubdirKeepsTheContract(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> BackendUnderTest:
        share = tmp_path / "share"
        share.mkdir()
        return subject_on(share)


class TestNfsSubdirKeepsTheContractWithPatterns(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> BackendUnderTest:
        share = tmp_path / "share"
        share.mkdir()
        return subject_on(share, parameters={"pathPattern": "${.PVC.namespace}/${.PVC.name}/${.PV.name}"})


def subject_on(share: Path, **options: Any) -> BackendUnderTest:
    settings = {
        "server": "nfs.example.com",
        "path": "/exports/k8s",
        "provisioner": ["example.com/nfs"],
        "mount": str(share),
        "plain_directory": True,
    }
    return BackendUnderTest(lambda: NfsSubdirPlugin({}), settings, name="nfs_subdir", storage=share, **options)
