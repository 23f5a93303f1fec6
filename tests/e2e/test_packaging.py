"""The distribution as users get it: a wheel, installed with its dependencies alone into a fresh environment."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("prov_host", "prov_host_nfs_subdir", "prov_host_hostpath")


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as an index's users build it, and the source distribution."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", directory, REPOSITORY, cwd=directory)
    return directory


@pytest.fixture(scope="module")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts directory of a fresh environment with the wheel and what it depends on, and nothing else."""
    directory = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", directory, cwd=directory)
    (wheel,) = dist.glob("*.whl")
    run(directory / "bin/python", "-m", "pip", "install", "--quiet", wheel, cwd=directory)
    return directory / "bin"


def test_the_wheel_has_the_three_packages_with_their_types_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {*PACKAGES, "prov_host-0.1.0.dist-info"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert [name for name in names if "__pycache__" in name] == []
    assert "prov_host-0.1.0.dist-info/licenses/LICENSE" in names


def test_the_source_distribution_has_what_its_tests_need(dist: Path) -> None:
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"Makefile", "README.md", "LICENSE", "tests/conftest.py", "deploy/Dockerfile"} <= names
    assert [name for name in names if name.startswith((".venv", ".git/"))] == []


def test_both_plugins_are_found_like_anyone_s(environment: Path, tmp_path: Path) -> None:
    listing = json.loads(run(environment / "prov-host", "plugins", "--all", "--json", cwd=tmp_path))
    assert {row["name"]: row["distribution"] for row in listing} == {"nfs_subdir": "prov-host", "hostpath": "prov-host"}


def test_the_dependencies_are_enough_for_the_demo(environment: Path, tmp_path: Path) -> None:
    output = run(environment / "prov-host", "demo", tmp_path / "demo", cwd=tmp_path)
    assert "archived" in output
    assert "Traceback" not in output


def test_it_runs_as_a_module_and_tells_its_version(environment: Path, tmp_path: Path) -> None:
    assert run(environment / "python", "-m", "prov_host", "--version", cwd=tmp_path).strip().endswith("0.1.0")
