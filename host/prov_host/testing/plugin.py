"""The opt-in pytest plugin: fixtures for authors of plugins.

::

    # conftest.py
    pytest_plugins = ["prov_host.testing.plugin"]

    # test_my_plugin.py
    def test_a_claim_is_bound(embedded_cluster, run_host, tmp_path):
        run_host({"mine": MyPlugin}, settings={"mine": {"root": str(tmp_path)}})
        embedded_cluster.create_class("example.com/mine")
        embedded_cluster.create_claim("data")
        volume = embedded_cluster.wait_bound("data")

``tests/conftest.py`` at the root of a project is the place for it: pytest accepts ``pytest_plugins`` only there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from prov_host.clock import Clock
from prov_host.model import Claim
from prov_host.testing.clock import FakeClock
from prov_host.testing.cluster import EmbeddedCluster
from prov_host.testing.context import FakeHost
from prov_host.testing.objects import make_claim
from prov_host.testing.running import RunningHost

__all__ = ["claim_factory", "embedded_cluster", "fake_clock", "fake_host", "host_clock", "run_host"]


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that stands still until the test moves it."""
    return FakeClock()


@pytest.fixture
def fake_host(fake_clock: FakeClock) -> FakeHost:
    """What ``configure`` is given, in the test's hands; its clock is ``fake_clock``."""
    return FakeHost(clock=fake_clock)


@pytest.fixture
def claim_factory() -> Callable[..., Claim]:
    """Makes claims as a backend sees them: :func:`prov_host.testing.make_claim`."""
    return make_claim


@pytest.fixture
def embedded_cluster() -> Iterator[EmbeddedCluster]:
    """A cluster in memory, with the volume part of a control plane."""
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def host_clock() -> Clock | None:
    """The clock of hosts that ``run_host`` starts: override it with ``fake_clock`` to decide how time passes."""
    return None


@pytest.fixture
def run_host(embedded_cluster: EmbeddedCluster, host_clock: Clock | None) -> Iterator[Callable[..., RunningHost]]:
    """Starts the real host on ``embedded_cluster``: ``run_host({"name": PluginClass}, settings=..., options=...)``.

    Arguments as :class:`prov_host.testing.RunningHost`. It is stopped at the end of the test; leave a ``with`` block,
    or call its ``stop()``, to stop it earlier, and start another for what happens after a restart.
    """
    with contextlib.ExitStack() as stack:

        def start(*args: object, **options: object) -> RunningHost:
            options.setdefault("clock", host_clock)
            return stack.enter_context(RunningHost(embedded_cluster, *args, **options))  # type: ignore[arg-type]

        yield start
