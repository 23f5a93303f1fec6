"""Two hundred claims at once, on the embedded cluster and on the real one, with and without restarts of the host."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from harness.client import wait_until
from harness.installation import QUICK_LEASE, Installation

CLAIMS = 200
POLICIES = {"archive": {}, "delete": {"onDelete": "delete"}, "retain": {"onDelete": "retain"}}
BOUND_SECONDS = 180  # kube-controller-manager binds about ten a second


@pytest.fixture
def classes_by_claim(installation: Installation) -> dict[str, str]:
    classes = [installation.create_class(name, parameters) for name, parameters in POLICIES.items()]
    return {f"claim-{number:03}": classes[number % len(classes)] for number in range(CLAIMS)}


def check_provisioned(installation: Installation, names: list[str]) -> dict[str, str]:
    """Every claim has one volume and one directory, and there is nothing else; returns the directories by claim."""
    claims = installation.claims()
    assert sorted(claims) == sorted(names)
    volumes = {volume["metadata"]["name"]: volume for volume in installation.volumes()}
    assert sorted(volumes) == sorted(f"pvc-{claim['metadata']['uid']}" for claim in claims.values())
    directories = {}
    for name, claim in claims.items():
        volume = volumes[claim["spec"]["volumeName"]]
        assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == installation.provisioner
        assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
        directory = f"{installation.namespace}-{name}-{volume['metadata']['name']}"
        assert volume["spec"]["nfs"] == {"server": installation.server, "path": f"{installation.path}/{directory}"}
        directories[name] = directory
    assert installation.directories() == set(directories.values())
    return directories


def write_into(installation: Installation, directories: dict[str, str]) -> None:
    for name, directory in directories.items():
        (installation.share / directory / "data").write_text(name)


def check_disposed(installation: Installation, directories: dict[str, str], classes_by_claim: dict[str, str]) -> None:
    """By class: archived with its data, gone, or left where it was; the data of every claim once or not at all."""
    found: dict[str, list[Path]] = {}
    for path in installation.share.rglob("data"):
        found.setdefault(path.read_text(), []).append(path.parent)
    for name, directory in directories.items():
        places = found.pop(name, [])
        match classes_by_claim[name].removeprefix(f"{installation.namespace}-"):
            case "archive":
                assert len(places) == 1, (name, places)
                assert places[0] != installation.share / directory
                assert installation.namespace in str(places[0].relative_to(installation.share))
                assert name in str(places[0].relative_to(installation.share))
            case "delete":
                assert places == []
                assert not (installation.share / directory).exists()
            case "retain":
                assert places == [installation.share / directory]
    assert found == {}


def wait_volumes(installation: Installation, at_least: int) -> None:
    wait_until(
        lambda: len(installation.volumes()) >= at_least,
        timeout=BOUND_SECONDS,
        what=lambda: f"{at_least} volumes; there are {len(installation.volumes())}\n{installation.report()}",
    )


def test_two_hundred_claims_are_bound_and_then_archived_removed_or_retained(
    installation: Installation, classes_by_claim: dict[str, str]
) -> None:
    with installation.host() as host:
        installation.create_claims(classes_by_claim)
        installation.wait_bound(classes_by_claim, BOUND_SECONDS)
        directories = check_provisioned(installation, list(classes_by_claim))
        write_into(installation, directories)
        installation.delete_claims(classes_by_claim)
        installation.wait_no_volumes(BOUND_SECONDS)
        check_disposed(installation, directories, classes_by_claim)
        assert host.stop() == 0
    check_disposed(installation, directories, classes_by_claim)


def test_restarts_in_the_middle_change_nothing(installation: Installation, classes_by_claim: dict[str, str]) -> None:
    """Once asked to end and once killed while provisioning, and the same again while deleting."""
    names = list(classes_by_claim)
    with installation.host(*QUICK_LEASE) as host:
        installation.create_claims(dict(list(classes_by_claim.items())[: CLAIMS // 2]))
        wait_volumes(installation, CLAIMS // 8)
        assert host.stop() == 0
        installation.create_claims(dict(list(classes_by_claim.items())[CLAIMS // 2 :]))
        host.start()
        wait_volumes(installation, CLAIMS * 5 // 8)
        host.signal(signal.SIGKILL)
        host.wait()
        host.start()
        installation.wait_bound(names, BOUND_SECONDS)
        directories = check_provisioned(installation, names)
        write_into(installation, directories)

        installation.delete_claims(names[: CLAIMS // 2])
        wait_fewer(installation, CLAIMS * 7 // 8)
        host.signal(signal.SIGKILL)
        host.wait()
        installation.delete_claims(names[CLAIMS // 2 :])
        host.start()
        wait_fewer(installation, CLAIMS * 3 // 8)
        assert host.stop() == 0
        host.start()
        installation.wait_no_volumes(BOUND_SECONDS)
        check_disposed(installation, directories, classes_by_claim)


def wait_fewer(installation: Installation, at_most: int) -> None:
    wait_until(
        lambda: len(installation.volumes()) <= at_most,
        timeout=BOUND_SECONDS,
        what=lambda: f"{at_most} volumes or fewer; there are {len(installation.volumes())}\n{installation.report()}",
    )


def test_a_class_with_reclaim_policy_retain_keeps_volume_and_directory(installation: Installation) -> None:
    kept = installation.create_class("kept", {}, reclaimPolicy="Retain")
    with installation.host():
        installation.create_claims({"kept": kept})
        installation.wait_bound(["kept"], 60)
        directories = check_provisioned(installation, ["kept"])
        installation.delete_claims(["kept"])
        wait_until(lambda: _phases(installation) == ["Released"], timeout=60, what="the volume to be released")
        # A later volume that is deleted shows that the host had its chance at the earlier one.
        removed = installation.create_class("removed", {"onDelete": "delete"})
        installation.create_claims({"removed": removed})
        installation.wait_bound(["removed"], 60)
        installation.delete_claims(["removed"])
        wait_until(lambda: _phases(installation) == ["Released"], timeout=60, what="the other volume to be gone")
        assert installation.directories() == set(directories.values())


def _phases(installation: Installation) -> list[Any]:
    return [volume["status"]["phase"] for volume in installation.volumes()]
