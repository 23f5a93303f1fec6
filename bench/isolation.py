"""Whether a backend that hangs slows another one down: `prov-host --plugin hung --plugin nfs_subdir`.

On the embedded cluster, in one run: claims of nfs_subdir alone, and the same number while as many claims of a second
backend hang in its `provision` as that backend has workers, and more wait for it. The ratio is what counts; it should
be close to 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

from harness.client import wait_until
from harness.embedded import EmbeddedCluster
from harness.installation import Installation

HUNG = '''
import threading

from prov_host import Provisioned, hookimpl


class HungPlugin:
    """Never answers."""

    @hookimpl
    def provisioners(self):
        return ["bench.prov-host/hung"]

    @hookimpl
    def provision(self, request):
        threading.Event().wait()
        return Provisioned(source={"hostPath": {"path": "/nowhere"}})

    @hookimpl
    def delete(self, volume):
        threading.Event().wait()
'''


def install_hung_plugin(directory: Path) -> None:
    """What pip would have written: a module and the metadata that names its entry point."""
    (directory / "bench_hung.py").write_text(HUNG)
    info = directory / "bench_hung-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-hung\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prov_host]\nhung = bench_hung:HungPlugin\n")


def measure(work: Path, *, claims: int, hung: int) -> float:
    """Claims bound per second by nfs_subdir while `hung` claims wait for the other backend."""
    packages = work / "packages"
    packages.mkdir(parents=True)
    install_hung_plugin(packages)
    with EmbeddedCluster(work / "cluster") as cluster:
        installation = Installation(
            "bench", client=cluster.client, kubeconfig=cluster.kubeconfig, directory=work, share=work / "share"
        )
        installation.create_namespace()
        good = installation.create_class("good", {})
        cluster.client.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "hung"},
                "provisioner": "bench.prov-host/hung",
            }
        )
        with installation.host(
            *("--plugin", "hung", "--kube-api-qps", "0"), PYTHONPATH=str(packages), ENABLE_LEADER_ELECTION="false"
        ):
            installation.create_claims({f"hung-{number}": "hung" for number in range(hung)})
            time.sleep(2 if hung else 0)  # let them reach the pool
            names = {f"good-{number:04}": good for number in range(claims)}
            start = time.monotonic()
            installation.create_claims(names)
            wait_until(
                lambda: len(installation.volumes()) >= claims, timeout=300, interval=0.05, what=installation.report
            )
            return claims / (time.monotonic() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--claims", type=int, default=300)
    parser.add_argument("--hung", type=int, default=50, help="claims that hang or wait behind those that hang")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prov-host-bench-") as directory:
        alone = measure(Path(directory) / "alone", claims=options.claims, hung=0)
        beside = measure(Path(directory) / "beside", claims=options.claims, hung=options.hung)
    result = {
        "claims": options.claims,
        "hung": options.hung,
        "alone_per_second": round(alone, 1),
        "beside_hung_per_second": round(beside, 1),
        "ratio": round(beside / alone, 2),
    }
    for key, value in result.items():
        print(f"{key:24}{value:>10}")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
