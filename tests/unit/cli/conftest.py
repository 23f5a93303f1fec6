from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from prov_host.cli import cli
from prov_host.testing import EmbeddedCluster


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Run `prov-host` in this process, in an empty environment."""

    def run(*args: str, env: dict[str, str] | None = None) -> Result:
        runner = CliRunner(env={"PROV_HOST_CONFIG": "", **(env or {})})
        return runner.invoke(cli, list(args), prog_name="prov-host")

    return run


@pytest.fixture(autouse=True)
def kept_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster
