"""The test kit costs nobody anything who does not use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import prov_host.testing


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import prov_host", ["prov_host.testing", "prov_host.kube", "aiohttp", "kubernetes", "pytest"]),
        ("import prov_host.testing", ["pytest", "aiohttp", "kubernetes", "prov_host.host"]),
        ("from prov_host.testing import FakeHost, make_claim, BackendUnderTest", ["pytest", "aiohttp", "kubernetes"]),
        ("from prov_host.testing import EmbeddedCluster, RunningHost", ["pytest", "kubernetes"]),
        ("import prov_host_hostpath", ["prov_host.kube", "prov_host.controller", "aiohttp", "kubernetes"]),
        ("from prov_host.scaffold.command import new_plugin", ["aiohttp", "kubernetes", "prometheus_client"]),
    ],
)
def test_only_what_is_needed_is_imported(statement: str, absent: list[str]) -> None:
    code = f"{statement}\nimport sys\nprint(*[name for name in {absent!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == []


def test_every_public_name_is_there() -> None:
    for name in prov_host.testing.__all__:
        assert getattr(prov_host.testing, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        prov_host.testing.Nothing  # noqa: B018
