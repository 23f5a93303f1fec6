"""What deploy/ promises, read from what kubectl renders of it."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from docpages import blocks_of
from prov_host.settings import read_settings
from prov_host_hostpath import HostpathSettings

REPOSITORY = Path(__file__).resolve().parents[3]
DEPLOY = REPOSITORY / "deploy"


def render(directory: Path) -> dict[tuple[str, str], dict[str, Any]]:
    kubectl = Path(sysconfig.get_path("scripts")) / "kubectl"
    text = subprocess.run([kubectl, "kustomize", directory], check=True, capture_output=True, text=True).stdout
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def base() -> dict[tuple[str, str], dict[str, Any]]:
    return render(DEPLOY / "kustomize/base")


@pytest.fixture(scope="module")
def pod(base: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = base["Deployment", "prov-host"]["spec"]["template"]["spec"]
    return spec


def test_the_host_runs_without_any_privilege(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_same_export_is_mounted_and_written_into_volumes(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    (volume,) = pod["volumes"]
    assert volume["nfs"] == {"server": env["NFS_SERVER"], "path": env["NFS_PATH"]}
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/persistentvolumes"}]


def test_the_class_and_the_test_claim_are_served_by_the_deployment(
    base: dict[tuple[str, str], dict[str, Any]], pod: dict[str, Any]
) -> None:
    env = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    storage_class = base["StorageClass", "prov-host-nfs"]
    assert storage_class["provisioner"] == env["PROVISIONER_NAME"]
    claim = render(DEPLOY / "kustomize/test-claim")["PersistentVolumeClaim", "prov-host-test"]
    assert claim["spec"]["storageClassName"] == storage_class["metadata"]["name"]


def test_probes_ask_the_port_the_host_listens_on(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    (port,) = container["ports"]
    assert f"--http-address=0.0.0.0:{port['containerPort']}" in container["args"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}


def test_no_role_has_a_wildcard_or_reads_secrets(base: dict[tuple[str, str], dict[str, Any]]) -> None:
    rules = [rule for (kind, _), obj in base.items() if kind in {"Role", "ClusterRole"} for rule in obj["rules"]]
    assert rules
    for rule in rules:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert "secrets" not in rule["resources"]


def test_roles_are_bound_to_the_account_the_pods_run_as(
    base: dict[tuple[str, str], dict[str, Any]], pod: dict[str, Any]
) -> None:
    subject = {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": "prov-host"}
    for kind, name in (("ClusterRoleBinding", "prov-host"), ("RoleBinding", "prov-host-leader-election")):
        binding = base[kind, name]
        assert binding["subjects"] == [subject]
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in base


def with_component(name: str, directory: Path) -> dict[tuple[str, str], dict[str, Any]]:
    overlay = DEPLOY / "kustomize"
    (directory / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": [os.path.relpath(overlay / "base", directory.resolve())],
                "components": [os.path.relpath(overlay / "components" / name, directory.resolve())],
            }
        )
    )
    return render(directory)


def test_the_component_for_node_local_volumes_adds_a_process_on_each_node(
    tmp_path: Path, base: dict[tuple[str, str], dict[str, Any]], pod: dict[str, Any]
) -> None:
    changed = with_component("hostpath-per-node", tmp_path)
    assert changed.keys() - base.keys() == {("DaemonSet", "prov-host-hostpath"), ("StorageClass", "prov-host-local")}
    assert changed["Deployment", "prov-host"] == base["Deployment", "prov-host"]
    enforce = "pod-security.kubernetes.io/enforce"
    assert changed["Namespace", "prov-host"]["metadata"]["labels"][enforce] == "privileged"
    own = changed["DaemonSet", "prov-host-hostpath"]["spec"]
    selector = own["selector"]["matchLabels"].items()
    assert selector <= own["template"]["metadata"]["labels"].items()
    assert not selector <= base["Deployment", "prov-host"]["spec"]["template"]["metadata"]["labels"].items()
    own_pod = own["template"]["spec"]
    (container,) = own_pod["containers"]
    assert container["image"] == pod["containers"][0]["image"]
    assert own_pod["serviceAccountName"] == pod["serviceAccountName"]
    assert "--leader-election=false" in container["args"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    environment = {entry["name"]: entry.get("value", "node-1") for entry in container["env"]}
    settings = read_settings({}, environment, installed=("hostpath",))
    assert settings.host.node_name == "node-1"
    hostpath = settings.for_plugin("hostpath", HostpathSettings)
    assert hostpath.scope == "per-node"
    (volume,) = own_pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert (mount["name"], (mount["mountPath"],)) == (volume["name"], hostpath.directories)
    assert volume["hostPath"]["path"] == mount["mountPath"]  # as the node sees it
    storage_class = changed["StorageClass", "prov-host-local"]
    assert storage_class["provisioner"] == hostpath.provisioner
    assert storage_class["volumeBindingMode"] == "WaitForFirstConsumer"


def test_the_documented_process_on_each_node_is_the_components(tmp_path: Path) -> None:
    page = REPOSITORY / "docs/how-to/node-local-volumes.md"
    (text,) = (block.text for block in blocks_of(page) if "kind: DaemonSet" in block.text and block.language == "yaml")
    shown = yaml.safe_load(text)["spec"]["template"]["spec"]
    made = with_component("hostpath-per-node", tmp_path)["DaemonSet", "prov-host-hostpath"]["spec"]["template"]["spec"]
    for name in ("image", "env", "volumeMounts", "securityContext"):
        assert shown["containers"][0][name] == made["containers"][0][name], name
    assert shown["volumes"] == made["volumes"]
    assert shown["securityContext"].items() <= made["securityContext"].items()


def test_the_root_component_changes_the_user_and_nothing_else(tmp_path: Path, pod: dict[str, Any]) -> None:
    changed = with_component("root-on-nfs", tmp_path)["Deployment", "prov-host"]["spec"]["template"]["spec"]
    assert (
        changed["securityContext"] | {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532}
        == pod["securityContext"]
    )
    capabilities = changed["containers"][0]["securityContext"].pop("capabilities")
    assert capabilities == {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]}
    assert changed["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
    }


def test_the_image_is_built_from_everything_the_wheel_is_made_of() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    dockerfile = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [
        source
        for line in dockerfile
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert all((REPOSITORY / source).exists() for source in copied)
    needed = [
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
    ]
    assert [path for path in needed if not any(Path(path).is_relative_to(source) for source in copied)] == []
    allowed = {
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert allowed == set(copied)


def test_the_image_runs_as_the_user_of_the_deployment_and_gets_signals_itself(pod: dict[str, Any]) -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text().splitlines()
    context = pod["securityContext"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in dockerfile
    assert 'ENTRYPOINT ["prov-host"]' in dockerfile


def test_the_version_of_the_image_is_that_of_the_package(pod: dict[str, Any]) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert pod["containers"][0]["image"] == f"prov-host:{project['project']['version']}"
