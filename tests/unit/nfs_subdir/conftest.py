"""A plugin on a directory of its own, called as the host calls it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nfs_rig import Rig


@pytest.fixture
def share(tmp_path: Path) -> Path:
    directory = tmp_path / "share"
    directory.mkdir()
    directory.chmod(0o755)
    return directory


@pytest.fixture
def rig(share: Path) -> Iterator[Rig]:
    rig = Rig(share)
    rig.start()
    yield rig
    rig.stop()
