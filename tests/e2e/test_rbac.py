"""The host with exactly the roles of deploy/, on a control plane with RBAC."""

from __future__ import annotations

import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest
import yaml

from harness.client import ApiClient, ApiError, wait_until
from harness.controlplane import ControlPlane
from harness.installation import Installation

pytestmark = pytest.mark.e2e
BASE = Path(__file__).resolve().parents[2] / "deploy/kustomize/base"


@pytest.fixture
def account_token(rbac_control_plane: ControlPlane) -> str:
    """A token of the deployment's service account, once everything of deploy/ but the pods is there."""
    kubectl = Path(sysconfig.get_path("scripts")) / "kubectl"
    rendered = subprocess.run([kubectl, "kustomize", BASE], check=True, capture_output=True, text=True).stdout
    for obj in yaml.safe_load_all(rendered):
        if obj["kind"] != "Deployment":
            rbac_control_plane.client.apply(obj)
    return rbac_control_plane.client.service_account_token("prov-host", "prov-host")


def _installation(plane: ControlPlane, token: str, directory: Path) -> Installation:
    return Installation(
        "prov-host",
        client=plane.client,
        kubeconfig=plane.client.write_kubeconfig(directory / "kubeconfig", token=token, namespace="prov-host"),
        directory=directory,
        share=directory / "share",
    )


def test_the_roles_of_the_deployment_are_enough(
    rbac_control_plane: ControlPlane, account_token: str, tmp_path: Path
) -> None:
    installation = _installation(rbac_control_plane, account_token, tmp_path)
    admin = rbac_control_plane.client
    try:
        claims = dict.fromkeys(("one", "two", "three"), installation.create_class("delete", {"onDelete": "delete"}))
        with installation.host() as host:
            installation.create_claims(claims)
            installation.wait_bound(claims, 60)
            installation.delete_claims(claims)
            installation.wait_no_volumes(60)
            assert host.stop() == 0
        assert {"Provisioning", "ProvisioningSucceeded"} <= {
            event["reason"] for event in admin.list("Event", "prov-host")
        }
        assert installation.directories() == set()
        assert installation.lease_holder() == ""
        assert "403" not in host.log_text()
        assert "orbidden" not in host.log_text()
    finally:
        installation.clean()


def test_with_these_roles_and_usual_leases_a_standby_takes_over_at_once(
    rbac_control_plane: ControlPlane, account_token: str, tmp_path: Path
) -> None:
    installation = _installation(rbac_control_plane, account_token, tmp_path)
    try:
        with installation.host(name="first") as first:
            holder = wait_until(installation.lease_holder, timeout=30, what="a holder of the lease")
            with installation.host(name="second"):
                began = time.monotonic()
                first.signal(signal.SIGTERM)
                wait_until(
                    lambda: installation.lease_holder() not in {"", holder},
                    timeout=20,
                    interval=0.02,
                    what="another holder of the lease",
                )
                assert time.monotonic() - began < 2.0, installation.report()
                assert first.wait() == 0
    finally:
        installation.clean()


def test_the_roles_reach_nothing_the_host_does_not_need(rbac_control_plane: ControlPlane, account_token: str) -> None:
    admin = rbac_control_plane.client
    with ApiClient(admin.url, token=account_token, ca_file=admin.ca_file) as client:
        for kind, namespace in (("Secret", None), ("Pod", None), ("Node", None), ("Lease", "default")):
            with pytest.raises(ApiError) as caught:
                client.list(kind, namespace)
            assert caught.value.status == 403
        with pytest.raises(ApiError) as caught:
            client.delete("PersistentVolumeClaim", "any")
        assert caught.value.status == 403
