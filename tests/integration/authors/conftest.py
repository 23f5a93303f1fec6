"""What the authors' tests share: an embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prov_host.testing import EmbeddedCluster


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster
