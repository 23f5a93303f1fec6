"""What a plugin's own commands are told about where they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

import prov_host.cli_plugins
from prov_host import CommandContext, hookimpl
from prov_host.plugins import Candidate

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: production
clusters: [{name: c, cluster: {server: "https://203.0.113.7:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts:
- {name: production, context: {cluster: c, user: u}}
- {name: staging, context: {cluster: c, user: u}}
"""


class Teller:
    @hookimpl
    def commands(self, group: click.Group, context: CommandContext) -> None:
        @group.command()
        def where() -> None:
            """Say where."""
            click.echo(context.cluster())


@pytest.mark.parametrize(("options", "context"), [((), "production"), (("--context", "staging"), "staging")])
def test_a_command_can_say_which_cluster_it_works_on_without_asking_it(
    invoke: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: tuple[str, ...],
    context: str,
) -> None:
    one = Candidate("teller", "teller-dist", "1", "teller:Plugin", lambda: Teller)
    monkeypatch.setattr(prov_host.cli_plugins, "discover", lambda: [one])
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    result = invoke("--plugin", "teller", "--kubeconfig", str(path), *options, "where")
    assert result.exit_code == 0, result.output
    assert "https://203.0.113.7:6443" in result.output
    assert str(path) in result.output
    assert f"context {context!r}" in result.output
    assert "secret" not in result.output
