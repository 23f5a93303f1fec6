"""How fast a deleted volume's files are removed, against `rm -rf` on the same tree, in one run.

    python bench/removal.py [--files 50000] [--rounds 3] [--directory DIR] [--json]

Two shapes: wide (directories of 100 files each) and flat (one directory). Each round builds the same tree twice and
removes one with `rm -rf`, the other the way the host does it: the time until it is out of the live namespace (one
rename), and the time until it is gone. The order changes from round to round; reported are the best times.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from prov_host.testing.context import FakeHost
from prov_host.testing.objects import make_claim, make_class, make_request, make_volume
from prov_host_nfs_subdir import NfsSubdirPlugin, NfsSubdirSettings

PROVISIONER = "example.com/nfs"


def build(directory: Path, files: int, shape: str) -> None:
    width = 100 if shape == "wide" else files
    for first in range(0, files, width):
        branch = directory / f"d{first // 10000}" / f"d{first}" if shape == "wide" else directory
        branch.mkdir(parents=True, exist_ok=True)
        fd = os.open(branch, os.O_RDONLY)
        for n in range(first, min(first + width, files)):
            os.close(os.open(f"f{n}", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd))
        os.close(fd)


def by_rm(base: Path, files: int, shape: str) -> float:
    tree = base / "tree"
    build(tree, files, shape)
    began = time.perf_counter()
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    return time.perf_counter() - began


def by_plugin(base: Path, files: int, shape: str, threads: int) -> tuple[float, float]:
    share = base / "share"
    share.mkdir()
    host = FakeHost()
    plugin = NfsSubdirPlugin({})
    settings = {
        "server": "nfs",
        "path": "/exports",
        "provisioner": [PROVISIONER],
        "mount": str(share),
        "plain_directory": True,
        "removal_threads": threads,
    }
    plugin.configure(msgspec.convert(settings, NfsSubdirSettings), host)
    request = make_request(make_claim(), make_class(provisioner=PROVISIONER))
    volume = make_volume(request, plugin.provision(request))
    build(share / volume.record["path"], files, shape)
    began = time.perf_counter()
    plugin.delete(volume)
    away = time.perf_counter() - began
    if not plugin.wait_for_trash(600) or os.listdir(share / ".prov-host" / "trash"):
        sys.exit("the trash was not emptied")
    gone = time.perf_counter() - began
    plugin.close()
    shutil.rmtree(share)
    return away, gone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--directory", help="where to work; a new temporary directory by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for shape in ("wide", "flat"):
        rm, away, gone = [], [], []
        for number in range(options.rounds):
            base = Path(tempfile.mkdtemp(prefix="prov-host-bench-", dir=options.directory))
            try:
                if number % 2:
                    rm.append(by_rm(base, options.files, shape))
                one, two = by_plugin(base, options.files, shape, options.threads)
                away.append(one)
                gone.append(two)
                if not number % 2:
                    rm.append(by_rm(base, options.files, shape))
            finally:
                shutil.rmtree(base, ignore_errors=True)
        results.append(
            {
                "shape": shape,
                "files": options.files,
                "rm_seconds": min(rm),
                "gone_seconds": min(gone),
                "away_seconds": min(away),
                "ratio": min(gone) / min(rm),
            }
        )
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'shape':6} {'files':>8} {'rm -rf':>10} {'prov-host':>10} {'ratio':>7} {'out of the way':>16}")
    for row in results:
        print(
            f"{row['shape']:6} {row['files']:8} {row['rm_seconds']:8.2f} s {row['gone_seconds']:8.2f} s "
            f"{row['ratio']:7.2f} {row['away_seconds'] * 1000:13.1f} ms"
        )


if __name__ == "__main__":
    main()
