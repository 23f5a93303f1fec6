"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and the volume part of kube-controller-manager.

No kubelet and no scheduler: the controller manager's binder and protection controllers are all that claims and
volumes need. Pods exist as objects only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from harness.binaries import find_control_plane
from harness.certificates import make_certificates
from harness.client import ApiClient
from harness.process import ChildProcess, ProcessFailed, free_ports, stop_all

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

Authorization = Literal["AlwaysAllow", "RBAC"]
_ADMIN_TOKEN = "admin-of-the-test-cluster"
_VOLUME_CONTROLLERS = (
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
)
_START_SECONDS = 120  # about 10 s on two quiet cores


class ControlPlane:
    """A control plane in a directory of its own; a context manager that starts and stops it.

    Args:
        directory: where certificates, logs, kubeconfig and etcd's data go.
        authorization: `AlwaysAllow`, or `RBAC` with only the default roles.
        controller_manager: whether claims are annotated and bound, volumes released and protected.
    """

    def __init__(
        self, directory: Path, *, authorization: Authorization = "AlwaysAllow", controller_manager: bool = True
    ) -> None:
        self.directory = directory
        self.authorization = authorization
        self._with_manager = controller_manager
        self._binaries = find_control_plane()
        self._processes: list[ChildProcess] = []
        self.kubeconfig = directory / "admin.kubeconfig"
        self.client = ApiClient("http://127.0.0.1:1")

    def start(self) -> Self:
        """Start everything and wait until it is ready.

        Raises:
            ProcessFailed: with the end of the log of what failed.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(3):
            try:
                self._start(self.directory / f"etcd-{attempt}")
            except BaseException as error:
                taken = isinstance(error, ProcessFailed) and "address already in use" in str(error)
                self.stop()
                if not taken or attempt == 2:
                    raise
            else:
                break
        return self

    def _start(self, data: Path) -> None:
        etcd_port, peer_port, api_port, manager_port = free_ports(4)
        etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        certificates = make_certificates(self.directory)
        tokens = self.directory / "tokens.csv"
        tokens.write_text(f'{_ADMIN_TOKEN},admin,admin,"system:masters"\n')
        etcd = self._run(
            "etcd",
            f"--data-dir={data}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
        )
        with ApiClient(etcd_url) as probe:
            etcd.wait_until(lambda: _answers(probe, "/health"), timeout=_START_SECONDS)
        api_server = self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={api_port}",
            f"--tls-cert-file={certificates.server}",
            f"--tls-private-key-file={certificates.server_key}",
            f"--cert-dir={self.directory / 'certs'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={certificates.service_account_public}",
            f"--service-account-signing-key-file={certificates.service_account_key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--authorization-mode={self.authorization}",
            f"--token-auth-file={tokens}",
            # No kubelet mounts tokens; pods are objects only.
            "--disable-admission-plugins=ServiceAccount",
            # The default reconciler publishes an address, and refuses loopback.
            "--endpoint-reconciler-type=none",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
        )
        self.client = ApiClient(f"https://127.0.0.1:{api_port}", token=_ADMIN_TOKEN, ca_file=certificates.ca)
        self.client.write_kubeconfig(self.kubeconfig)
        api_server.wait_until(self.client.ready, timeout=_START_SECONDS)
        api_server.wait_until(lambda: self.client.get("Namespace", "default") is not None, timeout=_START_SECONDS)
        if self._with_manager:
            manager = self._run(
                "kube-controller-manager",
                f"--kubeconfig={self.kubeconfig}",
                f"--controllers={','.join(_VOLUME_CONTROLLERS)}",
                "--leader-elect=false",
                "--use-service-account-credentials=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={manager_port}",
                f"--cert-dir={self.directory / 'manager-certs'}",
                # Its own client limits would otherwise be what a test of many claims measures.
                "--kube-api-qps=1000",
                "--kube-api-burst=2000",
            )
            with ApiClient(
                f"https://127.0.0.1:{manager_port}",
                ca_file=self.directory / "manager-certs/kube-controller-manager.crt",
            ) as probe:
                manager.wait_until(lambda: _answers(probe, "/healthz"), timeout=_START_SECONDS)

    def restart_api_server(self) -> None:
        """End the API server and start it again at the same address, with the same data; returns when it is ready."""
        old = next(process for process in self._processes if process.name == "kube-apiserver")
        old.kill()
        new = self._run("kube-apiserver", *old.argv[1:])
        self._processes.remove(new)
        self._processes[self._processes.index(old)] = new
        new.wait_until(self.client.ready, timeout=_START_SECONDS)

    def _run(self, name: str, *flags: str) -> ChildProcess:
        process = ChildProcess(
            name, [str(self._binaries / name), *flags], log=self.directory / f"{name}.log", cwd=self.directory
        )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        """Stop everything, the controller manager first; also after a failed start."""
        self.client.close()
        # Nothing in it is worth an orderly end, and a graceful API server takes its time for open watches.
        stop_all(reversed(self._processes), timeout=2.0)
        self._processes.clear()

    def log_tails(self, lines: int = 15) -> str:
        """The last lines of every log, for the report of a failed test."""
        return "\n".join(f"--- {process.log}\n{process.log_tail(lines)}" for process in self._processes)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _answers(probe: ApiClient, path: str) -> bool:
    try:
        probe.request("GET", path)
    except Exception:
        return False
    return True
