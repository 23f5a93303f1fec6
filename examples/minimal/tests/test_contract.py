"""The minimal backend keeps every promise of a backend: one fixture is all it takes to find out."""

import pytest
from prov_host_minimal import MinimalPlugin

from prov_host.testing import BackendContract, BackendUnderTest


class TestMinimal(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path):
        root = tmp_path / "storage"
        root.mkdir()
        return BackendUnderTest(MinimalPlugin, {"root": str(root)}, storage=root)
