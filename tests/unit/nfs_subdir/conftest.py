"""A plugin on a directory of its own, called as the host calls it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from nfs_rig import Rig
from prov_host import Claim, StorageClass, Volume
from prov_host_nfs_subdir import NfsSubdirPlugin


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


class CommandLine:
    """The host's command line, over a rig."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def settings(self) -> object:
        return next(iter(self._rig.plugin._served.values())).work.settings

    def cluster(self) -> str:
        return "https://192.0.2.1:6443, from the kubeconfig of this test"

    def volumes(self) -> tuple[Volume, ...]:
        return tuple(self._rig.volumes.values())

    def claims(self) -> tuple[Claim, ...]:
        return tuple(self._rig.host.known_claims)

    def storage_classes(self) -> tuple[StorageClass, ...]:
        return tuple(self._rig.host.known_classes)


@pytest.fixture
def run(rig: Rig) -> Callable[..., Result]:
    """Run one of the plugin's commands."""

    def call(*args: str, stdin: str = "") -> Result:
        group = click.Group()
        plugin = NfsSubdirPlugin(rig.environ, rig.sys, lambda: f"cli-{os.urandom(4).hex()}")
        plugin.commands(group, CommandLine(rig))
        return CliRunner().invoke(group, list(args), input=stdin)

    return call
