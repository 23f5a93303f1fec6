"""hostpath keeps every promise of a backend, in both of its scopes and with either source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prov_host.testing import BackendContract, BackendUnderTest
from prov_host_hostpath import HostpathPlugin


def _subject(tmp_path: Path, parameters: dict[str, str] | None = None, **settings: Any) -> BackendUnderTest:
    root = tmp_path / "volumes"
    root.mkdir()
    return BackendUnderTest(
        HostpathPlugin,
        {"directories": [str(root)], **settings},
        name="hostpath",
        node_name="node-1",
        selected_node="node-1",
        parameters=parameters,
        storage=root,
    )


class TestOnASingleNode(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> BackendUnderTest:
        return _subject(tmp_path)


class TestOnEachNodeWithHostPaths(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> BackendUnderTest:
        return _subject(tmp_path, {"source": "hostPath", "mode": "0750"}, scope="per-node", default_policy="archive")
