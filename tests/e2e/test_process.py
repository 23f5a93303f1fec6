"""The installed `prov-host` as a process: its environment, its pages, its replicas, its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.client import wait_until
from harness.host import HostProcess, installed_program, run_program
from harness.installation import QUICK_LEASE, Installation


def test_it_serves_metrics_and_probes_and_ends_with_zero(installation: Installation) -> None:
    archive = installation.create_class("archive", {})
    with installation.host() as host:
        installation.create_claims({"one": archive})
        installation.wait_bound(["one"], 60)
        assert host.get("/healthz")[0] == 200
        assert host.get("/readyz")[0] == 200
        status, metrics = host.get("/metrics")
        assert status == 200
        counted = [line for line in metrics.splitlines() if "persistentvolumeclaim_provision_total{" in line]
        assert [line for line in counted if f'class="{archive}"' in line and line.endswith(" 1.0")], counted
        assert host.stop() == 0
    assert "Traceback" not in host.log_text()


def test_two_replicas_hand_over(installation: Installation) -> None:
    """One serves. SIGTERM to it hands over in under two seconds, kill -9 after the lease ran out; no claim is lost."""
    archive = installation.create_class("archive", {})
    replicas = [installation.host(*QUICK_LEASE, name=f"replica-{number}") for number in range(3)]
    try:
        first = replicas[0].start()
        holder = wait_until(installation.lease_holder, timeout=30, what="a holder of the lease")
        replicas[1].start()
        installation.create_claims({f"before-{number}": archive for number in range(10)})
        installation.wait_bound([f"before-{number}" for number in range(10)], 60)
        assert installation.lease_holder() == holder

        installation.create_claims({f"during-{number}": archive for number in range(10)})
        started = time.monotonic()
        first.signal(signal.SIGTERM)
        second_holder = wait_until(
            lambda: _other_than(installation, holder), timeout=10, interval=0.02, what="another holder of the lease"
        )
        handed_over = time.monotonic() - started
        assert first.wait() == 0
        assert handed_over < 2.0, f"{handed_over:.2f} s\n{installation.report()}"
        installation.wait_bound([f"during-{number}" for number in range(10)], 60)

        replicas[2].start()
        installation.create_claims({f"after-{number}": archive for number in range(10)})
        started = time.monotonic()
        replicas[1].signal(signal.SIGKILL)
        replicas[1].wait()
        wait_until(lambda: _other_than(installation, second_holder), timeout=30, interval=0.05, what="a third holder")
        assert time.monotonic() - started < 4.0 + 5.0, installation.report()
        names = [f"{when}-{number}" for when in ("before", "during", "after") for number in range(10)]
        installation.wait_bound(names, 60)
        assert len(installation.volumes()) == len(names)
        assert len(installation.directories()) == len(names)
    finally:
        for replica in replicas:
            if replica.started:
                replica.process.kill()


def _other_than(installation: Installation, holder: str) -> str:
    now = installation.lease_holder()
    return now if now != holder else ""


@pytest.mark.e2e
def test_the_environment_of_the_go_provisioner_is_enough(nfs_installation: Installation) -> None:
    """Nothing but its four variables and a share at its place; the share is mounted there in a mount namespace."""
    unshare = shutil.which("unshare")
    assert unshare, "util-linux is missing"
    root = Path("/persistentvolumes")
    made = not root.exists()
    root.mkdir(exist_ok=True)
    try:
        installation = nfs_installation
        installation.path = str(root)  # as on the server itself: the kernel of a test machine may have no NFS client
        archive = installation.create_class("archive", {})
        four = ("NFS_SERVER", "NFS_PATH", "PROVISIONER_NAME", "KUBECONFIG")
        env = {name: installation.environment()[name] for name in four}
        script = f'mount --bind "{installation.share}" {root} && exec "{installed_program()}" --plugin nfs_subdir'
        log = installation.directory / "go-environment.log"
        with log.open("wb") as output:
            host = subprocess.Popen(
                [unshare, "--mount", "sh", "-c", script],
                env=env | {"PATH": os.environ["PATH"]},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        try:
            installation.create_claims({"one": archive})
            installation.wait_bound(["one"], 60)
            assert len(installation.directories()) == 1
            host.send_signal(signal.SIGTERM)
            assert host.wait(30) == 0, log.read_text()
        finally:
            host.kill()
            host.wait()
    finally:
        if made:
            root.rmdir()


def test_help_is_quick() -> None:
    code, text, seconds = run_program(["--help"], {})
    assert code == 0
    assert "--plugin" in text
    assert seconds < 2.0  # well under one second where nothing else runs


def test_bad_configuration_is_one_message_and_exit_code_two(tmp_path: Path) -> None:
    env = {"NFS_SERVER": "", "ENABLE_LEADER_ELECTION": "yes", "KUBECONFIG": str(tmp_path / "none")}
    code, text, _ = run_program(["--plugin", "nfs_subdir", "--worker-threads", "0"], env)
    assert code == 2
    assert "Traceback" not in text
    for named in ("NFS_SERVER", "ENABLE_LEADER_ELECTION", "worker-threads"):
        assert named in text


def test_a_second_signal_ends_it_at_once(installation: Installation) -> None:
    with installation.host() as host:
        assert isinstance(host, HostProcess)
        host.signal(signal.SIGTERM)
        host.signal(signal.SIGINT)
        host.wait(10)
