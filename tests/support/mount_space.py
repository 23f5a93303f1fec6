"""Python code in a mount namespace of its own, where it may mount what it likes and nobody else sees it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

__all__ = ["run_with_mounts"]

_BIND = """
import os, subprocess, sys
from pathlib import Path

def bind(source, target):
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)

base = Path(sys.argv[1])
"""


def run_with_mounts(code: str, base: object) -> str:
    """Run a script that may call ``bind(source, target)``, with ``base`` a directory of the test.

    Args:
        code: the script; an assertion that fails in it fails the test.
        base: where it works.

    Returns:
        What it printed.
    """
    unshare = shutil.which("unshare")
    command = [unshare or "unshare", "--mount"]
    if os.geteuid() != 0:
        command.append("--map-root-user")
    if unshare is None or subprocess.run([*command, "mount", "--bind", "/tmp", "/tmp"], capture_output=True).returncode:
        pytest.skip("this machine does not let tests mount in a namespace of their own; run them as root")
    done = subprocess.run(
        [*command, sys.executable, "-c", _BIND + textwrap.dedent(code), str(base)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
