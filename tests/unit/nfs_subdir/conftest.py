"""A plugin on a directory of its own, called as the host calls it."""

from __future__ import annotations

import os
import shutil
import tempfile
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


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A directory in memory where there is one: for tests that make thousands of shares."""
    memory = "/dev/shm"
    directory = Path(tempfile.mkdtemp(prefix="prov-host-", dir=memory if os.access(memory, os.W_OK) else None))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
