"""Broken packages, really installed, beside a good one: each is named, and the good one works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

_BACKEND = """
    from prov_host import Provisioned, hookimpl

    class Plugin:
        @hookimpl
        def provisioners(self):
            return ["{name}.example.com/x"]

        @hookimpl
        def provision(self, request):
            return Provisioned(source={{"nfs": {{"server": "s", "path": "/" + request.pv_name}}}})

        @hookimpl
        def delete(self, volume):
            return None
"""

PACKAGES = {
    "good": _BACKEND.format(name="good"),
    "no_import": "import surely_not_installed_anywhere",
    "no_syntax": "def broken(:",
    "leaver": "import sys\nsys.exit('bye')",
    "hanger": "import threading\nthreading.Event().wait()",
    "thief": _BACKEND.format(name="good"),
    "wrong_signature": """
        from prov_host import hookimpl

        class Plugin:
            @hookimpl
            def observe(self, recrod): ...
    """,
    "slow_configure": _BACKEND.format(name="slow")
    + """
        @hookimpl
        def configure(self, settings):
            import threading
            threading.Event().wait()
    """,
    "leaky": """
        import threading
        from prov_host import hookimpl

        class Plugin:
            @hookimpl
            def configure(self, settings):
                for _ in range(3):
                    threading.Thread(target=threading.Event().wait).start()
                print("I print to stdout")

            @hookimpl
            def observe(self, record):
                return None
    """,
    "other_api": "from prov_host import hookimpl\nclass Plugin:\n    PROV_HOST_API = 7\n"
    "    @hookimpl\n    def check(self):\n        return None\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of installed packages."""
    site = tmp_path_factory.mktemp("site")
    for name, code in PACKAGES.items():
        (site / f"{name}_package.py").write_text(textwrap.dedent(code))
        info = site / f"{name}_package-0.{len(name)}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 0.{len(name)}\n")
        (info / "entry_points.txt").write_text(f"[prov_host]\n{name} = {name}_package:Plugin\n")
    return site


def environment(site: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {"PYTHONPATH": str(site), "PROV_HOST_PLUGIN_TIMEOUT": "500ms"} | more


def prov_host(site: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prov_host", *args]
    return subprocess.run(command, env=environment(site), capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def listing(site: Path) -> dict[str, dict[str, Any]]:
    done = prov_host(site, "plugins", "--all", "--json")
    assert done.returncode == 0, done.stderr
    assert "I print to stdout" not in done.stdout
    return {row["name"]: row for row in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("no_import", "cannot be loaded: ModuleNotFoundError: No module named 'surely_not_installed_anywhere'"),
        ("no_syntax", "cannot be loaded: SyntaxError: invalid syntax ("),
        ("leaver", "cannot be loaded: import raised SystemExit: bye"),
        ("hanger", "cannot be loaded: import has not returned within 0.5 s"),
        ("wrong_signature", "cannot be loaded: hook 'observe' hookimpl definition: observe(recrod)"),
        ("slow_configure", "cannot be configured: configure has not returned within 0.5 s"),
        ("other_api", "cannot be loaded: it is written for API 7, this prov-host offers 1: upgrade prov-host"),
    ],
)
def test_a_broken_package_is_named_with_distribution_version_and_cause(
    listing: dict[str, dict[str, Any]], name: str, cause: str
) -> None:
    row = listing[name]
    assert row["status"] == "failed"
    assert row["distribution"] == f"{name}-package"
    (problem,) = row["problems"]
    assert problem.startswith(f"plugin {name} ({name}-package 0.{len(name)}) {cause}")


def test_who_claims_anothers_name_is_named_with_the_other(listing: dict[str, dict[str, Any]]) -> None:
    problems = [problem for row in listing.values() for problem in row["problems"] if "is owned by" in problem]
    (problem,) = problems
    assert problem == (
        "provisioner name good.example.com/x is owned by plugin good (good-package 0.4) and by plugin thief "
        "(thief-package 0.5); select one of them, or give one another name in its settings"
    )


def test_threads_that_a_plugin_leaves_are_counted_and_keep_no_process_alive(listing: dict[str, dict[str, Any]]) -> None:
    assert listing["leaky"]["status"] == "ok"
    assert listing["leaky"]["threads"] == 3


def test_only_a_plugin_that_was_asked_for_by_name_stops_the_start(site: Path) -> None:
    done = prov_host(site, "--plugin", "good", "--plugin", "no_import", "--plugin", "leaver", "--embedded")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(("prov-host: plugin no_import", "prov-host: plugin leaver")) for line in lines)


def test_with_every_plugin_the_working_ones_run_and_the_broken_ones_are_told(site: Path) -> None:
    args = ["--plugin", "all", "--plugin", "good", "--embedded", "--http-address", "127.0.0.1:0"]
    command = [sys.executable, "-m", "prov_host", *args]
    began = time.monotonic()
    process = subprocess.Popen(
        command, env=environment(site), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "Serving provisioner good.example.com/x" in line or time.monotonic() - began > 20:
                break
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    text = "".join(seen) + err
    assert process.returncode == 0, text
    for name in ("no_import", "no_syntax", "leaver", "hanger", "wrong_signature", "slow_configure", "thief"):
        assert f"{name}-package" in text
    assert "Serving provisioner good.example.com/x" in text
    assert "plugin leaky printed: I print to stdout" in text
    assert "of plugin leaky (leaky-package 0.5) still runs and is given up" in text
    assert "I print" not in out
