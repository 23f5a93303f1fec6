"""CI must not stay green because a part was missing: tests/conftest.py makes skips a failure there, and only there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]


def run(directory: Path, body: str, *, ci: bool) -> tuple[int, str]:
    shutil.copy(TESTS / "conftest.py", directory / "conftest.py")
    (directory / "test_it.py").write_text(f"import pytest\n{body}\n")
    (directory / "pytest.ini").write_text("[pytest]\n")
    env = {key: value for key, value in os.environ.items() if key != "CI"} | {"PYTHONPATH": str(TESTS / "support")}
    if ci:
        env["CI"] = "true"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(directory), str(directory)],
        env=env,
        cwd=directory,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


SKIPS = {
    "in a fixture": "@pytest.fixture\ndef part():\n    pytest.skip('no server; install it')\ndef test_it(part): ...",
    "of a whole module": "pytest.skip('no server; install it', allow_module_level=True)",
}


@pytest.mark.parametrize("body", SKIPS.values(), ids=SKIPS)
def test_in_ci_a_skip_fails_the_run(tmp_path: Path, body: str) -> None:
    code, output = run(tmp_path, body + "\ndef test_other(): ...", ci=True)
    assert code == 1
    assert "a skipped test is a failure" in output


def test_elsewhere_a_skip_is_a_skip(tmp_path: Path) -> None:
    code, output = run(tmp_path, SKIPS["in a fixture"] + "\ndef test_other(): ...", ci=False)
    assert code == 0
    assert "1 passed, 1 skipped" in output


def test_in_ci_a_run_without_skips_passes(tmp_path: Path) -> None:
    """An expected failure is no skip."""
    code, output = run(tmp_path, "@pytest.mark.xfail\ndef test_it(): assert False\ndef test_other(): ...", ci=True)
    assert code == 0
    assert "1 passed, 1 xfailed" in output
