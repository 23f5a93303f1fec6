"""How fast the host provisions on a real API server, and what it costs: `make bench`.

Two measurements, each with an API server of its own:

* *saved*: from a claim's creation until its PersistentVolume exists. The controller manager is off and the driver
writes the provisioner
  annotation itself: the manager's binder is slower than any provisioner and would hide the host's speed.
* *bound*: from a claim's creation until it is Bound, with the controller manager on; then all claims are deleted,
until the last volume is gone.

With `--peer` a provisioner on the Go reference library (bench/peer) does the same in the same run, and the ratios are
printed: absolute numbers depend on the machine, ratios much less. Requests are counted at the API server, CPU and
memory in /proc.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

from harness import MissingPart
from harness.binaries import cache_directory
from harness.client import ApiClient, wait_until
from harness.controlplane import ControlPlane
from harness.host import HostProcess, usage_of
from harness.process import ChildProcess

HERE = Path(__file__).resolve().parent
NAMESPACE = "bench"
PROVISIONER = "bench.prov-host/nfs"
ANNOTATIONS = dict.fromkeys(
    ("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"), PROVISIONER
)
COUNTED = {"persistentvolumeclaims", "persistentvolumes", "storageclasses", "events", "leases", "endpoints"}
SAMPLE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


class Arrivals:
    """When each object came to a state and when it was gone, seen by a watch in a thread of its own."""

    def __init__(self, client: ApiClient, kind: str, namespace: str | None = None, *, bound: bool = False) -> None:
        self.times: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self.error = ""
        self._where = (kind, namespace)
        self._bound = bound
        # A connection pool of its own: a watch keeps its connection.
        self._client = ApiClient(client.url, token=client.token, ca_file=client.ca_file)
        self._version = client.list_version(kind, namespace)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                for event in self._client.watch(*self._where, since=self._version, metadata_only=not self._bound):
                    self._see(event["type"], event["object"])
                # The API server ends a watch whose client is too slow for it; the next one begins where it ended.
        except Exception as error:  # noqa: BLE001  # shown by who waits; at the end it is the API server's own end
            self.error = repr(error)

    def _see(self, change: str, obj: dict[str, Any]) -> None:
        name = obj["metadata"]["name"]
        self._version = obj["metadata"]["resourceVersion"]
        if change == "DELETED":
            self.gone[name] = time.monotonic()
        elif not self._bound or obj["status"].get("phase") == "Bound":
            self.times.setdefault(name, time.monotonic())


def requests_counted(client: ApiClient) -> dict[tuple[str, str], float]:
    """Requests so far by resource and verb, of the resources a provisioner uses."""
    counts: dict[tuple[str, str], float] = {}
    for sample in SAMPLE.finditer(client.request("GET", "/metrics")):
        labels = dict(LABEL.findall(sample["labels"]))
        resource = labels["resource"] + (f"/{labels['subresource']}" if labels.get("subresource") else "")
        if labels["resource"] in COUNTED:
            key = (resource, labels["verb"])
            counts[key] = counts.get(key, 0) + float(sample["value"])
    return counts


class Contender:
    """What is measured: prov-host, or the peer."""

    def __init__(self, name: str, workers: int, qps: int) -> None:
        self.name = name
        self.workers = workers
        self.qps = qps

    @contextlib.contextmanager
    def running(self, plane: ControlPlane, directory: Path) -> Any:
        """Run it; yields a function that tells its CPU seconds and peak memory."""
        share = directory / "share"
        share.mkdir()
        if self.name == "prov-host":
            args = [
                *("--plugin", "nfs_subdir", "--worker-threads", str(self.workers)),
                *("--kube-api-qps", str(self.qps), "--kube-api-burst", str(2 * self.qps)),
            ]
            env = {
                "NFS_SERVER": "127.0.0.1",
                "NFS_PATH": "/exports/bench",
                "PROVISIONER_NAME": PROVISIONER,
                "KUBECONFIG": str(plane.kubeconfig),
                "POD_NAMESPACE": NAMESPACE,
                "ENABLE_LEADER_ELECTION": "false",  # as the peer
                "PROV_HOST_NFS_SUBDIR_MOUNT": str(share),
                "PROV_HOST_NFS_SUBDIR_PLAIN_DIRECTORY": "true",
            }
            with HostProcess(directory, args, env) as host:
                yield lambda: usage_of(host.pid)
            return
        argv = [
            str(build_peer()),
            *("--kubeconfig", str(plane.kubeconfig), "--provisioner", PROVISIONER, "--root", str(share)),
            *("--qps", str(self.qps), "--workers", str(self.workers)),
        ]
        peer = ChildProcess(self.name, argv, log=directory / "peer.log")
        try:
            time.sleep(2)  # it has no readiness page; its caches are empty and fill at once
            yield lambda: usage_of(peer.pid)
        finally:
            peer.kill()


def build_peer() -> Path:
    """Build bench/peer into the cache; Go's own cache makes a second call quick."""
    if shutil.which("go") is None:
        raise MissingPart("--peer needs Go")
    binary = cache_directory() / "bench-peer"
    binary.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(binary), "."], cwd=HERE / "peer", check=True)
    return binary


