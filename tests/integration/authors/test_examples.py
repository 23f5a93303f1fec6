"""The examples are packages: built as wheels, installed with pip, and run by the installed host like anyone's."""

from __future__ import annotations

import io
import json
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docpages import Scratch
from docpages.scratch import REPOSITORY
from prov_host.testing import EmbeddedCluster

EXAMPLES = ("minimal", "audit", "quota")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scratch]:
    """An environment of its own with the three examples' wheels."""
    with Scratch(tmp_path_factory.mktemp("examples")) as scratch:
        # A copy: building leaves files beside the sources.
        scratch.run(f"cp -r {REPOSITORY}/examples/* .")
        scratch.run(f"python -m pip wheel --quiet --no-deps --wheel-dir dist {' '.join(f'./{n}' for n in EXAMPLES)}")
        scratch.run("python -m pip install --quiet dist/*.whl")
        yield scratch


def test_each_example_passes_its_own_tests_as_installed(installed: Scratch) -> None:
    for name in EXAMPLES:
        module = f"prov_host_{name}"
        assert str(installed.environment) in installed.run(f"python -c 'import {module}; print({module}.__file__)'")
    # Away from the sources, so that nothing but the installed wheels is tested.
    installed.run("mkdir tests && cp */tests/test_*.py tests/ && cd tests && python -m pytest -q --rootdir . && cd ..")


def test_the_minimal_backend_has_less_than_forty_lines_of_code() -> None:
    text = (REPOSITORY / "examples" / "minimal" / "prov_host_minimal.py").read_text()
    no_code = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in no_code:
            lines.update(range(token.start[0], token.end[0] + 1))
    assert len(lines) < 40


def test_the_host_lists_them(installed: Scratch) -> None:
    installed.run("touch audit.log")
    listing = json.loads(
        installed.run("PROV_HOST_AUDIT_PATH=$PWD/audit.log prov-host plugins --all --json 2>/dev/null")
    )
    rows = {row["name"]: row for row in listing if row["name"] in EXAMPLES}
    assert {name: row["distribution"] for name, row in rows.items()} == {n: f"prov-host-{n}" for n in EXAMPLES}
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert rows["minimal"]["provisioners"] == ["example.com/minimal"]
    assert rows["quota"]["wrappers"] == ["delete", "provision"]


def test_the_host_runs_with_all_of_them(installed: Scratch, cluster: EmbeddedCluster) -> None:
    root = installed.work / "volumes"
    log = installed.work / "run-audit.log"
    root.mkdir()
    (installed.work / "host.toml").write_text(
        f"""
plugin = ["minimal", "audit", "quota"]
kubeconfig = "{cluster.kubeconfig}"
leader-election = false

[minimal]
root = "{root}"

[audit]
path = "{log}"

[quota.budgets]
team-a = "2Gi"
"""
    )
    cluster.create_class("example.com/minimal")
    installed.start("prov-host --config host.toml", "Serving provisioner example.com/minimal")
    cluster.create_claim("first", "team-a", storage="2Gi")
    volume = cluster.wait_bound("first", "team-a")["metadata"]["name"]
    assert [path.name for path in root.iterdir()] == [volume]

    cluster.create_claim("second", "team-a", storage="1Gi")
    refusal = cluster.wait_for(lambda: cluster.events("second", "ProvisioningFailed"))[0]
    assert "namespace team-a has a storage budget of 2Gi and uses 2Gi; team-a/second wants 1Gi" in refusal
    cluster.create_claim("unlimited", "team-b", storage="1Ti")
    cluster.wait_bound("unlimited", "team-b")

    cluster.delete("PersistentVolumeClaim", "first", "team-a")
    cluster.wait_gone("PersistentVolume", volume)
    assert volume not in [path.name for path in root.iterdir()]

    def told() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in Path(log).read_text().split("\n")[:-1]]
        return [line for line in lines if line["volume"] == volume]

    cluster.wait_for(lambda: len(told()) == 4, "the audit log has all of the first volume")
    assert [(line["event"], line["operation"], line.get("outcome", "")) for line in told()] == [
        ("begin", "provision", ""),
        ("end", "provision", "ok"),
        ("begin", "delete", ""),
        ("end", "delete", "ok"),
    ]
