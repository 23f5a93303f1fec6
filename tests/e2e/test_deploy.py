"""deploy/ against the real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from harness.controlplane import ControlPlane

pytestmark = pytest.mark.e2e
KUSTOMIZE = Path(__file__).resolve().parents[2] / "deploy/kustomize"


@pytest.mark.parametrize("directory", ["base", "test-claim", "components/root-on-nfs", "components/hostpath-per-node"])
def test_the_api_server_accepts_the_manifests_without_a_warning(
    control_plane: ControlPlane, tmp_path: Path, directory: str
) -> None:
    target = KUSTOMIZE / directory
    if directory.startswith("components/"):
        overlay = {"resources": [KUSTOMIZE / "base"], "components": [target]}
        target = tmp_path / "overlay"
        target.mkdir()
        relative = {
            kind: [os.path.relpath(path, target.resolve()) for path in paths] for kind, paths in overlay.items()
        }
        (target / "kustomization.yaml").write_text(json.dumps(relative))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prov-host"}}
    control_plane.client.apply(namespace)  # a dry run does not make it for what comes after it
    kubectl = [str(Path(sysconfig.get_path("scripts")) / "kubectl"), "--kubeconfig", str(control_plane.kubeconfig)]
    done = subprocess.run(
        [
            *kubectl,
            "--cache-dir",
            str(tmp_path),
            "--warnings-as-errors",
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "--kustomize",
            str(target),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert all(line.endswith("serverside-applied (server dry run)") for line in done.stdout.splitlines())