def create_claims(client: ApiClient, count: int, *, annotated: bool) -> dict[str, tuple[str, float]]:
    """Make the claims at once; returns uid and time of creation by name."""

    def create(number: int) -> tuple[str, tuple[str, float]]:
        name = f"claim-{number:05}"
        claim = client.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": NAMESPACE, "annotations": ANNOTATIONS if annotated else {}},
                "spec": {
                    "storageClassName": "bench",
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1Mi"}},
                },
            }
        )
        return name, (claim["metadata"]["uid"], time.monotonic())

    with ThreadPoolExecutor(8) as threads:
        return dict(threads.map(create, range(count)))


def prepare(client: ApiClient) -> None:
    """Namespace and class."""
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    client.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "bench"},
            "provisioner": PROVISIONER,
            "parameters": {"onDelete": "delete"},
            "reclaimPolicy": "Delete",
        }
    )


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50_s": round(statistics.median(seconds), 3), "p99_s": round(cuts[98], 3)}


def measure(contender: Contender, claims: int, *, bound: bool, directory: Path, timeout: float) -> dict[str, Any]:
    """One contender on a fresh control plane."""
    with ControlPlane(directory / "plane", controller_manager=bound) as plane:
        client = plane.client
        prepare(client)
        with contender.running(plane, directory) as usage:
            kind = "PersistentVolumeClaim" if bound else "PersistentVolume"
            arrivals = Arrivals(client, kind, NAMESPACE if bound else None, bound=bound)
            volumes = Arrivals(client, "PersistentVolume") if bound else arrivals
            cpu_before, _ = usage()
            requests_before = requests_counted(client)
            start = time.monotonic()
            made = create_claims(client, claims, annotated=not bound)
            wait_until(
                lambda: len(arrivals.times) >= claims,
                timeout=timeout,
                interval=0.02,
                what=lambda: f"{len(arrivals.times)} of {claims} claims are done {arrivals.error}",
            )
            elapsed = max(arrivals.times.values()) - start
            time.sleep(2)  # events are written after the volumes
            cpu_after, peak = usage()
            requests = {key: count - requests_before.get(key, 0) for key, count in requests_counted(client).items()}
            requests["persistentvolumeclaims", "POST"] -= claims  # the driver's own
            latencies = [
                arrivals.times[name if bound else f"pvc-{uid}"] - created for name, (uid, created) in made.items()
            ]
            result: dict[str, Any] = {
                "claims": claims,
                "seconds": round(elapsed, 2),
                "per_second": round(claims / elapsed, 1),
                **percentiles(latencies),
                "cpu_ms_per_claim": round((cpu_after - cpu_before) * 1000 / claims, 2),
                "peak_memory_mb": round(peak / 1e6, 1),
            }
            used = {f"{verb} {resource}": count for (resource, verb), count in sorted(requests.items()) if count > 0}
            if bound:
                # The manager's requests are among the counted ones, so they say nothing about the host here.
                start = time.monotonic()
                with ThreadPoolExecutor(8) as threads:
                    list(threads.map(lambda name: client.delete("PersistentVolumeClaim", name, NAMESPACE), made))
                wait_until(
                    lambda: len(volumes.gone) >= claims,
                    timeout=timeout,
                    interval=0.02,
                    what=lambda: f"{len(volumes.gone)} of {claims} volumes are gone {volumes.error}",
                )
                result["deleted_per_second"] = round(claims / (max(volumes.gone.values()) - start), 1)
            else:
                result["requests_per_claim"] = round(sum(requests.values()) / claims, 2)
                result["requests"] = used
            return result


