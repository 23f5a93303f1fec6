from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from prov_host.cli import cli


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Run `prov-host` in this process, in an empty environment."""

    def run(*args: str, env: dict[str, str] | None = None) -> Result:
        runner = CliRunner(env={"PROV_HOST_CONFIG": "", **(env or {})})
        return runner.invoke(cli, list(args), prog_name="prov-host")

    return run