ROWS = (
    ("saved", "per_second", "volumes saved per second"),
    ("saved", "p50_s", "  claim to volume, p50 (s)"),
    ("saved", "p99_s", "  claim to volume, p99 (s)"),
    ("saved", "requests_per_claim", "  API requests per claim"),
    ("saved", "cpu_ms_per_claim", "  CPU per claim (ms)"),
    ("saved", "peak_memory_mb", "  peak memory (MB)"),
    ("bound", "per_second", "claims bound per second"),
    ("bound", "p50_s", "  claim to Bound, p50 (s)"),
    ("bound", "p99_s", "  claim to Bound, p99 (s)"),
    ("bound", "cpu_ms_per_claim", "  CPU per claim (ms)"),
    ("bound", "deleted_per_second", "volumes deleted per second"),
)


def print_table(results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """One line per number, one column per contender, and the ratio when there are two."""
    names = list(results)
    print(f"{'':32}" + "".join(f"{name:>14}" for name in names) + (f"{'ratio':>10}" if len(names) == 2 else ""))
    for phase, key, title in ROWS:
        values = [results[name].get(phase, {}).get(key) for name in names]
        if None in values:
            continue
        line = f"{title:32}" + "".join(f"{value:>14}" for value in values)
        if len(values) == 2 and values[1]:
            line += f"{values[0] / values[1]:>10.2f}"
        print(line)
    for name in names:
        for request, count in results[name].get("saved", {}).get("requests", {}).items():
            print(f"  {name}: {request}: {count / results[name]['saved']['claims']:.2f} per claim")


def main() -> int:
    parser = argparse.ArgumentParser(description="Volumes per second against a real API server, and their cost.")
    parser.add_argument("--claims", type=int, default=300, help="claims per measurement (default 300)")
    parser.add_argument("--workers", type=int, default=4, help="worker threads (default 4)")
    parser.add_argument("--qps", type=int, default=1000, help="client-side requests per second (default 1000)")
    parser.add_argument("--only", choices=["saved", "bound"], help="one measurement instead of both")
    parser.add_argument("--peer", action="store_true", help="also measure the Go reference in this run (needs Go)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--timeout", type=float, default=300, help="seconds one measurement may take (default 300)")
    options = parser.parse_args()
    contenders = [Contender("prov-host", options.workers, options.qps)]
    if options.peer:
        contenders.append(Contender("go-reference", options.workers, options.qps))
        print("building the peer ...", flush=True)
        build_peer()
    results: dict[str, dict[str, dict[str, Any]]] = {contender.name: {} for contender in contenders}
    with tempfile.TemporaryDirectory(prefix="prov-host-bench-") as work:
        for phase in [options.only] if options.only else ["saved", "bound"]:
            for contender in contenders:
                print(f"{contender.name}: {options.claims} claims, until {phase} ...", flush=True)
                directory = Path(work) / f"{contender.name}-{phase}"
                directory.mkdir()
                try:
                    results[contender.name][phase] = measure(
                        contender,
                        options.claims,
                        bound=phase == "bound",
                        directory=directory,
                        timeout=options.timeout,
                    )
                    print(json.dumps(results[contender.name][phase]), flush=True)
                except MissingPart as error:
                    print(error, file=sys.stderr)
                    return 1
    whole = {
        "workers": options.workers,
        "qps": options.qps,
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "results": results,
    }
    print_table(results)
    print(json.dumps(whole))
    if options.json:
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
